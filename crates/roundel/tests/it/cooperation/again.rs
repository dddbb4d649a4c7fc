//! What has failed, and what is undone of it: once, and nothing of what did not happen.

use std::time::Duration;

use roundel::{Cx, EngineBuilder, Failure, Result, RunState, Topic, Tx, Workflow, child_failures};
use roundel_core::{Call, Entry, decode_entries};

use super::ledger::{ends, reserve, state};
use super::trace::{Trace, with};
use crate::support::{Db, Process, all};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const MAIL: Workflow<u32, u32> = Workflow::named("mail");
const PLACED: Topic<u32> = Topic::named("placed");
const UNHEARD: Topic<u32> = Topic::named("unheard");

all![
    sc_20_d9_a_first_step_that_fails_leaves_nothing_and_is_not_undone,
    sc_25_a_child_that_rolled_itself_back_is_not_rolled_back_again,
    sc_26_what_is_published_while_handling_is_undone_except_what_has_been,
    sc_32_who_could_not_undo_is_told_from_who_did,
    sc_33_undoing_what_set_nothing_off_waits_for_nothing,
    d19_an_emission_that_comes_round_again_ends_at_the_limit,
    d26_a_failed_undo_far_below_travels_up_through_all_levels,
    m1_large_failures_of_many_and_through_levels_stay_failures,
];

/// With what is kept in memory, and without.
async fn each(
    db: &Db,
    set_up: impl Fn(EngineBuilder) -> EngineBuilder,
    test: impl AsyncFn(&Process),
) {
    for keep in [0, 100] {
        let process =
            db.start(|engine| set_up(engine).keep_in_memory(keep, Duration::from_secs(60)));
        let process = process.await;
        test(&process).await;
        process.shutdown().await;
    }
}

/// A subscriber that reserves, and fails if its number is odd.
async fn fails_if_odd(cx: Cx, of: u32, (name, trace): (&'static str, Trace)) -> Result<u32> {
    reserve(&cx, &trace, format!("{name} {of}")).await?;
    match of % 2 {
        1 => Err(Failure::business(format!("{of} is odd"))),
        _ => Ok(of),
    }
}

async fn sc_20_d9_a_first_step_that_fails_leaves_nothing_and_is_not_undone(db: Db) {
    let trace = Trace::default();
    let order = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        let step = cx.step("place", |tx: Tx| async move {
            tx.execute("CREATE TABLE IF NOT EXISTS placed (item INTEGER)", ())
                .await?;
            PLACED.publish(&tx, &of)?;
            Err::<u32, _>(Failure::business("no"))
        });
        step.undo(move |_: Tx, _: u32| {
            trace.add("undone");
            async { Ok::<_, Failure>(()) }
        })
        .await
    });
    let stock = |_: Cx, of: u32| async move { Ok::<_, Failure>(of) };
    let set_up = |engine: EngineBuilder| {
        let engine = engine.register(ORDER, order.clone()).register(STOCK, stock);
        engine.subscribe(PLACED, STOCK)
    };
    each(&db, set_up, async |process| {
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert!(order.result().await.unwrap_err().to_string().contains("no"));
        assert_eq!(state(process, order.id()).await, RunState::Failed);
        let dump = db.dump().await;
        assert_eq!(dump.publications, []);
        assert!(dump.runs.iter().all(|row| row.parent.is_none()));
    })
    .await;
    assert_eq!(trace.all(), Vec::<String>::new());
}

async fn sc_25_a_child_that_rolled_itself_back_is_not_rolled_back_again(db: Db) {
    let trace = Trace::default();
    let order = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        reserve(&cx, &trace, format!("order {of}")).await?;
        // One child alone; several together; and one of two that hear the same.
        let alone = cx.child(STOCK, &(of + 1)).await;
        assert_eq!(alone.unwrap_err().message, format!("{} is odd", of + 1));
        cx.children(STOCK, &[of + 3, of + 5]).await.unwrap_err();
        let heard = cx.publish(PLACED, &(of + 7)).await.unwrap_err();
        assert_eq!(child_failures(&heard).len(), 1);
        cx.sleep(Duration::from_millis(1)).await;
        Err::<u32, _>(Failure::business("no"))
    });
    let stock = with(&("stock", trace.clone()), fails_if_odd);
    let mail = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        reserve(&cx, &trace, format!("mail {of}")).await?;
        Ok(of)
    });
    let set_up = |engine: EngineBuilder| {
        let engine = engine
            .register(ORDER, order.clone())
            .register(STOCK, stock.clone());
        let engine = engine.register(MAIL, mail.clone()).subscribe(PLACED, STOCK);
        engine.subscribe(PLACED, MAIL)
    };
    each(&db, set_up, async |process| {
        trace.clear();
        let mut order = process.start(ORDER, &10).await.unwrap();
        assert!(order.result().await.is_err());
        assert_eq!(state(process, order.id()).await, RunState::RolledBack);
        let mut undone = trace.all();
        // Two that fail at the same time undo themselves in either order.
        undone[1..3].sort();
        let expected = [
            "undo stock 11",
            "undo stock 13",
            "undo stock 15",
            "undo stock 17",
            "undo mail 17",
            "undo order 10",
        ];
        assert_eq!(undone, expected);
    })
    .await;
}

