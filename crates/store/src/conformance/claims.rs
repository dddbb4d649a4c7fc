//! Leases, claims, zombies, suspects.

use std::time::Duration;

use roundel_core::{
    Claim, Delete, Lease, Name, Op, Outcome, Refusal, Release, Renew, Reply, Resume, RunState,
    Start, Target, WorkerId, limits,
};

use super::Make;
use super::desk::Desk;
use super::words::{A, B, C, LEASE, NS, lane, opening, suspending, working};

pub fn ro_10_one_owner_at_a_time(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.start();
    assert_eq!(desk.claimed_ids(A, 9), [run]);
    assert_eq!(desk.claimed_ids(B, 9), []);
    assert_eq!(desk.state(run), RunState::Running);
}

pub fn ro_10_claimers_get_distinct_runs_and_none_gets_nothing(make: &Make) {
    let mut desk = Desk::new(make);
    let runs = [desk.start(), desk.start(), desk.start()];
    let mut got = desk.claimed_ids(A, 1);
    got.extend(desk.claimed_ids(B, 1));
    got.extend(desk.claimed_ids(A, 1));
    assert_eq!(got, runs);
}

pub fn ro_11_b1_after_a_takeover_the_first_owner_changes_nothing(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let late = working(desk.round(run));
    desk.pass(LEASE);
    assert_eq!(desk.claimed_ids(B, 1), [run]);
    assert!(matches!(
        desk.refused(Op::Commit(late)),
        Refusal::Fenced { .. }
    ));
    assert_eq!(desk.release(A, &[run]), 0);
    assert_eq!(desk.renew(A, run), Lease::Lost);
    assert_eq!(desk.run(run).owner, Some(B));
    desk.commit(working(desk.round(run)));
}

pub fn ro_11_a_lease_ends_by_commit_and_by_release(make: &Make) {
    let mut desk = Desk::new(make);
    let (suspended, released) = (desk.owned(A), desk.owned(A));
    let late = [
        working(desk.round(suspended)),
        working(desk.round(released)),
    ];
    let mut round = suspending(desk.round(suspended));
    round.timer_at = Some(desk.now().after(Duration::from_secs(1)));
    assert!(!desk.commit(round).kept);
    assert_eq!(desk.release(A, &[released]), 1);
    for round in late {
        assert!(matches!(
            desk.refused(Op::Commit(round)),
            Refusal::Fenced { .. }
        ));
    }
    assert_eq!(desk.claimed_ids(B, 9), [released]);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.claimed_ids(B, 9), [suspended]);
}

pub fn ro_11_b3_expired_but_not_taken_over_commits_and_does_not_renew(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.pass(LEASE);
    assert_eq!(desk.renew(A, run), Lease::Lost);
    assert!(desk.commit(working(desk.round(run))).kept);
    assert_eq!(
        desk.claimed_ids(B, 1),
        [run],
        "a commit does not revive a lease"
    );
}

pub fn ro_12_renewal_keeps_a_run_and_never_shortens(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for _ in 0..4 {
        desk.pass(LEASE / 2);
        assert!(matches!(desk.renew(A, run), Lease::Kept { .. }));
        assert_eq!(desk.claimed_ids(B, 1), []);
    }
    let until = desk.run(run).lease_until;
    let (worker, runs, lease) = (A, vec![run], Duration::from_secs(1));
    desk.must(Op::Renew(Renew {
        worker,
        runs,
        lease,
    }));
    assert_eq!(desk.run(run).lease_until, until);
    assert_eq!(desk.run(run).ready_at, until);
}

pub fn ro_12_a_worker_frozen_for_three_leases_is_harmless(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let late = working(desk.round(run));
    desk.pass(LEASE * 3);
    assert_eq!(desk.claimed_ids(B, 1), [run]);
    desk.end(run);
    assert!(matches!(
        desk.refused(Op::Commit(late)),
        Refusal::Fenced { .. }
    ));
    assert_eq!(desk.state(run), RunState::Completed);
}

pub fn b2_an_epoch_is_valid_for_one_round(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let round = working(desk.round(run));
    let committed = desk.commit(round.clone());
    assert_eq!(committed.epoch, round.epoch + 1);
    assert!(matches!(
        desk.refused(Op::Commit(round)),
        Refusal::Fenced { .. }
    ));
}

