//! How long commands stay once they are handled: as their queue says.

use std::time::Duration;

use roundel::{Attempt, Command, Cx, Entry, Failure, Result, Workflow};

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const GONE: Command<u32, u32> = Command::named("gone");
const KEPT: Command<u32, u32> = Command::named("kept");
const CALLS: Workflow<u32, u32> = Workflow::named("calls");

all![co_07_handled_commands_go_or_stay_as_their_queue_says];

async fn handler(_: Attempt, number: u32) -> Result<u32, Failure> {
    match number {
        0 => Err(Failure::permanent("broken")),
        number => Ok(number + 1),
    }
}

async fn calls(cx: Cx, number: u32) -> Result<u32> {
    cx.call(GONE, &number).await
}

async fn start(db: &Db) -> Process {
    let engine = db.start(|engine| {
        let engine = engine.handle(GONE, handler).handle(KEPT, handler);
        let engine = engine.register(CALLS, calls);
        let engine = engine.keep_handled(GONE, Duration::ZERO);
        engine.keep_handled(KEPT, Duration::MAX)
    });
    engine.await
}

async fn co_07_handled_commands_go_or_stay_as_their_queue_says(db: Db) {
    let process = start(&db).await;
    for number in 1..=5 {
        for command in [GONE, KEPT] {
            let mut sent = process.send(command, &number).await.unwrap();
            soon("its reply", sent.result()).await.unwrap();
        }
    }
    let parked = process.send(GONE, &0).key("broken").await.unwrap();
    let mut calls = process.start(CALLS, &7).await.unwrap();
    assert_eq!(soon("its end", calls.result()).await.unwrap(), 8);
    // What is parked is not handled, and what was called is its caller's.
    until("the others are gone", async || {
        let of = process.runs().of("gone").unwrap();
        of.fetch().await.unwrap().items.len() == 2
    })
    .await;
    assert!(process.run(parked.id()).await.is_ok());
    let kept = process.runs().of("kept").unwrap().fetch().await.unwrap();
    assert_eq!(kept.items.len(), 5);
    let oldest = kept.items.last().expect("five").row.id;
    let journal = process.journal(oldest).await.unwrap();
    let Some(Entry::Started { input, .. }) = journal.first() else {
        panic!("{journal:?}")
    };
    assert_eq!(input.as_str(), "1", "its payload can be read");
    assert_sound(&db).await;
}
