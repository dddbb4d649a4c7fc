//! Everything is moved to another database while runs are under way, at every sort of wait, and
//! goes on there: nothing is lost, and nothing happens twice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use roundel::{
    Arrival, Begun, Cx, EngineBuilder, Fact, Failure, Projection, Result, Retry, RunId, RunState,
    Sent, Signal, Topic, Undone, Workflow,
};
use roundel_store::{Dump, Error, Moved, Moving, move_database};

use crate::cooperation::trace::Trace;
use crate::support::{Db, Process, soon, until};

const TIMER: Workflow<u32, u32> = Workflow::named("timer");
const GATED: Workflow<u32, u32> = Workflow::named("gated");
const ASKED: Workflow<u32, u32> = Workflow::named("asked");
const PARENT: Workflow<u32, u32> = Workflow::named("parent");
const WATCHER: Workflow<RunId, u32> = Workflow::named("watcher");
const PUBLISHER: Workflow<u32, u32> = Workflow::named("publisher");
const FLAKY: Workflow<u32, u32> = Workflow::named("flaky");
const STUCK: Workflow<u32, u32> = Workflow::named("stuck");
const UNDONE: Workflow<u32, u32> = Workflow::named("undone");
const GO: Signal<u32> = Signal::named("go");
const LATER: Signal<u32> = Signal::named("later");
const JOB: Signal<u32> = Signal::named("job").offerable();
const STRAY: Signal<u32> = Signal::named("stray").offerable();
const NEWS: Topic<u32> = Topic::named("news");
const HOUR: Duration = Duration::from_secs(3600);

/// Makes a test for each pair of stores of each of these functions.
macro_rules! pairs {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn from_sqlite_to_sqlite() {
                use $crate::support::Db;
                super::$name(Db::sqlite(), Db::sqlite()).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn from_sqlite_to_postgres() {
                use $crate::support::Db;
                if let Some(to) = Db::postgres() {
                    super::$name(Db::sqlite(), to).await;
                }
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn from_postgres_to_sqlite() {
                use $crate::support::Db;
                if let Some(from) = Db::postgres() {
                    super::$name(from, Db::sqlite()).await;
                }
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn from_postgres_to_postgres() {
                use $crate::support::Db;
                if let (Some(from), Some(to)) = (Db::postgres(), Db::postgres()) {
                    super::$name(from, to).await;
                }
            }
        })*
    };
}

pairs![
    runs_at_every_sort_of_wait_go_on_where_they_were_moved_to,
    what_is_interrupted_changes_nothing_and_can_be_done_again,
    what_somebody_works_on_is_not_moved,
    fa_20_schedules_go_on_where_they_were_moved_to,
    fa_10_facts_that_came_in_go_on_where_they_were_moved_to,
    fa_13_projections_go_on_where_they_were_moved_to,
    whoever_has_the_source_open_commits_nothing_more,
];

/// Moves on a thread that may wait.
async fn moves(from: &Db, to: &Db) -> std::result::Result<Moved, Error> {
    let (from, to) = (from.to_be_moved(), to.to_be_moved());
    let work = tokio::task::spawn_blocking(move || move_database(&from, &to, &mut |_| ()));
    work.await.expect("no panic")
}

/// What the runs have outside of the database.
#[derive(Clone, Default)]
struct Outside {
    trace: Trace,
    /// Nothing that is asked of it works.
    down: Arc<AtomicBool>,
}

impl Outside {
    fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }
}

/// An effect that leaves its trace, and can be undone.
async fn pay(cx: &Cx, outside: &Outside, what: &'static str) -> Result<u32> {
    let (doing, undoing) = (outside.clone(), outside.clone());
    let effect = cx.effect(what, move |_| {
        let outside = doing.clone();
        async move {
            outside.trace.add(what);
            Ok::<u32, Failure>(1)
        }
    });
    let effect = effect.undo(move |_: Begun<u32>| {
        let outside = undoing.clone();
        async move {
            if outside.is_down() {
                return Err(Failure::transient("nobody answers"));
            }
            outside.trace.add(format!("undo {what}"));
            Ok(())
        }
    });
    effect.await
}

