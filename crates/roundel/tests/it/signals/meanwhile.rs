//! What comes while the function is being polled is heard as soon as it waits again. Leases last
//! an hour here, so that nothing is brought by a renewal.

use std::future::{pending, poll_fn};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use roundel::future::{Either, select};
use roundel::{Cx, Entry, Error, Failure, Handle, Result, Workflow};

use super::{NEWS, count};
use crate::support::{Db, Process, all, soon, until};

all![
    si_01_a_signal_that_comes_while_the_code_runs_wakes_it,
    si_23_a_cancel_that_comes_while_the_code_runs_is_heard,
];

const WATCHED: Workflow<(), String> = Workflow::named("watched");
const LONG: Duration = Duration::from_secs(3600);

/// Lets a test stop a function in the middle of a poll.
#[derive(Default)]
struct Stop {
    waker: Mutex<Option<Waker>>,
    /// Passed once when the poll has begun, and once when it may end.
    gate: Mutex<Option<Arc<Barrier>>>,
}

impl Stop {
    /// Never ready; stops whoever polls it if it was told to.
    fn poll(&self, waker: &Waker) -> Poll<()> {
        *self.waker.lock().expect("nobody panics") = Some(waker.clone());
        let gate = self.gate.lock().expect("nobody panics").take();
        if let Some(gate) = gate {
            tokio::task::block_in_place(|| {
                gate.wait();
                gate.wait();
            });
        }
        Poll::Pending
    }

    /// Has the function polled, and does this while it is.
    async fn during_a_poll(&self, something: impl Future<Output = ()>) {
        let gate = Arc::new(Barrier::new(2));
        *self.gate.lock().expect("nobody panics") = Some(gate.clone());
        let waker = self.waker.lock().expect("nobody panics").clone();
        waker.expect("it was polled").wake();
        tokio::task::block_in_place(|| gate.wait());
        something.await;
        tokio::task::block_in_place(|| gate.wait());
    }
}

/// A run that waits for news beside an effect that never ends, so that it stays in memory.
async fn watched(db: &Db, stop: &Arc<Stop>) -> (Process, Handle<String>) {
    let stop = stop.clone();
    let function = move |cx: Cx, (): ()| {
        let stop = stop.clone();
        async move {
            let idle = cx.effect("idle", |_| pending::<Result<String, Failure>>());
            let news = select(idle, cx.wait(NEWS));
            let stopped = poll_fn(|context| stop.poll(context.waker()));
            match select(news, Box::pin(stopped)).await {
                Either::Left((Either::Right((news, _)), _)) => Ok(news?.to_string()),
                _ => unreachable!("nothing else ends"),
            }
        }
    };
    let set_up = db.start(|engine| engine.register(WATCHED, function).lease(LONG));
    let process = set_up.await;
    let run = process.start(WATCHED, &()).await.expect("it starts");
    let begun = |entry: &Entry| matches!(entry, Entry::Begun { .. });
    until("it waits", || async {
        count(&process, run.id(), begun).await == 2
    })
    .await;
    (process, run)
}

async fn si_01_a_signal_that_comes_while_the_code_runs_wakes_it(db: Db) {
    let stop = Arc::default();
    let (process, mut run) = watched(&db, &stop).await;
    let signal = async {
        process
            .signal(run.id(), NEWS, &7)
            .await
            .expect("it is sent");
    };
    stop.during_a_poll(signal).await;
    assert_eq!(soon("the news", run.result()).await.expect("news"), "7");
    process.shutdown().await;
}

async fn si_23_a_cancel_that_comes_while_the_code_runs_is_heard(db: Db) {
    let stop = Arc::default();
    let (process, mut run) = watched(&db, &stop).await;
    let cancel = async {
        process.cancel(run.id()).await.expect("it is marked");
    };
    stop.during_a_poll(cancel).await;
    let result = soon("the end", run.result()).await;
    assert!(matches!(result, Err(Error::Failed { .. })), "{result:?}");
    process.shutdown().await;
}
