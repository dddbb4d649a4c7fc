//! Commands: sent once, handled with retries, answered once; parked when nobody but an operator
//! can help, also where somebody waits for the reply.

mod alike;
mod answers;
mod audits;
mod batches;
mod callers;
mod conditions;
mod inside;
mod kept;
mod longer;
mod many;
mod queues;
mod together;
mod troubles;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{
    Attempt, Command, Cx, Error, Failure, Refusal, Result, Retry, RunState, Tx, Workflow,
};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const QUICK: Retry = Retry::fixed(3, Duration::from_millis(5));
const CHARGE: Command<u32, String> = Command::named("charge").retry(QUICK);
const REFUND: Command<u32, String> = Command::named("refund").retry(QUICK);
const ORDER: Workflow<u32, String> = Workflow::named("order");

all![
    co_01_a_command_is_sent_once_under_its_id,
    co_01_the_same_id_in_another_queue_is_another_command,
    co_02_each_try_counts_and_the_last_is_known,
    co_04_a_business_failure_is_the_reply_and_is_not_tried_again,
    co_04_a_command_that_failed_too_often_is_parked_and_goes_on_when_resumed,
    co_04_a_permanent_failure_parks_at_once,
    co_10_a_parked_command_is_tried_again_with_another_payload,
    co_10_a_parked_command_is_completed_by_hand,
    co_10_a_parked_command_is_cancelled,
    co_10_what_is_not_parked_is_not_begun_anew,
    co_25_a_run_begun_anew_still_undoes_what_it_did_before,
    co_20_whoever_calls_a_command_that_is_parked_waits_for_the_operator,
    co_20_a_business_failure_reaches_whoever_called,
];

/// Counts tries; fails as its mood says.
#[derive(Clone, Default)]
struct Till {
    tries: Arc<AtomicU32>,
    mood: Arc<AtomicU32>,
    /// What callers do beside.
    held: Arc<AtomicU32>,
}

const WELL: u32 = 0;
const REFUSES: u32 = 1;
const SHAKY: u32 = 2;
const BROKEN: u32 = 3;

impl Till {
    fn new(mood: u32) -> Till {
        let till = Till::default();
        till.mood.store(mood, Ordering::Relaxed);
        till
    }

    fn tries(&self) -> u32 {
        self.tries.load(Ordering::Relaxed)
    }

    fn handle(&self, amount: u32) -> Result<String> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        match self.mood.load(Ordering::Relaxed) {
            REFUSES => Err(Failure::business("no money").with_code("no_money")),
            SHAKY => Err(Failure::transient("try again")),
            BROKEN => Err(Failure::permanent("no such account")),
            _ => Ok(format!("charged {amount}")),
        }
    }
}

async fn order(cx: Cx, amount: u32) -> Result<String> {
    match cx.call(CHARGE, &amount).await {
        Err(failure) if failure.code == "no_money" => Ok("cancelled".into()),
        other => other,
    }
}

async fn start(db: &Db, till: &Till) -> Process {
    let (charge, refund) = (till.clone(), till.clone());
    let set_up = db.start(|engine| {
        let handler = move |_: Attempt, amount| {
            let till = charge.clone();
            async move { till.handle(amount) }
        };
        let back = move |_: Attempt, amount| {
            let till = refund.clone();
            async move { till.handle(amount) }
        };
        let engine = engine.handle(CHARGE, handler).handle(REFUND, back);
        engine.register(ORDER, order)
    });
    set_up.await
}

async fn parked(process: &Process) -> Vec<roundel::RunView> {
    let page = process.runs().in_state(RunState::Parked);
    page.fetch().await.unwrap().items
}

async fn co_01_a_command_is_sent_once_under_its_id(db: Db) {
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let mut first = process.send(CHARGE, &7).key("42").await.unwrap();
    let mut again = process.send(CHARGE, &7).key("42").await.unwrap();
    assert!(first.is_new() && !again.is_new());
    assert_eq!(soon("reply", first.result()).await.unwrap(), "charged 7");
    assert_eq!(soon("reply", again.result()).await.unwrap(), "charged 7");
    let conflict = process.send(CHARGE, &8).key("42").await.unwrap_err();
    let Error::Refused(Refusal::Conflict { .. }) = &conflict else {
        panic!("{conflict:?}")
    };
    assert!(conflict.to_string().contains("42"), "{conflict}");
    assert_eq!(till.tries(), 1);
    assert_sound(&db).await;
}

