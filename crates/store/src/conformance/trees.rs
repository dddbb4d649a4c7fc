//! Children, watched runs, continue-as-new.

use roundel_core::{
    Caused, Claimed, Consumed, Delivery, Failure, Name, Op, Outcome, Refusal, Round, RunId,
    RunState, Sent, Source, Start, StateChange, Target, Then,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{
    A, B, NS, child_of, claimant, closing, code, continuing, ending, opening, signal, suspending,
    value, value_of,
};

/// Starts a child in this call and suspends.
fn with_child(desk: &mut Desk, parent: RunId, call: u32) -> RunId {
    let start = desk.starting();
    let child = child_of(&desk.run(parent), call, start);
    let id = child.run;
    let mut round = suspending(desk.round(parent));
    round.caused.push(Caused::Child(call, Box::new(child)));
    assert!(
        !desk.commit(round).kept,
        "a child that started says nothing yet"
    );
    id
}

fn only(claimed: &[Claimed], run: RunId) -> &Delivery {
    assert_eq!(
        claimed
            .iter()
            .map(|claimed| claimed.run)
            .collect::<Vec<_>>(),
        [run]
    );
    assert_eq!(claimed[0].inbox.len(), 1);
    &claimed[0].inbox[0]
}

pub fn ro_30_a_childs_output_reaches_its_parent(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let child = with_child(&mut desk, parent, 4);
    let row = desk.run(child);
    assert_eq!((row.root, row.depth), (parent, 1));
    assert_eq!(desk.claimed_ids(B, 9), [child]);
    desk.end(child);
    let claimed = desk.claim(A, 9);
    let delivery = only(&claimed, parent);
    assert_eq!((delivery.call, value_of(&delivery.body)), (4, 7));
    let Source::Mail(number) = delivery.source else {
        panic!("the engine's own")
    };
    let mut round = desk.round(parent);
    round.consumed.push(Consumed::Mail(number));
    desk.commit(round);
    assert_eq!((desk.run(parent).mail, desk.run(parent).matched), (0, 0));
}

pub fn ro_30_a_childs_failure_reaches_its_parent(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let child = with_child(&mut desk, parent, 4);
    desk.claim(B, 9);
    let mut round = desk.round(child);
    let failure = Failure::business("no").with_code("no").with_data(&7);
    round.then = Then::End(
        RunState::Failed,
        Outcome::Failure(Box::new(failure.clone())),
    );
    desk.commit(round);
    let claimed = desk.claim(A, 9);
    assert_eq!(
        only(&claimed, parent).body,
        Outcome::Failure(Box::new(failure))
    );
}

pub fn ro_30_an_id_or_key_in_use_fails_the_call_at_once(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Some(Name::constant("taken"));
    let user = Start {
        key: key.clone(),
        ..desk.starting()
    };
    let user = desk.started(user).run;
    let parent = desk.owned(A);
    let row = desk.run(parent);
    let by_key = Start {
        key,
        ..child_of(&row, 1, desk.starting())
    };
    let by_id = Start {
        run: user,
        ..child_of(&row, 2, desk.starting())
    };
    let mut round = desk.round(parent);
    round.caused.push(Caused::Child(1, Box::new(by_key)));
    round.caused.push(Caused::Child(2, Box::new(by_id)));
    let committed = desk.commit(round);
    let codes: Vec<_> = committed.inbox.iter().map(|d| (d.call, code(d))).collect();
    assert_eq!(codes, [(1, "conflict".into()), (2, "conflict".into())]);
    assert_eq!(desk.run(user).parent, None);
}

pub fn ro_30_a_child_that_ends_in_its_first_round_answers_at_once(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let start = desk.starting();
    let child = child_of(&desk.run(parent), 1, start);
    let first = ending(Round::new(child.run, A, 1), RunState::Completed);
    let (claimant, first) = (Some(claimant(A)), Some(Box::new(first)));
    let mut round = suspending(desk.round(parent));
    round.caused.push(Caused::Child(
        1,
        Box::new(Start {
            claimant,
            first,
            ..child
        }),
    ));
    let committed = desk.commit(round);
    assert!(committed.kept);
    assert_eq!(value_of(&committed.inbox[0].body), 7);
}

pub fn ro_15_an_end_for_an_ended_or_deleted_parent_is_dropped(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let child = desk.owned_child(parent, B);
    desk.end(parent);
    let before = desk.run(parent);
    desk.end(child);
    assert_eq!(desk.run(parent), before);
    let parent = desk.owned(A);
    let watcher = desk.owned(B);
    desk.watching(watcher, Target::Run(parent));
    desk.must(deleting(watcher, true));
    desk.end(parent);
    assert!(desk.view(watcher).is_none(), "nothing is recreated");
}

pub fn what_a_round_sent_is_answered_to_its_call(make: &Make) {
    let mut desk = Desk::new(make);
    let (run, to) = (desk.owned(A), desk.waiting(B, &[(1, "go")]));
    let spawned = desk.starting();
    let id = spawned.run;
    let mut round = suspending(desk.round(run));
    round
        .caused
        .push(Caused::Signal(3, Box::new(signal(to, "go", 1))));
    round.caused.push(Caused::Spawn(4, Box::new(spawned)));
    let committed = desk.commit(round);
    assert!(committed.kept);
    let answer = |at: usize| match &committed.inbox[at].body {
        Outcome::Value(value) => value.clone(),
        Outcome::Failure(failure) => panic!("{failure}"),
    };
    assert_eq!(
        answer(0).decode::<Sent>().expect("an answer"),
        Sent::Delivered(to)
    );
    assert_eq!(answer(1).decode::<RunId>().expect("an id"), id);
    assert_eq!(desk.run(id).root, id);
}

pub fn si_16_the_end_of_a_watched_run_is_delivered(make: &Make) {
    let mut desk = Desk::new(make);
    let watched = desk.owned(B);
    let watchers = [desk.owned(A), desk.owned(A)];
    for watcher in watchers {
        assert!(!desk.watching(watcher, Target::Run(watched)).kept);
    }
    assert_eq!(desk.run(watched).watchers, 2);
    desk.end(watched);
    let claimed = desk.claim(A, 9);
    assert_eq!(
        claimed
            .iter()
            .map(|claimed| claimed.run)
            .collect::<Vec<_>>(),
        watchers
    );
    assert!(
        claimed
            .iter()
            .all(|claimed| value_of(&claimed.inbox[0].body) == 7)
    );
    assert!(desk.dump().watches.is_empty());
}

pub fn si_16_a_run_that_has_ended_answers_at_once_and_an_unknown_one_fails(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Name::constant("k");
    let (own, start) = (Some(claimant(B)), desk.starting());
    let watched = desk
        .started(Start {
            key: Some(key.clone()),
            claimant: own,
            ..start
        })
        .run;
    desk.end(watched);
    let watcher = desk.owned(A);
    let committed = desk.watching(watcher, Target::Key(key));
    assert!(committed.kept);
    assert_eq!(value_of(&committed.inbox[0].body), 7);
    let watcher = desk.owned(A);
    let nobody = desk.new_id();
    let committed = desk.watching(watcher, Target::Run(nobody));
    assert_eq!(code(&committed.inbox[0]), "unknown_run");
}

pub fn si_16_a_watch_and_a_signal_in_one_wait(make: &Make) {
    let mut desk = Desk::new(make);
    let (watched, watcher) = (desk.owned(B), desk.owned(A));
    let mut round = opening(suspending(desk.round(watcher)), &[(1, "go")]);
    round
        .caused
        .push(Caused::Watch(2, NS, Target::Run(watched)));
    desk.commit(round);
    desk.end(watched);
    desk.signal(watcher, "go", 1);
    let claimed = desk.claim(A, 1);
    let calls: Vec<_> = claimed[0]
        .inbox
        .iter()
        .map(|delivery| delivery.call)
        .collect();
    assert_eq!(calls, [2, 1], "in order of arrival");
}

pub fn the_worker_that_ends_a_run_takes_those_it_holds(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let child = desk.owned_child(parent, A);
    let watcher = desk.owned(A);
    desk.commit(opening(desk.round(watcher), &[(1, "go")]));
    desk.watching(watcher, Target::Run(child));
    desk.signal(watcher, "go", 1);
    assert_eq!(desk.commit(suspending(desk.round(parent))).inbox, []);
    let committed = desk.end(child);
    let mut taken: Vec<_> = committed
        .claimed
        .iter()
        .map(|c| (c.run, c.inbox.len()))
        .collect();
    taken.sort();
    assert_eq!(taken, [(parent, 1), (watcher, 2)]);
}

pub fn ro_31_f1_a_run_begins_anew_in_one_commit(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = desk.round(run);
    round.state.push(StateChange::Set(value(5)));
    desk.commit(round);
    let committed = desk.commit(continuing(desk.round(run), None));
    assert!(committed.kept);
    let row = desk.run(run);
    assert_eq!((row.execution, row.head), (2, 1));
    let rows = desk.dump().journal;
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.execution, row.first, row.count))
        .collect();
    assert_eq!(rows, [(1, 1, 1), (1, 2, 1), (2, 1, 1)]);
    assert_eq!(
        desk.dump().states[0].1.value.as_str(),
        "5",
        "its state is carried over"
    );
    assert_eq!(
        desk.signal(run, "go", 1),
        Sent::Queued,
        "and it takes messages"
    );
}

