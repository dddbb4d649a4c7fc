//! Every workload, as small as it gets: what is measured is there, and nothing is left behind.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::{growth, w1, w2, w3, w4};

fn check<F: Serialize>(dir: &Path, figures: &F, rates: &[&str]) {
    let shown = serde_json::to_value(figures).unwrap();
    let usual = ["limit_rows_per_second", "ratio", "fdatasync_p50_us"];
    for key in usual.iter().chain(rates) {
        let value = shown.get(key).and_then(Value::as_f64);
        assert!(
            value.is_some_and(|value| value > 0.0),
            "{key} is {value:?} in {shown}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_measures_an_empty_and_a_full_file() {
    let folder = tempfile::tempdir().unwrap();
    let plan = w1::Plan {
        dir: folder.path().to_owned(),
        in_flight: 10,
        time: Duration::ZERO,
        latency_runs: 2,
        stored: 20,
        sleeping: 10,
    };
    let figures = w1::measure(&plan, &|_| {}).await.unwrap();
    let rates = [
        "effects_per_second",
        "effects_per_second_before",
        "ratio_to_before",
        "p50_us",
        "p99_us",
    ];
    check(folder.path(), &figures, &rates);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w2_ends_every_job_it_sends() {
    let folder = tempfile::tempdir().unwrap();
    let plan = w2::Plan {
        dir: folder.path().to_owned(),
        jobs: 101,
        senders: 7,
        concurrency: 3,
        turns: 1,
        latency_runs: 2,
    };
    let figures = w2::measure(&plan, &|_| {}).await.unwrap();
    let rates = ["jobs_per_second", "sends_per_second", "p50_us", "p99_us"];
    check(folder.path(), &figures, &rates);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_waits_for_all_children() {
    let folder = tempfile::tempdir().unwrap();
    let plan = w3::Plan {
        dir: folder.path().to_owned(),
        children: 5,
        parents: 2,
        in_flight: 2,
        time: Duration::ZERO,
    };
    let figures = w3::measure(&plan, &|_| {}).await.unwrap();
    let rates = ["p50_ms", "max_ms", "p50_fdatasyncs", "children_per_second"];
    check(folder.path(), &figures, &rates);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w4_ends_every_run_it_signals() {
    let folder = tempfile::tempdir().unwrap();
    let plan = w4::Plan {
        dir: folder.path().to_owned(),
        latency_runs: 2,
        in_flight: 10,
        turns: 1,
    };
    let figures = w4::measure(&plan, &|_| {}).await.unwrap();
    let rates = ["p50_us", "p99_us", "p50_fdatasyncs", "signals_per_second"];
    check(folder.path(), &figures, &rates);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growth_has_a_point_for_every_size() {
    let folder = tempfile::tempdir().unwrap();
    let plan = growth::Plan {
        dir: folder.path().to_owned(),
        stored: vec![0, 5],
        waiting: vec![0, 5],
        journal: vec![1, 4],
        children: vec![1, 4],
        turns: 1,
        in_flight: 3,
    };
    let figures = growth::measure(&plan, &|_| {}).await.unwrap();
    for points in [
        &figures.stored,
        &figures.waiting,
        &figures.journal,
        &figures.replay,
        &figures.children,
    ] {
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].ratio, 1.0);
        assert!(points[1].per_second > 0.0);
    }
    check(folder.path(), &figures, &[]);
}