/// An effect that fails while all is down.
async fn try_it(cx: &Cx, outside: &Outside, what: &'static str, failure: Failure) -> Result<u32> {
    let outside = outside.clone();
    let effect = cx.effect(what, move |_| {
        let (outside, failure) = (outside.clone(), failure.clone());
        async move {
            if outside.is_down() {
                return Err(failure);
            }
            outside.trace.add(what);
            Ok(1)
        }
    });
    effect.retry(Retry::fixed(5, HOUR)).await
}

type Boxed = roundel_store::Boxed<'static, Result<u32>>;

/// A workflow's function that is given what is outside.
fn with(
    outside: &Outside,
    function: fn(Cx, u32, Outside) -> Boxed,
) -> impl Fn(Cx, u32) -> Boxed + Send + Sync + use<> {
    let outside = outside.clone();
    move |cx, of| function(cx, of, outside.clone())
}

fn timer(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        pay(&cx, &outside, "timer").await?;
        cx.set_state(&of).await?;
        cx.sleep(HOUR).await;
        pay(&cx, &outside, "timer over").await?;
        Ok(of)
    })
}

fn gated(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        pay(&cx, &outside, "gated").await?;
        let go = cx.wait(GO).await?;
        let later = cx.wait(LATER).await?;
        Ok(of + go + later)
    })
}

fn asked(cx: Cx, _: u32, _: Outside) -> Boxed {
    Box::pin(async move { cx.wait(JOB).await })
}

fn parent(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        pay(&cx, &outside, "parent").await?;
        cx.child(ASKED, &of).await
    })
}

fn publisher(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        pay(&cx, &outside, "publisher").await?;
        let ended = cx.publish(NEWS, &of).await?;
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    })
}

fn flaky(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        let failure = Failure::transient("nobody answers");
        try_it(&cx, &outside, "flaky", failure).await?;
        Ok(of)
    })
}

fn stuck(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        let failure = Failure::permanent("it is broken");
        try_it(&cx, &outside, "stuck", failure).await?;
        Ok(of)
    })
}

fn undone(cx: Cx, of: u32, outside: Outside) -> Boxed {
    Box::pin(async move {
        pay(&cx, &outside, "undone 1").await?;
        pay(&cx, &outside, "undone 2").await?;
        match of {
            0 => Err(Failure::business("no")),
            of => Ok(of),
        }
    })
}

fn set_up(outside: &Outside) -> impl Fn(EngineBuilder) -> EngineBuilder + use<> {
    let outside = outside.clone();
    move |engine| {
        let has = |function| with(&outside, function);
        let watcher = |cx: Cx, run: RunId| async move { cx.wait_for::<u32>(run).await };
        let engine = engine.register(TIMER, has(timer));
        let engine = engine.register(GATED, has(gated));
        let engine = engine.register(ASKED, has(asked));
        let engine = engine.register(PARENT, has(parent));
        let engine = engine.register(PUBLISHER, has(publisher));
        let engine = engine.register(FLAKY, has(flaky));
        let engine = engine.register(STUCK, has(stuck));
        let engine = engine.register(UNDONE, has(undone));
        let engine = engine.register(WATCHER, watcher);
        engine.subscribe(NEWS, GATED).subscribe(NEWS, TIMER)
    }
}

/// Waits until the run is in this state and nobody has it.
async fn rests(process: &Process, run: RunId, state: RunState) {
    until("it waits", async || {
        let row = process.run(run).await.unwrap().row;
        row.state == state && row.owner.is_none() && row.news_at.is_none()
    })
    .await;
}

/// One of each.
struct Runs {
    timer: RunId,
    gated: RunId,
    parent: RunId,
    watcher: RunId,
    publisher: RunId,
    flaky: RunId,
    stuck: RunId,
    undone: RunId,
    completed: RunId,
}

