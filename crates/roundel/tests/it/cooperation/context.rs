//! Context: what flows down to what a run sets off, as it is at that moment.

use std::time::Duration;

use roundel::{Client, Cx, Failure, Key, Result, RunState, Signal, Topic, Tx, Workflow};

use super::trace::Trace;
use crate::support::{Db, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const TENANT: Key<String> = Key::named("tenant");
const TRACED: Key<Vec<u32>> = Key::named("traced");
const ANYTHING: Key<serde_json::Value> = Key::named("änything {\"}");
const GO: Signal<u32> = Signal::named("go");

all![
    sc_60_context_flows_down_as_it_is_at_that_moment,
    sc_60_what_a_step_sets_is_gone_if_the_step_fails,
    sc_60_in_rollback_the_parents_context_wins,
    sc_61_what_nobody_knows_survives,
    sc_60_context_survives_a_replay_and_a_new_execution,
    e10_a_context_that_is_too_large_is_refused,
];

fn tenant(cx: &Cx) -> String {
    cx.context(TENANT).unwrap().unwrap_or_default()
}

async fn sc_60_context_flows_down_as_it_is_at_that_moment(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        assert_eq!(tenant(&cx), "acme");
        let child = cx.child(STOCK, &of);
        // What changes after that is not seen by the child; and nothing flows up.
        let (child, set) = roundel::future::join(child, async {
            cx.sleep(Duration::from_millis(1)).await;
            cx.set_context(TENANT, &"later".to_owned()).await
        })
        .await;
        set?;
        assert_eq!((child?, tenant(&cx).as_str()), (4, "later"));
        assert_eq!(cx.context(TRACED)?, None);
        // Publications and many children have it, and what is added for them.
        let heard = cx.publish(PLACED, &of).context(TRACED, &vec![7]).await?;
        assert_eq!(heard[0].output::<u32>()?, 5 + 1);
        let many = cx.children(LABEL, &[1, 2]).context(TRACED, &vec![7, 8]);
        assert_eq!(many.await?, [5 + 2, 5 + 2]);
        let step = cx.step("place", |tx| async move { PLACED.publish(&tx, &of) });
        step.await?;
        assert_eq!(cx.ended()[0].output::<u32>()?, 5);
        Ok(of)
    };
    let stock = |cx: Cx, _: u32| async move {
        let length = tenant(&cx).len();
        cx.set_context(TENANT, &"changed below".to_owned()).await?;
        cx.set_context(TRACED, &vec![1]).await?;
        cx.sleep(Duration::from_millis(5)).await;
        assert_eq!(tenant(&cx), "changed below");
        Ok(u32::try_from(length).unwrap())
    };
    let label = |cx: Cx, _: u32| async move {
        let traced = cx.context(TRACED)?.unwrap_or_default();
        // Effects and steps see it too.
        let seen = cx.effect("look", |attempt| async move { attempt.context(TENANT) });
        assert_eq!(seen.await?, Some(tenant(&cx)));
        let seen = cx.step("look", |tx| async move { TENANT.get(&tx) });
        assert_eq!(seen.await?, Some(tenant(&cx)));
        Ok(u32::try_from(tenant(&cx).len() + traced.len()).unwrap())
    };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(STOCK, stock);
            let engine = engine.register(LABEL, label).subscribe(PLACED, LABEL);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let start = process.start(ORDER, &7).context(TENANT, &"acme".to_owned());
        assert_eq!(start.await.unwrap().result().await.unwrap(), 7);
        process.shutdown().await;
    }
}

async fn sc_60_what_a_step_sets_is_gone_if_the_step_fails(db: Db) {
    let order = |cx: Cx, _: u32| async move {
        let failed = cx.step("fails", |tx: Tx| async move {
            TENANT.set(&tx, &"gone".to_owned())?;
            assert_eq!(TENANT.get(&tx)?.as_deref(), Some("gone"));
            Err::<(), _>(Failure::business("no"))
        });
        assert!(failed.await.is_err());
        assert_eq!(tenant(&cx), "");
        let works = cx.step("works", |tx: Tx| async move {
            TENANT.set(&tx, &"set".to_owned())?;
            PLACED.publish(&tx, &1)
        });
        works.await?;
        assert_eq!(tenant(&cx), "set");
        cx.sleep(Duration::from_millis(1)).await;
        cx.ended()[0].output::<u32>()
    };
    let label = |cx: Cx, _: u32| async move { Ok(u32::try_from(tenant(&cx).len()).unwrap()) };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(LABEL, label);
            let engine = engine.subscribe(PLACED, LABEL);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 3);
        process.shutdown().await;
    }
}

