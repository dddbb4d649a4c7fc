//! What code can read of where it stands, and what failures say of where they happened.

use std::time::Duration;

use roundel::{Attempt, Cx, Emitted, Failure, Retry, RunId, RunState, Topic, Tx, Workflow};

use super::trace::{Trace, with};
use crate::support::{Db, all};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const LABEL: Workflow<u32, Vec<RunId>> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const PACKED: Topic<u32> = Topic::named("packed");
const UNHEARD: Topic<u32> = Topic::named("unheard");

all![
    sc_64_a_run_knows_its_lineage,
    sc_64_a_step_and_an_effect_know_their_name_and_attempt,
    sc_64_a_run_knows_what_it_has_emitted,
    sc_63_the_trace_of_a_failure_crosses_runs_and_workers,
];

async fn sc_64_a_run_knows_its_lineage(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        assert_eq!(cx.lineage().await?, [cx.run()], "a root is alone");
        let ended = cx.publish(PLACED, &of).await?;
        let of: Vec<RunId> = ended[0].output()?;
        assert_eq!(of[..2], [cx.run(), ended[0].run()]);
        Ok(u32::try_from(of.len()).unwrap())
    };
    const MIDDLE: Workflow<u32, Vec<RunId>> = Workflow::named("middle");
    let middle = |cx: Cx, of: u32| async move { cx.child(LABEL, &of).await };
    let label = |cx: Cx, _: u32| async move {
        let lineage = cx.lineage().await?;
        cx.sleep(Duration::from_millis(1)).await;
        assert_eq!(cx.lineage().await?, lineage);
        assert_eq!(lineage.last(), Some(&cx.run()));
        Ok(lineage)
    };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(MIDDLE, middle);
            let engine = engine.register(LABEL, label).subscribe(PLACED, MIDDLE);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 3);
        process.shutdown().await;
    }
}

async fn sc_64_a_step_and_an_effect_know_their_name_and_attempt(db: Db) {
    let trace = Trace::default();
    let order = with(&trace, |cx: Cx, of: u32, trace: Trace| async move {
        let noted = |attempt: &Attempt| {
            assert_eq!(attempt.run(), cx.run());
            let (name, number) = (attempt.name(), attempt.number());
            trace.add(format!("{name} {number} {}", attempt.is_last()));
            match number {
                1 => Err(Failure::transient("not now")),
                _ => Ok(()),
            }
        };
        let again = Retry::fixed(2, Duration::from_millis(1));
        let undone = trace.clone();
        let step = cx.step("reserve", |tx: Tx| {
            let noted = Attempt::of(&tx).and_then(|attempt| noted(&attempt));
            async move { noted }
        });
        let step = step.retry(again).undo(move |tx: Tx, ()| {
            let undone = undone.clone();
            async move {
                undone.add(format!("undo {}", Attempt::of(&tx)?.name()));
                Ok::<_, Failure>(())
            }
        });
        step.await?;
        let effect = cx.effect("pay", |attempt| {
            let noted = noted(&attempt);
            async move { noted }
        });
        effect.retry(again).await?;
        Err::<u32, _>(Failure::business(format!("no {of}")))
    });
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    assert!(order.result().await.is_err());
    let expected = [
        "reserve 1 false",
        "reserve 2 true",
        "pay 1 false",
        "pay 2 true",
        "undo reserve",
    ];
    assert_eq!(trace.all(), expected);
}

fn topics(emitted: &[Emitted]) -> Vec<&str> {
    emitted.iter().map(|one| one.topic.as_str()).collect()
}

