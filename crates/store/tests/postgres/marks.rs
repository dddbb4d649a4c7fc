//! Claims that begin where the last one left off find what one would find that looks at everything:
//! what is older than that, what was committed late, and what came at another priority.

use std::time::{Duration, Instant};

use roundel_core::{Claim, LaneId, Op, Reply, RunId, Start};
use roundel_store::{Postgres, Store, ask};
use roundel_testpg::schema;

use crate::tools::{LEASE, WORKER, open, register, sql, start};

/// Longer than a busy machine needs for a few claims.
const SOON: Duration = Duration::from_secs(60);

fn claim(store: &dyn Store, lane: LaneId, limit: usize) -> Vec<u128> {
    let claim = Claim {
        worker: WORKER,
        lanes: vec![lane],
        limit,
        lease: LEASE,
    };
    match ask(store, Op::Claim(claim)) {
        Ok(Reply::Claimed { runs, .. }) => {
            let number = |run: RunId| run.0.as_u128();
            runs.iter().map(|claimed| number(claimed.run)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn begin(store: &Postgres, start: Start) {
    ask(store, Op::Start(start)).expect("a start");
}

/// Claims again and again, as a worker does that is told when, until this run comes.
fn comes(store: &Postgres, lane: LaneId, number: u128) {
    let began = Instant::now();
    while claim(store, lane, 5) != [number] {
        assert!(began.elapsed() < SOON, "nobody claims {number}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn b15_what_a_claim_left_behind_is_found_by_the_next_however_old_it_is() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    let lane = register(&store);
    (1..=50).for_each(|number| begin(&store, start(number)));
    // Ten seconds ago, one after the other.
    let older = "UPDATE roundel_run SET ready_at = ready_at - 10000000";
    assert_eq!(sql(&schema, older), 50);
    for part in 0..5u128 {
        let wanted: Vec<u128> = (part * 10 + 1..=part * 10 + 10).collect();
        assert_eq!(claim(&store, lane, 10), wanted);
    }
    assert_eq!(claim(&store, lane, 10), [0; 0]);
}

#[test]
fn b15_what_was_committed_late_or_at_another_priority_is_found_all_the_same() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    let lane = register(&store);
    begin(&store, start(1));
    comes(&store, lane, 1);
    // Its transaction took a minute.
    begin(&store, start(2));
    let late = "UPDATE roundel_run SET ready_at = ready_at - 60000000 WHERE owner IS NULL";
    assert_eq!(sql(&schema, late), 1);
    comes(&store, lane, 2);
    let urgent = Start {
        priority: -7,
        ..start(3)
    };
    begin(&store, urgent);
    comes(&store, lane, 3);
}
