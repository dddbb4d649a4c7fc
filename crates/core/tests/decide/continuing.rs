//! Continue-as-new: one commit, nothing lost, nothing from before.

use roundel_core::{Caused, RunId, RunState, Target};

use crate::world::{
    A, B, NS, World, child_of, closing, continuing, opening, suspending, value, value_of,
};

fn rows_of(world: &World, run: RunId) -> Vec<(u32, u64, u32)> {
    let rows = world.journal.iter().filter(|row| row.run == run);
    rows.map(|row| (row.execution, row.first, row.count))
        .collect()
}

#[test]
fn ro_31_f1_a_run_begins_anew_in_one_commit() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = continuing(world.round(run), None);
    round.timer_at = Some(world.now);
    let committed = world.commit(round);
    assert!(committed.kept);
    assert_eq!(committed.epoch, 2);
    let row = world.run(run);
    assert_eq!((row.execution, row.head, row.timer_at), (2, 1, None));
    assert_eq!(rows_of(&world, run), [(1, 1, 1), (1, 2, 1), (2, 1, 1)]);
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    assert_eq!(rows_of(&world, run).last(), Some(&(2, 2, 1)));
    world.check();
}

#[test]
fn si_18_f2_unread_signals_are_kept_in_order_across_two_of_them() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "x"), (2, "@y")]);
    world.commit(round);
    for (name, value) in [("x", 1), ("@y", 2), ("z", 3), ("x", 4)] {
        world.signal(run, name, value);
    }
    for _ in 0..2 {
        let round = continuing(world.round(run), None);
        assert_eq!(world.commit(round).inbox, []);
        world.check();
    }
    let order: Vec<u32> = world.mail(run).iter().map(|(_, value)| *value).collect();
    assert_eq!(order, [1, 2, 3, 4]);
    let round = opening(world.round(run), &[(1, "x"), (2, "z"), (3, "x")]);
    let committed = world.commit(suspending(round));
    let got: Vec<_> = committed
        .inbox
        .iter()
        .map(|d| (d.call, value_of(&d.body)))
        .collect();
    assert_eq!(got, [(1, 1), (2, 3), (3, 4)]);
}

#[test]
fn ro_31_a12_what_was_meant_for_the_old_execution_is_ignored() {
    let mut world = World::new();
    let run = world.owned(A);
    let (told, late) = (child_of(&mut world, run, 1), child_of(&mut world, run, 2));
    let watched = world.owned(B);
    let children = [told.run, late.run];
    let mut round = suspending(world.round(run));
    round.caused.push(Caused::Child(1, Box::new(told)));
    round.caused.push(Caused::Child(2, Box::new(late)));
    round
        .caused
        .push(Caused::Watch(3, NS, Target::Run(watched)));
    world.commit(round);
    assert_eq!(world.claimed_ids(B, 9), children);
    world.end(children[0]);
    world.claim(A, 1);
    assert_eq!(world.run(run).matched, 1);
    let round = continuing(world.round(run), None);
    world.commit(round);
    assert_eq!(
        (world.run(run).mail, world.run(run).matched),
        (0, 0),
        "told before"
    );
    world.end(children[1]);
    world.end(watched);
    assert_eq!(
        (world.run(run).mail, world.run(run).matched),
        (0, 0),
        "told after"
    );
    let round = suspending(world.round(run));
    assert!(!world.commit(round).kept);
    world.check();
}

#[test]
fn ro_31_f3_the_parent_hears_of_the_last_execution() {
    let mut world = World::new();
    let parent = world.owned(B);
    let child = child_of(&mut world, parent, 6);
    let id = child.run;
    let mut round = suspending(world.round(parent));
    round.caused.push(Caused::Child(6, Box::new(child)));
    world.commit(round);
    world.claim(A, 1);
    let round = continuing(world.round(id), None);
    world.commit(round);
    assert_eq!(world.run(parent).matched, 0);
    world.end(id);
    assert_eq!(world.run(parent).matched, 1);
    assert_eq!(world.claim(B, 1)[0].inbox[0].call, 6);
}

#[test]
fn ro_27_continue_as_new_may_go_to_another_version() {
    let mut world = World::new();
    let run = world.owned(A);
    let old = world.round(run);
    let round = continuing(world.round(run), Some(2));
    let committed = world.commit(round);
    assert!(!committed.kept, "its worker may not know that version");
    let row = world.run(run);
    assert_eq!(world.rows.lane(row.lane).version, 2);
    assert_eq!(
        (row.state, row.ready_at, row.holder),
        (RunState::Ready, Some(world.now), None)
    );
    assert!(world.try_commit(old).is_err());
    assert_eq!(world.claimed_ids(B, 1), [run]);
    let same_version = continuing(world.round(run), Some(2));
    assert!(world.commit(same_version).kept);
    world.check();
}

#[test]
fn f11_a_runs_own_state_is_carried_over() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = world.round(run);
    round.state.push(roundel_core::StateChange::Set(value(5)));
    world.commit(round);
    let round = continuing(world.round(run), None);
    world.commit(round);
    assert_eq!(world.rows.states.get(&run).unwrap().value.as_str(), "5");
}

#[test]
fn ro_31_watchers_stay() {
    let mut world = World::new();
    let (run, watcher) = (world.owned(A), world.owned(B));
    let mut round = suspending(world.round(watcher));
    round.caused.push(Caused::Watch(1, NS, Target::Run(run)));
    world.commit(round);
    let round = continuing(world.round(run), None);
    world.commit(round);
    world.end(run);
    assert_eq!(world.run(watcher).matched, 1);
}

#[test]
fn a_wait_of_the_old_execution_takes_nothing_any_more() {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "go"), (2, "@job")]);
    world.commit(round);
    let round = continuing(world.round(run), None);
    world.commit(round);
    assert_eq!(world.signal(run, "go", 1), roundel_core::Sent::Queued);
    assert_eq!(world.offer("@job", 1), roundel_core::Sent::Queued);
    let round = closing(world.round(run), &[(1, "go")]);
    world.commit(round);
    world.check();
}
