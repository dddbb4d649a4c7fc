//! Every workload, as small as it gets, over a file and on a server: what is measured is there, and
//! nothing is left behind.

use std::time::Duration;

use roundel_testpg::Schema;
use serde::Serialize;
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use crate::{Error, Target, facts, growth, held, idle, limit, retention, w1, w2, w3, w4, w5};

/// Where a test measures.
enum Place {
    Folder(TempDir),
    Server(Schema),
}

/// A folder, and a server if there is one.
fn places() -> Vec<Place> {
    let folder = Place::Folder(tempfile::tempdir().unwrap());
    let server = roundel_testpg::schema().map(Place::Server);
    std::iter::once(folder).chain(server).collect()
}

impl Place {
    fn target(&self) -> Target {
        match self {
            Place::Folder(folder) => Target::Folder(folder.path().to_owned()),
            Place::Server(schema) => Target::Server(schema.address()),
        }
    }

    /// What a measurement left behind here, whoever began it: others measure on the server too.
    async fn left(&self, begun: &[String]) -> Vec<String> {
        match self {
            Place::Folder(folder) => {
                let found = std::fs::read_dir(folder.path()).unwrap();
                let names = found.map(|entry| entry.unwrap().file_name());
                names.map(|name| name.to_string_lossy().into()).collect()
            }
            Place::Server(schema) => {
                let found = schemas(&schema.address()).await;
                found
                    .into_iter()
                    .filter(|name| begun.contains(name))
                    .collect()
            }
        }
    }

    fn keys(&self) -> [&str; 3] {
        let sync = match self {
            Place::Folder(_) => "fdatasync_p50_us",
            Place::Server(_) => "round_trip_p50_us",
        };
        ["limit_rows_per_second", "ratio", sync]
    }

    fn check<F: Serialize>(&self, figures: &F, rates: &[&str]) {
        let shown = serde_json::to_value(figures).unwrap();
        for key in self.keys().iter().chain(rates) {
            let value = shown.get(key).and_then(Value::as_f64);
            assert!(
                value.is_some_and(|value| value > 0.0),
                "{key} is {value:?} in {shown}"
            );
        }
    }
}

