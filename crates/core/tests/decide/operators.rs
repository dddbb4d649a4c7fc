//! Cancel and patch.

use std::time::Duration;

use roundel_core::{
    Cancel, CancelMark, Cancelled, Complete, Deadline, Deadlines, Failure, Name, Op, Patch,
    Patched, Payload, Refusal, Reply, Resume, RunState, Start, StateChange, StateRow, Target, Then,
};

use crate::world::{A, B, NS, World, claimant, ending, same, value};

fn patch(run: roundel_core::RunId, text: &str, expected: Option<u64>) -> Op {
    let patch = Payload::parse(text).unwrap();
    Op::Patch(Patch {
        namespace: NS,
        target: Target::Run(run),
        patch,
        expected,
    })
}

#[test]
fn si_23_cancel_answers_what_it_found() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    let unknown = world.new_id();
    assert_eq!(world.cancel(unknown), Cancelled::TargetUnknown);
    assert_eq!(world.cancel(run), Cancelled::Requested);
    let before = world.dump();
    assert_eq!(world.cancel(run), Cancelled::Requested, "twice is fine");
    same(&before, &world.dump());
    world.claim(A, 1);
    let round = ending(world.round(run), RunState::Cancelled);
    world.commit(round);
    assert_eq!(
        world.cancel(run),
        Cancelled::AlreadyEnded(RunState::Cancelled)
    );
    let target = Target::Key(Name::constant("none"));
    let by_key = Op::Cancel(Cancel {
        namespace: NS,
        target,
        keep: false,
        claimant: None,
    });
    assert_eq!(
        world.must(by_key),
        Reply::Cancelled(Cancelled::TargetUnknown, vec![])
    );
}

#[test]
fn k2_what_was_asked_to_end_is_not_completed_by_hand() {
    let mut world = World::new();
    let run = world.owned(A);
    assert_eq!(world.cancel(run), Cancelled::Requested);
    // Nobody has it, and its journal says nothing yet.
    world.release(A, &[run]);
    let complete = Op::Complete(Complete {
        namespace: NS,
        target: Target::Run(run),
        value: Payload::parse("1").unwrap(),
    });
    let refused = world.decide(&complete);
    assert_eq!(refused, Err(Refusal::CancelRequested { run }));
}

#[test]
fn c10_a_cancel_wakes_whatever_the_run_does() {
    let mut world = World::new();
    let waiting = world.waiting(A, &[(1, "go")]);
    let ready = world.start();
    let running = world.owned(A);
    let parked = world.owned(A);
    let mut round = world.round(parked);
    round.then = Then::Park(Box::new(Failure::permanent("stuck")));
    world.commit(round);
    let start = roundel_core::Start {
        at: Some(world.now.after(std::time::Duration::from_secs(99))),
        ..world.starting()
    };
    let delayed = world.started(start).run;
    for (run, state, mark) in [
        (waiting, RunState::Ready, CancelMark::Requested),
        (running, RunState::Running, CancelMark::Requested),
        // Nobody has begun these, and nobody need come who can.
        (ready, RunState::Cancelled, CancelMark::None),
        (parked, RunState::Cancelled, CancelMark::None),
        (delayed, RunState::Cancelled, CancelMark::None),
    ] {
        assert_eq!(world.cancel(run), Cancelled::Requested);
        let row = world.run(run);
        assert_eq!((row.state, row.cancel), (state, mark));
        let due = Some(world.now).filter(|_| state == RunState::Ready);
        assert!(row.ready_at == due || state == RunState::Running);
    }
    world.pass(roundel_core::limits::HEAD_START);
    assert_eq!(world.claim(B, 9).len(), 1);
}

#[test]
fn the_holder_takes_what_it_cancels() {
    let mut world = World::new();
    let run = world.waiting(A, &[(1, "go")]);
    let (target, claimant) = (Target::Run(run), Some(claimant(A)));
    let Reply::Cancelled(_, taken) = world.must(Op::Cancel(Cancel {
        namespace: NS,
        target,
        keep: false,
        claimant,
    })) else {
        panic!("cancelled")
    };
    assert_eq!(taken[0].run, run);
    assert_eq!(taken[0].cancel, CancelMark::Requested);
}

