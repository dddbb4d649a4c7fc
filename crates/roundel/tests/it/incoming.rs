//! Facts that come in, deciders in JSON, ticks and jobs.

use std::time::Duration;

use roundel::{
    Arrival, Attempt, Client, Command, Decision, Envelope, Error, Fact, Failure, Name, Payload,
    Projection, Received, Refusal, Remedy, RunState, Timestamp, UnknownFact,
};
use serde_json::{Value, json};

use crate::support::{Db, all, soon};

const SAID: Fact<u64> = Fact::named("said");
const OUTGOING: Command<Value, ()> = Command::named("outgoing");

/// Writes what was said one after the other, and refuses thirteen.
fn talk() -> Projection<Vec<u64>> {
    Projection::named("talk").fold(
        SAID,
        |_| vec!["talk".to_owned()],
        |talk, said| match *said {
            13 => Err(Failure::business("thirteen is not said here")),
            said => {
                let mut talk: Vec<u64> = talk.unwrap_or_default();
                talk.push(said);
                Ok(Some(talk))
            }
        },
    )
}

fn said(id: &'static str, what: u64) -> Arrival {
    Arrival::of(SAID, &what).id(id)
}

async fn heard(client: &Client) -> Vec<u64> {
    let talk = client.document("talk").await.expect("it is read");
    talk.map_or_else(Vec::new, |talk: roundel::Document<Vec<u64>>| talk.value)
}

async fn waiting(client: &Client) -> Vec<(String, Vec<String>)> {
    let page = client.incoming(RunState::Waiting, None, 100).await;
    let mut items: Vec<_> = page
        .expect("they are read")
        .items
        .into_iter()
        .map(|item| {
            let id = item.fact.expect("a fact").id.to_string();
            (id, item.missing.iter().map(Name::to_string).collect())
        })
        .collect();
    items.sort();
    items
}

fn name(text: &'static str) -> Name {
    Name::constant(text)
}

fn input(value: &Value) -> Payload {
    Payload::encode(value).expect("JSON")
}