async fn sc_26_what_is_published_while_handling_is_undone_except_what_has_been(db: Db) {
    let trace = Trace::default();
    let order = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        reserve(&cx, &trace, "order".into()).await?;
        let mut tries = of;
        while let Err(failure) = cx.publish(PLACED, &tries).await {
            assert_eq!(child_failures(&failure).len(), 1, "of this time alone");
            trace.add(format!("handled {tries}"));
            tries += 1;
        }
        trace.add("on");
        cx.sleep(Duration::from_millis(1)).await;
        Err::<u32, _>(Failure::business("no"))
    });
    let stock = with(&("stock", trace.clone()), fails_if_odd);
    let set_up = |engine: EngineBuilder| {
        let engine = engine
            .register(ORDER, order.clone())
            .register(STOCK, stock.clone());
        engine.subscribe(PLACED, STOCK)
    };
    each(&db, set_up, async |process| {
        trace.clear();
        let mut order = process.start(ORDER, &7).await.unwrap();
        assert!(order.result().await.is_err());
        assert_eq!(state(process, order.id()).await, RunState::RolledBack);
        let mut happened = trace.all();
        // The function is run again over what it did; its own words come again.
        let again = |line: &String| line.starts_with("handled") || line == "on";
        let first_undo = happened
            .iter()
            .position(|line| line == "undo stock 8")
            .unwrap();
        assert!(happened[..first_undo].iter().any(again));
        happened.retain(|line| !again(line));
        assert_eq!(happened, ["undo stock 7", "undo stock 8", "undo order"]);
    })
    .await;
}

async fn sc_32_who_could_not_undo_is_told_from_who_did(db: Db) {
    let trace = Trace::default();
    let order = |cx: Cx, of: u32| async move {
        let failure = cx.publish(PLACED, &of).await.unwrap_err();
        assert!(failure.message.contains("2 of 2 runs"), "{failure}");
        assert!(
            failure.message.contains("1 of them without undoing"),
            "{failure}"
        );
        let ends = child_failures(&failure);
        let ends = ends.iter().map(|end| (end.workflow(), end.state()));
        let ends: Vec<_> = ends.collect();
        assert_eq!(
            ends,
            [
                ("mail", RunState::RollbackFailed),
                ("stock", RunState::RolledBack)
            ]
        );
        Ok(of)
    };
    let mail = |cx: Cx, _: u32| async move {
        let step = cx.step("send", |_| async { Ok::<_, Failure>(()) });
        step.undo(|_: Tx, ()| async { Err::<(), _>(Failure::business("it is sent")) })
            .await?;
        Err::<u32, _>(Failure::business("no such address"))
    };
    let stock = with(&("stock", trace.clone()), fails_if_odd);
    let set_up = |engine: EngineBuilder| {
        let engine = engine.register(ORDER, order).register(STOCK, stock.clone());
        let engine = engine.register(MAIL, mail).subscribe(PLACED, STOCK);
        engine.subscribe(PLACED, MAIL)
    };
    each(&db, set_up, async |process| {
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 1);
    })
    .await;
}

async fn sc_33_undoing_what_set_nothing_off_waits_for_nothing(db: Db) {
    let trace = Trace::default();
    let order = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        reserve(&cx, &trace, format!("first {of}")).await?;
        if of == 2 {
            // What nobody heard set nothing off either.
            let unheard = cx.step("tell", |tx: Tx| async move { UNHEARD.publish(&tx, &of) });
            unheard.await?;
        }
        reserve(&cx, &trace, format!("second {of}")).await?;
        Err::<u32, _>(Failure::business("no"))
    });
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    for (of, asked) in [(1, 0), (2, 1)] {
        trace.clear();
        let mut run = process.start(ORDER, &of).await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(state(&process, run.id()).await, RunState::RolledBack);
        assert_eq!(
            trace.all(),
            [format!("undo second {of}"), format!("undo first {of}")]
        );
        let rounds = process.rounds(run.id(), 1).await.unwrap();
        let begun = |entry: &Entry| {
            let Entry::Begun { call, what } = entry else {
                return None;
            };
            matches!(what, Call::RollBack { .. }).then_some(*call)
        };
        let entries = rounds
            .iter()
            .map(|round| decode_entries(&round.entries).unwrap());
        let entries: Vec<Entry> = entries.flatten().collect();
        let begun: Vec<u32> = entries.iter().filter_map(begun).collect();
        assert_eq!(begun.len(), asked);
    }
}

