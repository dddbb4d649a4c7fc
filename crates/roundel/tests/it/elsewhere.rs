//! Workers elsewhere: they claim and answer commands in the name of a worker that is none of ours.

use std::future::{pending, ready};
use std::time::Duration;

use roundel::{
    Answered, Command, Failure, Handed, Name, Payload, RemoteWorker, Retry, RunState, Wanted,
    WorkerId,
};

use crate::support::{Db, all, soon, until};

const GREET: Command<String, String> = Command::named("greet");
const LEASE: Duration = Duration::from_secs(10);

fn wanted(limit: usize) -> Wanted {
    Wanted {
        queues: vec![Name::constant("greet")],
        limit,
        lease: LEASE,
    }
}

fn worker(client: &roundel::Client, number: u8) -> RemoteWorker {
    let id = WorkerId::from_bytes([number; 16]);
    client.remote_worker(id, format!("python {number}"))
}

/// One command, which is there or comes soon.
async fn one(worker: &RemoteWorker) -> Handed {
    let wanted = wanted(1);
    let claimed = soon("a command", worker.claim(&wanted, pending())).await;
    claimed.unwrap().remove(0)
}

/// There is nothing to claim now.
async fn nothing(worker: &RemoteWorker) -> bool {
    worker
        .claim(&wanted(9), ready(()))
        .await
        .unwrap()
        .is_empty()
}

fn json(text: &str) -> Payload {
    Payload::parse(text).unwrap()
}

all![
    k1_a_worker_elsewhere_answers_once_and_is_listed,
    k1_what_a_dead_worker_had_is_given_to_another_and_the_zombie_is_refused,
    co_04_failures_mean_elsewhere_what_they_mean_here,
    co_05_what_is_extended_stays_and_what_is_released_goes,
    n20_an_answer_whose_own_answer_was_lost_is_taken_again,
    who_waits_elsewhere_is_told_at_once,
    what_was_asked_to_end_ends_without_the_worker,
];

async fn k1_a_worker_elsewhere_answers_once_and_is_listed(db: Db) {
    let engine = db.start(|engine| engine).await;
    let python = worker(&engine, 1);
    assert!(nothing(&python).await);
    let mut sent = engine.send(GREET, &"Ada".into()).key("c-1").await.unwrap();
    let got = one(&python).await;
    assert_eq!(
        (got.queue.as_str(), got.id.as_deref()),
        ("greet", Some("c-1"))
    );
    assert_eq!((got.attempt, got.payload.as_str()), (1, "\"Ada\""));
    assert!(got.key.starts_with(&got.held.run.to_string()), "{got:?}");
    assert!(nothing(&worker(&engine, 2)).await, "it is leased");
    let workers = engine.workers().await.unwrap();
    assert!(
        workers.iter().any(|row| row.name == "python 1"),
        "{workers:?}"
    );

    let taken = python.complete(got.held, json("\"Hello\"")).await.unwrap();
    assert_eq!(taken, Answered::Taken(RunState::Completed, None));
    assert_eq!(soon("a reply", sent.result()).await.unwrap(), "Hello");
    python.leave().await.unwrap();
    worker(&engine, 2).leave().await.unwrap();
    assert_eq!(engine.workers().await.unwrap(), vec![]);
    engine.shutdown().await;
}

async fn k1_what_a_dead_worker_had_is_given_to_another_and_the_zombie_is_refused(db: Db) {
    let db = db.with_manual_clock();
    let engine = db.start(|engine| engine).await;
    let (dead, other) = (worker(&engine, 1), worker(&engine, 2));
    let mut sent = engine.send(GREET, &"Ada".into()).await.unwrap();
    let first = one(&dead).await;
    assert!(nothing(&other).await);
    db.advance(LEASE * 2);
    let second = one(&other).await;
    assert_eq!((first.held.run, &first.key), (second.held.run, &second.key));
    assert_ne!(first.held, second.held);

    // Nothing that the first says counts, before and after the second has answered.
    for _ in 0..2 {
        let value = json("\"zombie\"");
        assert_eq!(
            dead.complete(first.held, value).await.unwrap(),
            Answered::Lost
        );
        let failure = Failure::permanent("zombie");
        let failed = dead.fail(first.held, failure, Retry::none()).await;
        assert_eq!(failed.unwrap(), Answered::Lost);
        assert_eq!(dead.extend(first.held, LEASE).await.unwrap(), None);
        assert!(!dead.release(first.held).await.unwrap());
        // Nor does it help to know what the other was given: it is not the first's.
        let value = json("\"stolen\"");
        assert_eq!(
            dead.complete(second.held, value).await.unwrap(),
            Answered::Lost
        );
        let value = json("\"Hello\"");
        let taken = other.complete(second.held, value).await.unwrap();
        assert_eq!(taken, Answered::Taken(RunState::Completed, None));
    }
    assert_eq!(soon("a reply", sent.result()).await.unwrap(), "Hello");
    // The same value as that of whoever was taken is as late.
    let same = dead.complete(first.held, json("\"Hello\"")).await.unwrap();
    assert_eq!(same, Answered::Lost);
    engine.shutdown().await;
}

