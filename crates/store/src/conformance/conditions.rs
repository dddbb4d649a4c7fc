//! Waits for a run's own state to change: told by whoever changes it, in the same commit.

use roundel_core::{
    Committed, Delivery, Name, Op, Patch, Patched, Payload, Refusal, Reply, Round, RunId, RunState,
    STATE_CHANGED, Source, StateChange, Target,
};

use super::Make;
use super::desk::Desk;
use super::words::{A, NS, opening, suspending};

const STATE: &str = "roundel.state";

fn patch(desk: &Desk, run: RunId, text: &str) -> u64 {
    let (target, patch) = (Target::Run(run), Payload::parse(text).expect("JSON"));
    match desk.must(Op::Patch(Patch {
        namespace: NS,
        target,
        patch,
        expected: None,
    })) {
        Reply::Patched(Patched::Changed(state)) => state.version,
        other => panic!("{other:?}"),
    }
}

/// The round, with a wait for the next state after this.
fn looked(round: Round, call: u32, seen: u64) -> Round {
    let mut round = opening(round, &[(call, STATE)]);
    round.state_seen = Some(seen);
    round
}

/// The round, waiting on for the next state after this.
fn looking_again(mut round: Round, call: u32, seen: u64) -> Round {
    round.closed.push((STATE_CHANGED, call));
    let mut again = looked(round, call, seen);
    (again.entries, again.count) = (Vec::new(), 0);
    again
}

fn told(inbox: &[Delivery]) -> Vec<u32> {
    let told = inbox.iter();
    let told = told.filter(|delivery| delivery.source == Source::Wait(STATE_CHANGED));
    told.map(|delivery| delivery.call).collect()
}

fn claimed(desk: &mut Desk) -> RunId {
    let run = desk.start();
    desk.claim(A, 1);
    run
}

pub fn co_22_a_patch_tells_a_run_that_waits_for_it_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = claimed(&mut desk);
    patch(&desk, run, r#"{"a":1}"#);
    assert_eq!(desk.run(run).mail, 0, "nobody waits");
    desk.commit(suspending(looked(desk.round(run), 1, 1)));
    assert_eq!(desk.state(run), RunState::Waiting);
    patch(&desk, run, r#"{"a":2}"#);
    patch(&desk, run, r#"{"a":3}"#);
    let row = desk.run(run);
    assert_eq!((row.state, row.mail, row.matched), (RunState::Ready, 1, 1));
    assert_eq!(told(&desk.claim(A, 1)[0].inbox), [1]);
    // What it is told is gone when it waits on, and it is told of the next.
    desk.commit(suspending(looking_again(desk.round(run), 1, 3)));
    let row = desk.run(run);
    assert_eq!((row.state, row.mail, row.waits), (RunState::Waiting, 0, 1));
    patch(&desk, run, r#"{"a":4}"#);
    assert_eq!(told(&desk.claim(A, 1)[0].inbox), [1]);
}

pub fn co_22_a_wait_that_has_seen_an_older_state_is_told_at_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = claimed(&mut desk);
    let seen = patch(&desk, run, r#"{"a":1}"#);
    patch(&desk, run, r#"{"a":2}"#);
    let committed: Committed = desk.commit(suspending(looked(desk.round(run), 1, seen)));
    assert!(committed.kept, "it does not suspend");
    assert_eq!(told(&committed.inbox), [1]);
    patch(&desk, run, r#"{"a":3}"#);
    let committed = desk.commit(suspending(looking_again(desk.round(run), 1, 2)));
    assert_eq!(told(&committed.inbox), [1]);
    let committed = desk.commit(suspending(looking_again(desk.round(run), 1, 3)));
    assert!(!committed.kept, "nothing is new");
}

pub fn co_22_a_run_tells_itself_what_it_changes(make: &Make) {
    let mut desk = Desk::new(make);
    let run = claimed(&mut desk);
    desk.commit(looked(desk.round(run), 1, 0));
    let mut round = looked(desk.round(run), 2, 0);
    let set = Payload::parse("7").expect("JSON");
    round.state.push(StateChange::Set(set));
    let committed = desk.commit(round);
    assert_eq!(told(&committed.inbox), [1, 2]);
}

pub fn co_22_what_a_wait_was_told_goes_with_it(make: &Make) {
    let mut desk = Desk::new(make);
    for ends in [true, false] {
        let run = claimed(&mut desk);
        desk.commit(looked(desk.round(run), 1, 0));
        patch(&desk, run, "{}");
        assert_eq!(desk.run(run).mail, 1);
        match ends {
            true => drop(desk.end(run)),
            false => {
                let mut round = desk.round(run);
                round.closed.push((STATE_CHANGED, 1));
                desk.commit(round);
            }
        }
        let row = desk.run(run);
        assert_eq!((row.mail, row.waits, row.matched), (0, 0, 0));
    }
}

pub fn co_22_nobody_else_says_that_a_state_has_changed(make: &Make) {
    let mut desk = Desk::new(make);
    let run = claimed(&mut desk);
    let name = STATE_CHANGED;
    let reserved = |name: Name| Refusal::Reserved { name };
    let signal = Op::Signal(super::words::signal(run, STATE, 1));
    assert_eq!(desk.refused(signal), reserved(name.clone()));
    let offer = Op::Offer(super::words::offering(STATE, 1));
    assert_eq!(desk.refused(offer), reserved(name));
    let blind = opening(desk.round(run), &[(1, STATE)]);
    let refused = desk.refused(Op::Commit(blind));
    assert!(matches!(refused, Refusal::Inconsistent { .. }), "{refused}");
}
