//! Batches: all commands or none; ended when the last of them has, and what follows once.

use roundel_core::{
    BATCH, Batch, BatchEnd, Complete, Failure, Name, Op, Outcome, Payload, Refusal, Reply, RunId,
    RunState, Sent, Start, Target, Then, limits,
};

use super::Make;
use super::desk::{Desk, deleting, sound};
use super::words::{A, B, NS, ending, recording, value};
use crate::{Answer, Query};

/// A batch of so many commands, with something that follows.
fn batch(desk: &mut Desk, count: usize) -> Start {
    let run = desk.new_id();
    let member = |desk: &mut Desk| Start {
        parent: Some(Batch::parent(run)),
        ..desk.starting()
    };
    let members = (0..count).map(|_| member(desk)).collect();
    let then = Some(desk.starting());
    Start {
        run,
        workflow: BATCH,
        batch: Some(Box::new(Batch { members, then })),
        ..desk.starting()
    }
}

fn members(start: &Start) -> Vec<RunId> {
    let batch = start.batch.as_ref().expect("a batch");
    batch.members.iter().map(|member| member.run).collect()
}

fn then(start: &Start) -> RunId {
    let batch = start.batch.as_ref().expect("a batch");
    batch.then.as_ref().expect("what follows").run
}

fn with(mut start: Start, change: impl FnOnce(&mut Batch)) -> Start {
    change(start.batch.as_mut().expect("a batch"));
    start
}

fn end_of(desk: &Desk, batch: RunId) -> (u32, u32) {
    match desk.run(batch).outcome {
        Some(Outcome::Value(value)) => {
            let end: BatchEnd = value.decode().expect("what a batch comes to");
            (end.commands, end.failed)
        }
        other => panic!("{other:?}"),
    }
}

fn below(desk: &Desk, batch: RunId) -> Vec<(RunState, u64)> {
    match desk.read(Query::Below(batch)) {
        Ok(Answer::Below(counts)) => counts,
        other => panic!("{other:?}"),
    }
}

pub fn co_11_a_batch_ends_with_its_last_command_and_what_follows_begins_then(make: &Make) {
    let mut desk = Desk::new(make);
    let start = batch(&mut desk, 3);
    assert!(desk.started(start.clone()).new);
    assert!(
        !desk.started(start.clone()).new,
        "as after an answer that was lost"
    );
    let (run, follows) = (start.run, then(&start));
    assert_eq!(below(&desk, run), [(RunState::Ready, 3)]);
    let claimed = desk.claimed_ids(A, 10);
    assert_eq!(claimed.len(), 3, "neither the batch nor what follows");
    desk.end(claimed[0]);
    desk.commit(ending(desk.round(claimed[1]), RunState::Failed));
    assert_eq!(desk.state(run), RunState::Waiting);
    assert_eq!(desk.state(follows), RunState::Waiting);
    assert_eq!(desk.claim(B, 10), []);
    desk.end(claimed[2]);
    assert_eq!(desk.state(run), RunState::Completed);
    assert_eq!(end_of(&desk, run), (3, 1));
    let counts = [(RunState::Completed, 2), (RunState::Failed, 1)];
    assert_eq!(below(&desk, run), counts);
    assert_eq!(desk.claimed_ids(B, 10), [follows], "once");
    desk.end(follows);
    let dump = desk.dump();
    assert_eq!((dump.latches.len(), dump.watches.len()), (0, 0));
    sound(&*desk.store);
}

pub fn co_11_one_id_that_is_in_use_refuses_the_whole_batch(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Some(Name::constant("w:1"));
    let first = Start {
        key: key.clone(),
        ..desk.starting()
    };
    desk.started(first.clone());
    let refused = |desk: &Desk, start: Start| desk.refused(Op::Start(start));
    let is_conflict = |refusal: &Refusal| matches!(refusal, Refusal::Conflict { .. });
    // One that was sent before: the same, or with another payload; as what follows, too.
    for input in [Payload::null(), value(7)] {
        let start = batch(&mut desk, 3);
        let start = with(start, |batch| {
            (batch.members[2].key, batch.members[2].input) = (key.clone(), input);
        });
        assert!(is_conflict(&refused(&desk, start)));
    }
    let start = batch(&mut desk, 1);
    let start = with(start, |batch| {
        batch.then.as_mut().expect("it").key = key.clone();
    });
    assert!(is_conflict(&refused(&desk, start)));
    let start = batch(&mut desk, 1);
    let taken = with(start, |batch| batch.members[0].run = first.run);
    assert!(is_conflict(&refused(&desk, taken)), "an id that is there");
    // Two of the same.
    let other = Some(Name::constant("w:2"));
    let start = batch(&mut desk, 3);
    let start = with(start, |batch| {
        batch.members[0].key = other.clone();
        batch.members[1].key = other.clone();
    });
    assert!(is_conflict(&refused(&desk, start)));
    let start = batch(&mut desk, 0);
    assert_eq!(refused(&desk, start), Refusal::EmptyBatch);
    let start = batch(&mut desk, limits::BATCH + 1);
    let refusal = refused(&desk, start);
    assert!(matches!(refusal, Refusal::LargeBatch { .. }), "{refusal}");
    assert!(refusal.to_string().contains("split it"), "{refusal}");
}

