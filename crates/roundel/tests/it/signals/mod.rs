//! Signals, waits, timers, operations (SI).

mod anew;
mod answers;
mod batches;
mod crowd;
mod failures;
mod interleaved;
mod leftovers;
mod meanwhile;
mod orders;
mod recovery;
mod resources;
mod restarts;
mod starts;
mod waits;
mod watching;

use std::time::Duration;

use roundel::{Client, Entry, RunId, RunState, Signal, Workflow};

use crate::support::until;

/// A signal of which any number may come.
const NEWS: Signal<u32> = Signal::named("news");
/// Lets a run go on.
const GO: Signal<()> = Signal::named("go");
/// May also be offered.
const JOB: Signal<u32> = Signal::named("job").offerable();

const HOUR: Duration = Duration::from_secs(3600);

/// A workflow without input that says what happened to it.
type Told = Workflow<(), String>;
/// A workflow that gives what it received, in order.
type Received = Workflow<u32, Vec<u32>>;

/// Waits until the run is in this state.
async fn until_is(client: &Client, run: RunId, state: RunState) {
    let what = format!("run {run} is {}", state.as_str());
    until(&what, || async {
        client.run(run).await.expect("a run").row.state == state
    })
    .await;
}

/// Waits until the run waits.
async fn until_waits(client: &Client, run: RunId) {
    until_is(client, run, RunState::Waiting).await;
}

/// How many entries of the run's journal are like this.
async fn count(client: &Client, run: RunId, like: impl Fn(&Entry) -> bool) -> usize {
    let journal = client.journal(run).await.expect("a journal");
    journal.iter().filter(|entry| like(entry)).count()
}
