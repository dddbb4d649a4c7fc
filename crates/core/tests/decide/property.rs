//! For all lists of operations.

use proptest::prelude::*;
use roundel_core::testkit::{Draw, Move, next_move};
use roundel_core::{Op, Refusal, Reply};

use crate::sparse::decide_sparsely;
use crate::world::{World, same};

/// What was asked, when, and what was answered.
type Recorded = Vec<(roundel_core::Timestamp, Op, Result<Reply, Refusal>)>;

/// Plays the moves, with checks after each.
fn play(seeds: &[u64]) -> (World, Recorded) {
    let mut world = World::empty();
    let mut recorded = Vec::new();
    for seed in seeds {
        match next_move(&world.rows, world.now, *seed) {
            Move::Pass(span) => world.pass(span),
            Move::Op(op) => {
                let before = world.dump();
                let (sparse, sparse_changes) = decide_sparsely(&world, &op);
                let reply = world.decide(&op);
                let changes = world.rows.take_changes();
                assert_eq!(sparse, reply, "over the rows it needs: {op:?}");
                assert!(
                    sparse_changes == changes,
                    "{op:?}\nover the rows it needs {sparse_changes:#?}\nover all {changes:#?}"
                );
                world.keep(changes);
                if reply.is_err() {
                    same(&before, &world.dump());
                }
                world.check();
                recorded.push((world.now, *op, reply));
            }
        }
    }
    (world, recorded)
}

/// Plays what was recorded, with so many operations in a transaction.
fn replay(
    recorded: &Recorded,
    mut batch: impl FnMut() -> u64,
) -> (World, Vec<Result<Reply, Refusal>>) {
    let mut world = World::empty();
    let mut replies = Vec::new();
    let mut left = batch();
    for (now, op, _) in recorded {
        if *now != world.now || left == 0 || world.rows.has_deleted() {
            world.write();
            left = batch();
        }
        world.now = *now;
        replies.push(world.decide(op));
        left = left.saturating_sub(1);
    }
    world.write();
    (world, replies)
}

/// Few enough for every run of the tests, unless the environment says how many.
fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 64;
    }
    config
}

fn seeds() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..150)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn si_14_a_refused_operation_changes_nothing_and_needs_cover_what_is_read(seeds in seeds()) {
        play(&seeds);
    }

    #[test]
    fn si_13_a_batch_gives_the_replies_of_its_operations_one_by_one(
        seeds in seeds(),
        sizes in any::<u64>(),
    ) {
        let (one_by_one, recorded) = play(&seeds);
        let mut draw = Draw::new(sizes);
        let (fused, replies) = replay(&recorded, || 1 + draw.below(20));
        for ((_, op, reply), fused) in recorded.iter().zip(&replies) {
            prop_assert_eq!(reply, fused, "{:?}", op);
        }
        same(&one_by_one.dump(), &fused.dump());
    }

    #[test]
    fn si_22_a_recorded_list_replayed_gives_the_same_rows(seeds in seeds()) {
        let (first, recorded) = play(&seeds);
        let (again, _) = replay(&recorded, || 1);
        same(&first.dump(), &again.dump());
    }
}
