//! How what was set off is undone, until when it must have ended, and how it goes.

use std::time::Duration;

use roundel_core::{
    Accept, CancelMark, Cancelled, Caused, Committed, Consumed, Context, Deadline, Deadlines,
    Entry, Failure, LatchId, Name, Op, PublicationId, Publish, Refusal, Reply, Resume, RunId,
    RunState, Scope, Start, Target, Then, Timestamp, UndoMark, Undone, Why,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::together::{
    BACK, CALL, children, due, failing, heard, publish_and_wait, published, publishing,
    setting_off, subscribing, taken, undoable, undoing, undone,
};
use super::words::{A, B, NS, recording, suspending, value_of, working};

pub fn sc_29_only_what_is_at_rest_is_undone_and_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let refused = desk.refused(undoing(run));
    assert!(matches!(refused, Refusal::NotAtRest { .. }), "{refused}");
    undoable(&desk, run);
    let head = desk.run(run).head;
    let partial = false;
    assert_eq!(
        desk.must(undoing(run)),
        Reply::Undone(Undone::Begun { partial })
    );
    let row = desk.run(run);
    assert_eq!(
        (row.state, row.undo),
        (RunState::RollingBack, UndoMark::Underway)
    );
    assert_eq!((row.head, row.outcome), (head + 1, None));
    let again = Reply::Undone(Undone::Already(RunState::RollingBack));
    assert_eq!(desk.must(undoing(run)), again);
    assert_eq!(desk.claimed_ids(B, 9), [run]);
    undone(&desk, run, RunState::RolledBack);
    let again = Reply::Undone(Undone::Already(RunState::RolledBack));
    assert_eq!(desk.must(undoing(run)), again);
    // What did nothing is done with that at once.
    let idle = desk.owned(A);
    desk.end(idle);
    desk.must(undoing(idle));
    assert_eq!(desk.state(idle), RunState::RolledBack);
}

pub fn sc_24_a_rollback_that_failed_is_retried_skipped_or_accepted(make: &Make) {
    let mut desk = Desk::new(make);
    let resume = |run, skip| {
        let (namespace, target) = (NS, Target::Run(run));
        Op::Resume(Resume {
            namespace,
            target,
            skip,
            anew: None,
        })
    };
    let accept = |run| {
        let (namespace, target) = (NS, Target::Run(run));
        Op::Accept(Accept { namespace, target })
    };
    for skip in [false, true] {
        let run = desk.owned(A);
        undoable(&desk, run);
        let refused = desk.refused(accept(run));
        assert!(
            matches!(refused, Refusal::RollbackDidNotFail { .. }),
            "{refused}"
        );
        desk.must(undoing(run));
        desk.claim(A, 9);
        undone(&desk, run, RunState::RollbackFailed);
        assert_eq!(desk.run(run).undo, UndoMark::Possible);
        desk.must(resume(run, skip));
        assert_eq!(desk.state(run), RunState::RollingBack);
        desk.claim(A, 9);
        undone(&desk, run, RunState::RollbackFailed);
        desk.must(accept(run));
        assert_eq!(desk.run(run).undo, UndoMark::Accepted);
        assert_eq!(
            desk.state(run),
            RunState::RollbackFailed,
            "it is what it is"
        );
        assert_eq!(desk.claimed_ids(A, 9), []);
    }
}

/// The run rolls back what its call set off, once it has been told that all of that has ended.
fn rolls_back(desk: &Desk, parent: RunId, mail: u64) -> Committed {
    let scope = Scope::Call {
        execution: 1,
        call: CALL,
    };
    let (why, was) = (Why::Cancelled, None);
    let context = Context::default();
    let entry = Entry::RollingBack { why, was, context };
    let mut round = suspending(recording(desk.round(parent), &[entry]));
    round.undo = Some(UndoMark::Underway);
    let caused = Caused::RollBack(BACK, scope, Context::default());
    round.caused.push(caused);
    round.consumed.push(Consumed::Mail(mail));
    desk.commit(round)
}

pub fn sc_21_d25_what_completed_is_rolled_back_and_waited_for_once(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 4);
    desk.claim(B, 9);
    undoable(&desk, runs[0]);
    desk.end(runs[1]);
    failing(&desk, runs[2]);
    undoable(&desk, runs[3]);
    let (failed, mail) = taken(&desk, parent);
    assert_eq!(failed, 1);
    // An operator is quicker with one of them.
    desk.must(undoing(runs[3]));
    assert!(!rolls_back(&desk, parent, mail).kept);
    let states: Vec<RunState> = runs.iter().map(|run| desk.state(*run)).collect();
    let (back, over) = (RunState::RollingBack, RunState::RolledBack);
    assert_eq!(states, [back, over, RunState::Failed, back]);
    let latches = desk.dump().latches;
    let by = roundel_core::Parent {
        run: parent,
        execution: 1,
        call: BACK,
    };
    assert_eq!(latches[0].0, LatchId::of(by, 0));
    assert_eq!(latches[0].1.open, 2);
    let mut taken = desk.claimed_ids(B, 9);
    taken.sort();
    assert_eq!(taken, [runs[0], runs[3]], "each once");
    undone(&desk, runs[0], RunState::RolledBack);
    assert_eq!(desk.claimed_ids(A, 9), []);
    undone(&desk, runs[3], RunState::RolledBack);
    let claimed = desk.claim(A, 9);
    let inbox = claimed.iter().flat_map(|run| &run.inbox);
    let inbox: Vec<_> = inbox
        .map(|told| (told.call, value_of(&told.body)))
        .collect();
    assert_eq!(inbox, [(BACK, 0)]);
}

