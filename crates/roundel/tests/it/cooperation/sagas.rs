//! Workflows declared as a list of steps.

use std::time::Duration;

use roundel::{
    Cx, Ended, EngineBuilder, Failure, Next, Result, RunState, Saga, Topic, Tx, Visit, Workflow,
};

use super::ledger::state;
use super::trace::Trace;
use crate::support::{Db, all};

const TRIP: Workflow<Vec<String>, Vec<String>> = Workflow::named("trip");
const BOOK: Workflow<u32, u32> = Workflow::named("book");
const BOOKED: Topic<u32> = Topic::named("booked");

type Path = Vec<String>;

all![
    sc_52_steps_go_on_repeat_and_go_to_others_and_are_undone_in_reverse,
    sc_52_a_step_that_goes_where_nothing_is_fails,
    sc_26_failures_of_children_are_handled_by_publishing_again,
    d14_handling_without_end_is_stopped,
];

/// A step that notes its visit, and goes where the function says.
fn noted(
    saga: Saga<Path>,
    name: &'static str,
    trace: &Trace,
    to: impl Fn(Path, u32) -> Next<Path> + Send + Sync + 'static,
) -> Saga<Path> {
    let trace = trace.clone();
    saga.step(name, move |_: Tx, visit: Visit<Path>| {
        let (iteration, mut path) = (visit.iteration(), visit.into_state());
        path.push(format!("{name} {iteration}"));
        let next = to(path, iteration);
        async move { Ok::<_, Failure>(next) }
    })
    .undo(move |_: Tx, path: Path| {
        let trace = trace.clone();
        async move {
            trace.add(path.last().cloned().unwrap_or_default());
            Ok::<_, Failure>(())
        }
    })
}

async fn sc_52_steps_go_on_repeat_and_go_to_others_and_are_undone_in_reverse(db: Db) {
    let path = [
        "a 1", "a 2", "a 3", // repeats
        "c 1", // ahead, past b
        "b 1", // back
        "c 2", "c 3", // to itself
        "d 1",
    ];
    for keep in [0, 100] {
        let trace = Trace::default();
        let saga = |fails: bool| {
            let saga = noted(
                Saga::new(),
                "a",
                &trace,
                |path, iteration| match iteration {
                    1 | 2 => Next::repeat(path),
                    _ => Next::go_to("c", path),
                },
            );
            let saga = noted(saga, "b", &trace, |path, _| Next::go_on(path));
            let saga = noted(saga, "c", &trace, |path, iteration| match iteration {
                1 => Next::go_to("b", path),
                2 => Next::go_to("c", path),
                _ => Next::go_on(path),
            });
            let saga = noted(saga, "d", &trace, |path, _| Next::go_on(path));
            saga.step("e", move |_: Tx, visit: Visit<Path>| async move {
                match fails {
                    true => Err(Failure::business("no")),
                    false => Ok(Next::go_on(visit.into_state())),
                }
            })
        };
        const FAILS: Workflow<Path, Path> = Workflow::named("fails");
        let process = db.start(|engine| {
            let engine = engine.register(TRIP, saga(false).into_workflow());
            let engine = engine.register(FAILS, saga(true).into_workflow());
            engine.keep_in_memory(keep, Duration::from_secs(60))
        });
        let process = process.await;
        let mut run = process.start(TRIP, &vec![]).await.unwrap();
        assert_eq!(run.result().await.unwrap(), path);
        assert_eq!(trace.all(), Vec::<String>::new());
        let mut run = process.start(FAILS, &vec![]).await.unwrap();
        assert!(run.result().await.is_err());
        assert_eq!(state(&process, run.id()).await, RunState::RolledBack);
        let reversed: Vec<&str> = path.into_iter().rev().collect();
        assert_eq!(trace.all(), reversed);
        process.shutdown().await;
    }
}

