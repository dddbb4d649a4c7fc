//! What schedules promise, on every store: each time is started once, whoever is there.

#[cfg(feature = "testkit")]
mod explored;
mod operators;
mod times;

use std::time::Duration;

use roundel::{Client, Command, Cx, EngineBuilder, Failure, Result, Signal, Timestamp, Workflow};
use roundel::{RunView, SCHEDULED_AT, instant};

use crate::support::{Db, Process, until};

/// Ends at once, and says for which time it was started.
const REPORT: Workflow<String, Option<Timestamp>> = Workflow::named("report");
/// Goes on until it is told to end.
const SLOW: Workflow<String, ()> = Workflow::named("slow");
const MAIL: Command<String, Option<Timestamp>> = Command::named("mail");
const END: Signal<()> = Signal::named("end");
const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn app(engine: EngineBuilder) -> EngineBuilder {
    let report = |cx: Cx, _: String| async move { cx.context(SCHEDULED_AT) };
    let slow = |cx: Cx, _: String| async move { cx.wait(END).await };
    let mail = |attempt: roundel::Attempt, _: String| async move {
        let at = attempt.context(SCHEDULED_AT);
        at.map_err(|failure| Failure::permanent(failure.message))
    };
    engine
        .register(REPORT, report)
        .register(SLOW, slow)
        .handle(MAIL, mail)
}

async fn start(db: &Db) -> Process {
    db.start(app).await
}

/// What the schedule of this name started, oldest first.
async fn started(client: &Client, schedule: &str) -> Result<Vec<RunView>, roundel::Error> {
    let runs = client.runs().with_label("schedule", schedule.to_owned())?;
    let mut runs = runs.limit(1000).fetch().await?.items;
    runs.reverse();
    Ok(runs)
}

/// The keys of what was started, in order.
async fn keys(client: &Client, schedule: &str) -> Vec<String> {
    let runs = started(client, schedule).await.unwrap();
    let mut keys: Vec<String> = runs
        .iter()
        .map(|run| run.row.key.as_ref().expect("a key").to_string())
        .collect();
    keys.sort();
    keys
}

/// Waits until the schedule has started so many.
async fn has_started(client: &Client, schedule: &str, many: usize) {
    until("so many were started", async || {
        started(client, schedule).await.unwrap().len() >= many
    })
    .await;
}

/// Waits until the schedule has started so many, and all of them have ended: while one goes on, the
/// next time is skipped.
async fn has_done(client: &Client, schedule: &str, many: usize) {
    until("so many were started and have ended", async || {
        let runs = started(client, schedule).await.unwrap();
        runs.len() >= many && runs.iter().all(|run| run.row.state.has_ended())
    })
    .await;
}

/// Waits until the schedule has looked at all up to now.
async fn is_settled(client: &Client, schedule: &'static str) {
    let handle = client.schedule(schedule);
    until("it has settled all up to now", async || {
        let view = handle.show().await.unwrap();
        view.state.done.until >= client.now() && view.state.asked.is_empty()
    })
    .await;
}

/// Waits until the schedule has seen what was asked of it, and waits for its next time.
async fn is_at_rest(client: &Client, schedule: &'static str) {
    let handle = client.schedule(schedule);
    until("it waits", async || {
        let view = handle.show().await.unwrap();
        let row = client.run(view.run).await.unwrap().row;
        let next = view.state.done.next;
        let waits = next.is_none() || row.timer_at == next;
        row.owner.is_none() && row.ready_at == row.timer_at && waits && row.head > 1
    })
    .await;
}

fn at(schedule: &str, at: Timestamp) -> String {
    format!("{schedule}@{}", instant(at))
}
