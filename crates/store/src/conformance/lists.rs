//! Random lists of operations: recorded on the memory store one by one, then played on another
//! store in batches of random sizes. Replies and rows must be the same.

use std::sync::Arc;

use roundel_core::testkit::{Draw, Move, next_move};
use roundel_core::{Followed, Op, Reply, Timestamp};

use super::Make;
use super::desk::{dump, sound, submit};
use crate::query::facts::forget_positions;
use crate::{Clock, Dump, Error, ManualClock, Memory, Store};

/// Stores over the same rows, and their clock.
pub type Opened = (Vec<Arc<dyn Store>>, Arc<ManualClock>);

/// Lists played if the environment says nothing.
const MANY: u64 = 200;
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
    record_with(seed, |_, _| ())
}

/// Records a list in which each claim is for one lane: the turns that lanes take are remembered by
/// each process for itself.
#[must_use]
pub fn record_lane_by_lane(seed: u64) -> Recorded {
    record_with(seed, |op, draw| {
        if let Op::Claim(claim) = op {
            claim.lanes = draw.one_of(&claim.lanes).copied().into_iter().collect();
        }
    })
}

fn record_with(seed: u64, change: impl Fn(&mut Op, &mut Draw)) -> Recorded {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000_000)));
    let store = Memory::new(clock.clone());
    let mut draw = Draw::new(seed);
    let (mut moves, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..LENGTH {
        let seed = draw.next();
        let mut next = store.look(|rows| next_move(rows, clock.now(), seed));
        match &mut next {
            Move::Pass(span) => clock.advance(*span),
            Move::Op(op) => {
                change(op, &mut draw);
                replies.extend(submit(&store, vec![(**op).clone()]));
            }
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

/// Plays a recorded list on fresh stores over the same rows, in random batches, each batch on any
/// of them.
///
/// # Panics
/// When a reply or a row differs.
pub fn replay(recorded: &Recorded, (stores, clock): &Opened, seed: u64) {
    let mut draw = Draw::new(seed);
    let mut replies = recorded.replies.iter();
    let mut compare = |batch: Vec<Op>, draw: &mut Draw| {
        let asked = batch.clone();
        let store = draw.one_of(stores).expect("a store");
        for (reply, op) in submit(&**store, batch).into_iter().zip(asked) {
            let expected = replies.next().expect("as many replies as operations");
            assert_eq!(comparable(reply), comparable(expected.clone()), "to {op:?}");
        }
    };
    let mut batch: Vec<Op> = Vec::new();
    for next in &recorded.moves {
        match next {
            Move::Op(op) => batch.push((**op).clone()),
            Move::Pass(span) => {
                compare(std::mem::take(&mut batch), &mut draw);
                clock.advance(*span);
            }
        }
        if draw.one_in(5) {
            compare(std::mem::take(&mut batch), &mut draw);
        }
    }
    compare(batch, &mut draw);
    for store in stores {
        same(&dump(&**store), &recorded.dump);
        sound(&**store);
        store.close();
    }
}

/// Where facts stand differs between stores.
fn comparable(mut reply: Result<Reply, Error>) -> Result<Reply, Error> {
    if let Ok(Reply::Projected(row) | Reply::Followed(Followed { row, .. })) = &mut reply {
        forget_positions(row);
    }
    reply
}

/// Plays lists as the environment says: `ROUNDEL_LISTS` of them, from `ROUNDEL_SEED` on.
///
/// # Panics
/// When a store answers or keeps something else than the memory store; the message names the seed.
pub fn play(record: impl Fn(u64) -> Recorded, open: impl Fn() -> Opened) {
    play_some(MANY, record, open);
}

/// The same, so many of them unless the environment says another number.
///
/// # Panics
/// As `play`.
pub fn play_some(usual: u64, record: impl Fn(u64) -> Recorded, open: impl Fn() -> Opened) {
    let (first, count) = count_from_environment(usual);
    for seed in first..first + count {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            replay(&record(seed), &open(), seed ^ 0x5EED);
        }));
        assert!(
            played.is_ok(),
            "the list of seed {seed} differs; the message above says where"
        );
    }
}

/// Which lists to play: by default few enough for every run of the tests.
fn count_from_environment(usual: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (
        number("ROUNDEL_SEED").unwrap_or(1),
        number("ROUNDEL_LISTS").unwrap_or(usual),
    )
}

/// A list that was played, played again on an empty store, in other batches.
///
/// # Panics
/// When the rows differ.
pub fn si_22_a_recorded_list_replayed_on_an_empty_store_gives_the_same_dump(make: &Make) {
    let recorded = record(22);
    for seed in 0..3 {
        let (store, clock) = make();
        replay(&recorded, &(vec![store], clock), seed);
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