pub fn sc_24_d26_a_child_that_could_not_be_undone_is_told_as_failed(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 2);
    desk.claim(B, 9);
    undoable(&desk, runs[0]);
    undoable(&desk, runs[1]);
    let (_, mail) = taken(&desk, parent);
    // One has failed at it before, and nobody has accepted that.
    desk.must(undoing(runs[0]));
    desk.claim(B, 9);
    undone(&desk, runs[0], RunState::RollbackFailed);
    assert!(!rolls_back(&desk, parent, mail).kept);
    desk.claim(B, 9);
    undone(&desk, runs[1], RunState::RollbackFailed);
    let claimed = desk.claim(A, 9);
    let inbox = claimed.iter().flat_map(|run| &run.inbox);
    let inbox: Vec<_> = inbox
        .map(|told| (told.call, value_of(&told.body)))
        .collect();
    assert_eq!(inbox, [(BACK, 2)]);
}

pub fn sc_43_deadlines_flow_down_and_the_earliest_wins(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("stock", true));
    let run = desk.new_id();
    let after = |seconds| desk.now().after(Duration::from_secs(seconds));
    let until = |at: Timestamp, set_by| Some(Deadline { at, set_by });
    let (soon, late) = (after(10), after(90));
    let own = Deadlines {
        forward: until(soon, run),
        rollback: until(late, run),
    };
    let start = Start {
        deadlines: own,
        claimant: Some(super::words::claimant(A)),
        ..super::words::start(run)
    };
    assert_eq!(desk.started(start).run, run);
    assert_eq!(desk.run(run).deadlines, own);
    // What it publishes wants more time to go forward, and less to be undone.
    let wanted = Deadlines {
        forward: until(late, run),
        rollback: until(soon, run),
    };
    let publish = Publish {
        deadlines: wanted,
        ..publishing(&mut desk)
    };
    let caused = Caused::Publish(CALL, Box::new(publish));
    let mut round = setting_off(&desk, run, caused);
    round.timer_at = Some(soon);
    desk.commit(round);
    let below = desk.run(heard(&desk, run)[0].1).deadlines;
    assert_eq!(
        (below.forward, below.rollback),
        (until(soon, run), until(soon, run))
    );
    assert_eq!(desk.dump().publications[0].1.deadlines, wanted);
    desk.pass(Duration::from_secs(10));
    let round = working(due(&desk, run));
    let refused = desk.refused(Op::Commit(round));
    assert!(
        matches!(refused, Refusal::DeadlineMissed { .. }),
        "{refused}"
    );
}

pub fn sc_60_context_flows_down_with_a_publication_to_the_byte(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("stock", true));
    let text = "{\"a\":null,\"b\":\"\\u0000 ü {}\"}";
    let payload = roundel_core::Payload::parse(text).expect("JSON");
    let mut context = Context::default();
    context.set(Name::constant("änything"), payload);
    let publish = Publish {
        context: context.clone(),
        ..publishing(&mut desk)
    };
    published(&desk, publish);
    let dump = desk.dump();
    assert_eq!(dump.publications[0].1.context, context);
    let entries = roundel_core::decode_entries(&dump.journal[0].entries).expect("entries");
    assert!(matches!(&entries[0], Entry::Started { context: found, .. } if *found == context));
}

pub fn ro_51_a_deleted_tree_takes_its_publications_and_latches_along(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("stock", true));
    let parent = desk.owned(A);
    publish_and_wait(&mut desk, parent, Some(Duration::from_secs(60)));
    let own = publishing(&mut desk);
    let own = published(&desk, own).id;
    let dump = desk.dump();
    assert_eq!((dump.runs.len(), dump.latches.len()), (3, 1));
    assert!(matches!(
        desk.refused(deleting(parent, false)),
        Refusal::NotEnded { .. }
    ));
    desk.must(deleting(parent, true));
    let dump = desk.dump();
    assert_eq!((dump.runs.len(), dump.latches.len()), (1, 0));
    let left: Vec<PublicationId> = dump.publications.iter().map(|one| one.0).collect();
    assert_eq!(left, [own], "a client's stays");
    assert_eq!(dump.subscriptions.len(), 1);
}

/// A run that has done something and waits.
fn has_done_something(desk: &mut Desk) -> RunId {
    let run = desk.owned(A);
    let mut round = working(desk.round(run));
    round.undo = Some(UndoMark::Possible);
    desk.commit(round);
    run
}

