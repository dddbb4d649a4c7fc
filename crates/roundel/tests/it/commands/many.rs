//! Handlers that take many commands in one call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Attempt, Batch, Command, Failure, Retry, RunState};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const MAIL: Command<u32, u32> =
    Command::named("mail").retry(Retry::fixed(2, Duration::from_millis(1)));

all![
    co_06_many_commands_are_handled_in_one_call_and_answered_each,
    co_04_in_a_call_with_many_each_fails_alone,
    co_04_a_call_that_panics_or_answers_too_few_parks_those_that_were_in_it,
    co_05_whoever_crashes_in_a_call_with_many_is_taken_up_again,
];

/// What each call was given.
type Calls = Arc<Mutex<Vec<Vec<u32>>>>;

/// 0 is refused, 1 fails at first, 13 is a panic, 14 is not answered.
async fn start(db: &Db, calls: &Calls) -> Process {
    let calls = calls.clone();
    let handler = move |commands: Vec<(Attempt, u32)>| {
        let numbers: Vec<u32> = commands.iter().map(|(_, number)| *number).collect();
        calls.lock().unwrap().push(numbers.clone());
        async move {
            assert!(!numbers.contains(&13), "thirteen");
            let answered = commands.into_iter().filter(|(_, number)| *number != 14);
            let answer = |(attempt, number): (Attempt, u32)| match number {
                0 => Err(Failure::business("no address")),
                1 if attempt.number() == 1 => Err(Failure::transient("busy")),
                number => Ok(number * 2),
            };
            answered.map(answer).collect()
        }
    };
    let engine = db.start(|engine| {
        // However fast time passes in a test, no lease of this process ends.
        let engine = engine.lease(roundel::limits::LEASE);
        engine.handle_many(MAIL, 5, handler)
    });
    engine.await
}

fn sizes(calls: &Calls) -> Vec<usize> {
    calls.lock().unwrap().iter().map(Vec::len).collect()
}

async fn co_06_many_commands_are_handled_in_one_call_and_answered_each(db: Db) {
    let calls = Calls::default();
    let client = db.start(|engine| engine).await;
    for number in 20..40 {
        let sent = client.send(MAIL, &number).key(number.to_string());
        sent.await.unwrap();
    }
    let process = start(&db, &calls).await;
    for number in 20..40 {
        let mut sent = process.sent(MAIL, &number.to_string()).await.unwrap();
        assert_eq!(soon("its reply", sent.result()).await.unwrap(), number * 2);
    }
    assert_eq!(sizes(&calls).iter().sum::<usize>(), 20, "each once");
    // Those that begin together come together; how many do is up to the machine.
    for _ in 0..50 {
        if sizes(&calls).iter().any(|size| *size > 1) {
            break;
        }
        let mails: Batch = (40..60).map(|number| MAIL.member(&number)).collect();
        let mut sent = process.batch(mails).await.unwrap();
        soon("all are handled", sent.result()).await.unwrap();
    }
    let sizes = sizes(&calls);
    assert!(sizes.iter().all(|size| *size <= 5), "{sizes:?}");
    assert!(
        sizes.iter().any(|size| *size > 1),
        "some came together: {sizes:?}"
    );
    assert_sound(&db).await;
}

async fn co_04_in_a_call_with_many_each_fails_alone(db: Db) {
    let calls = Calls::default();
    let client = db.start(|engine| engine).await;
    for number in 0..5_u32 {
        let sent = client.send(MAIL, &number).key(number.to_string());
        sent.await.unwrap();
    }
    let process = start(&db, &calls).await;
    for number in 1..5_u32 {
        let mut sent = process.sent(MAIL, &number.to_string()).await.unwrap();
        assert_eq!(soon("its reply", sent.result()).await.unwrap(), number * 2);
    }
    let mut refused = process.sent(MAIL, "0").await.unwrap();
    let reply = soon("its reply", refused.result()).await.unwrap_err();
    assert!(reply.to_string().contains("no address"), "{reply}");
    let numbers: Vec<u32> = calls.lock().unwrap().concat();
    let tries = |of: u32| numbers.iter().filter(|number| **number == of).count();
    let tried: Vec<usize> = (0..5).map(tries).collect();
    assert_eq!(tried, [1, 2, 1, 1, 1], "{numbers:?}");
    assert_sound(&db).await;
}

async fn co_04_a_call_that_panics_or_answers_too_few_parks_those_that_were_in_it(db: Db) {
    let calls = Calls::default();
    let process = start(&db, &calls).await;
    for (number, why) in [(13, "thirteen"), (14, "answered 0")] {
        let sent = process.send(MAIL, &number).await.unwrap();
        until("it is parked", async || {
            process.run(&sent).await.unwrap().row.state == RunState::Parked
        })
        .await;
        let outcome = format!("{:?}", process.run(&sent).await.unwrap().row.outcome);
        assert!(outcome.contains(why), "{outcome}");
    }
    let mut next = process.send(MAIL, &5).await.unwrap();
    assert_eq!(soon("its reply", next.result()).await.unwrap(), 10);
    assert_sound(&db).await;
}

async fn co_05_whoever_crashes_in_a_call_with_many_is_taken_up_again(db: Db) {
    let db = db.with_manual_clock();
    let begun = Arc::new(tokio::sync::Notify::new());
    let told = begun.clone();
    let stuck = move |_: Vec<(Attempt, u32)>| {
        told.notify_one();
        std::future::pending::<Vec<Result<u32, Failure>>>()
    };
    let first = db.start(|engine| engine.handle_many(MAIL, 5, stuck)).await;
    let sent = first.send(MAIL, &7).await.unwrap().id();
    soon("it begins", begun.notified()).await;
    first.crash();
    let calls = Calls::default();
    let process = start(&db, &calls).await;
    until("it is handled", async || {
        db.advance(Duration::from_secs(10));
        process.run(sent).await.unwrap().row.state == RunState::Completed
    })
    .await;
    assert_eq!(*calls.lock().unwrap(), [[7]]);
    assert_sound(&db).await;
}