pub fn ro_31_a12_what_was_meant_for_the_old_execution_is_ignored(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let children = [desk.owned_child(run, B), desk.owned_child(run, B)];
    let watched = desk.owned(B);
    desk.watching(run, Target::Run(watched));
    desk.end(children[0]);
    desk.claim(A, 1);
    assert_eq!(desk.run(run).matched, 1);
    desk.commit(continuing(desk.round(run), None));
    assert_eq!(
        (desk.run(run).mail, desk.run(run).matched),
        (0, 0),
        "told before"
    );
    desk.end(children[1]);
    desk.end(watched);
    assert_eq!(
        (desk.run(run).mail, desk.run(run).matched),
        (0, 0),
        "told after"
    );
    assert!(!desk.commit(suspending(desk.round(run))).kept);
}

pub fn ro_31_f3_parent_and_watchers_hear_of_the_last_execution(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(B);
    let child = desk.owned_child(parent, A);
    let watcher = desk.owned(B);
    desk.watching(watcher, Target::Run(child));
    desk.commit(continuing(desk.round(child), None));
    assert_eq!(
        (desk.run(parent).matched, desk.run(watcher).matched),
        (0, 0)
    );
    desk.end(child);
    assert_eq!(
        (desk.run(parent).matched, desk.run(watcher).matched),
        (1, 1)
    );
}

