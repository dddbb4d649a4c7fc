//! Limits of queues: how many are leased at once, how fast they begin, and whether any do.

use std::time::Duration;

use roundel_core::{
    Audited, Claim, Dedupe, Flow, Limit, Name, Op, QueueId, Rate, Refusal, Reply, RunId, RunState,
    Start,
};

use super::Make;
use super::desk::Desk;
use super::words::{A, B, LEASE, NS, claimant, ending, lane, opening, suspending, value};
use crate::{Answer, Query, QueueView};

fn queue() -> QueueId {
    QueueId {
        namespace: NS,
        queue: Name::constant("w"),
    }
}

fn limiting(change: impl FnOnce(&mut Limit)) -> Op {
    let mut limit = Limit::of(queue());
    change(&mut limit);
    Op::Limit(limit)
}

fn at_once(desk: &Desk, most: u32) {
    desk.must(limiting(|limit| limit.concurrency = Some(Some(most))));
}

/// The limits of the one queue that has any, and how many permits it has given.
fn look(desk: &Desk) -> (QueueView, u32) {
    match desk.read(Query::Queues(NS)) {
        Ok(Answer::Queues(mut queues)) if queues.len() == 1 => {
            let (view, held) = queues.remove(0);
            (view, held.values().sum())
        }
        other => panic!("{other:?}"),
    }
}

pub fn co_30_no_more_are_leased_than_the_limit_whoever_claims(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 2);
    let runs = [desk.start(), desk.start(), desk.start(), desk.start()];
    assert_eq!(desk.claimed_ids(A, 9), runs[..2]);
    assert_eq!(desk.claimed_ids(B, 9), []);
    assert_eq!(look(&desk).1, 2);
    desk.end(runs[0]);
    assert_eq!(desk.claimed_ids(B, 9), [runs[2]]);
    assert_eq!(look(&desk).1, 2);
    let ((id, row), _) = look(&desk);
    assert_eq!((id, row.to_string()), (queue(), "2 at once".to_owned()));
}

