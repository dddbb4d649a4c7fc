//! Deletes: whole trees, from the leaves.

use std::time::Duration;

use roundel_core::{
    Caused, Lease, Name, Op, Refusal, Reply, Round, RunState, Start, StateChange, Target, limits,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{A, child_of, claimant, code, opening, signal, suspending, value, working};

pub fn ro_51_a_live_run_is_deleted_only_by_force(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let state = RunState::Running;
    assert_eq!(
        desk.refused(deleting(run, false)),
        Refusal::NotEnded { run, state }
    );
    let gone = Reply::Deleted {
        runs: 1,
        more: false,
    };
    assert_eq!(desk.must(deleting(run, true)), gone);
    assert_eq!(
        desk.refused(deleting(run, true)),
        Refusal::UnknownRun { run }
    );
}

pub fn b5_what_is_started_again_under_the_id_of_a_deleted_run_is_another(make: &Make) {
    let mut desk = Desk::new(make);
    let start = Start {
        claimant: Some(claimant(A)),
        ..desk.starting()
    };
    let run = desk.started(start.clone()).run;
    let late = working(desk.round(run));
    let before = desk.owner(run).fence;
    desk.must(deleting(run, true));
    desk.pass(Duration::from_micros(1));
    assert!(desk.started(start).new);
    let fence = desk.owner(run).fence;
    assert_eq!(before.epoch, fence.epoch, "its epochs begin anew");
    assert!(matches!(
        desk.refused(Op::Commit(late)),
        Refusal::Fenced { .. }
    ));
    let Lease::Kept { fence: kept, .. } = desk.renew(A, run) else {
        panic!("it has the one that is there")
    };
    assert_eq!(kept, fence);
    let committed = desk.commit(working(desk.round(run)));
    assert_eq!(Some(committed.created_at), fence.created_at);
    desk.release(A, &[run]);
    let claimed = desk.claim(A, 1).remove(0);
    assert_eq!(claimed.fence(), desk.owner(run).fence);
}

pub fn ro_51_a_delete_takes_the_tree_and_what_hangs_under_it(make: &Make) {
    let mut desk = Desk::new(make);
    let before = desk.dump();
    let (key, own, start) = (
        Some(Name::constant("k")),
        Some(claimant(A)),
        desk.starting(),
    );
    let labels = vec![(Name::constant("city"), "Ulm".to_owned())];
    let root = desk
        .started(Start {
            key,
            claimant: own,
            labels,
            ..start
        })
        .run;
    let below = desk.owned_child(root, A);
    let lowest = desk.owned_child(below, A);
    for run in [root, below, lowest] {
        let mut keyed = signal(run, "go", 1);
        keyed.key = Some(Name::constant("sender"));
        desk.send(keyed);
        let mut round = opening(desk.round(run), &[(3, "go"), (4, "other")]);
        round.state.push(StateChange::Set(value(1)));
        desk.commit(round);
    }
    let gone = Reply::Deleted {
        runs: 3,
        more: false,
    };
    assert_eq!(desk.must(deleting(root, true)), gone);
    assert_eq!(desk.dump(), before, "nothing is left");
}

pub fn ro_51_a_tree_goes_only_when_all_of_it_is_at_rest(make: &Make) {
    let mut desk = Desk::new(make);
    let root = desk.owned(A);
    let below = desk.owned_child(root, A);
    let state = RunState::Running;
    desk.end(root);
    assert_eq!(
        desk.refused(deleting(root, false)),
        Refusal::NotEnded { run: below, state }
    );
    desk.end(below);
    assert_eq!(
        desk.must(deleting(root, false)),
        Reply::Deleted {
            runs: 2,
            more: false
        }
    );
    let root = desk.owned(A);
    let below = desk.owned_child(root, A);
    desk.end(below);
    assert_eq!(
        desk.refused(deleting(below, false)),
        Refusal::NotEnded { run: root, state }
    );
}

pub fn ro_51_parent_and_watchers_of_a_deleted_run_are_told(make: &Make) {
    let mut desk = Desk::new(make);
    let (parent, watcher) = (desk.owned(A), desk.owned(A));
    let below = desk.owned_child(parent, A);
    desk.watching(watcher, Target::Run(below));
    desk.commit(suspending(desk.round(parent)));
    desk.must(deleting(below, true));
    let claimed = desk.claim(A, 9);
    assert_eq!(claimed.len(), 2);
    assert!(
        claimed
            .iter()
            .all(|claimed| code(&claimed.inbox[0]) == "deleted")
    );
}

pub fn ro_51_a_key_is_free_again_in_the_same_batch(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Some(Name::constant("k"));
    let first = Start {
        key: key.clone(),
        ..desk.starting()
    };
    let run = desk.started(first).run;
    let other = Start {
        key: key.clone(),
        input: value(9),
        ..desk.starting()
    };
    let again = Start {
        run,
        ..desk.starting()
    };
    let ops = vec![deleting(run, true), Op::Start(other), Op::Start(again)];
    for reply in desk.batch(ops).into_iter().skip(1) {
        let Ok(Reply::Started(started)) = reply else {
            panic!("{reply:?}")
        };
        assert!(started.new);
    }
    assert_eq!(desk.dump().runs.len(), 2);
    assert_eq!(desk.dump().journal.len(), 2);
}

pub fn ro_51_inv10_a_large_tree_goes_from_its_leaves_in_parts(make: &Make) {
    let mut desk = Desk::new(make);
    let root = desk.owned(A);
    let wide = limits::DELETE / 2;
    let mut round = desk.round(root);
    let row = desk.run(root);
    for call in 1..=u32::try_from(wide).expect("few") {
        let start = desk.starting();
        let child = child_of(&row, call, start);
        let mut first = Round::new(child.run, A, 1);
        let start = desk.starting();
        let mut parent = row.clone();
        (parent.id, parent.execution) = (child.run, 1);
        let lowest = child_of(&parent, 1, start);
        first.caused.push(Caused::Child(1, Box::new(lowest)));
        let (claimant, first) = (Some(claimant(A)), Some(Box::new(first)));
        round.caused.push(Caused::Child(
            call,
            Box::new(Start {
                claimant,
                first,
                ..child
            }),
        ));
    }
    desk.commit(round);
    let first = Reply::Deleted {
        runs: limits::DELETE,
        more: true,
    };
    assert_eq!(desk.must(deleting(root, true)), first);
    let left = desk.dump().runs;
    let has = |id| left.iter().any(|run| run.id == id);
    assert!(
        left.iter()
            .all(|run| run.parent.is_none_or(|parent| has(parent.run))),
        "orphans"
    );
    let rest = Reply::Deleted {
        runs: 2 * wide + 1 - limits::DELETE,
        more: false,
    };
    assert_eq!(desk.must(deleting(root, true)), rest);
    assert!(desk.dump().runs.is_empty());
}