async fn d19_an_emission_that_comes_round_again_ends_at_the_limit(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let heard = cx.publish(PLACED, &(of + 1)).await;
        match heard {
            Ok(_) => Ok(of),
            Err(failure) if of == 0 => {
                let mut deepest = &failure;
                while let Some(cause) = &deepest.cause {
                    deepest = cause;
                }
                assert!(
                    deepest.message.contains("a tree's depth is limited"),
                    "{deepest}"
                );
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).subscribe(PLACED, ORDER));
    let process = process.await;
    let mut run = process.start(ORDER, &0).await.unwrap();
    assert!(run.result().await.is_err());
    let dump = db.dump().await;
    let depth = dump.runs.iter().map(|row| row.depth).max();
    assert_eq!(depth, Some(roundel::limits::DEPTH));
    assert!(dump.runs.iter().all(|row| row.state.has_ended()));
}

async fn d26_a_failed_undo_far_below_travels_up_through_all_levels(db: Db) {
    const LEVELS: u32 = 40;
    let order = |cx: Cx, of: u32| async move {
        if of == LEVELS {
            let step = cx.step("stick", |_| async { Ok::<_, Failure>(()) });
            let undo = |_: Tx, ()| async { Err::<(), _>(Failure::business("it is stuck")) };
            step.undo(undo).await?;
            return Ok(of);
        }
        cx.publish(PLACED, &(of + 1)).await?;
        match of {
            0 => Err(Failure::business("no")),
            of => Ok(of),
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).subscribe(PLACED, ORDER));
    let process = process.await;
    let run = process.start(ORDER, &0).await.unwrap().id();
    assert_eq!(ends(&process, run).await, RunState::RollbackFailed);
    let outcome = process.run(run).await.unwrap().row.outcome.unwrap();
    let size = serde_json::to_string(&outcome).unwrap().len();
    assert!(size < 200_000, "{size} bytes");
    let trace = outcome.into_result().unwrap_err().trace();
    assert!(
        trace.contains("caused by: it is stuck\n  at `stick`"),
        "{trace}"
    );
}

async fn m1_large_failures_of_many_and_through_levels_stay_failures(db: Db) {
    let large = "x".repeat(700_000);
    let stock = with(&large, |cx: Cx, of: u32, large: String| async move {
        if of < 10 {
            cx.child(STOCK, &(of + 10)).await?;
        }
        let failure = Failure::business(format!("no {of}")).with_data(&large);
        Err::<u32, _>(failure)
    });
    let order = |cx: Cx, of: u32| async move {
        let failure = match of {
            0 => cx.publish(PLACED, &1).await.unwrap_err(),
            // All of them end at about the same time, and are told in one round.
            _ => {
                let (one, two) = ([11, 12, 13, 14, 15, 16, 17], [21, 22, 23, 24]);
                let (one, two) = (cx.children(STOCK, &one), cx.children(STOCK, &two));
                let (one, two) = roundel::future::join(one, two).await;
                assert_eq!(child_failures(&two.unwrap_err()).len(), 4);
                one.unwrap_err()
            }
        };
        cx.sleep(Duration::from_millis(1)).await;
        Err::<u32, _>(failure)
    };
    const TOP: Workflow<u32, u32> = Workflow::named("top");
    let top = |cx: Cx, of: u32| async move {
        cx.children(ORDER, &[of, of]).await?;
        Ok(of)
    };
    let set_up = |engine: EngineBuilder| {
        let engine = engine.register(ORDER, order).register(STOCK, stock.clone());
        engine.register(TOP, top).subscribe(PLACED, STOCK)
    };
    each(&db, set_up, async |process| {
        for (of, said) in [(0, "no 11"), (1, "no 11")] {
            let run = process.start(TOP, &of).await.unwrap().id();
            assert_eq!(ends(process, run).await, RunState::Failed);
            let outcome = process.run(run).await.unwrap().row.outcome.unwrap();
            let trace = outcome.into_result().unwrap_err().trace();
            assert!(
                trace.contains("2 of 2 runs") && trace.contains("runs that"),
                "{trace}"
            );
            let below = process.runs().of("order").unwrap().fetch().await.unwrap();
            let failure = below.items[0].row.outcome.clone().unwrap();
            let trace = failure.into_result().unwrap_err().trace();
            assert!(trace.contains(said), "{trace}");
        }
    })
    .await;
}