async fn schemas(url: &str) -> Vec<String> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let sql = "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'roundel_bench_%'";
    sqlx::query_scalar(sql)
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w1_measures_an_empty_and_a_full_database() {
    for place in places() {
        let plan = w1::Plan {
            target: place.target(),
            workers: 1,
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
        place.check(&figures, &rates);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w2_ends_every_job_it_sends() {
    for place in places() {
        let plan = w2::Plan {
            target: place.target(),
            workers: 1,
            jobs: 101,
            senders: 7,
            send_many: 1,
            concurrency: 3,
            turns: 1,
            latency_runs: 2,
            limited: true,
            many: Some(4),
        };
        let figures = w2::measure(&plan, &|_| {}).await.unwrap();
        let rates = [
            "jobs_per_second",
            "sends_per_second",
            "limited_jobs_per_second",
            "many_jobs_per_second",
            "limited_ratio",
            "p50_us",
            "p99_us",
        ];
        place.check(&figures, &rates);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w2_ends_every_job_that_is_sent_with_others() {
    for place in places() {
        let plan = w2::Plan {
            target: place.target(),
            workers: 1,
            jobs: 101,
            senders: 2,
            send_many: 20,
            concurrency: 3,
            turns: 1,
            latency_runs: 1,
            limited: false,
            many: Some(4),
        };
        let figures = w2::measure(&plan, &|_| {}).await.unwrap();
        let rates = [
            "jobs_per_second",
            "sends_per_second",
            "many_jobs_per_second",
        ];
        place.check(&figures, &rates);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w3_waits_for_all_children() {
    for place in places() {
        let plan = w3::Plan {
            target: place.target(),
            workers: 1,
            children: 5,
            parents: 2,
            in_flight: 2,
            time: Duration::ZERO,
        };
        let figures = w3::measure(&plan, &|_| {}).await.unwrap();
        place.check(&figures, &["p50_ms", "max_ms"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w4_ends_every_run_it_signals() {
    for place in places() {
        let plan = w4::Plan {
            target: place.target(),
            workers: 1,
            latency_runs: 2,
            in_flight: 10,
            turns: 1,
        };
        let figures = w4::measure(&plan, &|_| {}).await.unwrap();
        place.check(&figures, &["p50_us", "p99_us", "signals_per_second"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_undoes_every_tree() {
    for place in places() {
        let plan = w5::Plan {
            target: place.target(),
            workers: 1,
            parents: 3,
            turns: 1,
            fan_in: 40,
            waiting: 5,
        };
        let figures = w5::measure(&plan, &|_| {}).await.unwrap();
        let shown = serde_json::to_value(&figures).unwrap();
        for key in ["ratio", "publish_cost", "rollback_cost", "waiting_cost"] {
            assert!(shown[key].as_f64() > Some(0.0), "{key} in {shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growth_has_a_point_for_every_size() {
    for place in places() {
        let plan = growth::Plan {
            target: place.target(),
            stored: vec![0, 5],
            waiting: vec![0, 5],
            journal: vec![1, 4],
            children: vec![1, 4],
            workers: vec![1, 1],
            turns: 1,
            in_flight: 3,
            latency_runs: 2,
            filling: Duration::from_secs(600),
        };
        let figures = growth::measure(&plan, &|_| {}).await.unwrap();
        for points in [
            &figures.stored,
            &figures.waiting,
            &figures.journal,
            &figures.replay,
            &figures.children,
            &figures.workers,
        ] {
            assert_eq!(points.len(), 2);
            assert_eq!(points[0].ratio, 1.0);
            let last = points[1];
            assert!(last.per_second > 0.0 && last.p50_us > 0.0 && last.p99_us >= last.p50_us);
        }
        place.check(&figures, &[]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growth_is_measured_with_what_could_be_filled_in_time_and_only_what_has_sizes() {
    for place in places() {
        let plan = growth::Plan {
            target: place.target(),
            stored: vec![0, 5],
            waiting: Vec::new(),
            journal: Vec::new(),
            children: Vec::new(),
            workers: Vec::new(),
            turns: 1,
            in_flight: 3,
            latency_runs: 1,
            filling: Duration::ZERO,
        };
        let figures = growth::measure(&plan, &|_| {}).await.unwrap();
        let sizes: Vec<u64> = figures.stored.iter().map(|point| point.size).collect();
        assert_eq!(sizes, [0, 0], "no time to fill");
        assert!(figures.waiting.is_empty() && figures.journal.is_empty());
        assert!(figures.children.is_empty() && figures.workers.is_empty());
        place.check(&figures, &[]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_keeps_little_is_compared_with_one_that_keeps_all() {
    for place in places() {
        let plan = retention::Plan {
            target: place.target(),
            entries: 100,
            keep: Duration::from_secs(1),
            in_flight: 3,
        };
        let figures = retention::measure(&plan, &|_| {}).await.unwrap();
        assert!(figures.entries >= 100 && figures.ratio > 0.0);
        assert!(figures.sizes.iter().all(|size| size.megabytes > 0.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_open_transaction_costs_is_measured_on_a_server() {
    for place in places() {
        let load = (3, Duration::from_millis(10));
        let figures = held::measure(&place.target(), load, &|_| {}).await;
        match place {
            Place::Server(_) => assert!(figures.unwrap().ratio > 0.0),
            Place::Folder(_) => assert!(matches!(figures, Err(Error::NoServer))),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fa_17_facts_are_measured_beside_the_same_rows_as_plain_sql() {
    for place in places() {
        let plan = facts::Plan {
            target: place.target(),
            facts: 20,
            recorders: 2,
            turns: 1,
            alone: 3,
            rebuilt: 600,
        };
        let figures = facts::measure(&plan, &|_| {}).await.unwrap();
        assert!(figures.facts_per_second > 0.0 && figures.ratio > 0.0);
        assert!(figures.rebuilt_per_second > 0.0);
        let is_file = matches!(place, Place::Folder(_));
        assert_eq!(figures.overhead.is_some(), is_file);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_engine_is_measured_by_what_it_asks_of_a_server() {
    for place in places() {
        let time = Duration::from_millis(10);
        let figures = idle::measure(&place.target(), 2, time).await.unwrap();
        let is_server = matches!(place, Place::Server(_));
        assert_eq!(figures.transactions_per_second.is_some(), is_server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_a_server_has_round_trips() {
    for place in places() {
        let limit = limit::measure(&place.target(), Duration::from_millis(10)).await;
        let limit = limit.unwrap();
        assert!(limit.rows_per_second > 0.0 && limit.commit_p50_us > 0.0);
        let is_server = matches!(place, Place::Server(_));
        assert_eq!(limit.round_trip_p50_us.is_some(), is_server);
        assert_eq!(limit.fdatasync_p50_us.is_some(), !is_server);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_also_after_an_error() {
    for place in places() {
        for fails in [false, true] {
            let mut begun = Vec::new();
            let work = async |ground: &crate::ground::Ground| {
                let engine = ground.engine("mine").start().await?;
                let mut beside = ground.beside().await?;
                beside.rows().await?;
                engine.shutdown().await;
                begun.extend([ground.schema("mine"), ground.schema("raw")]);
                match fails {
                    true => Err(Error::Alone),
                    false => Ok(()),
                }
            };
            let done = crate::ground::Ground::with(&place.target(), "mine", work).await;
            assert_eq!(done.is_err(), fails);
            let left = place.left(&begun).await;
            assert!(left.is_empty(), "left behind: {left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_need_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let plan = w4::Plan {
        target: Target::Folder(folder.path().to_owned()),
        workers: 2,
        latency_runs: 1,
        in_flight: 1,
        turns: 1,
    };
    let refused = w4::measure(&plan, &|_| {}).await;
    assert!(matches!(refused, Err(Error::Alone)));
}