pub fn co_25_what_is_cancelled_without_undo_is_kept_with_all_below_it(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = has_done_something(&mut desk);
    let runs = children(&mut desk, parent, 2);
    desk.claim(B, 9);
    undoable(&desk, runs[0]);
    let mut works = working(desk.round(runs[1]));
    works.undo = Some(UndoMark::Possible);
    desk.commit(works);
    let late = desk.round(runs[1]);
    assert_eq!(desk.keep(parent), Cancelled::Requested);
    assert_eq!(desk.keep(parent), Cancelled::Requested, "twice is fine");
    let row = desk.run(parent);
    assert_eq!((row.cancel, row.undo), (CancelMark::Seen, UndoMark::Kept));
    let claimed = desk.claim(A, 9);
    assert_eq!((claimed.len(), claimed[0].run), (1, parent));
    // What is below it is kept as well, and whoever had it is fenced off.
    let scope = Scope::Call {
        execution: 1,
        call: CALL,
    };
    let mut round = suspending(desk.round(parent));
    round.caused.push(Caused::Cancel(scope));
    desk.commit(round);
    let refused = desk.refused(Op::Commit(late));
    assert!(matches!(refused, Refusal::Fenced { .. }), "{refused}");
    assert_eq!(desk.state(runs[0]), RunState::Completed, "it stays");
    assert_eq!(desk.run(runs[1]).undo, UndoMark::Kept);
    assert_eq!(desk.claimed_ids(B, 9), [runs[1]]);
    undone(&desk, runs[1], RunState::Cancelled);
    assert_eq!(taken(&desk, parent).0, 1);
    undone(&desk, parent, RunState::Cancelled);
    for run in [parent, runs[1]] {
        let row = desk.run(run);
        assert_eq!((row.state, row.undo), (RunState::Cancelled, UndoMark::Kept));
        let answer = Reply::Undone(Undone::Already(RunState::Cancelled));
        assert_eq!(desk.must(undoing(run)), answer);
    }
}

pub fn co_25_a_parked_run_and_one_that_was_asked_before_are_kept(make: &Make) {
    let mut desk = Desk::new(make);
    let (parked, asked) = (has_done_something(&mut desk), has_done_something(&mut desk));
    let mut round = desk.round(parked);
    round.then = Then::Park(Box::new(Failure::permanent("no")));
    desk.commit(round);
    desk.cancel(asked);
    for run in [parked, asked] {
        assert_eq!(desk.keep(run), Cancelled::Requested);
        let row = desk.run(run);
        assert_eq!((row.state, row.undo), (RunState::Ready, UndoMark::Kept));
        assert_eq!((row.owner, row.outcome), (None, None));
    }
    let mut claimed = desk.claimed_ids(B, 9);
    claimed.sort_unstable();
    assert_eq!(claimed, [parked, asked]);
    // Nothing that a round says makes it something to be undone.
    let mut round = suspending(desk.round(parked));
    round.undo = Some(UndoMark::Possible);
    desk.commit(round);
    assert_eq!(desk.run(parked).undo, UndoMark::Kept);
    // What has ended, or is being undone, is not touched; what nobody has begun just ends.
    undone(&desk, asked, RunState::Cancelled);
    let ended = Cancelled::AlreadyEnded(RunState::Cancelled);
    assert_eq!(desk.keep(asked), ended);
    let done = desk.owned(A);
    undoable(&desk, done);
    desk.must(undoing(done));
    assert_eq!(desk.keep(done), Cancelled::RollingBack);
    let new = desk.start();
    assert_eq!(desk.keep(new), Cancelled::Requested);
    assert_eq!(desk.state(new), RunState::Cancelled);
}

pub fn co_24_who_was_parked_for_being_late_goes_on_without_that_deadline(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.new_id();
    let due = |seconds| Deadline {
        at: desk.now().after(Duration::from_secs(seconds)),
        set_by: run,
    };
    let (soon, late) = (due(10), due(90));
    let start = Start {
        deadlines: Deadlines {
            forward: Some(soon),
            rollback: Some(late),
        },
        claimant: Some(super::words::claimant(A)),
        ..super::words::start(run)
    };
    desk.started(start);
    desk.pass(Duration::from_secs(11));
    let resume = || {
        Op::Resume(Resume {
            namespace: NS,
            target: Target::Run(run),
            skip: false,
            anew: None,
        })
    };
    let park = |desk: &Desk, why: Failure| {
        let mut round = desk.round(run);
        round.then = Then::Park(Box::new(why));
        desk.commit(round);
    };
    // Parked for another reason, it is late all the same.
    park(&desk, Failure::permanent("no"));
    desk.must(resume());
    assert_eq!(desk.run(run).deadlines.forward, Some(soon));
    desk.claim(A, 9);
    let refused = desk.refused(Op::Commit(working(desk.round(run))));
    assert!(
        matches!(refused, Refusal::DeadlineMissed { .. }),
        "{refused}"
    );
    park(&desk, soon.missed());
    desk.must(resume());
    let left = desk.run(run).deadlines;
    assert_eq!((left.forward, left.rollback), (None, Some(late)));
    let claimed = desk.claim(A, 9);
    assert_eq!(claimed[0].deadlines, left);
    desk.commit(working(desk.round(run)));
}