pub fn ro_31_a_wait_of_the_old_execution_takes_nothing_any_more(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.commit(opening(desk.round(run), &[(1, "go"), (2, "@job")]));
    desk.commit(continuing(desk.round(run), None));
    assert_eq!(desk.signal(run, "go", 1), Sent::Queued);
    assert_eq!(desk.offer("@job", 1), Sent::Queued);
    desk.commit(closing(desk.round(run), &[(1, "go")]));
    assert!(desk.dump().waits.is_empty());
}

pub fn ro_27_continue_as_new_may_go_to_another_version(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let old = desk.round(run);
    assert!(!desk.commit(continuing(desk.round(run), Some(2))).kept);
    assert!(matches!(
        desk.refused(Op::Commit(old)),
        Refusal::Fenced { .. }
    ));
    assert_eq!(desk.claimed_ids(A, 9), [], "its lane is another");
    let lane = desk.version(B, 2);
    assert_eq!(desk.claim_from(B, &[lane], 9).0[0].execution, 2);
}

pub fn an_offer_that_a_deleted_tree_had_goes_to_who_waits_outside(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let child = desk.owned_child(parent, A);
    for (run, call) in [(parent, 7), (child, 1)] {
        desk.commit(suspending(opening(desk.round(run), &[(call, "@job")])));
    }
    let outside = desk.waiting(A, &[(1, "@job")]);
    desk.offer("@job", 1);
    assert_eq!(desk.run(parent).matched, 1, "it has waited longest");
    desk.must(deleting(parent, true));
    assert_eq!(desk.run(outside).matched, 1);
}