async fn co_04_failures_mean_elsewhere_what_they_mean_here(db: Db) {
    let db = db.with_manual_clock();
    let engine = db.start(|engine| engine).await;
    let python = worker(&engine, 1);
    let twice = Retry::fixed(2, Duration::from_secs(60));
    let fail = async |failure: Failure| {
        let got = one(&python).await;
        let answered = python.fail(got.held, failure, twice).await.unwrap();
        let Answered::Taken(state, at) = answered else {
            panic!("{answered:?}")
        };
        (got.attempt, state, at)
    };
    let first = engine.send(GREET, &"business".into()).await.unwrap();
    let (_, state, _) = fail(Failure::business("no such customer")).await;
    assert_eq!(state, RunState::Failed);
    assert_eq!(engine.run(first.id()).await.unwrap().row.state, state);

    engine.send(GREET, &"permanent".into()).await.unwrap();
    let (_, state, _) = fail(Failure::permanent("never")).await;
    assert_eq!(state, RunState::Parked);

    let third = engine.send(GREET, &"transient".into()).await.unwrap();
    let (attempt, _, at) = fail(Failure::transient("not now")).await;
    assert_eq!(
        (attempt, at),
        (1, Some(db.now().after(Duration::from_secs(60))))
    );
    assert!(nothing(&python).await, "it waits for its next attempt");
    db.advance(Duration::from_secs(61));
    let (attempt, state, _) = fail(Failure::transient("not now").with_code("busy")).await;
    assert_eq!((attempt, state), (2, RunState::Parked));
    let row = engine.run(third.id()).await.unwrap().row;
    let Some(roundel_core::Outcome::Failure(failure)) = row.outcome else {
        panic!("{row:?}")
    };
    assert_eq!((failure.code.as_str(), failure.attempts.len()), ("busy", 1));
    assert_eq!(failure.origin.unwrap().worker, "python 1");
    engine.shutdown().await;
}

async fn co_05_what_is_extended_stays_and_what_is_released_goes(db: Db) {
    let db = db.with_manual_clock();
    let engine = db.start(|engine| engine).await;
    let (python, other) = (worker(&engine, 1), worker(&engine, 2));
    engine.send(GREET, &"Ada".into()).await.unwrap();
    let got = one(&python).await;
    for _ in 0..5 {
        db.advance(LEASE - Duration::from_secs(1));
        assert_eq!(python.extend(got.held, LEASE).await.unwrap(), Some(false));
        assert!(nothing(&other).await);
    }
    assert!(python.release(got.held).await.unwrap());
    assert!(!python.release(got.held).await.unwrap());
    let again = one(&other).await;
    assert_eq!(again.attempt, 1, "a release is no attempt");
    other.complete(again.held, json("\"Hello\"")).await.unwrap();
    engine.shutdown().await;
}

async fn n20_an_answer_whose_own_answer_was_lost_is_taken_again(db: Db) {
    let db = db.with_manual_clock();
    let engine = db.start(|engine| engine).await;
    let python = worker(&engine, 1);
    let pause = Retry::fixed(3, Duration::from_secs(60));
    for what in ["value", "business", "transient", "permanent"] {
        engine.send(GREET, &what.into()).await.unwrap();
        let held = one(&python).await.held;
        let answer = async |said: &str| match what {
            "value" => python.complete(held, json(&format!("\"{said}\""))).await,
            "business" => python.fail(held, Failure::business(said), pause).await,
            "transient" => python.fail(held, Failure::transient(said), pause).await,
            _ => python.fail(held, Failure::permanent(said), pause).await,
        };
        let first = answer("this").await.unwrap();
        assert!(matches!(first, Answered::Taken(..)), "{what}: {first:?}");
        assert_eq!(answer("this").await.unwrap(), first, "{what}");
        assert_eq!(answer("that").await.unwrap(), Answered::Lost, "{what}");
    }
    engine.shutdown().await;
}

async fn who_waits_elsewhere_is_told_at_once(db: Db) {
    let engine = db.start(|engine| engine).await;
    let python = worker(&engine, 1);
    let waiting = tokio::spawn(async move { one(&python).await });
    let listed = async || !engine.workers().await.unwrap().is_empty();
    until("it has registered", listed).await;
    let begun = std::time::Instant::now();
    engine.send(GREET, &"Ada".into()).await.unwrap();
    soon("the command", waiting).await.unwrap();
    // A look that nobody asked for comes after five seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    // Those that are delayed come when it is time.
    let python = worker(&engine, 2);
    let later = Duration::from_millis(300);
    engine
        .send(GREET, &"Eve".into())
        .delay(later)
        .await
        .unwrap();
    assert!(nothing(&python).await);
    one(&python).await;
    engine.shutdown().await;
}

async fn what_was_asked_to_end_ends_without_the_worker(db: Db) {
    let engine = db.start(|engine| engine).await;
    let python = worker(&engine, 1);
    let mut ended = Vec::new();
    // It is told when it asks to keep it, and releases it.
    let sent = engine.send(GREET, &"Ada".into()).await.unwrap();
    let got = one(&python).await;
    engine.cancel(sent.id()).await.unwrap();
    assert_eq!(python.extend(got.held, LEASE).await.unwrap(), Some(true));
    assert!(python.release(got.held).await.unwrap());
    assert!(
        nothing(&python).await,
        "it ended instead of going out again"
    );
    ended.push(sent.id());
    // It does not ask, and answers.
    let sent = engine.send(GREET, &"Eve".into()).await.unwrap();
    let got = one(&python).await;
    engine.cancel(sent.id()).await.unwrap();
    let answered = python.complete(got.held, json("\"Hello\"")).await.unwrap();
    assert_eq!(answered, Answered::Taken(RunState::Cancelled, None));
    ended.push(sent.id());
    for run in ended {
        let state = engine.run(run).await.unwrap().row.state;
        assert_eq!(state, RunState::Cancelled);
    }
    engine.shutdown().await;
}