async fn start_all(process: &Process, outside: &Outside) -> Runs {
    let completed = process.start(UNDONE, &7).await.unwrap().result().await;
    assert_eq!(completed.unwrap(), 7);
    outside.down.store(true, Ordering::SeqCst);
    let timer = process.start(TIMER, &1).key("first").label("kind", "timer");
    let timer = timer.await.unwrap().id();
    let gated = process.start(GATED, &100).await.unwrap().id();
    let runs = Runs {
        timer,
        gated,
        parent: process.start(PARENT, &1).await.unwrap().id(),
        watcher: process.start(WATCHER, &timer).await.unwrap().id(),
        publisher: process.start(PUBLISHER, &1).await.unwrap().id(),
        flaky: process.start(FLAKY, &1).await.unwrap().id(),
        stuck: process.start(STUCK, &1).await.unwrap().id(),
        undone: process.start(UNDONE, &0).await.unwrap().id(),
        completed: process
            .runs()
            .of("undone")
            .unwrap()
            .limit(2)
            .fetch()
            .await
            .unwrap()
            .items[1]
            .row
            .id,
    };
    use RunState::{Parked, RollingBack, Waiting};
    for run in [
        runs.timer,
        runs.gated,
        runs.parent,
        runs.watcher,
        runs.publisher,
        runs.flaky,
    ] {
        rests(process, run, Waiting).await;
    }
    rests(process, runs.stuck, Parked).await;
    rests(process, runs.undone, RollingBack).await;
    let ada = process.operator("Ada").unwrap().reason("to see");
    ada.patch_state(timer, &serde_json::json!({"seen": true}), None)
        .await
        .unwrap();
    // A message that nobody waits for yet, under a key; an offer that nobody wants yet.
    let sent = process.signal(gated, LATER, &20).key("once").await.unwrap();
    assert_eq!(sent, Sent::Queued);
    let sent = process.offer(STRAY, &5).key("once").await.unwrap();
    assert_eq!(sent, Sent::Queued);
    for child in process
        .children(runs.publisher, None, 9)
        .await
        .unwrap()
        .items
    {
        rests(process, child.row.id, Waiting).await;
    }
    runs
}

/// A dump with a row of every kind, or the test would show little.
async fn full_dump(db: &Db) -> Dump {
    let dump = db.dump().await;
    let kinds = [
        dump.lanes.len(),
        dump.runs.len(),
        dump.journal.len(),
        dump.labels.len(),
        dump.mail.len(),
        dump.waits.len(),
        dump.gates.len(),
        dump.offers.len(),
        dump.keys.len(),
        dump.watches.len(),
        dump.states.len(),
        dump.subscriptions.len(),
        dump.publications.len(),
        dump.latches.len(),
        dump.audit.len(),
    ];
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    dump
}

/// What was asked before the move, under a key, is known after it.
async fn ask_again(process: &Process, runs: &Runs) {
    let again = process.start(TIMER, &1).key("first").await.unwrap();
    assert_eq!((again.id(), again.is_new()), (runs.timer, false));
    let labelled = process.runs().with_label("kind", "timer").unwrap();
    assert_eq!(labelled.fetch().await.unwrap().items.len(), 1);
    let sent = process
        .signal(runs.gated, LATER, &20)
        .key("once")
        .await
        .unwrap();
    assert_eq!(sent, Sent::Queued, "the first answer");
}

/// What the runs wait for.
async fn go_on(process: &Process, runs: &Runs) {
    process.signal(runs.gated, GO, &3).await.unwrap();
    let children = process.children(runs.publisher, None, 9).await.unwrap();
    for child in children
        .items
        .iter()
        .filter(|run| run.lane.workflow.as_str() == "gated")
    {
        process.signal(child.row.id, GO, &1).await.unwrap();
        process.signal(child.row.id, LATER, &1).await.unwrap();
    }
    let sent = process.offer(JOB, &9).await.unwrap();
    assert!(matches!(sent, Sent::Delivered(_)), "{sent:?}");
    process.resume(runs.stuck).await.unwrap();
    assert_eq!(
        process.undo(runs.completed).await.unwrap(),
        Undone::Begun { partial: false }
    );
}

