//! A canary in every field: none of them is in the database that is to be sealed, and those that
//! are not sealed are, as the reference says.

use std::collections::BTreeSet;
use std::time::Duration;

use roundel::{
    Arrival, Batch, Begun, Command, Cx, EngineBuilder, Fact, Failure, Key, Projection, Result,
    Retry, RunId, RunState, Sent, Signal, Topic, Tx, Undo, Workflow,
};

use super::keys;
use crate::support::{Db, Process, all, sizes_differ, soon, until};

all![
    p3_a_canary_in_every_field_is_found_in_the_database_only_where_the_reference_says,
    p3_without_keys_all_canaries_are_found,
];

/// What is sealed, as the reference names it.
const SEALED: &[&str] = &[
    "input",
    "effect",
    "attempt",
    "step",
    "undo",
    "state",
    "patch",
    "context",
    "child input",
    "child output",
    "scope output",
    "signal",
    "unread signal",
    "left signal",
    "offer",
    "publication",
    "command",
    "reply",
    "batch",
    "message",
    "data",
    "cause",
    "reason",
    "remainder",
    "continued",
    "edited",
    "by hand",
    "schedule",
    "audited",
];

/// What is not.
const PLAIN: &[&str] = &[
    "run key",
    "label",
    "flow key",
    "sender key",
    "member name",
    "code",
    "origin",
    "fact",
    "fact on its way",
    "document",
    "stream",
    "operator",
    "why",
    "worker",
];

fn canary(field: &str) -> String {
    format!("canary.{}.canary", field.replace(' ', "_"))
}

const ALL: Workflow<String, ()> = Workflow::named("all");
const CHILD: Workflow<String, String> = Workflow::named("child");
const HEARS: Workflow<String, String> = Workflow::named("hears");
const FAILS: Workflow<String, ()> = Workflow::named("fails");
const PARKS: Workflow<String, ()> = Workflow::named("parks");
const LEFT: Workflow<(), ()> = Workflow::named("left");
const ABSENT: Workflow<(), String> = Workflow::named("absent");
const TICKED: Workflow<String, ()> = Workflow::named("ticked");
const JOB: Command<String, String> = Command::named("job");
const GO: Signal<String> = Signal::named("go");
const STRAY: Signal<String> = Signal::named("stray").offerable();
const NEWS: Topic<String> = Topic::named("news");
const WHO: Key<String> = Key::named("who");
const BACK: Undo<String> = Undo::named("back");
const PAID: Fact<String> = Fact::named("paid");
const UNKNOWN: Fact<String> = Fact::named("unknown");

async fn everything(cx: Cx, input: String) -> Result<()> {
    if cx.execution() > 1 {
        assert_eq!(input, canary("continued"));
        return cx.wait(Signal::<()>::named("never")).await.map(drop);
    }
    assert_eq!(input, canary("input"));
    cx.set_context(WHO, &canary("context")).await?;
    let tried = cx.effect("call", async |attempt| match attempt.number() {
        1 => Err(Failure::transient(canary("attempt"))),
        _ => Ok(canary("effect")),
    });
    let retry = Retry::exponential(3).first(Duration::from_millis(1));
    let came = tried.retry(retry).undo_by(BACK, &canary("undo")).await?;
    assert_eq!(came, canary("effect"));
    let step = cx.step("write", async |_: Tx| Ok::<_, Failure>(canary("step")));
    assert_eq!(step.await?, canary("step"));
    let member = canary("member name");
    cx.set_state(&serde_json::json!({ member: { "held": canary("state") } }))
        .await?;
    let child = cx.child(CHILD, &canary("child input")).await?;
    assert_eq!(child, canary("child output"));
    let heard = cx.publish(NEWS, &canary("publication")).await?;
    assert_eq!(heard[0].output::<String>()?, canary("scope output"));
    assert_eq!(cx.call(JOB, &canary("command")).await?, canary("reply"));
    assert_eq!(cx.wait(GO).await?, canary("signal"));
    cx.continue_as_new(&canary("continued")).await
}

