//! How many runs there are, who works on them, and what the engine has counted.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::See;
use crate::auth::{Cap, Everywhere, actions};
use crate::problem::Problem;
use crate::route::{Ask, Give, Json, respond};
use crate::shape::Listing;
use crate::view::{Counts, Worker};

pub(crate) async fn counts(cap: See, _: Ask) -> Result<Json<Counts>, Problem> {
    let counts = cap.server.lately.counts(cap.client()).await?;
    Ok(Json(counts))
}

pub(crate) async fn workers(cap: See, _: Ask) -> Result<Json<Listing<Worker>>, Problem> {
    let client = cap.client();
    let (workers, lanes) = (client.workers().await?, client.lanes().await?);
    let stats = cap.server.lately.stats(client).await?;
    let view = |row| Worker::of(row, client.namespace(), (&lanes, &stats));
    Ok(Json(Listing {
        items: workers.iter().map(view).collect(),
        next: None,
    }))
}

/// As Prometheus reads it.
pub(crate) struct Metrics(String);

const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Give for Metrics {
    fn shape() -> (&'static str, Option<Value>) {
        (KIND, None)
    }

    fn give(self) -> Response {
        respond(StatusCode::OK, KIND, self.0)
    }
}

macro_rules! counters {
    ($($name:ident = $about:literal;)*) => {
        /// What an engine counts: name, what it is, and where it stands.
        const COUNTERS: &[(&str, &str, fn(&roundel::Metrics) -> u64)] =
            &[$((stringify!($name), $about, |seen| seen.$name),)*];
    };
}

counters! {
    runs_started = "Runs started through this engine.";
    runs_completed = "Runs that this engine completed.";
    runs_failed = "Runs that this engine saw fail.";
    runs_cancelled = "Runs that this engine ended on request.";
    runs_parked = "Runs that this engine parked.";
    runs_unread = "Runs given back for lack of a key.";
    runs_pruned = "Runs removed because they ended long ago.";
    rounds = "Rounds committed.";
    rounds_fenced = "Rounds refused: another has the run.";
    rounds_retried = "Rounds that had to be sent again.";
    failures_business = "Attempts with a business failure.";
    failures_transient = "Attempts that failed and may pass.";
    failures_permanent = "Attempts that failed for good.";
    claims_with_runs = "Claims that brought runs.";
    claims_empty = "Claims that brought none.";
    claims_failed = "Claims that failed.";
    leases_lost = "Leases lost.";
    replays = "Runs replayed from their journal.";
    found_in_memory = "Runs found in memory when claimed.";
}

/// Counters of this process and gauges; no label comes from outside, so their number is bounded.
pub(crate) async fn metrics(
    cap: Cap<actions::See, Everywhere>,
    _: Ask,
) -> Result<Metrics, Problem> {
    let (server, seen) = (&cap.server, cap.server.client.metrics());
    let mut text = String::new();
    let mut say = |name: &str, kind: &str, about: &str, value: u64| {
        let _ = write!(
            text,
            "# HELP roundel_{name} {about}\n# TYPE roundel_{name} {kind}\nroundel_{name} {value}\n"
        );
    };
    for (name, about, value) in COUNTERS {
        say(&format!("{name}_total"), "counter", about, value(&seen));
    }
    say(
        "runs_live",
        "gauge",
        "Runs in memory and leased.",
        seen.live,
    );
    say(
        "runs_cached",
        "gauge",
        "Runs in memory and waiting.",
        seen.cached,
    );
    let streams = server.limits.streams - server.streams.available_permits();
    let about = "Live streams that are open.";
    say("http_streams", "gauge", about, streams as u64);
    let counts = &server.counts;
    let about = "Requests that were answered.";
    let requests = counts.requests.load(Ordering::Relaxed);
    say("http_requests_total", "counter", about, requests);
    let about = "Connections for which there was no place.";
    let refused = counts.connections_refused.load(Ordering::Relaxed);
    say("http_connections_refused_total", "counter", about, refused);
    waits(&mut text, &seen.store_waits);
    Ok(Metrics(text))
}

fn waits(text: &mut String, waits: &roundel::Waits) {
    let name = "roundel_store_wait_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} How long requests waited for the store."
    );
    let _ = writeln!(text, "# TYPE {name} histogram");
    let mut so_far = 0;
    for (bound, count) in waits.buckets() {
        so_far += count;
        let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {so_far}");
    }
    let _ = writeln!(text, "{name}_sum {}", waits.total().as_secs_f64());
    let _ = writeln!(text, "{name}_count {}", waits.count());
}