/// What was done before is not done again, and the rest once.
fn assert_done_once(done: &[String], mut rest: Vec<String>) {
    assert!(
        rest.iter()
            .all(|what| !done.contains(what) || what == "timer over"),
        "{rest:?}"
    );
    rest.sort();
    let expected = [
        "flaky",
        "stuck",
        "timer over",
        "timer over",
        "undo undone 1",
        "undo undone 1",
        "undo undone 2",
        "undo undone 2",
    ];
    assert_eq!(rest, expected);
}

async fn runs_at_every_sort_of_wait_go_on_where_they_were_moved_to(from: Db, to: Db) {
    let from = from.with_manual_clock().left_behind();
    let to = to.with_the_clock_of(&from);
    let outside = Outside::default();
    let process = from.start(set_up(&outside)).await;
    let runs = start_all(&process, &outside).await;
    process.shutdown().await;
    let before = full_dump(&from).await;
    let moved = moves(&from, &to).await.unwrap();
    assert_eq!(moved.workers, Vec::<String>::new());
    assert!(to.dump().await == before, "every row is the same");
    let done = outside.trace.all();
    outside.down.store(false, Ordering::SeqCst);
    outside.trace.clear();
    // All timers are due by now; later, leases would end as well.
    to.advance(HOUR * 2);
    let process = to.start(set_up(&outside)).await;
    ask_again(&process, &runs).await;
    go_on(&process, &runs).await;
    let end = async |run: RunId| {
        let ended = async || process.run(run).await.unwrap().row.state.has_ended();
        to.meanwhile("its end", until("it has ended", ended)).await;
        process.run(run).await.unwrap().row.state
    };
    for run in [
        runs.timer,
        runs.gated,
        runs.parent,
        runs.watcher,
        runs.publisher,
        runs.flaky,
    ] {
        assert_eq!(end(run).await, RunState::Completed, "{run}");
    }
    assert_eq!(end(runs.stuck).await, RunState::Completed);
    assert_eq!(end(runs.undone).await, RunState::RolledBack);
    assert_eq!(end(runs.completed).await, RunState::RolledBack);
    let gated = process
        .handle(GATED, runs.gated)
        .await
        .unwrap()
        .result()
        .await;
    assert_eq!(gated.unwrap(), 123);
    let all = process
        .handle(PUBLISHER, runs.publisher)
        .await
        .unwrap()
        .result()
        .await;
    assert_eq!(all.unwrap(), 2);
    process.shutdown().await;
    assert_done_once(&done, outside.trace.all());
}

async fn what_is_interrupted_changes_nothing_and_can_be_done_again(from: Db, to: Db) {
    let from = from.with_manual_clock().left_behind();
    let to = to.with_the_clock_of(&from);
    let outside = Outside::default();
    let process = from.start(set_up(&outside)).await;
    start_all(&process, &outside).await;
    process.shutdown().await;
    let before = full_dump(&from).await;
    let empty = to.dump().await;
    for stop in 1.. {
        let (source, target) = (from.to_be_moved(), to.to_be_moved());
        let tried = tokio::task::spawn_blocking(move || {
            let mut told = 0;
            let mut stop_there = |_: &Moving| {
                told += 1;
                assert!(told < stop, "stopped on purpose");
            };
            catch_unwind(AssertUnwindSafe(|| {
                move_database(&source, &target, &mut stop_there)
            }))
        });
        if let Ok(moved) = tried.await.expect("it is caught") {
            moved.unwrap();
            assert!(stop > 10, "it was stopped {stop} times");
            break;
        }
        assert!(from.dump().await == before, "stopped at {stop}");
        assert!(to.dump().await == empty, "stopped at {stop}");
    }
    assert!(to.dump().await == before);
    // Killed between the two commits: the source says so, and nothing arrived.
    to.clear().await;
    assert!(to.dump().await == empty);
    moves(&from, &to).await.unwrap();
    assert!(to.dump().await.runs.len() == before.runs.len());
    // And now it is there.
    let error = moves(&from, &to).await.unwrap_err().to_string();
    assert!(error.contains("was moved there already"), "{error}");
    let error = moves(&to, &from).await.unwrap_err().to_string();
    assert!(error.contains("was moved to"), "{error}");
}

