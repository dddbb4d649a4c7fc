//! One look, and what changed since the one before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roundel::{Client, Error, RunState, Timestamp, Trouble, Value as Cell};
use roundel_server::view::{self, Counts};
use serde_json::{Value, json};

/// Runs of the newest that are looked at for failures.
const NEWEST: usize = 200;
/// What waits for an operator, and failures.
const TROUBLES: usize = 20;
/// How many rates are kept for the picture of them.
const KEPT: usize = 60;

/// Constant, so that names need no quotes: the answer is of all namespaces.
const OLDEST: &str = "SELECT lane.namespace AS namespace, min(run.ready_at) AS at \
     FROM roundel_run AS run JOIN roundel_lane AS lane ON lane.id = run.lane \
     WHERE run.ready_at IS NOT NULL AND run.state = 'ready' GROUP BY lane.namespace";

/// What was seen.
pub(super) struct Snapshot {
    pub(super) namespace: String,
    pub(super) now: Timestamp,
    /// When it was seen, by this machine's clock.
    pub(super) at: Instant,
    /// How long the look took.
    pub(super) took: Duration,
    pub(super) counts: Counts,
    pub(super) queues: Vec<view::Queue>,
    pub(super) workers: Vec<view::Worker>,
    /// Since when the run that waits longest is ready.
    pub(super) oldest: Option<Timestamp>,
    pub(super) parked: Vec<view::Parked>,
    pub(super) failed: Vec<view::Run>,
}

impl Snapshot {
    pub(super) async fn take(client: &Client) -> Result<Snapshot, Error> {
        let (at, now) = (Instant::now(), client.now());
        let stats = client.stats().await?;
        let (workers, lanes) = (client.workers().await?, client.lanes().await?);
        let seen = |worker| view::Worker::of(worker, client.namespace(), (&lanes, &stats));
        let parked = client.parked().limit(TROUBLES).fetch().await?;
        let newest = client.runs().limit(NEWEST).fetch().await?;
        let ended_badly = |state| {
            let states = [
                RunState::Failed,
                RunState::RolledBack,
                RunState::RollbackFailed,
            ];
            states.contains(&state)
        };
        let failed = newest.items.iter().filter(|run| ended_badly(run.row.state));
        let queues = client.queues().await?;
        Ok(Snapshot {
            namespace: client.namespace().to_string(),
            now,
            at,
            counts: Counts::of(&stats, now),
            workers: workers.iter().map(seen).collect(),
            queues: queues.iter().map(view::Queue::from).collect(),
            parked: parked
                .items
                .iter()
                .map(|found: &Trouble| found.into())
                .collect(),
            failed: failed.take(TROUBLES).map(view::Run::from).collect(),
            oldest: oldest(client, now).await,
            took: at.elapsed(),
        })
    }

    /// How many runs are in this state.
    pub(super) fn count(&self, state: RunState) -> u64 {
        let runs = self.counts.runs.iter();
        runs.filter(|count| count.state == state)
            .map(|count| count.count)
            .sum()
    }

    /// How many have ended, however.
    pub(super) fn ended(&self) -> u64 {
        let runs = self.counts.runs.iter();
        runs.filter(|count| count.state.has_ended())
            .map(|count| count.count)
            .sum()
    }

    fn all(&self) -> u64 {
        self.counts.runs.iter().map(|count| count.count).sum()
    }

    pub(super) fn json(&self) -> Value {
        let states: BTreeMap<&str, u64> = RunState::ALL
            .into_iter()
            .map(|state| (state.as_str(), self.count(state)))
            .collect();
        json!({
            "now": self.now,
            "namespace": self.namespace,
            "states": states,
            "runs": self.counts.runs,
            "oldest_ready_at": self.oldest,
            "queues": self.queues,
            "workers": self.workers,
            "parked": self.parked,
            "failed": self.failed,
        })
    }
}

/// Databases only: objects have no such question. One that takes too long is not answered.
async fn oldest(client: &Client, now: Timestamp) -> Option<Timestamp> {
    let table = client.sql(OLDEST, 1000).await.ok()?;
    let own = |row: &&Vec<Cell>| {
        let name = client.namespace().as_str();
        matches!(&row[0], Cell::Text(namespace) if namespace == name)
    };
    match table.rows.iter().find(own)?.get(1)? {
        Cell::Integer(at) => Some(Timestamp(*at)).filter(|at| *at <= now),
        _ => None,
    }
}

/// Runs a second, between looks, the newest last.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) started: Vec<f64>,
    pub(super) ended: Vec<f64>,
}

impl Rates {
    pub(super) fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        let seconds = after.at.duration_since(before.at).as_secs_f64().max(0.001);
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let ended = rate(before.ended(), after.ended());
        // What was removed meanwhile has not started less.
        let started = rate(before.all(), after.all());
        for (rates, rate) in [(&mut self.started, started), (&mut self.ended, ended)] {
            rates.push(rate);
            let old = rates.len().saturating_sub(KEPT);
            rates.drain(..old);
        }
    }
}