pub fn b5_a_foreign_worker_with_the_right_epoch_is_fenced(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = working(desk.round(run));
    round.worker = B;
    assert!(matches!(
        desk.refused(Op::Commit(round)),
        Refusal::Fenced { .. }
    ));
    assert_eq!(desk.release(B, &[run]), 0);
}

pub fn ro_13_a_run_that_keeps_killing_its_worker_is_parked(make: &Make) {
    let mut desk = Desk::new(make);
    let (killer, innocent) = (desk.owned(A), desk.owned(A));
    let mut worker = A;
    for _ in 0..10 {
        desk.pass(LEASE);
        worker = if worker == A { B } else { A };
        let claimed = desk.claimed_ids(worker, 9);
        assert!(claimed.len() <= 1, "one suspect at a time");
        if claimed == [innocent] {
            assert!(desk.commit(working(desk.round(innocent))).slot_freed);
            desk.claim(worker, 9);
        }
    }
    let row = desk.run(killer);
    assert_eq!(row.state, RunState::Parked);
    let Some(Outcome::Failure(reason)) = row.outcome else {
        panic!("a reason")
    };
    assert_eq!(reason.code, "crashed_worker");
    assert_ne!(desk.state(innocent), RunState::Parked);
    let resume = Resume {
        namespace: NS,
        target: Target::Run(killer),
        skip: false,
        anew: None,
    };
    assert_eq!(desk.must(Op::Resume(resume.clone())), Reply::Resumed);
    assert_eq!(desk.state(killer), RunState::Ready);
    let again = desk.refused(Op::Resume(resume));
    assert_eq!(
        again,
        Refusal::NotParked {
            run: killer,
            state: RunState::Ready
        }
    );
}

pub fn ro_13_release_and_progress_do_not_count(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.pass(LEASE);
    for _ in 0..=limits::CRASHES {
        assert_eq!(desk.claimed_ids(B, 1), [run]);
        assert_eq!(desk.release(B, &[run]), 1);
    }
    assert_eq!(desk.run(run).crashes, 0);
    desk.claim(B, 1);
    desk.pass(LEASE);
    desk.claim(A, 1);
    assert_eq!(desk.run(run).crashes, 1);
    desk.commit(working(desk.round(run)));
    let row = desk.run(run);
    assert_eq!((row.crashes, row.suspect), (0, false));
}

pub fn ro_13_the_slot_is_free_again_when_its_run_is_gone(make: &Make) {
    let mut desk = Desk::new(make);
    let runs = [desk.owned(A), desk.owned(A)];
    desk.pass(LEASE);
    let first = desk.claimed_ids(B, 9);
    assert_eq!(first.len(), 1);
    let (namespace, target, force) = (NS, Target::Run(first[0]), true);
    desk.must(Op::Delete(Delete {
        namespace,
        target,
        force,
    }));
    let second = desk.claimed_ids(B, 9);
    assert_eq!(second.len(), 1);
    assert!(runs.contains(&second[0]) && second != first);
}

pub fn ro_14_messages_during_a_lease_are_kept_for_the_next_round(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.commit(opening(desk.round(run), &[(1, "go")]));
    let until = desk.run(run).lease_until;
    desk.signal(run, "go", 1);
    assert_eq!(desk.run(run).ready_at, until, "a live lease is left alone");
    assert_eq!(desk.claimed_ids(B, 1), []);
    let committed = desk.commit(suspending(desk.round(run)));
    assert!(committed.kept);
    assert_eq!(committed.inbox.len(), 1);
}

pub fn ro_16_claims_take_by_priority_then_oldest_due_first(make: &Make) {
    let mut desk = Desk::new(make);
    let mut at = |priority: i32, seconds: u64| {
        let at = Some(desk.now().after(Duration::from_secs(seconds)));
        let start = Start {
            priority,
            at,
            ..desk.starting()
        };
        desk.started(start).run
    };
    let (late, early, urgent, low) = (at(0, 3), at(0, 1), at(-5, 4), at(i32::MAX, 0));
    let same = at(0, 3);
    desk.pass(Duration::from_secs(9));
    assert_eq!(desk.claimed_ids(A, 2), [urgent, early]);
    assert_eq!(desk.claimed_ids(B, 9), [late, same, low]);
}