async fn child(cx: Cx, input: String) -> Result<String> {
    assert_eq!(input, canary("child input"));
    assert_eq!(cx.context(WHO)?, Some(canary("context")));
    Ok(canary("child output"))
}

async fn hears(_: Cx, news: String) -> Result<String> {
    assert_eq!(news, canary("publication"));
    Ok(canary("scope output"))
}

async fn fails(cx: Cx, kind: String) -> Result<()> {
    match kind.as_str() {
        "remainder" => {
            let call = cx.effect(canary("origin"), async |_| Ok::<_, Failure>(1));
            let undo = async |_: Begun<i32>| Err(Failure::permanent("it cannot"));
            call.undo(undo).await?;
            Err(Failure::business(canary("remainder")))
        }
        _ => {
            let cause = Failure::business(canary("cause"));
            Err(Failure::business(canary("message"))
                .with_data(&canary("data"))
                .with_code(canary("code"))
                .caused_by(cause))
        }
    }
}

async fn parks(cx: Cx, input: String) -> Result<()> {
    if input == canary("edited") {
        return cx.wait(Signal::<()>::named("never")).await.map(drop);
    }
    Err(Failure::permanent(canary("reason")))
}

async fn left(cx: Cx, (): ()) -> Result<()> {
    cx.wait(Signal::<()>::named("end")).await
}

fn documents() -> Projection<String> {
    let fold = |_: Option<String>, _: &String| Ok::<_, Failure>(Some(canary("document")));
    let fold = move |before, fact: &String| fold(before, fact);
    Projection::named("documents").fold(PAID, |_| vec!["doc".to_owned()], fold)
}

fn set_up(engine: EngineBuilder) -> EngineBuilder {
    let handler = async |_: roundel::Attempt, payload: String| {
        Ok::<_, Failure>(match payload == canary("command") {
            true => canary("reply"),
            false => payload,
        })
    };
    engine
        .name(canary("worker"))
        .register(ALL, everything)
        .register(CHILD, child)
        .register(HEARS, hears)
        .register(FAILS, fails)
        .register(PARKS, parks)
        .register(LEFT, left)
        .register(TICKED, async |_: Cx, _: String| Ok(()))
        .register_undo(BACK, async |_: Tx, _: String| Ok::<_, Failure>(()))
        .handle(JOB, handler)
        .subscribe(NEWS, HEARS)
        .project(documents())
}

/// Lets something be stored in each of the fields, and stay.
async fn fill(process: &Process) {
    let run = process.start(ALL, &canary("input")).key(canary("run key"));
    let run = run
        .label("about", canary("label"))
        .flow_key(canary("flow key"));
    let run = run.await.unwrap().id();
    process
        .signal(run, GO, &canary("signal"))
        .key(canary("sender key"))
        .await
        .unwrap();
    until("it has continued", async || {
        process.run(run).await.unwrap().row.execution == 2
    })
    .await;
    process
        .patch_state(run, &serde_json::json!({ "by": canary("patch") }), None)
        .await
        .unwrap();
    process
        .signal(run, STRAY, &canary("unread signal"))
        .await
        .unwrap();
    let left = process.start(LEFT, &()).await.unwrap().id();
    process
        .signal(left, STRAY, &canary("left signal"))
        .await
        .unwrap();
    process
        .signal(left, Signal::<()>::named("end"), &())
        .await
        .unwrap();
    until("one is parked", async || {
        process.parked().only_signals().count().await.unwrap() == 1
    })
    .await;
    assert_eq!(
        process.offer(STRAY, &canary("offer")).await.unwrap(),
        Sent::Queued
    );
    fill_by_failing(process).await;
    fill_by_hand(process, run).await;
}