async fn what_somebody_works_on_is_not_moved(from: Db, to: Db) {
    let from = from.left_behind();
    let keys = Trace::default();
    let work = {
        let keys = keys.clone();
        move |cx: Cx, of: u32| {
            let keys = keys.clone();
            async move {
                let effect = cx.effect("work", move |attempt| {
                    let keys = keys.clone();
                    async move {
                        keys.add(attempt.key());
                        if keys.all().len() == 1 {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Failure>(())
                    }
                });
                effect.await?;
                Ok(of)
            }
        }
    };
    let process = from.start(|engine| {
        let engine = engine.register(TIMER, work.clone()).name("busy bee");
        engine.lease(Duration::from_secs(3))
    });
    let process = process.await;
    let run = process.start(TIMER, &4).await.unwrap().id();
    until("it works", async || keys.all().len() == 1).await;
    let error = moves(&from, &to).await.unwrap_err();
    assert!(
        error.is_passing() && error.to_string().contains("busy bee"),
        "{error}"
    );
    process.crash();
    until("its lease has ended", async || {
        match moves(&from, &to).await {
            Ok(moved) => {
                assert_eq!(moved.workers, ["busy bee"]);
                true
            }
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                false
            }
        }
    })
    .await;
    let process = to
        .start(|engine| engine.register(TIMER, work.clone()))
        .await;
    let mut handle = process.handle(TIMER, run).await.unwrap();
    assert_eq!(soon("its end", handle.result()).await.unwrap(), 4);
    let keys = keys.all();
    assert_eq!(
        keys.len(),
        2,
        "what was under way at the crash is begun again"
    );
    assert_eq!(keys[0], keys[1], "with the same key");
    process.shutdown().await;
}

async fn whoever_has_the_source_open_commits_nothing_more(from: Db, to: Db) {
    let from = from.left_behind();
    let outside = Outside::default();
    let idle = from.start(set_up(&outside)).await;
    let gated = idle.start(GATED, &1).await.unwrap().id();
    rests(&idle, gated, RunState::Waiting).await;
    moves(&from, &to).await.unwrap();
    let refused = [
        idle.signal(gated, GO, &1).await.map(|_| ()),
        idle.start(TIMER, &1).await.map(|_| ()),
        idle.cancel(gated).await.map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("was moved to"), "{error}");
    }
    idle.crash();
    let error = from.try_to_open().map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("was moved to") && error.contains("open that one"),
        "{error}"
    );
    let process = to.start(set_up(&outside)).await;
    process.signal(gated, GO, &1).await.unwrap();
    process.signal(gated, LATER, &1).await.unwrap();
    let mut handle = process.handle(GATED, gated).await.unwrap();
    assert_eq!(soon("its end", handle.result()).await.unwrap(), 3);
    assert_eq!(outside.trace.all(), ["gated"]);
    process.shutdown().await;
}

async fn fa_20_schedules_go_on_where_they_were_moved_to(from: Db, to: Db) {
    let from = from.with_manual_clock().left_behind();
    let to = to.with_the_clock_of(&from);
    let app = |engine: EngineBuilder| {
        engine.register(TIMER, |_: Cx, number: u32| async move { Ok(number) })
    };
    let started = async |process: &Process| {
        let runs = process.runs().with_label("schedule", "hourly").unwrap();
        runs.fetch().await.unwrap().items.len()
    };
    let process = from.start(app).await;
    let schedule = process.schedule("hourly");
    schedule.set(TIMER.timed(&7).every(HOUR)).await.unwrap();
    from.advance(HOUR);
    let begins = async || started(&process).await == 1;
    until("it has started one", begins).await;
    let before = schedule.show().await.unwrap();
    process.shutdown().await;
    moves(&from, &to).await.unwrap();
    let process = to.start(app).await;
    let after = process.schedule("hourly").show().await.unwrap();
    assert_eq!(
        (&after.run, &after.timetable),
        (&before.run, &before.timetable)
    );
    to.advance(HOUR);
    until("it has started the next", async || {
        started(&process).await == 2
    })
    .await;
}