#[test]
fn a_cancelled_run_that_has_taken_it_up_may_wait_for_those_below() {
    let mut world = World::new();
    let run = world.owned(A);
    world.cancel(run);
    let mut round = world.round(run);
    round.then = Then::Suspend;
    assert!(world.commit(round).kept, "not taken up yet");
    let mut round = world.round(run);
    round.cancel_seen = true;
    round.then = Then::Suspend;
    assert!(!world.commit(round).kept);
    assert_eq!(world.state(run), RunState::Waiting);
    world.check();
}

#[test]
fn a_patch_merges_counts_versions_and_can_demand_one() {
    let mut world = World::new();
    let run = world.start();
    let changed = |version, text: &str| {
        let value = Payload::parse(text).unwrap();
        Reply::Patched(Patched::Changed(StateRow { version, value }))
    };
    assert_eq!(
        world.must(patch(run, r#"{"a":1}"#, Some(0))),
        changed(1, r#"{"a":1}"#)
    );
    let other = Reply::Patched(Patched::VersionIs(1));
    let before = world.dump();
    assert_eq!(world.must(patch(run, r#"{"a":2}"#, Some(0))), other);
    same(&before, &world.dump());
    let after = r#"{"a":1,"b":{}}"#;
    assert_eq!(
        world.must(patch(run, r#"{"b":{"c":null}}"#, Some(1))),
        changed(2, after)
    );
}

#[test]
fn a_patch_to_an_ended_or_unknown_run_is_not_applied() {
    let mut world = World::new();
    let run = world.owned(A);
    world.end(run);
    let ended = Reply::Patched(Patched::TargetEnded(RunState::Completed));
    let before = world.dump();
    assert_eq!(world.must(patch(run, "{}", None)), ended);
    let unknown = world.new_id();
    assert_eq!(
        world.must(patch(unknown, "{}", None)),
        Reply::Patched(Patched::TargetUnknown)
    );
    same(&before, &world.dump());
}

#[test]
fn a_round_changes_its_own_state_in_order() {
    let mut world = World::new();
    let run = world.owned(A);
    let merge = |text| StateChange::Merge(Payload::parse(text).unwrap());
    let mut round = world.round(run);
    round.state = vec![
        StateChange::Set(value(1)),
        merge(r#"{"a":1}"#),
        merge(r#"{"b":2}"#),
    ];
    world.commit(round);
    let state = world.rows.states.get(&run).unwrap();
    assert_eq!(
        (state.version, state.value.as_str()),
        (3, r#"{"a":1,"b":2}"#)
    );
    let mut too_much = world.round(run);
    let text = "x".repeat(roundel_core::limits::PAYLOAD_BYTES / 2 + 1);
    for key in ["c", "d"] {
        let part = Payload::encode(&serde_json::json!({ key: text })).unwrap();
        too_much.state.push(StateChange::Merge(part));
    }
    let before = world.dump();
    assert!(matches!(
        world.try_commit(too_much),
        Err(Refusal::Limit { .. })
    ));
    same(&before, &world.dump());
}

#[test]
fn co_24_who_was_late_goes_on_also_if_the_clock_was_set_back() {
    let mut world = World::new();
    let run = world.new_id();
    let due = Deadline {
        at: world.now.after(Duration::from_secs(10)),
        set_by: run,
    };
    let start = Start {
        run,
        claimant: Some(claimant(A)),
        deadlines: Deadlines {
            forward: Some(due),
            rollback: None,
        },
        ..world.starting()
    };
    world.started(start);
    let early = world.now;
    world.pass(Duration::from_secs(11));
    let mut round = world.round(run);
    round.then = Then::Park(Box::new(due.missed()));
    world.commit(round);
    world.now = early;
    world.must(Op::Resume(Resume {
        namespace: NS,
        target: Target::Run(run),
        skip: false,
        anew: None,
    }));
    assert_eq!(world.run(run).deadlines.forward, None);
}