pub fn co_30_claims_of_one_batch_share_what_is_free(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 3);
    let runs: Vec<RunId> = (0..5).map(|_| desk.start()).collect();
    let claim = |worker| {
        Op::Claim(Claim {
            worker,
            lanes: vec![roundel_core::LaneId(1)],
            limit: 2,
            lease: LEASE,
        })
    };
    let mut got = Vec::new();
    for reply in desk.batch(vec![claim(A), claim(B), claim(A)]) {
        match reply {
            Ok(Reply::Claimed { runs, .. }) => got.extend(runs.iter().map(|run| run.run)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, runs[..3]);
    assert_eq!(look(&desk).1, 3);
}

pub fn co_30_starts_and_claims_of_one_batch_share_what_is_free(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 6);
    let begins = |desk: &mut Desk| {
        let start = Start {
            claimant: Some(claimant(A)),
            ..desk.starting()
        };
        (start.run, Op::Start(start))
    };
    // Half of them is left to claims.
    let (runs, starts): (Vec<RunId>, Vec<Op>) = (0..5).map(|_| begins(&mut desk)).unzip();
    let claim = Op::Claim(Claim {
        worker: B,
        lanes: vec![roundel_core::LaneId(1)],
        limit: 9,
        lease: LEASE,
    });
    desk.batch(starts)
        .into_iter()
        .for_each(|reply| drop(reply.expect("it is started")));
    let flows = |desk: &Desk| {
        runs.iter()
            .map(|run| desk.run(*run).flow)
            .collect::<Vec<_>>()
    };
    let (free, permit) = (Flow::Free, Flow::Permit);
    assert_eq!(flows(&desk), [permit, permit, permit, free, free]);
    // What ends makes room, for a start behind it in the batch and for a claim behind that.
    let end = |desk: &Desk, run| Op::Commit(ending(desk.round(run), RunState::Completed));
    let ((sixth, start), (seventh, too_much)) = (begins(&mut desk), begins(&mut desk));
    let batch = vec![end(&desk, runs[0]), start, too_much, claim.clone()];
    let replies = desk.batch(batch);
    let claimed = match &replies[3] {
        Ok(Reply::Claimed { runs, .. }) => runs.iter().map(|run| run.run).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(claimed, [runs[3], runs[4], seventh]);
    assert_eq!((desk.run(sixth).flow, look(&desk).1), (permit, 6));
    let (eighth, start) = begins(&mut desk);
    desk.batch(vec![end(&desk, runs[1]), end(&desk, sixth), start, claim]);
    assert_eq!((desk.run(eighth).owner, look(&desk).1), (Some(B), 5));
}

pub fn co_30_k7_a_lost_lease_keeps_its_permit_and_takes_no_second(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let (first, second) = (desk.start(), desk.start());
    assert_eq!(desk.claimed_ids(A, 9), [first]);
    desk.pass(LEASE);
    assert_eq!(desk.claimed_ids(B, 9), [first]);
    assert_eq!((look(&desk).1, desk.run(first).flow), (1, Flow::Permit));
    assert_eq!(desk.claimed_ids(A, 9), []);
    desk.end(first);
    assert_eq!((look(&desk).1, desk.run(first).flow), (0, Flow::Free));
    assert_eq!(desk.claimed_ids(A, 9), [second]);
}

pub fn co_30_what_a_queue_holds_back_hides_no_other(make: &Make) {
    let mut desk = Desk::new(make);
    let other = desk.version(A, 2);
    at_once(&desk, 1);
    let mut start = desk.starting();
    start.workflow = Name::constant("v");
    let held: Vec<RunId> = (0..300).map(|_| desk.start()).collect();
    let lanes = desk.register(A, vec![lane(&NS, "v", 1)])[0];
    let free = desk.started(start).run;
    let claim = Op::Claim(Claim {
        worker: A,
        lanes: vec![roundel_core::LaneId(1), other, lanes],
        limit: 9,
        lease: LEASE,
    });
    let mut got = match desk.must(claim) {
        Reply::Claimed { runs, .. } => runs.iter().map(|run| run.run).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    got.sort();
    let mut expected = vec![held[0], free];
    expected.sort();
    assert_eq!(got, expected);
}

pub fn co_30_what_is_held_back_does_not_stand_for_what_is_left(make: &Make) {
    let mut desk = Desk::new(make);
    let second = desk.version(A, 2);
    let other = desk.register(A, vec![lane(&NS, "v", 1)])[0];
    at_once(&desk, 1);
    // Each lane is the first to be looked at once.
    for _ in 0..3 {
        for (workflow, version) in [("w", 1), ("w", 2), ("v", 1), ("v", 1)] {
            let mut start = desk.starting();
            (start.workflow, start.version) = (Name::constant(workflow), Some(version));
            desk.started(start);
        }
        let mut left = 4;
        while left > 0 {
            let claim = Op::Claim(Claim {
                worker: A,
                lanes: vec![roundel_core::LaneId(1), second, other],
                limit: 2,
                lease: LEASE,
            });
            let Reply::Claimed { runs, next } = desk.must(claim) else {
                panic!("a claim")
            };
            if left == 4 {
                assert_eq!((runs.len(), next.is_some()), (2, true), "there is a third");
            }
            left -= runs.len();
            runs.iter().for_each(|run| drop(desk.end(run.run)));
        }
    }
}

pub fn co_30_paused_and_resumed_in_somebodys_name(make: &Make) {
    let mut desk = Desk::new(make);
    let signed = |paused| {
        let (operator, reason) = (Name::constant("ada"), "the bank is down".to_owned());
        let op = limiting(|limit| limit.paused = Some(paused));
        Op::Audited(Box::new(Audited {
            operator,
            reason,
            op,
        }))
    };
    desk.must(signed(true));
    let run = desk.start();
    assert_eq!(desk.claim_next(A, 9), (vec![], None));
    desk.must(signed(false));
    assert_eq!(desk.claimed_ids(A, 9), [run]);
    let audit = desk.dump().audit;
    let actions: Vec<_> = audit.iter().map(|(_, row)| row.action.as_str()).collect();
    assert_eq!(actions, ["pause", "resume"]);
    assert_eq!(audit[0].1.target, "w");
    assert_eq!(audit[0].1.answer, "paused");
}

pub fn co_30_who_is_asked_to_end_waits_for_no_permit(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let begun = desk.start();
    assert_eq!(desk.claimed_ids(A, 9), [begun]);
    desk.commit(suspending(opening(desk.round(begun), &[(1, "go")])));
    desk.must(limiting(|limit| limit.paused = Some(true)));
    let unbegun = desk.start();
    desk.cancel(begun);
    desk.cancel(unbegun);
    assert_eq!(desk.state(unbegun), RunState::Cancelled);
    assert_eq!(desk.run(begun).flow, Flow::Pass);
    assert_eq!(desk.claimed_ids(A, 9), [begun]);
    desk.pass(LEASE);
    assert_eq!(
        desk.claimed_ids(B, 9),
        [begun],
        "also after its worker was lost"
    );
    assert_eq!(look(&desk).1, 0);
}

pub fn co_30_a_rate_says_when_the_next_may_begin(make: &Make) {
    let mut desk = Desk::new(make);
    let (count, per) = (2, Duration::from_secs(1));
    desk.must(limiting(|limit| {
        limit.rate = Some(Some(Rate { count, per }));
    }));
    let runs = [desk.start(), desk.start(), desk.start()];
    let opens = desk.now().after(per / 2);
    let (claimed, next) = desk.claim_next(A, 9);
    assert_eq!((claimed.len(), next), (2, Some(opens)));
    assert_eq!(desk.claim_next(B, 9), (vec![], Some(opens)));
    desk.pass(per / 2);
    assert_eq!(desk.claimed_ids(B, 9), [runs[2]]);
}

pub fn co_30_limits_are_taken_away_again(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let runs = [desk.start(), desk.start(), desk.start()];
    assert_eq!(desk.claimed_ids(A, 9), runs[..1]);
    desk.must(limiting(|limit| limit.concurrency = Some(None)));
    assert_eq!(desk.claimed_ids(B, 9), runs[1..]);
    assert_eq!(look(&desk).0.1.to_string(), "no limits");
}

pub fn co_30_a_run_that_goes_with_its_permit_leaves_room(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let (first, second) = (desk.start(), desk.start());
    assert_eq!(desk.claimed_ids(A, 9), [first]);
    desk.must(super::desk::deleting(first, true));
    assert_eq!(look(&desk).1, 0);
    assert_eq!(desk.claimed_ids(A, 9), [second]);
}

fn sent_for(desk: &mut Desk, key: impl Into<String>) -> RunId {
    let mut start = desk.starting();
    start.flow_key = Some(Name::new(key.into()).expect("a name"));
    desk.started(start).run
}

pub fn co_30_one_key_does_not_keep_the_others_waiting(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let busy: Vec<RunId> = (0..300).map(|_| sent_for(&mut desk, "busy")).collect();
    let quiet = sent_for(&mut desk, "quiet");
    let none = desk.start();
    let mut order = Vec::new();
    for worker in [A, B, A, B, A] {
        let claimed = desk.claimed_ids(worker, 9);
        assert_eq!(claimed.len(), 1);
        desk.end(claimed[0]);
        order.extend(claimed);
    }
    assert_eq!(order, [busy[0], quiet, none, busy[1], busy[2]]);
    assert_eq!(look(&desk).0.1.turn, Some(Name::constant("busy")));
}

pub fn co_30_no_more_of_a_key_are_leased_than_may_be(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(limiting(|limit| limit.per_key = Some(Some(1))));
    let first: Vec<RunId> = (0..100)
        .map(|key| {
            let first = sent_for(&mut desk, format!("key {key:03}"));
            sent_for(&mut desk, format!("key {key:03}"));
            first
        })
        .collect();
    let mut claimed = desk.claimed_ids(A, 60);
    claimed.extend(desk.claimed_ids(B, 60));
    claimed.sort();
    assert_eq!(claimed, first, "one of each, whoever claims");
    assert_eq!((look(&desk).1, desk.claimed_ids(A, 9)), (100, vec![]));
    desk.end(first[7]);
    let next = desk.claimed_ids(B, 9);
    assert_eq!(next.len(), 1);
    let key = desk.run(next[0]).flow_key;
    assert_eq!(key, Some(Name::constant("key 007")));
}

pub fn co_30_priority_and_delay_hold_within_a_key(make: &Make) {
    let mut desk = Desk::new(make);
    at_once(&desk, 1);
    let (late, usual) = (sent_for(&mut desk, "a"), sent_for(&mut desk, "a"));
    let mut start = desk.starting();
    start.flow_key = Some(Name::constant("a"));
    start.priority = -1;
    let urgent = desk.started(start).run;
    let mut start = desk.starting();
    start.flow_key = Some(Name::constant("a"));
    start.priority = -2;
    let opens = desk.now().after(Duration::from_secs(9));
    start.at = Some(opens);
    let delayed = desk.started(start).run;
    let mut order = Vec::new();
    for _ in 0..3 {
        let claimed = desk.claimed_ids(A, 9);
        desk.end(claimed[0]);
        order.extend(claimed);
    }
    assert_eq!(order, [urgent, late, usual]);
    assert_eq!(desk.claim_next(A, 9), (vec![], Some(opens)));
    desk.pass(Duration::from_secs(9));
    assert_eq!(desk.claimed_ids(A, 9), [delayed]);
}

pub fn co_30_who_is_lost_or_asked_to_end_is_found_by_its_key_too(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(limiting(|limit| limit.per_key = Some(Some(1))));
    let (lost, waits) = (sent_for(&mut desk, "a"), sent_for(&mut desk, "a"));
    assert_eq!(desk.claimed_ids(A, 9), [lost]);
    desk.pass(LEASE);
    assert_eq!(desk.claimed_ids(B, 9), [lost]);
    desk.commit(suspending(opening(desk.round(lost), &[(1, "go")])));
    assert_eq!(desk.claimed_ids(A, 9), [waits]);
    desk.must(limiting(|limit| limit.paused = Some(true)));
    desk.cancel(lost);
    assert_eq!(desk.claimed_ids(B, 9), [lost]);
}

pub fn co_30_of_starts_that_are_alike_one_is_started(make: &Make) {
    let mut desk = Desk::new(make);
    let mut alike = |last| {
        let dedupe = Dedupe {
            key: Name::constant("anna"),
            window: Duration::from_secs(60),
            last,
        };
        Start {
            dedupe: Some(dedupe),
            ..desk.starting()
        }
    };
    let keyed = Start {
        key: Some(Name::constant("k")),
        ..alike(false)
    };
    let [first, second, third, fourth] = [false; 4].map(&mut alike);
    let [waits, takes_over, last] = [true; 3].map(&mut alike);
    let key = Name::constant("k");
    let refused = desk.refused(Op::Start(keyed));
    assert_eq!(refused, Refusal::KeyOfSeveral { key });
    assert!(desk.started(first.clone()).new);
    // Also within one transaction.
    let answers = desk.batch(vec![Op::Start(second), Op::Start(third)]);
    for answer in answers {
        match answer {
            Ok(Reply::Started(started)) => {
                assert_eq!((started.run, started.new), (first.run, false));
            }
            other => panic!("{other:?}"),
        }
    }
    desk.pass(Duration::from_secs(60));
    assert!(desk.started(fourth.clone()).new, "its time is over");
    // The key now leads to the fourth, which is no longer waiting: the next waits for a while.
    desk.claim(A, 9);
    desk.end(first.run);
    desk.end(fourth.run);
    assert!(desk.started(waits.clone()).new);
    assert_eq!(desk.claimed_ids(A, 9), []);
    desk.pass(Duration::from_secs(40));
    let other = Start {
        input: value(8),
        ..takes_over
    };
    let started = desk.started(other);
    assert_eq!((started.run, started.new), (waits.run, false));
    desk.pass(Duration::from_secs(40));
    assert_eq!(desk.claimed_ids(A, 9), [], "it was postponed");
    desk.pass(Duration::from_secs(20));
    assert_eq!(desk.claimed_ids(A, 9), [waits.run]);
    let row = desk.run(waits.run);
    assert_eq!((row.execution, row.head), (2, 1));
    assert!(desk.started(last).new, "the other has begun");
}