async fn fa_01_a_projection_that_fails_leaves_all_as_it_was(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    process
        .record(SAID, &1)
        .id("a")
        .await
        .expect("it is recorded");
    let refused = process.record(SAID, &2).and(SAID, &13).await;
    let Err(Error::Refused(Refusal::NotFolded { failure, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(failure.message, "thirteen is not said here");
    assert_eq!(heard(&process).await, [1]);
    let page = process.facts().fetch().await.expect("they are read");
    assert_eq!(page.items.len(), 1);
}

async fn fa_02_of_a_batch_the_one_that_fails_is_parked_and_the_others_are_not(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    let batch = vec![said("a", 1), said("b", 13), said("c", 3)];
    let taken = process.handle_batch(batch).await.expect("it is taken in");
    assert_eq!((taken.recorded, taken.parked), (2, 1));
    assert_eq!(heard(&process).await, [1, 3]);
    let parked = process.parked().fetch().await.expect("it is read").items;
    let why = parked[0].why().expect("it says why").into_owned();
    assert_eq!((parked.len(), why.code.as_str()), (1, "not_folded"));
    // Edited, it is taken by the next tick; then it is in no queue any more.
    let mended = Envelope {
        data: input(&json!(14)),
        ..Envelope {
            id: name("b"),
            kind: SAID.name(),
            version: 1,
            data: Payload::null(),
            stream: None,
            needs: Vec::new(),
        }
    };
    let remedy = Remedy::RetryWith(Payload::encode(&mended).expect("JSON"));
    let id = parked[0].id();
    process.remedy(id, &remedy).await.expect("it is edited");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming.recorded, 1);
    assert_eq!(heard(&process).await, [1, 3, 14]);
    assert_eq!(process.parked().count().await.expect("it is read"), 0);
    let metrics = process.metrics();
    assert_eq!((metrics.facts_recorded, metrics.facts_parked), (3, 1));
}

async fn a_parked_fact_is_retried_as_it_is_or_discarded(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    let batch = vec![said("a", 13), said("b", 13)];
    process.handle_batch(batch).await.expect("both are parked");
    let parked = process.parked().fetch().await.expect("it is read").items;
    let [b, a] = [parked[0].id(), parked[1].id()];
    process
        .remedy(a, &Remedy::Retry)
        .await
        .expect("it is tried again");
    process
        .remedy(b, &Remedy::Cancel)
        .await
        .expect("it is discarded");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!((ticked.incoming.parked, ticked.incoming.recorded), (1, 0));
    assert_eq!(process.parked().count().await.expect("it is read"), 1);
    // Edited and then discarded: no worker has to see to it.
    let again = Remedy::RetryWith(input(&json!("no fact")));
    process.remedy(a, &again).await.expect("it is edited");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming.parked, 1);
    process
        .remedy(a, &Remedy::Cancel)
        .await
        .expect("it is discarded");
    process.tick(process.now()).await.expect("it ticks");
    assert_eq!(process.parked().count().await.expect("it is read"), 0);
    let open = process.incoming(RunState::Ready, None, 10).await;
    assert!(open.expect("it is read").items.is_empty());
    assert!(heard(&process).await.is_empty());
}

async fn fa_06_fa_21_a_tick_takes_what_came_in_and_then_runs_all_jobs(db: Db) {
    let process = db
        .start(|engine| {
            engine
                .project(talk())
                .decider("greet", |look, input: Value| async move {
                    let heard: Vec<u64> = look.document("talk").await?.unwrap_or_default();
                    let count = heard.len() as u64 * 100 + look.now().0.unsigned_abs() % 100;
                    Ok::<_, Error>(json!({
                        "facts": [{"id": format!("greet {}", heard.len()), "kind": "said",
                                   "data": count}],
                        "reply": input,
                    }))
                })
                .decider("fail", |_, _| async {
                    Err::<Value, _>(Failure::business("not today"))
                })
                .decider("panic", |_, input: Value| async move {
                    let count = input.as_u64().expect("a number");
                    Ok::<_, Error>(json!({ "reply": count }))
                })
                .job("greet", &1)
                .job("fail", &())
                .job("panic", &"none")
                .job("greet", &2)
        })
        .await;
    for (id, what) in [("c", 1), ("a", 2), ("b", 13), ("d", 4)] {
        let appended = process.append(said(id, what)).await.expect("it is kept");
        assert!(matches!(appended, Received::Queued(_)));
    }
    assert!(heard(&process).await.is_empty());
    let ticked = process.tick(Timestamp(5)).await.expect("it ticks");
    assert_eq!((ticked.incoming.recorded, ticked.incoming.parked), (3, 1));
    assert_eq!((ticked.jobs, ticked.more), (2, false));
    let failed = ticked.failed.iter().map(|(job, _)| job.as_str());
    assert_eq!(failed.collect::<Vec<_>>(), ["fail", "panic"]);
    let panicked = ticked.failed[1].1.to_string();
    assert!(panicked.contains("a number"), "{panicked}");
    assert_eq!(heard(&process).await, [1, 2, 4, 305, 405]);
    let metrics = process.metrics();
    assert_eq!((metrics.ticks, metrics.jobs_failed), (1, 2));
    assert_eq!(metrics.tick_times.count(), 1);
    let reply = process
        .decide_named(&name("greet"), &input(&json!({"a": 1})))
        .await;
    assert_eq!(reply.expect("it decides"), input(&json!({"a": 1})));
}

async fn fa_21_without_a_projection_the_queue_is_left_untouched(db: Db) {
    let other = db.start(|engine| engine).await;
    other.append(said("a", 1)).await.expect("it is kept");
    let ticked = other.tick(other.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming, roundel::TakenIn::default());
    let ready = other.incoming(RunState::Ready, None, 10).await;
    assert_eq!(ready.expect("it is read").items.len(), 1);
    // A process that has it takes it up.
    let process = db.start(|engine| engine.project(talk())).await;
    process.tick(process.now()).await.expect("it ticks");
    assert_eq!(heard(&process).await, [1]);
    let fact = process
        .fact("a")
        .await
        .expect("it is read")
        .expect("it is there");
    let item = fact.row.cause.expect("it leads back to its item").run;
    let facts = process.facts().of_run(item).await.expect("there is one");
    assert_eq!(facts.fetch().await.expect("they are read").items.len(), 1);
}

async fn fa_07_an_unknown_fact_is_parked_until_somebody_knows_it(db: Db) {
    let old = db.start(|engine| engine.project(talk())).await;
    let kind = name("sung");
    let sung = Arrival::named(kind, input(&json!("la"))).id("s");
    let parked = old.handle_fact(sung).await.expect("it is kept");
    let Received::Parked { failure, .. } = parked else {
        panic!("{parked:?}")
    };
    assert_eq!(failure.code, "unknown_fact");
    assert_eq!(
        old.tick(old.now())
            .await
            .expect("it ticks")
            .incoming
            .recorded,
        0
    );
    let songs = Projection::<Vec<String>>::named("songs").fold(
        Fact::<String>::named("sung"),
        |_| vec!["songs".to_owned()],
        |songs, song| {
            let mut songs: Vec<String> = songs.unwrap_or_default();
            songs.push(song.clone());
            Ok(Some(songs))
        },
    );
    let later = db.start(|engine| engine.project(songs)).await;
    let ticked = later.tick(later.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming.recorded, 1);
    let songs = later
        .document::<Vec<String>>("songs")
        .await
        .expect("it is read");
    assert_eq!(songs.expect("there are some").value, ["la"]);
    assert_eq!(later.parked().count().await.expect("it is read"), 0);
}

async fn fa_07_an_unknown_fact_goes_to_the_handler_for_those(db: Db) {
    let strange = Projection::<u64>::named("strange").fold_unknown(
        |fact: &UnknownFact| vec![format!("strange/{}", fact.kind)],
        |count, _| Ok(Some(count.unwrap_or(0) + 1)),
    );
    let process = db
        .start(|engine| engine.project(talk()).project(strange))
        .await;
    for id in ["a", "b"] {
        let sung = Arrival::named(name("sung"), input(&json!("la"))).id(id);
        let taken = process.handle_fact(sung).await.expect("it is taken in");
        assert!(matches!(taken, Received::Recorded(fact) if fact.new));
    }
    process
        .handle_fact(said("c", 1))
        .await
        .expect("it is known");
    let count = process
        .document::<u64>("strange/sung")
        .await
        .expect("it is read");
    assert_eq!(count.expect("there are some").value, 2);
    assert_eq!(heard(&process).await, [1]);
}

async fn fa_10_what_needs_others_waits_for_them(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    // A cascade, several for one, and one that needs something else beside, in one batch.
    let batch = vec![
        said("d", 4).needs("c"),
        said("c", 3).needs("b"),
        said("b", 2).needs("a"),
        said("e", 5).needs("a"),
        said("f", 6).needs("a").needs("x"),
        said("a", 1),
    ];
    let taken = process.handle_batch(batch).await.expect("it is taken in");
    assert_eq!((taken.recorded, taken.waiting), (1, 5));
    let heard_now = heard(&process).await;
    assert_eq!(heard_now[0], 1);
    let mut sorted = heard_now.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3, 4, 5]);
    let place = |what| heard_now.iter().position(|said| *said == what);
    assert!(place(2) < place(3) && place(3) < place(4), "{heard_now:?}");
    let missing = vec![("f".to_owned(), vec!["x".to_owned()])];
    assert_eq!(waiting(&process).await, missing);
    // Recorded otherwise, it lets go as well.
    process
        .record(SAID, &7)
        .id("x")
        .await
        .expect("it is recorded");
    assert!(waiting(&process).await.is_empty());
    assert_eq!(heard(&process).await.last(), Some(&6));
    let refused = process.record(SAID, &8).id("y").needs("z").await;
    let missing = matches!(refused, Err(Error::Refused(Refusal::FactMissing { .. })));
    assert!(missing, "who records waits for nothing: {refused:?}");
}