async fn fa_10_facts_that_came_in_go_on_where_they_were_moved_to(from: Db, to: Db) {
    let from = from.left_behind();
    let said = Fact::<u64>::named("said");
    let app = |engine: EngineBuilder| {
        let sum = Projection::<u64>::named("sum").fold(
            said,
            |_| vec!["sum".to_owned()],
            |sum, said| match *said {
                13 => Err(Failure::business("thirteen")),
                said => Ok(Some(sum.unwrap_or(0) + said)),
            },
        );
        engine.project(sum)
    };
    let process = from.start(app).await;
    let early = Arrival::of(said, &1).id("early").needs("late");
    process.handle_fact(early).await.unwrap();
    let bad = Arrival::of(said, &13).id("bad");
    process.handle_fact(bad).await.unwrap();
    process
        .append(Arrival::of(said, &2).id("queued"))
        .await
        .unwrap();
    process.shutdown().await;
    moves(&from, &to).await.unwrap();
    let process = to.start(app).await;
    assert_eq!(process.parked().count().await.unwrap(), 1);
    let ticked = process.tick(process.now()).await.unwrap();
    assert_eq!(ticked.incoming.recorded, 1);
    process.record(said, &4).id("late").await.unwrap();
    let sum = process.document::<u64>("sum").await.unwrap();
    assert_eq!(sum.map(|sum| sum.value), Some(7));
}

async fn fa_13_projections_go_on_where_they_were_moved_to(from: Db, to: Db) {
    let from = from.left_behind();
    let said = Fact::<u64>::named("said");
    // In such a way that a gap, a repetition and another order can be seen.
    let chain = |name: &'static str| {
        Projection::<u64>::named(name).fold(
            said,
            move |_| vec![name.to_owned()],
            |chain, said| match *said {
                13 => Err(Failure::business("thirteen")),
                said => Ok(Some((chain.unwrap_or(1) * 31 + said) % 1_000_003)),
            },
        )
    };
    let fold = |all: &[u64]| {
        all.iter()
            .fold(1, |chain, said| (chain * 31 + said) % 1_000_003)
    };
    let inline = |engine: EngineBuilder| engine.project(chain("inline"));
    let both = |engine: EngineBuilder| inline(engine).project(chain("after").following());
    let process = from.start(both).await;
    for number in 1..=5 {
        process.record(said, &number).await.unwrap();
    }
    process.catch_up().await.unwrap();
    process.shutdown().await;
    // Some that it has not passed, while it is being built anew.
    let process = from.start(inline).await;
    process.record(said, &6).await.unwrap();
    process.rebuild("after").await.unwrap();
    process.shutdown().await;
    moves(&from, &to).await.unwrap();
    let process = to.start(inline).await;
    process.record(said, &7).await.unwrap();
    let read = async |process: &Process, path: &'static str| {
        let document = process.document::<u64>(path).await.unwrap();
        document.map(|document| document.value)
    };
    assert_eq!(read(&process, "after").await, Some(fold(&[1, 2, 3, 4, 5])));
    process.shutdown().await;
    let process = to.start(both).await;
    process.catch_up().await.unwrap();
    for path in ["inline", "after"] {
        let all = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(read(&process, path).await, Some(fold(&all)), "{path}");
    }
    let all = process.projections().await.unwrap();
    let live = all[0].row.live.as_ref().expect("it is live");
    assert_eq!((live.generation, live.facts, live.folds), (1, 7, 7));
}