async fn sc_64_a_run_knows_what_it_has_emitted(db: Db) {
    let order = |cx: Cx, of: u32| async move {
        assert_eq!(cx.emitted(), []);
        cx.publish(PLACED, &of).await?;
        assert_eq!(topics(&cx.emitted()), ["placed"]);
        let step = cx.step("place", |tx: Tx| async move {
            let attempt = Attempt::of(&tx)?;
            assert_eq!(
                attempt.emitted(),
                [],
                "what others emitted is not the step's"
            );
            PACKED.publish(&tx, &of)?;
            UNHEARD.publish(&tx, &of)?;
            assert_eq!(topics(&attempt.emitted()), ["packed", "unheard"]);
            Ok::<_, Failure>(())
        });
        step.await?;
        let failing = cx.step("fails", |tx: Tx| async move {
            PACKED.publish(&tx, &of)?;
            Err::<(), _>(Failure::business("no"))
        });
        failing.await.unwrap_err();
        cx.sleep(Duration::from_millis(1)).await;
        // One whose runs fail was emitted all the same.
        cx.publish(PLACED, &0).await.unwrap_err();
        let emitted = cx.emitted();
        assert_eq!(topics(&emitted), ["placed", "packed", "unheard", "placed"]);
        let ids: Vec<_> = emitted.into_iter().map(|one| one.publication).collect();
        let recorded = cx.effect("note", |_| async { Ok::<_, Failure>(ids.clone()) });
        assert_eq!(recorded.await?, ids, "the same in replay");
        cx.sleep(Duration::from_millis(1)).await;
        Ok(of)
    };
    let stock = |_: Cx, of: u32| async move {
        match of {
            0 => Err(Failure::business("nothing")),
            of => Ok(of),
        }
    };
    for keep in [0, 100] {
        let process = db.start(|engine| {
            let engine = engine.register(ORDER, order).register(STOCK, stock);
            let engine = engine.subscribe(PLACED, STOCK).subscribe(PACKED, STOCK);
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut order = process.start(ORDER, &1).await.unwrap();
        assert_eq!(order.result().await.unwrap(), 1);
        let dump = db.dump().await;
        let by = |of| {
            dump.publications
                .iter()
                .filter(move |(_, row)| row.by.is_some_and(|by| by.run == of))
        };
        assert_eq!(by(order.id()).count(), 4);
        process.shutdown().await;
    }
}

/// Two processes, each with its own workflow: what fails in one is read in the other.
async fn sc_63_the_trace_of_a_failure_crosses_runs_and_workers(db: Db) {
    #[derive(Debug)]
    struct Foreign;
    impl std::fmt::Display for Foreign {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the depot is closed")
        }
    }
    impl std::error::Error for Foreign {}
    let stock = |cx: Cx, of: u32| async move {
        let packed = cx.effect("pack", |_| async { Err::<u32, _>(Foreign) });
        let packed = packed.retry(Retry::fixed(2, Duration::from_millis(1)));
        packed.await.map_err(|cause| {
            let failure = Failure::business("nothing can be packed");
            failure.with_code("closed").with_data(&of).caused_by(cause)
        })
    };
    let depot = db.start(|engine| engine.register(STOCK, stock).name("the depot"));
    let depot = depot.await;
    let order = |cx: Cx, of: u32| async move {
        cx.publish(PLACED, &of).await?;
        Ok(of)
    };
    let desk = db.start(|engine| engine.register(ORDER, order).name("the desk"));
    let desk = desk.await;
    desk.subscribe("placed", "stock").await.unwrap();
    let mut run = desk.start(ORDER, &7).await.unwrap();
    assert!(run.result().await.is_err());
    let row = desk.run(run.id()).await.unwrap().row;
    assert_eq!(row.state, RunState::Failed, "there is nothing to undo");
    let failure = row.outcome.unwrap().into_result().unwrap_err();
    let stock = desk.runs().of("stock").unwrap().fetch().await.unwrap();
    let stock = stock.items[0].row.id;
    let expected = format!(
        "1 of 1 runs that publish `placed` set off failed\n\
         caused by: nothing can be packed\n\
         caused by: the depot is closed\n  \
         at `pack`, attempt 2, in run {stock} of `stock`, by the depot"
    );
    assert_eq!(failure.trace(), expected);
    let primary = failure.cause.unwrap();
    assert_eq!(
        (primary.code.as_str(), primary.data.unwrap().as_str()),
        ("closed", "7")
    );
    let foreign = primary.cause.unwrap();
    assert_eq!(foreign.class, roundel::Class::Exhausted);
    assert_eq!(foreign.attempts.len(), 1);
    depot.shutdown().await;
}