#[tokio::test]
async fn fa_10_who_waits_too_long_is_parked() {
    let clock = std::sync::Arc::new(roundel::ManualClock::at(Timestamp(1_000_000)));
    let engine = roundel::Engine::in_memory()
        .clock(clock.clone())
        .project(talk());
    let engine = engine.start().await.expect("it starts");
    let patient = said("b", 2).needs("a").patience(Duration::from_secs(60));
    engine.handle_fact(patient).await.expect("it waits");
    engine.tick(engine.now()).await.expect("it ticks");
    assert_eq!(waiting(&engine).await.len(), 1);
    clock.advance(Duration::from_secs(61));
    let ticked = engine.tick(engine.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming.parked, 1);
    let parked = engine.parked().fetch().await.expect("it is read").items;
    assert_eq!(parked[0].why().expect("it says why").code, "fact_missing");
}

async fn fa_10_what_was_queued_waits_no_longer_than_it_has_patience(db: Db) {
    let db = db.with_manual_clock();
    let minute = Duration::from_secs(60);
    let process = db.start(|engine| engine.project(talk())).await;
    let patient = |id| said(id, 2).needs("a").patience(minute);
    process.append(patient("b")).await.expect("it is kept");
    let decided = process.decide(|_| async { Ok(Decision::of(()).append(patient("c"))) });
    decided.await.expect("it is decided");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!((ticked.incoming.waiting, ticked.incoming.parked), (2, 0));
    // As of a time that has not come nothing is late, and a tick ends.
    let ahead = process.now().after(minute * 2);
    let ticked = process.tick(ahead).await.expect("it ticks");
    assert_eq!(ticked.incoming, roundel::TakenIn::default());
    db.advance(minute);
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!((ticked.incoming.waiting, ticked.incoming.parked), (0, 2));
    let parked = process.parked().with_code("fact_missing");
    assert_eq!(parked.count().await.expect("it is read"), 2);
}