pub fn co_11_a_parked_command_keeps_its_batch_open(make: &Make) {
    let mut desk = Desk::new(make);
    let start = batch(&mut desk, 2);
    desk.started(start.clone());
    let claimed = desk.claimed_ids(A, 10);
    let mut round = desk.round(claimed[0]);
    round.then = Then::Park(Box::new(Failure::permanent("broken")));
    desk.commit(recording(round, &[]));
    desk.end(claimed[1]);
    assert_eq!(desk.state(start.run), RunState::Waiting);
    let counts = [(RunState::Parked, 1), (RunState::Completed, 1)];
    assert_eq!(below(&desk, start.run), counts);
    let complete = Complete {
        namespace: NS,
        target: Target::Run(claimed[0]),
        value: value(1),
    };
    assert_eq!(desk.must(Op::Complete(complete)), Reply::Completed);
    assert_eq!(desk.state(start.run), RunState::Completed);
    assert_eq!(end_of(&desk, start.run), (2, 0));
    assert_eq!(desk.claimed_ids(B, 10), [then(&start)]);
    sound(&*desk.store);
}

pub fn co_11_commands_that_end_without_a_worker_count(make: &Make) {
    let mut desk = Desk::new(make);
    let start = batch(&mut desk, 3);
    desk.started(start.clone());
    let ids = members(&start);
    assert_eq!(
        desk.signal(start.run, "go", 1),
        Sent::Dropped,
        "nobody reads it"
    );
    desk.cancel(ids[0]);
    desk.must(deleting(ids[1], true));
    assert_eq!(desk.state(start.run), RunState::Waiting);
    desk.cancel(ids[2]);
    assert_eq!(end_of(&desk, start.run), (3, 3));
    assert_eq!(desk.claimed_ids(B, 10), [then(&start)]);
    sound(&*desk.store);
}

pub fn co_11_what_follows_can_be_cancelled_before_it_begins(make: &Make) {
    let mut desk = Desk::new(make);
    let start = batch(&mut desk, 1);
    desk.started(start.clone());
    desk.cancel(then(&start));
    assert_eq!(desk.state(then(&start)), RunState::Cancelled);
    let claimed = desk.claimed_ids(A, 10);
    desk.end(claimed[0]);
    assert_eq!(desk.state(start.run), RunState::Completed);
    assert_eq!(desk.claim(B, 10), []);
    sound(&*desk.store);
}

pub fn co_11_the_counters_of_a_large_batch_are_right_however_its_commands_end(make: &Make) {
    let mut desk = Desk::new(make);
    let start = batch(&mut desk, 300);
    desk.started(start.clone());
    let mut claimed = desk.claimed_ids(A, 150);
    claimed.extend(desk.claimed_ids(B, 1000));
    assert_eq!(claimed.len(), 300);
    let ops = claimed.iter().enumerate().map(|(at, run)| {
        let round = desk.round(*run);
        Op::Commit(match at % 3 {
            0 => ending(round, RunState::Failed),
            _ => ending(round, RunState::Completed),
        })
    });
    let ops: Vec<Op> = ops.collect();
    // Many in one commit, a few in others.
    for ops in ops.chunks(97) {
        for reply in desk.batch(ops.to_vec()) {
            reply.expect("it ends");
        }
    }
    assert_eq!(end_of(&desk, start.run), (300, 100));
    assert_eq!(desk.claimed_ids(A, 10), [then(&start)]);
    sound(&*desk.store);
}