async fn co_01_the_same_id_in_another_queue_is_another_command(db: Db) {
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let mut charge = process.send(CHARGE, &7).key("42").await.unwrap();
    let mut refund = process.send(REFUND, &7).key("42").await.unwrap();
    assert!(charge.is_new() && refund.is_new());
    soon("reply", charge.result()).await.unwrap();
    soon("reply", refund.result()).await.unwrap();
    assert_eq!(till.tries(), 2);
    // As a run, it has a key that says both.
    let run = process.run("charge:42").await.unwrap();
    assert_eq!(run.row.id, charge.id());
}

async fn co_02_each_try_counts_and_the_last_is_known(db: Db) {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = seen.clone();
    let handler = move |attempt: Attempt, _: u32| {
        let heard = heard.clone();
        async move {
            let said = (attempt.number(), attempt.is_last(), attempt.key());
            heard.lock().unwrap().push(said);
            match attempt.is_last() {
                true => Ok("at last".to_owned()),
                false => Err(Failure::transient("not yet")),
            }
        }
    };
    let process = db.start(|engine| engine.handle(CHARGE, handler)).await;
    let mut sent = process.send(CHARGE, &1).await.unwrap();
    assert_eq!(soon("reply", sent.result()).await.unwrap(), "at last");
    let seen = seen.lock().unwrap().clone();
    let tries: Vec<_> = seen
        .iter()
        .map(|(number, last, _)| (*number, *last))
        .collect();
    assert_eq!(tries, [(1, false), (2, false), (3, true)]);
    assert!(seen.iter().all(|(.., key)| *key == seen[0].2), "{seen:?}");
}

async fn co_04_a_business_failure_is_the_reply_and_is_not_tried_again(db: Db) {
    let till = Till::new(REFUSES);
    let process = start(&db, &till).await;
    let mut sent = process.send(CHARGE, &7).await.unwrap();
    let reply = soon("reply", sent.result()).await.unwrap_err();
    assert!(reply.to_string().contains("no money"), "{reply}");
    assert_eq!(till.tries(), 1);
    let run = process.run(&sent).await.unwrap();
    assert_eq!(run.row.state, RunState::Failed);
    assert!(parked(&process).await.is_empty());
}

async fn co_04_a_command_that_failed_too_often_is_parked_and_goes_on_when_resumed(db: Db) {
    let till = Till::new(SHAKY);
    let process = start(&db, &till).await;
    let mut sent = process.send(CHARGE, &7).key("42").await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    assert_eq!(till.tries(), 3, "as often as its policy says");
    let run = &parked(&process).await[0];
    let reason = format!("{:?}", run.row.outcome);
    assert!(reason.contains("try again"), "{reason}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(till.tries(), 3, "no more tries while it is parked");
    till.mood.store(WELL, Ordering::Relaxed);
    process.resume("charge:42").await.unwrap();
    assert_eq!(soon("reply", sent.result()).await.unwrap(), "charged 7");
    assert_eq!(till.tries(), 4);
    assert!(
        process.resume("charge:42").await.is_err(),
        "it is not parked"
    );
    assert_sound(&db).await;
}

async fn co_04_a_permanent_failure_parks_at_once(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    process.send(CHARGE, &7).await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    assert_eq!(till.tries(), 1);
}

async fn co_20_whoever_calls_a_command_that_is_parked_waits_for_the_operator(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let mut run = process.start(ORDER, &7).await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    let command = parked(&process).await[0].row.clone();
    assert_eq!(command.parent.map(|parent| parent.run), Some(run.id()));
    let waiting = process.run(&run).await.unwrap().row.state;
    assert_eq!(waiting, RunState::Waiting);
    till.mood.store(WELL, Ordering::Relaxed);
    process.resume(command.id).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), "charged 7");
    assert_eq!(till.tries(), 2);
    assert_sound(&db).await;
}

async fn co_20_a_business_failure_reaches_whoever_called(db: Db) {
    let till = Till::new(REFUSES);
    let process = start(&db, &till).await;
    let mut run = process.start(ORDER, &7).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), "cancelled");
    assert_sound(&db).await;
}