const SUNG: Fact<u64> = Fact::named("sung");

/// Counts songs.
fn songs() -> Projection<u64> {
    Projection::named("songs").fold(
        SUNG,
        |_| vec!["songs".to_owned()],
        |count, _| Ok(Some(count.unwrap_or(0) + 1)),
    )
}

/// Counts what was said, too.
fn words() -> Projection<u64> {
    let count = |count: Option<u64>, _: &u64| Ok::<_, Failure>(Some(count.unwrap_or(0) + 1));
    Projection::named("words").fold(SAID, |_| vec!["words".to_owned()], count)
}

async fn fa_06_what_another_process_must_take_keeps_nothing_behind_it(db: Db) {
    let both = db
        .start(|engine| engine.project(talk()).project(words()))
        .await;
    let process = db
        .start(|engine| engine.project(talk()).project(songs()))
        .await;
    // More than one page of what this process lacks a projection for.
    for number in 0..101 {
        let arrival = Arrival::of(SAID, &1).id(format!("said {number:03}"));
        process.append(arrival).await.expect("it is kept");
    }
    let song = Arrival::of(SUNG, &1).id("song");
    process.append(song).await.expect("it is kept");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!((ticked.incoming.recorded, ticked.more), (1, false));
    let left = both.tick(both.now()).await.expect("it ticks").incoming;
    assert_eq!(left.recorded, 101);
    assert_eq!(process.parked().count().await.expect("it is read"), 0);
}

