//! What a move leaves behind on a server.

use std::time::{Duration, Instant};

use roundel_core::{Claimant, Op, Start};
use roundel_store::{Error, Place, Store, ask, move_database};
use roundel_testpg::{Schema, schema};

use crate::tools::{WORKER, dump, open, register, sql, start};

fn place(schema: &Schema) -> Place {
    Place::Server {
        url: schema.address(),
        schema: schema.name().to_owned(),
    }
}

/// Moves it as soon as no lease is in the way.
fn moves(from: &Schema, to: &Schema) {
    let began = Instant::now();
    loop {
        match move_database(&place(from), &place(to), &mut |_| ()) {
            Ok(_) => return,
            Err(Error::Unavailable(why)) => {
                assert!(began.elapsed() < Duration::from_secs(60), "{why}");
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A step commits beside the committer, under the epoch that its worker knows.
#[test]
fn l7_a_worker_whose_lease_ended_is_fenced_where_its_run_was_moved_from() {
    let (Some(from), Some(to)) = (schema(), schema()) else {
        return;
    };
    let source = open(&from);
    register(&source);
    let lease = Duration::from_millis(10);
    let claimant = Some(Claimant {
        worker: WORKER,
        lease,
    });
    let leased = Start {
        claimant,
        ..start(1)
    };
    ask(&source, Op::Start(leased)).expect("a start");
    moves(&from, &to);
    assert_eq!(dump(&open(&to)).runs[0].epoch, 1);
    let under_the_old = "UPDATE roundel_run SET epoch = epoch WHERE epoch = 1";
    assert_eq!(sql(&from, under_the_old), 0);
    source.close();
}