async fn sc_52_a_step_that_goes_where_nothing_is_fails(db: Db) {
    let trace = Trace::default();
    let saga = noted(Saga::new(), "a", &trace, |path, _| Next::go_to("z", path));
    let twice = noted(Saga::new(), "a", &trace, |path, _| Next::go_on(path));
    let twice = noted(twice, "a", &trace, |path, _| Next::go_on(path));
    const TWICE: Workflow<Path, Path> = Workflow::named("twice");
    let process = db.start(|engine| {
        let engine = engine.register(TRIP, saga.into_workflow());
        engine.register(TWICE, twice.into_workflow())
    });
    let process = process.await;
    for (workflow, said) in [
        (TRIP, "go to `z`; the saga has a"),
        (TWICE, "two steps `a`"),
    ] {
        let mut run = process.start(workflow, &vec![]).await.unwrap();
        let parked = run.result().await.unwrap_err().to_string();
        assert!(parked.contains(said), "{parked}");
    }
    assert_eq!(trace.all(), Vec::<String>::new());
}

/// A saga whose first step publishes; whoever hears it fails until it hears this number.
fn booking(
    engine: EngineBuilder,
    (trace, until, last): (&Trace, u32, Option<&'static str>),
) -> EngineBuilder {
    let handled = trace.clone();
    let saga = noted(Saga::new(), "pack", trace, |path, _| Next::go_on(path))
        .step("book", |tx: Tx, visit: Visit<Path>| async move {
            BOOKED.publish(&tx, &1)?;
            let mut path = visit.into_state();
            path.push("booked".into());
            Ok::<_, Failure>(Next::go_on(path))
        })
        .undo({
            let trace = trace.clone();
            move |_: Tx, _| {
                trace.add("undo book");
                async { Ok::<_, Failure>(()) }
            }
        })
        .on_child_failure(move |tx: Tx, visit: Visit<Path>, failed: Vec<Ended>| {
            let trace = handled.clone();
            async move {
                assert_eq!(
                    visit.state().last().unwrap(),
                    "booked",
                    "as the step left it"
                );
                assert_eq!(failed.len(), 1);
                let again = visit.iteration() + 1;
                trace.add(failed[0].failure().unwrap().message.clone());
                BOOKED.publish(&tx, &again)?;
                Ok::<_, Failure>(Next::go_on(visit.into_state()))
            }
        })
        .step("pay", move |_: Tx, visit: Visit<Path>| async move {
            match last {
                Some(reason) => Err(Failure::business(reason)),
                None => Ok(Next::go_on(visit.into_state())),
            }
        });
    let trace = trace.clone();
    let book = move |cx: Cx, of: u32| {
        let trace = trace.clone();
        async move {
            if of < until {
                return Err(Failure::business(format!("full at {of}")));
            }
            let booked = cx.step("seat", |_| async move { Ok::<_, Failure>(of) });
            let undo = move |_: Tx, of: u32| {
                trace.add(format!("undo seat {of}"));
                async { Ok::<_, Failure>(()) }
            };
            booked.undo(undo).await
        }
    };
    let engine = engine.register(TRIP, saga.at_most(20).into_workflow());
    engine.register(BOOK, book).subscribe(BOOKED, BOOK)
}

async fn trip(
    db: &Db,
    with: (&Trace, u32, Option<&'static str>),
    keep: usize,
) -> Result<Path, String> {
    let process = db.start(|engine| {
        let engine = booking(engine, with);
        engine.keep_in_memory(keep, Duration::from_secs(60))
    });
    let process = process.await;
    let mut run = process.start(TRIP, &vec![]).await.unwrap();
    let result = run.result().await.map_err(|error| error.to_string());
    process.shutdown().await;
    result
}

async fn sc_26_failures_of_children_are_handled_by_publishing_again(db: Db) {
    for keep in [0, 100] {
        let trace = Trace::default();
        let path = trip(&db, (&trace, 3, None), keep).await.unwrap();
        assert_eq!(path, ["pack 1", "booked"]);
        assert_eq!(trace.all(), ["full at 1", "full at 2"]);
        // What was published while handling is undone too, if the saga fails later.
        trace.clear();
        let failure = trip(&db, (&trace, 3, Some("no money")), keep).await;
        assert!(failure.unwrap_err().contains("no money"));
        let undone = ["undo seat 3", "undo book", "pack 1"];
        assert_eq!(
            trace.all(),
            [&["full at 1", "full at 2"], &undone[..]].concat()
        );
    }
}

async fn d14_handling_without_end_is_stopped(db: Db) {
    let trace = Trace::default();
    let failure = trip(&db, (&trace, u32::MAX, None), 100).await.unwrap_err();
    assert!(failure.contains("20 visits"), "{failure}");
    // The first two visits are those of the steps themselves.
    assert_eq!(trace.all().len(), 18);
}