async fn fa_07_what_nobody_knew_is_found_among_many_that_are_parked(db: Db) {
    let old = db.start(|engine| engine.project(talk())).await;
    let sung = (0..3).map(|number| Arrival::of(SUNG, &number));
    let parked = old.handle_batch(sung.collect()).await.expect("kept");
    assert_eq!(parked.parked, 3);
    // These came later, and are parked for another reason.
    let spoiled = (0..1_001).map(|_| Arrival::of(SAID, &13));
    let parked = old.handle_batch(spoiled.collect()).await.expect("kept");
    assert_eq!(parked.parked, 1_001);
    let later = db.start(|engine| engine.project(songs())).await;
    let ticked = later.tick(later.now()).await.expect("it ticks");
    assert_eq!(ticked.incoming.recorded, 3);
    let count = later.document::<u64>("songs").await.expect("it is read");
    assert_eq!(count.expect("there are some").value, 3);
}

async fn fa_02_a_batch_may_be_larger_than_one_commit(db: Db) {
    const LONG: Fact<String> = Fact::named("long");
    let count = |count: Option<u64>, _: &String| Ok::<_, Failure>(Some(count.unwrap_or(0) + 1));
    let long = || Projection::named("long").fold(LONG, |_| vec!["long".to_owned()], count);
    let process = db.start(|engine| engine.project(long())).await;
    let text = "x".repeat(3 << 20);
    let all = (0..7).map(|_| Arrival::of(LONG, &text));
    let taken = process.handle_batch(all.collect()).await;
    assert_eq!(taken.expect("they are taken in").recorded, 7);
}

async fn fa_06_code_that_panics_parks_its_fact_and_the_tick_goes_on(db: Db) {
    const OLD: Fact<u64> = Fact::named("sung");
    const NEW: Fact<u64> = Fact::named("sung").version(2);
    let shaky = Projection::<u64>::named("shaky").fold(
        SAID,
        |said| vec![format!("said/{}", said.checked_sub(1).expect("a number"))],
        |_, said| Ok(Some(*said)),
    );
    let sung = Projection::<u64>::named("sung").fold(
        NEW,
        |_| vec!["sung".to_owned()],
        |_, said| Ok(Some(*said)),
    );
    let process = db
        .start(|engine| {
            let older = |sung: u64| 10_u64.checked_sub(sung).expect("ten at most");
            engine.project(shaky).project(sung).upcast(OLD, NEW, older)
        })
        .await;
    process.append(said("a", 0)).await.expect("it is kept");
    let song = Arrival::of(OLD, &11).id("b");
    process.append(song).await.expect("it is kept");
    process.append(said("c", 1)).await.expect("it is kept");
    let ticked = process.tick(process.now()).await.expect("it ticks");
    assert_eq!((ticked.incoming.recorded, ticked.incoming.parked), (1, 2));
    let parked = process.parked().fetch().await.expect("it is read").items;
    for (trouble, name) in parked.iter().zip(["`sung`", "`shaky`"]) {
        let why = trouble.why().expect("it says why");
        assert_eq!(why.code, "panicked");
        assert!(why.message.contains(name), "{why}");
    }
    let refused = process.record(SAID, &0).await.expect_err("it panics");
    assert!(refused.to_string().contains("panicked"), "{refused}");
}

async fn fa_04_a_decider_that_writes_a_document_is_refused_by_name(db: Db) {
    let process = db
        .start(|engine| {
            let decide = |_, path: Value| async move {
                let path = path.as_str().unwrap_or_default().to_owned();
                Ok::<_, Failure>(json!({
                    "facts": [{"kind": "said", "data": 1}],
                    "writes": {path: [{"id": "later", "kind": "said", "data": 2}]},
                    "reply": "done",
                }))
            };
            engine.project(talk()).decider("meddle", decide)
        })
        .await;
    process.record(SAID, &5).await.expect("it is recorded");
    for path in ["talk", "something/new"] {
        let refused = process
            .decide_named(&name("meddle"), &input(&json!(path)))
            .await;
        let Err(Error::Refused(Refusal::DocumentWritten {
            decider, path: at, ..
        })) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((decider.as_str(), at.as_str()), ("meddle", path));
        assert_eq!(heard(&process).await, [5], "everything of it is undone");
    }
    let done = process
        .decide_named(&name("meddle"), &input(&json!("incoming")))
        .await;
    assert_eq!(done.expect("queues may be written"), input(&json!("done")));
    process.tick(process.now()).await.expect("it ticks");
    assert_eq!(heard(&process).await, [5, 1, 2]);
}