pub fn ro_16_a_claim_says_when_to_come_back(make: &Make) {
    let mut desk = Desk::new(make);
    let now = desk.now();
    for _ in 0..3 {
        desk.start();
    }
    let later = Start {
        at: Some(now.after(LEASE / 3)),
        priority: 9,
        ..desk.starting()
    };
    desk.started(later);
    let (runs, next) = desk.claim_next(A, 2);
    assert_eq!((runs.len(), next), (2, Some(now)), "more are due now");
    let (runs, next) = desk.claim_next(A, 1);
    assert_eq!((runs.len(), next), (1, Some(now.after(LEASE / 3))));
    desk.pass(LEASE / 3);
    assert_eq!(desk.claim(A, 1).len(), 1);
    assert_eq!(desk.claim_next(A, 1), (vec![], Some(now.after(LEASE))));
}

pub fn ro_16_claims_of_one_batch_follow_each_other(make: &Make) {
    let mut desk = Desk::new(make);
    let starts: Vec<_> = (0..4).map(|_| desk.starting()).collect();
    let ids: Vec<_> = starts.iter().map(|start| start.run).collect();
    let claim = |worker| {
        let (lanes, limit, lease) = (vec![desk.lane], 2, LEASE);
        Op::Claim(Claim {
            worker,
            lanes,
            limit,
            lease,
        })
    };
    let mut ops: Vec<Op> = starts.into_iter().map(Op::Start).collect();
    ops.extend([claim(A), claim(B), claim(A)]);
    let replies = desk.batch(ops);
    let mut got = Vec::new();
    for reply in &replies[4..] {
        let Ok(Reply::Claimed { runs, .. }) = reply else {
            panic!("{reply:?}")
        };
        got.extend(runs.iter().map(|claimed| claimed.run));
    }
    assert_eq!(got, ids);
}

pub fn b15_a_busy_lane_does_not_starve_a_quiet_one(make: &Make) {
    let mut desk = Desk::new(make);
    let quiet = desk.version(A, 2);
    for _ in 0..20 {
        desk.start();
    }
    let start = Start {
        version: Some(2),
        ..desk.starting()
    };
    let run = desk.started(start).run;
    let lanes = [desk.lane, quiet];
    let first = desk.claim_from(A, &lanes, 1).0;
    let second = desk.claim_from(A, &lanes, 1).0;
    assert!([first[0].run, second[0].run].contains(&run));
}

pub fn e8_a_run_of_an_unknown_version_waits_for_a_worker_that_knows_it(make: &Make) {
    let mut desk = Desk::new(make);
    let start = Start {
        version: Some(7),
        ..desk.starting()
    };
    let run = desk.started(start).run;
    assert_eq!(desk.claimed_ids(A, 9), []);
    assert_eq!(desk.state(run), RunState::Ready, "it is visible");
    let lane = desk.version(B, 7);
    assert_eq!(desk.claim_from(B, &[lane], 9).0[0].run, run);
}

pub fn the_holder_of_a_woken_run_has_a_head_start_and_hides_nobody(make: &Make) {
    let mut desk = Desk::new(make);
    let held = desk.waiting(A, &[(1, "go")]);
    desk.signal(held, "go", 1);
    let other = desk.start();
    let woken = desk.now();
    let (runs, next) = desk.claim_next(B, 1);
    assert_eq!(runs[0].run, other);
    assert_eq!(next, Some(woken.after(limits::HEAD_START)));
    desk.pass(limits::HEAD_START - Duration::from_micros(1));
    assert_eq!(desk.claimed_ids(B, 1), []);
    desk.pass(Duration::from_micros(1));
    assert_eq!(desk.claimed_ids(B, 1), [held]);
}

pub fn b17_a_worker_claims_only_while_it_is_registered(make: &Make) {
    let mut desk = Desk::new(make);
    let worker = WorkerId::from_bytes([9; 16]);
    let (lanes, limit, lease) = (vec![desk.lane], 1, LEASE);
    let claim = Op::Claim(Claim {
        worker,
        lanes,
        limit,
        lease,
    });
    assert_eq!(
        desk.refused(claim.clone()),
        Refusal::UnknownWorker { worker }
    );
    let lanes = desk.register(worker, vec![lane(&NS, "w", 1), lane(&NS, "other", 4)]);
    assert_eq!(lanes[0], desk.lane);
    assert_ne!(lanes[1], desk.lane);
    assert!(desk.op(claim.clone()).is_ok());
    desk.must(Op::Release(Release {
        worker,
        runs: vec![],
        leave: true,
    }));
    assert_eq!(desk.refused(claim), Refusal::UnknownWorker { worker });
}

