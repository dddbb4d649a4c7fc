//! Which runs a claim finds, and in which order.

use std::time::{Duration, Instant};

use roundel_core::{Claim, LaneId, Op, Reply, RunState, Timestamp};
use roundel_store::{Ask, Sqlite, ask};

use crate::tools::{
    BEGIN, File, LEASE, WORKER, ask_all, claimed, commit, name, register, round, row, run, start,
    started,
};

fn claim(store: &Sqlite, lanes: &[LaneId], limit: usize) -> (Vec<u128>, Option<Timestamp>) {
    let op = Op::Claim(Claim {
        worker: WORKER,
        lanes: lanes.to_vec(),
        limit,
        lease: LEASE,
    });
    match ask(store, op) {
        Ok(Reply::Claimed { runs, next }) => (
            runs.iter().map(|claimed| claimed.run.0.as_u128()).collect(),
            next,
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ro_16_claims_go_by_priority_then_by_time() {
    let file = File::new();
    let store = file.open();
    let lane = register(&store);
    for (number, priority, after) in [(1, 5, 0), (2, 0, 3), (3, 0, 1), (4, -7, 2), (5, 5, 1)] {
        let mut start = start(number);
        start.priority = priority;
        start.at = Some(BEGIN.after(Duration::from_secs(after)));
        started(&store, start);
    }
    assert_eq!(
        claim(&store, &[lane], 10),
        (vec![1], Some(BEGIN.after(Duration::from_secs(1))))
    );
    file.clock.advance(Duration::from_secs(3));
    assert_eq!(claim(&store, &[lane], 2).0, [4, 3]);
    assert_eq!(claim(&store, &[lane], 10).0, [2, 5]);
    let lease_end = BEGIN.after(LEASE);
    assert_eq!(claim(&store, &[lane], 10), (vec![], Some(lease_end)));
}

#[test]
fn b15_a_busy_lane_does_not_starve_another() {
    let file = File::new();
    let store = file.open();
    let busy = register(&store);
    for number in 1..=50 {
        started(&store, start(number));
    }
    let mut quiet = start(100);
    quiet.workflow = name("quiet");
    started(&store, quiet);
    let lanes = [busy, LaneId(busy.0 + 1)];
    let taken: Vec<u128> = (0..4).flat_map(|_| claim(&store, &lanes, 1).0).collect();
    assert!(taken.contains(&100), "{taken:?}");
}

#[test]
fn b1_an_expired_lease_comes_back_as_a_suspect_one_at_a_time() {
    let file = File::new();
    let store = file.open();
    let lane = register(&store);
    let ids: Vec<_> = (1..=3).map(|number| claimed(&store, number)).collect();
    file.clock.advance(LEASE);
    let first = claim(&store, &[lane], 10).0;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(claim(&store, &[lane], 10).0.len(), 0, "its place is taken");
    let suspects = ids.iter().filter(|id| row(&store, **id).suspect).count();
    assert_eq!(suspects, 3);
    let epoch = row(&store, run(first[0])).epoch;
    assert!(
        commit(&store, round(run(first[0]), epoch))
            .unwrap()
            .slot_freed
    );
    assert_eq!(claim(&store, &[lane], 10).0.len(), 1);
}

#[test]
fn b14_a_lease_made_by_a_clock_that_went_back_is_taken_over_after_a_restart() {
    let file = File::new();
    file.clock.advance(Duration::from_secs(24 * 3600));
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    drop(store);
    let earlier = File {
        clock: std::sync::Arc::new(roundel_store::ManualClock::at(BEGIN)),
        ..file
    };
    let store = earlier.open();
    let lane = register(&store);
    assert_eq!(claim(&store, &[lane], 10).0, [1]);
    assert_eq!(row(&store, id).state, RunState::Running);
}

#[test]
fn sleeping_runs_cost_a_claim_nothing() {
    let file = File::new();
    let store = file.open();
    let lane = register(&store);
    let later = BEGIN.after(Duration::from_secs(3600));
    let sleeping = (1..=20_000).map(|number| {
        let mut start = start(number);
        start.at = Some(later);
        Ask::Op(Op::Start(start))
    });
    ask_all(&store, sleeping.collect());
    let time = |count: u32| {
        let began = Instant::now();
        for _ in 0..count {
            assert_eq!(claim(&store, &[lane], 100), (vec![], Some(later)));
        }
        began.elapsed() / count
    };
    time(10);
    let each = time(50);
    assert!(each < Duration::from_millis(5), "a claim took {each:?}");
    started(&store, start(30_000));
    assert_eq!(claim(&store, &[lane], 100).0, [30_000]);
}