async fn what_deciders_write_to_outgoing_is_delivered_as_commands(db: Db) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let process = db
        .start(|engine| {
            let decide =
                |_, _| async { Ok::<_, Failure>(json!({"writes": {"outgoing": ["one"]}})) };
            let deliver = move |attempt: Attempt, message: Value| {
                let (tell, key) = (tell.clone(), attempt.key().to_owned());
                async move {
                    tell.send((key, message)).expect("somebody listens");
                    match attempt.number() {
                        1 => Err(Failure::transient("the line is busy")),
                        _ => Ok(()),
                    }
                }
            };
            engine
                .project(talk())
                .decider("send", decide)
                .handle(OUTGOING, deliver)
        })
        .await;
    let (send, nothing) = (name("send"), Payload::null());
    let sent = process.decide_named(&send, &nothing).await;
    sent.expect("it decides");
    let typed = process.decide(|_| async {
        let decided = Decision::of(())
            .record(SAID, &13)
            .send(OUTGOING, &json!("never"));
        Ok(decided)
    });
    assert!(typed.await.is_err(), "its fact cannot be recorded");
    let first = soon("a delivery", told.recv())
        .await
        .expect("it is delivered");
    let second = soon("a delivery", told.recv())
        .await
        .expect("it is tried again");
    assert_eq!(first, second, "under the same key");
    assert_eq!(first.1, json!("one"));
}

