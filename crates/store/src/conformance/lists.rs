//! Random lists of operations: recorded on the memory store one by one, then played on another
//! store in batches of random sizes. Replies and rows must be the same.

use std::sync::Arc;

use roundel_core::testkit::{Draw, Move, next_move};
use roundel_core::{Op, Reply, Timestamp};

use super::Make;
use super::desk::{dump, submit};
use crate::{Clock, Dump, Error, ManualClock, Memory};

/// Moves in a list.
const LENGTH: usize = 150;

/// What was done, what was answered, and what came of it.
#[derive(Debug)]
pub struct Recorded {
    moves: Vec<Move>,
    replies: Vec<Result<Reply, Error>>,
    dump: Dump,
}

/// Records a list on the memory store.
#[must_use]
pub fn record(seed: u64) -> Recorded {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000_000)));
    let store = Memory::new(clock.clone());
    let mut draw = Draw::new(seed);
    let (mut moves, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..LENGTH {
        let next = next_move(store.snapshot().rows(), clock.now(), draw.next());
        match &next {
            Move::Pass(span) => clock.advance(*span),
            Move::Op(op) => replies.extend(submit(&store, vec![(**op).clone()])),
        }
        moves.push(next);
    }
    let dump = dump(&store);
    Recorded {
        moves,
        replies,
        dump,
    }
}

/// Plays a recorded list on a fresh store in random batches.
///
/// # Panics
/// When a reply or a row differs.
pub fn replay(recorded: &Recorded, make: &Make, seed: u64) {
    let (store, clock) = make();
    let mut draw = Draw::new(seed);
    let mut replies = recorded.replies.iter();
    let mut compare = |batch: Vec<Op>| {
        let asked = batch.clone();
        for (reply, op) in submit(&*store, batch).into_iter().zip(asked) {
            let expected = replies.next().expect("as many replies as operations");
            assert_eq!(&reply, expected, "to {op:?}");
        }
    };
    let mut batch: Vec<Op> = Vec::new();
    for next in &recorded.moves {
        match next {
            Move::Op(op) => batch.push((**op).clone()),
            Move::Pass(span) => {
                compare(std::mem::take(&mut batch));
                clock.advance(*span);
            }
        }
        if draw.one_in(5) {
            compare(std::mem::take(&mut batch));
        }
    }
    compare(batch);
    same(&dump(&*store), &recorded.dump);
    store.close();
}

/// Plays `count` lists, from this seed on.
///
/// # Panics
/// When a store answers or keeps something else than the memory store; the message names the seed.
pub fn play(make: &Make, first: u64, count: u64) {
    for seed in first..first + count {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            replay(&record(seed), make, seed ^ 0x5EED);
        }));
        assert!(
            played.is_ok(),
            "the list of seed {seed} differs; the message above says where"
        );
    }
}

/// How many lists to play: by default few enough for every run of the tests.
#[must_use]
pub fn count_from_environment() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (
        number("ROUNDEL_SEED").unwrap_or(1),
        number("ROUNDEL_LISTS").unwrap_or(200),
    )
}

/// A list that was played, played again on an empty store, in other batches.
///
/// # Panics
/// When the rows differ.
pub fn si_22_a_recorded_list_replayed_on_an_empty_store_gives_the_same_dump(make: &Make) {
    let recorded = record(22);
    for seed in 0..3 {
        replay(&recorded, make, seed);
    }
    assert!(recorded.dump.runs.len() > 5, "the list did something");
}

fn same(found: &Dump, expected: &Dump) {
    assert_eq!(found.lanes, expected.lanes);
    assert_eq!(found.runs, expected.runs);
    assert_eq!(found.journal, expected.journal);
    assert_eq!(found.labels, expected.labels);
    assert_eq!(found.mail, expected.mail);
    assert_eq!(found.waits, expected.waits);
    assert_eq!(found.gates, expected.gates);
    assert_eq!(found.offers, expected.offers);
    assert_eq!(found.keys, expected.keys);
    assert_eq!(found.watches, expected.watches);
    assert_eq!(found.states, expected.states);
    assert_eq!(found.workers, expected.workers);
    assert!(
        found == expected,
        "a table that is not compared above differs"
    );
}