async fn sc_60_in_rollback_the_parents_context_wins(db: Db) {
    let trace = Trace::default();
    let order = |cx: Cx, of: u32| async move {
        cx.set_context(TENANT, &"acme".to_owned()).await?;
        cx.child(STOCK, &of).await?;
        cx.set_context(TENANT, &"rolling".to_owned()).await?;
        Err::<u32, _>(Failure::business("no money"))
    };
    let stock = {
        let trace = trace.clone();
        move |cx: Cx, of: u32| {
            let trace = trace.clone();
            async move {
                cx.set_context(TENANT, &"mine".to_owned()).await?;
                cx.set_context(TRACED, &vec![of]).await?;
                let step = cx.step("reserve", |_| async { Ok::<_, Failure>(()) });
                step.undo(move |tx: Tx, ()| {
                    let line = (TENANT.get(&tx), TRACED.get(&tx));
                    trace.add(format!("{line:?}"));
                    async { Ok::<_, Failure>(()) }
                })
                .await?;
                Ok(of)
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let mut order = process.start(ORDER, &3).await.unwrap();
    assert!(order.result().await.is_err());
    let state = process.run(order.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::RolledBack);
    assert_eq!(
        trace.all(),
        [r#"(Ok(Some("rolling")), Ok(Some([3])))"#],
        "what the parent has wins, the rest is the run's own"
    );
}

async fn sc_61_what_nobody_knows_survives(db: Db) {
    // The two in between know nothing of the key.
    let order = |cx: Cx, of: u32| async move { cx.child(STOCK, &of).await };
    let stock = |cx: Cx, of: u32| async move {
        let heard = cx.publish(PLACED, &of).await?;
        heard[0].output()
    };
    let values = [
        serde_json::json!(null),
        serde_json::json!({"a": null, "b": [null, {"c": null}], "": ""}),
        serde_json::json!("{\"looks\": \"like JSON\", \"null\": null}"),
        serde_json::json!("\u{0}\u{1}\u{1f}\t\r\n\u{7f}\u{2028} ä 🚋 \u{10ffff}"),
        serde_json::json!([u64::MAX, i64::MIN, 0.1, "1e400"]),
    ];
    for (number, value) in values.into_iter().enumerate() {
        let due = value.clone();
        let label = move |cx: Cx, of: u32| {
            let due = due.clone();
            async move {
                assert_eq!(cx.context(ANYTHING)?, Some(due));
                Ok(of)
            }
        };
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(STOCK, stock);
            let engine = engine.register(LABEL, label).subscribe(PLACED, LABEL);
            engine.keep_in_memory(0, Duration::ZERO)
        });
        let process = process.await;
        let of = u32::try_from(number).unwrap();
        let start = process.start(ORDER, &of).context(ANYTHING, &value);
        assert_eq!(start.await.unwrap().result().await.unwrap(), of);
        process.shutdown().await;
    }
}

async fn sc_60_context_survives_a_replay_and_a_new_execution(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        if of < 2 {
            cx.set_context(TENANT, &format!("{}!", tenant(&cx))).await?;
            return cx.continue_as_new(&(of + 1)).await;
        }
        let step = cx.step("mark", |tx: Tx| async move {
            let tenant = TENANT.get(&tx)?.unwrap_or_default();
            TENANT.set(&tx, &format!("{tenant}?"))
        });
        step.await?;
        cx.wait(GO).await?;
        cx.child(STOCK, &of).await
    };
    let stock = |cx: Cx, of: u32| async move {
        assert_eq!(tenant(&cx), "acme!!?");
        Ok(of)
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let start = process.start(ORDER, &0).context(TENANT, &"acme".to_owned());
    let order_id = start.await.unwrap().id();
    until("it waits", async || {
        process.run(order_id).await.unwrap().row.waits == 1
    })
    .await;
    process.crash();
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let client: &Client = &process;
    client.signal(order_id, GO, &1).await.unwrap();
    let mut handle = client.handle(ORDER, order_id).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 2);
}

async fn e10_a_context_that_is_too_large_is_refused(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        let large = "x".repeat(roundel::limits::CONTEXT_BYTES);
        let refused = cx.set_context(TENANT, &large).await.unwrap_err();
        assert_eq!(refused.code, "too_large");
        assert_eq!(tenant(&cx), "");
        let refused = cx.child(STOCK, &of).context(TENANT, &large).await;
        assert!(refused.unwrap_err().message.contains("limited to"));
        Ok(of)
    };
    let stock = |_: Cx, of: u32| async move { Ok::<_, Failure>(of) };
    let process = db.start(|engine| engine.register(ORDER, order).register(STOCK, stock));
    let process = process.await;
    let large = "x".repeat(roundel::limits::CONTEXT_BYTES);
    assert!(
        process
            .start(ORDER, &1)
            .context(TENANT, &large)
            .await
            .is_err()
    );
    let mut order = process.start(ORDER, &1).await.unwrap();
    let ended: Result<u32, _> = order.result().await;
    assert_eq!(ended.unwrap(), 1);
}
