//! What Roundel sets out to reach beside the others, and whether this run shows it.

use super::Results;
use super::catalogue::{PEERS, Peer, Place, Workload};

pub(super) const SQLITE: &str = "roundel-sqlite";
pub(super) const POSTGRES: &str = "roundel-postgres";

/// One aim: so many times better than somebody.
#[derive(Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) at_least: f64,
    /// By the medians of all turns; none if one side was not measured.
    pub(super) seen: Option<f64>,
}

impl Bar {
    pub(super) fn verdict(&self) -> &'static str {
        match self.seen {
            None => "not measured",
            Some(seen) if seen >= self.at_least => "met",
            Some(_) => "missed",
        }
    }
}

/// Whether everything of Roundel's own was measured.
pub(super) fn measured(results: &Results) -> bool {
    let asked = |name| results.figures.keys().any(|(peer, _)| *peer == name);
    let failed = |name| results.missing.keys().any(|(peer, _)| *peer == name);
    [SQLITE, POSTGRES]
        .iter()
        .all(|name| !failed(*name) && !results.absent.contains_key(*name))
        && (asked(SQLITE) || asked(POSTGRES) || results.figures.is_empty())
}

pub(super) fn bars(results: &Results) -> Vec<Bar> {
    let bar = |what: &str, at_least, seen| Bar {
        what: what.to_owned(),
        at_least,
        seen,
    };
    let times = |workload, peer| ratio(results, workload, SQLITE, peer);
    let faster = |workload, peer| ratio(results, workload, peer, SQLITE);
    let (engine, engines) = best(results, Workload::Sequence, |peer| peer.executes);
    let (queue, queues) = best(results, Workload::Queue, |_| true);
    let (bulk, bulks) = best(results, Workload::Bulk, |_| true);
    vec![
        bar(
            "W1, many at once, on SQLite: times Restate's rate",
            10.0,
            times(Workload::Sequence, "restate"),
        ),
        bar(
            "W1, many at once, on SQLite: times duroxide's rate",
            100.0,
            times(Workload::Sequence, "duroxide-sqlite"),
        ),
        bar(
            "W1, one at a time, on SQLite: times shorter than Restate's",
            4.0,
            faster(Workload::Alone, "restate"),
        ),
        bar(
            "W3 on SQLite: times shorter than Restate's",
            10.0,
            faster(Workload::FanOut, "restate"),
        ),
        bar(
            "W4 on SQLite: times shorter than Restate's",
            4.0,
            faster(Workload::Signal, "restate"),
        ),
        bar(
            &format!("W1, many at once, on PostgreSQL: times the best there, {engine}"),
            5.0,
            engines,
        ),
        bar(
            &format!("W2, one by one, on PostgreSQL: times the best there, {queue}"),
            1.0,
            queues,
        ),
        bar(
            &format!("W2, sent in bulk, on PostgreSQL: times the best there, {bulk}"),
            1.0,
            bulks,
        ),
        bar(
            "W2, in batches, on PostgreSQL: times PGMQ's rate",
            1.0,
            ratio(results, Workload::Batches, POSTGRES, "pgmq"),
        ),
    ]
}

/// The best of the others on PostgreSQL, and how many times its rate Roundel has.
fn best(
    results: &Results,
    workload: Workload,
    counts: impl Fn(&Peer) -> bool,
) -> (&'static str, Option<f64>) {
    let others = PEERS
        .iter()
        .filter(|peer| peer.place == Place::Postgres && peer.name != POSTGRES && counts(peer));
    let rates = others.filter_map(|peer| Some((peer.name, middle(results, workload, peer.name)?)));
    let best = rates.max_by(|one, other| one.1.total_cmp(&other.1));
    match best {
        None => ("nobody", None),
        Some((name, _)) => (name, ratio(results, workload, POSTGRES, name)),
    }
}

/// The first's figure by the second's.
pub(super) fn ratio(
    results: &Results,
    workload: Workload,
    first: &str,
    second: &str,
) -> Option<f64> {
    Some(middle(results, workload, first)? / middle(results, workload, second)?)
}

/// The middle of what was measured: a rate, or a median latency.
pub(super) fn middle(results: &Results, workload: Workload, name: &str) -> Option<f64> {
    let found = results
        .figures
        .iter()
        .find(|((peer, of), _)| *peer == name && *of == workload);
    let mut values: Vec<f64> = found?
        .1
        .iter()
        .filter_map(|figure| figure.per_second.or(figure.p50_ms))
        .collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        many if many % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}