async fn fa_15_a_decider_sees_what_was_recorded_before_it(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    process
        .record(SAID, &1)
        .and(SAID, &2)
        .await
        .expect("both are recorded");
    let seen = process.decide(|look| async move {
        let first: Option<Vec<u64>> = look.document("talk").await?;
        let again: Option<Vec<u64>> = look.document("talk").await?;
        assert_eq!(first, again);
        Ok(Decision::of(first).record(SAID, &3))
    });
    assert_eq!(seen.await.expect("it decides"), Some(vec![1, 2]));
    assert_eq!(
        heard(&process).await,
        [1, 2, 3],
        "each saw what those before it wrote"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fa_16_who_finds_the_file_busy_waits_and_then_says_so_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("busy.db");
    let patient = roundel::Engine::open(&file).project(talk());
    let patient = patient.start().await.expect("it starts");
    let hasty = roundel::Engine::open(&file).project(talk());
    let hasty = hasty
        .answer_within(Duration::from_millis(200))
        .start()
        .await;
    let hasty = hasty.expect("it starts");
    let other = rusqlite::Connection::open(&file).expect("it is there");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody writes");
    let refused = hasty
        .record(SAID, &2)
        .id("b")
        .await
        .expect_err("it is busy");
    let clear = matches!(refused, Error::Unavailable(_) | Error::Unknown(_));
    assert!(clear, "it says what to do: {refused}");
    let waits = tokio::spawn(async move {
        let recorded = patient.record(SAID, &1).id("a").await;
        (recorded, patient)
    });
    assert!(!waits.is_finished(), "somebody else writes");
    other.execute_batch("COMMIT").expect("it was ours");
    let (recorded, patient) = waits.await.expect("no panic");
    assert!(recorded.expect("it waited")[0].new);
    let again = patient.record(SAID, &2).id("b").await;
    again.expect("whatever became of it, it is recorded once");
    let mut heard = heard(&patient).await;
    heard.sort_unstable();
    assert_eq!(heard, [1, 2], "each once");
}

/// The facts, documents and runs of one history, by a clock that stands still.
async fn history() -> String {
    let clock = std::sync::Arc::new(roundel::ManualClock::at(Timestamp(7_000_000)));
    let count = |look: roundel::Look, _| async move {
        let heard: Vec<u64> = look.document("talk").await?.unwrap_or_default();
        let (id, at) = (format!("count {}", heard.len()), look.now().0);
        Ok::<_, Error>(json!({"facts": [{"id": id, "kind": "said", "data": at % 1000}]}))
    };
    let engine = roundel::Engine::in_memory()
        .clock(clock.clone())
        .name("one");
    let engine = engine
        .project(talk())
        .decider("count", count)
        .job("count", &());
    let engine = engine.start().await.expect("it starts");
    for (id, what) in [("b", 2), ("c", 13)] {
        engine
            .append(said(id, what).needs("a"))
            .await
            .expect("it is kept");
    }
    engine.append(said("a", 1)).await.expect("it is kept");
    for time in [11, 12] {
        engine.tick(Timestamp(time)).await.expect("it ticks");
    }
    let facts = engine.facts().fetch().await.expect("they are read");
    let parked = engine.parked().fetch().await.expect("they are read");
    let documents = engine.documents("", None, 10).await.expect("they are read");
    let heard = heard(&engine).await;
    format!("{heard:?} {facts:?} {parked:?} {documents:?}")
}

#[tokio::test]
async fn fa_11_with_a_fixed_clock_results_are_the_same_to_the_byte() {
    let first = history().await;
    assert!(first.starts_with("[1, 2, 11, 12] "), "{first}");
    assert_eq!(first, history().await);
}

async fn fa_19_what_is_recorded_fails_is_parked_and_waits_is_counted(db: Db) {
    let process = db.start(|engine| engine.project(talk())).await;
    process
        .record(SAID, &1)
        .id("a")
        .await
        .expect("it is recorded");
    process.record(SAID, &13).await.expect_err("it fails");
    process
        .handle_fact(said("b", 13))
        .await
        .expect("it is parked");
    process
        .handle_fact(said("c", 2).needs("d"))
        .await
        .expect("it waits");
    process
        .handle_fact(said("d", 3))
        .await
        .expect("it is recorded");
    process.tick(process.now()).await.expect("it ticks");
    let metrics = process.metrics();
    assert_eq!((metrics.facts_recorded, metrics.facts_failed), (3, 2));
    assert_eq!((metrics.facts_parked, metrics.facts_waiting), (1, 1));
    assert_eq!((metrics.ticks, metrics.tick_times.count()), (1, 1));
    assert!(
        metrics.store_waits.count() > 0,
        "how long it waited for the store"
    );
}

all![
    fa_19_what_is_recorded_fails_is_parked_and_waits_is_counted,
    fa_01_a_projection_that_fails_leaves_all_as_it_was,
    fa_02_of_a_batch_the_one_that_fails_is_parked_and_the_others_are_not,
    a_parked_fact_is_retried_as_it_is_or_discarded,
    fa_06_fa_21_a_tick_takes_what_came_in_and_then_runs_all_jobs,
    fa_21_without_a_projection_the_queue_is_left_untouched,
    fa_07_an_unknown_fact_is_parked_until_somebody_knows_it,
    fa_07_an_unknown_fact_goes_to_the_handler_for_those,
    fa_10_what_needs_others_waits_for_them,
    fa_10_what_was_queued_waits_no_longer_than_it_has_patience,
    fa_06_what_another_process_must_take_keeps_nothing_behind_it,
    fa_06_code_that_panics_parks_its_fact_and_the_tick_goes_on,
    fa_07_what_nobody_knew_is_found_among_many_that_are_parked,
    fa_02_a_batch_may_be_larger_than_one_commit,
    fa_04_a_decider_that_writes_a_document_is_refused_by_name,
    what_deciders_write_to_outgoing_is_delivered_as_commands,
    fa_15_a_decider_sees_what_was_recorded_before_it,
];