pub fn inv25_lanes_of_namespaces_are_apart(make: &Make) {
    let mut desk = Desk::new(make);
    let other = Name::constant("other");
    let lanes = desk.register(B, vec![lane(&other, "w", 1)]);
    let mine = desk.start();
    let start = Start {
        namespace: other,
        ..desk.starting()
    };
    let theirs = desk.started(start).run;
    assert_eq!(desk.claimed_ids(A, 9), [mine]);
    assert_eq!(desk.claim_from(B, &lanes, 9).0[0].run, theirs);
}

pub fn inv23_workers_that_left_without_a_word_are_forgotten(make: &Make) {
    let mut desk = Desk::new(make);
    let ids = (0..=limits::FORGOTTEN as u128).map(|at| uuid::Uuid::from_u128(at << 64));
    let left: Vec<WorkerId> = ids.map(WorkerId).collect();
    for worker in &left {
        desk.register(*worker, vec![lane(&NS, "w", 1)]);
    }
    desk.pass(limits::UNSEEN);
    let run = desk.owned(A);
    desk.renew(A, run);
    let listed = |desk: &Desk| desk.dump().workers.into_iter().map(|row| row.id);
    desk.register(C, vec![lane(&NS, "w", 1)]);
    assert_eq!(
        listed(&desk).count(),
        left.len() + 3,
        "a day is not yet over"
    );
    desk.pass(Duration::from_micros(1));
    desk.register(C, vec![lane(&NS, "w", 1)]);
    let rest: Vec<WorkerId> = listed(&desk).collect();
    let last = [left[limits::FORGOTTEN - 1], left[limits::FORGOTTEN]];
    let some = [A, C, last[0], last[1]];
    assert_eq!(rest, some, "as many as one registration forgets");
    desk.register(C, vec![lane(&NS, "w", 1)]);
    assert_eq!(listed(&desk).collect::<Vec<_>>(), [A, C]);
    // Whoever was there all the same hears of it, and makes itself known again.
    let run = desk.start();
    let claim = Op::Claim(Claim {
        worker: B,
        lanes: vec![desk.lane],
        limit: 1,
        lease: LEASE,
    });
    assert_eq!(desk.refused(claim), Refusal::UnknownWorker { worker: B });
    desk.register(B, vec![lane(&NS, "w", 1)]);
    assert_eq!(desk.claimed_ids(B, 1), [run]);
    // Whoever says again that it is there has been seen, which is noted once in a while.
    let seen = |desk: &Desk| {
        let mut workers = desk.dump().workers.into_iter();
        workers.find(|row| row.id == B).expect("listed").seen_at
    };
    let before = seen(&desk);
    for (span, noted) in [
        (limits::SIGN / 2, before),
        (limits::SIGN / 2, before.after(limits::SIGN)),
    ] {
        desk.pass(span);
        desk.register(B, vec![lane(&NS, "w", 1)]);
        assert_eq!(seen(&desk), noted);
    }
}

pub fn ro_13_a_worker_lost_with_a_suspect_is_kept_until_that_counts(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.pass(LEASE);
    let suspect = |desk: &Desk| {
        let workers = desk.dump().workers;
        workers
            .iter()
            .find(|row| row.id == B)
            .and_then(|row| row.suspect)
    };
    assert_eq!(desk.claimed_ids(B, 1), [run]);
    assert_eq!(suspect(&desk), Some(run));
    desk.pass(limits::UNSEEN * 2);
    desk.register(C, vec![lane(&NS, "w", 1)]);
    assert_eq!(suspect(&desk), Some(run), "it is not forgotten");
    assert_eq!(desk.claimed_ids(C, 1), [run]);
    assert_eq!(desk.run(run).crashes, 1, "its crash counts");
    desk.register(C, vec![lane(&NS, "w", 1)]);
    let listed = desk.dump().workers;
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [C]);
}