async fn co_10_a_parked_command_is_tried_again_with_another_payload(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let mut run = process.start(ORDER, &7).await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    let command = parked(&process).await[0].row.id;
    till.mood.store(WELL, Ordering::Relaxed);
    process.resume_with(command, &8).await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), "charged 8");
    let row = process.run(command).await.unwrap().row;
    assert_eq!((row.state, row.execution), (RunState::Completed, 2));
    // What was sent at first can still be read.
    let journal = process.journal_of(command, 1).await.unwrap();
    let roundel::Entry::Started { input, .. } = &journal[0] else {
        panic!("{journal:?}")
    };
    assert_eq!(input.as_str(), "7");
    assert_sound(&db).await;
}

async fn co_10_a_parked_command_is_completed_by_hand(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let mut run = process.start(ORDER, &7).await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    let command = parked(&process).await[0].row.id;
    process.complete(command, &"paid in cash").await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), "paid in cash");
    let again = process.complete(command, &"twice").await;
    assert!(again.is_err(), "there is one reply");
    assert_eq!(till.tries(), 1);
    assert_sound(&db).await;
}

async fn co_10_a_parked_command_is_cancelled(db: Db) {
    let till = Till::new(BROKEN);
    let process = start(&db, &till).await;
    let mut sent = process.send(CHARGE, &7).key("42").await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    process.cancel("charge:42").await.unwrap();
    let reply = soon("reply", sent.result()).await.unwrap_err();
    assert!(reply.to_string().contains("cancel"), "{reply}");
    let row = process.run("charge:42").await.unwrap().row;
    assert_eq!(row.state, RunState::Cancelled);
    assert!(parked(&process).await.is_empty());
    assert_sound(&db).await;
}

async fn co_10_what_is_not_parked_is_not_begun_anew(db: Db) {
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let mut sent = process.send(CHARGE, &7).await.unwrap();
    soon("reply", sent.result()).await.unwrap();
    let refused = process.resume_with(&sent, &8).await.unwrap_err();
    let Error::Refused(Refusal::NotParked { .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(till.tries(), 1);
}

async fn co_25_a_run_begun_anew_still_undoes_what_it_did_before(db: Db) {
    const SHIP: Workflow<u32, String> = Workflow::named("ship");
    let undone = Arc::new(AtomicU32::new(0));
    let count = undone.clone();
    let ship = move |cx: Cx, amount: u32| {
        let count = count.clone();
        async move {
            let pack = cx.effect("pack", move |_| async move { Ok::<_, Failure>(amount) });
            let unpack = move |begun: roundel::Begun<u32>| {
                // What came of the first was lost when the run was parked; it may have happened.
                let value = begun.value().copied().unwrap_or(1);
                count.fetch_add(value, Ordering::Relaxed);
                async { Ok::<_, Failure>(()) }
            };
            pack.undo(unpack).await?;
            match amount {
                1 => Err(Failure::permanent("no such street")),
                _ => Err(Failure::business("nobody at home")),
            }
        }
    };
    let process = db.start(|engine| engine.register(SHIP, ship)).await;
    let mut run = process.start(SHIP, &1).await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    process.resume_with(&run, &10).await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    let row = process.run(&run).await.unwrap().row;
    assert_eq!(row.state, RunState::RolledBack);
    assert_eq!(undone.load(Ordering::Relaxed), 11, "of both executions");
    assert_sound(&db).await;
}

#[tokio::test]
async fn co_01_a_command_handled_in_the_database_happens_once() {
    const BOOK: Command<i64, i64> = Command::named("book").retry(QUICK);
    let db = Db::sqlite();
    let handler = |tx: Tx, amount: i64| async move {
        let table = "CREATE TABLE IF NOT EXISTS booking (amount INTEGER NOT NULL)";
        tx.execute(table, ()).await?;
        tx.execute("INSERT INTO booking (amount) VALUES ($1)", (amount,))
            .await?;
        let row = tx.query_one("SELECT sum(amount) FROM booking", ()).await?;
        row.get::<i64>(0)
    };
    let process = db
        .start(|engine| engine.handle_in_step(BOOK, handler))
        .await;
    for (n, sum) in [(1, 1), (2, 3), (3, 6)] {
        let mut sent = process.send(BOOK, &n).key(n.to_string()).await.unwrap();
        assert_eq!(soon("reply", sent.result()).await.unwrap(), sum);
        let mut again = process.send(BOOK, &n).key(n.to_string()).await.unwrap();
        assert_eq!(soon("reply", again.result()).await.unwrap(), sum);
    }
}