/// What runs say that fail, and operators then.
async fn fill_by_failing(process: &Process) {
    for kind in ["message", "remainder"] {
        let mut run = process.start(FAILS, &kind.to_owned()).await.unwrap();
        let error = soon("its end", run.result()).await.unwrap_err().to_string();
        assert!(
            error.contains("canary") || error.contains("cannot"),
            "{error}"
        );
    }
    let first = process
        .start(PARKS, &"first".to_owned())
        .await
        .unwrap()
        .id();
    process.start(PARKS, &"second".to_owned()).await.unwrap();
    until("both are parked", async || {
        let parked = process
            .runs()
            .in_state(RunState::Parked)
            .fetch()
            .await
            .unwrap();
        parked.items.len() == 2
    })
    .await;
    process.resume_with(first, &canary("edited")).await.unwrap();
}

/// What programs and people send and record.
async fn fill_by_hand(process: &Process, run: RunId) {
    let batch = Batch::new().with(JOB.member(&canary("batch")));
    soon("the batch", process.batch(batch).await.unwrap().result())
        .await
        .unwrap();
    let absent = process.start(ABSENT, &()).version(7).await.unwrap().id();
    process.complete(absent, &canary("by hand")).await.unwrap();
    let hourly = TICKED
        .timed(&canary("schedule"))
        .every(Duration::from_secs(3600));
    process.schedule("hourly").set(hourly).await.unwrap();
    process.schedule("hourly").run_now().await.unwrap();
    let ada = process
        .operator(canary("operator"))
        .unwrap()
        .reason(canary("why"));
    ada.signal(run, GO, &canary("audited")).await.unwrap();
    let fact = process.record(PAID, &canary("fact")).id("paid-1");
    fact.stream(canary("stream")).await.unwrap();
    take_in_what_nobody_knows(process).await;
}

async fn take_in_what_nobody_knows(process: &Process) {
    let fact = canary("fact on its way");
    let arrival = Arrival::of(UNKNOWN, &fact).id("unknown-1");
    process.append(arrival).await.unwrap();
}

/// Which canaries are in this text, also in hex.
fn found(text: &[u8]) -> BTreeSet<&'static str> {
    let hex = |text: &str| {
        text.bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let has = |needle: &str| {
        text.windows(needle.len())
            .any(|part| part == needle.as_bytes())
    };
    let all = SEALED.iter().chain(PLAIN).copied();
    all.filter(|field| has(&canary(field)) || has(&hex(&canary(field))))
        .collect()
}

async fn p3_a_canary_in_every_field_is_found_in_the_database_only_where_the_reference_says(db: Db) {
    let process = db.start(|engine| set_up(engine).sealed(keys())).await;
    fill(&process).await;
    let bytes = db.bytes().await;
    let plain: BTreeSet<&str> = PLAIN.iter().copied().collect();
    assert_eq!(found(&bytes), plain);
    // What was sealed is there, and opens.
    let view = process.run(canary("run key").as_str()).await.unwrap();
    let (state, _): (serde_json::Value, u64) = process.state(view.row.id).await.unwrap().unwrap();
    assert_eq!(state[canary("member name")]["held"], canary("state"));
    assert_eq!(state["by"], canary("patch"));
    process.shutdown().await;
    assert_eq!(found(&db.bytes().await), plain);
}

/// Or nothing would be known by what is not found.
async fn p3_without_keys_all_canaries_are_found(db: Db) {
    if sizes_differ() {
        return;
    }
    let process = db.start(set_up).await;
    fill(&process).await;
    let all: BTreeSet<&str> = SEALED.iter().chain(PLAIN).copied().collect();
    assert_eq!(found(&db.bytes().await), all);
    process.shutdown().await;
}

#[test]
fn p3_the_reference_lists_what_is_sealed_and_what_is_not() {
    let page = include_str!("../../../../../docs/reference/security.md");
    let row = |field: &str, column: &str| {
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let mut rows = rows.filter(|line| line.contains(&format!("`{field}`")));
        let line = rows
            .next()
            .unwrap_or_else(|| panic!("`{field}` is not in the list"));
        assert!(line.ends_with(&format!("| {column} |")), "{line}");
        assert!(rows.next().is_none(), "`{field}` is in it twice");
    };
    SEALED.iter().for_each(|field| row(field, "sealed"));
    PLAIN.iter().for_each(|field| row(field, "plain"));
}
