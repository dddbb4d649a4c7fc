//! A handler that needs longer than an attempt may take says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Attempt, Command, Entry, Failure, Retry};
use tokio::sync::Notify;

use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const SECOND: Duration = Duration::from_secs(1);
const PRINT: Command<u32, u32> = Command::named("print")
    .retry(Retry::fixed(5, SECOND))
    .attempt_timeout(Duration::from_secs(4));

all![co_05_a_handler_that_says_so_may_take_longer];

/// How many attempts of this command took too long.
async fn too_long(process: &Process, id: &str) -> usize {
    let sent = process.sent(PRINT, id).await.unwrap();
    let journal = process.journal(&sent).await.unwrap();
    let codes = journal.iter().filter_map(|entry| match entry {
        Entry::Attempted { failure, .. } => Some(failure.code.as_str()),
        _ => None,
    });
    codes.filter(|code| *code == "timed_out").count()
}

async fn co_05_a_handler_that_says_so_may_take_longer(db: Db) {
    let db = db.with_manual_clock();
    let (done, begun) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let handler = {
        let (done, begun) = (done.clone(), begun.clone());
        move |attempt: Attempt, number: u32| {
            let (done, begun) = (done.clone(), begun.clone());
            async move {
                if number == 1 {
                    attempt.extend(12 * SECOND);
                    attempt.extend(SECOND);
                }
                let notified = done.notified();
                begun.fetch_add(1, Ordering::Relaxed);
                notified.await;
                Ok::<_, Failure>(attempt.number())
            }
        }
    };
    let process = db.start(|engine| engine.handle(PRINT, handler)).await;
    let mut long = process.send(PRINT, &1).key("long").await.unwrap();
    process.send(PRINT, &2).key("short").await.unwrap();
    until("both work", async || begun.load(Ordering::Relaxed) == 2).await;
    db.advance(6 * SECOND);
    until("one took too long", async || {
        too_long(&process, "short").await == 1
    })
    .await;
    assert_eq!(too_long(&process, "long").await, 0, "it had said so");
    // Not for ever.
    db.advance(7 * SECOND);
    until("so did the other", async || {
        too_long(&process, "long").await == 1
    })
    .await;
    db.advance(SECOND);
    until("both work again", async || {
        begun.load(Ordering::Relaxed) >= 4
    })
    .await;
    done.notify_waiters();
    assert_eq!(soon("reply", long.result()).await.unwrap(), 2);
    assert_sound(&db).await;
}
