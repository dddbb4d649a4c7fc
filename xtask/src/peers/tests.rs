//! What is read, compared and shown.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Results;
use super::bars::{bars, middle, ratio};
use super::catalogue::{PEERS, Place, Workload};
use super::machine::{Looks, busy_ticks};
use super::options::Options;
use super::page::{page, shown, turns};
use super::prepare::locked;
use super::read::{Figure, Limit, read};

fn rate(per_second: f64) -> Figure {
    Figure {
        per_second: Some(per_second),
        ..Figure::default()
    }
}

fn put(results: &mut Results, name: &'static str, workload: Workload, figure: Figure) {
    let key = (name, workload);
    results.figures.entry(key).or_default().push(figure);
}

#[test]
fn lines_of_other_programs_are_read() {
    let said = "noise\nrestate w1thr inflight=10: n=15 2.3s -> 1306 wf/s \
                6530 steps/s p50 9.1ms p99 12.0ms cpu 0.4\n";
    let (figure, limit) = read(Workload::Sequence, said).expect("figures");
    assert_eq!((figure.per_second, figure.p50_ms), (Some(6530.0), None));
    assert_eq!((limit, figure.took), (None, Some(2.3)));
    let said = "absurd w3: n=3 mean 71ms p50 70ms max 81ms cpu 1.0";
    let (figure, _) = read(Workload::FanOut, said).expect("figures");
    assert_eq!((figure.p50_ms, figure.p99_ms), (Some(70.0), Some(81.0)));
    let took = figure.took.expect("three of the middle");
    assert!((took - 0.21).abs() < 1e-9, "{took}");
    let said = "q w2: n=10 done=10 enqueue 0.1s total 0.2s -> 50 jobs/s (process only 60/s) cpu 1";
    let (figure, _) = read(Workload::Queue, said).expect("figures");
    assert_eq!((figure.per_second, figure.took), (Some(50.0), Some(0.2)));
}

#[test]
fn a_program_that_did_not_finish_its_work_has_no_figure() {
    let said = "q w2: n=10 done=9 enqueue 0.1s total 60.0s -> 1 jobs/s cpu 1";
    let why = read(Workload::Queue, said).expect_err("nine of ten");
    assert_eq!(why, "only 9 of 10 were done in the time");
    assert!(read(Workload::Queue, "panicked at main.rs").is_err());
    assert!(read(Workload::Queue, "q w2: n=10 p50 3ms").is_err());
}

#[test]
fn the_object_of_the_own_benchmark_is_read_with_its_raw_limit() {
    let said = r#"{"effects_per_second":100.5,"p50_us":1500.0,"p99_us":2000,"processors":1.5,
        "alone_processors":0.5,"limit_rows_per_second":200,"fdatasync_p50_us":100}"#;
    let said = &said.replace('\n', "");
    let (figure, limit) = read(Workload::Sequence, said).expect("figures");
    let (rows, sync_ms) = (200.0, 0.1);
    assert_eq!(limit, Some(Limit { rows, sync_ms }));
    assert_eq!((figure.per_second, figure.cpu), (Some(100.5), Some(1.5)));
    let (figure, _) = read(Workload::Alone, said).expect("figures");
    assert_eq!((figure.p50_ms, figure.p99_ms), (Some(1.5), Some(2.0)));
    assert_eq!(figure.cpu, Some(0.5));
    assert!(read(Workload::Batches, said).is_err());
}

#[test]
fn aims_are_met_missed_or_not_measured() {
    let mut results = Results::default();
    for value in [100.0, 140.0] {
        put(
            &mut results,
            "roundel-sqlite",
            Workload::Sequence,
            rate(value),
        );
    }
    put(&mut results, "restate", Workload::Sequence, rate(10.0));
    put(
        &mut results,
        "duroxide-sqlite",
        Workload::Sequence,
        rate(2.0),
    );
    let middle = middle(&results, Workload::Sequence, "roundel-sqlite");
    assert_eq!(middle, Some(120.0));
    let bars = bars(&results);
    let verdicts: Vec<&str> = bars.iter().map(super::bars::Bar::verdict).collect();
    assert_eq!(&verdicts[..3], ["met", "missed", "not measured"]);
}

#[test]
fn the_best_of_the_others_is_who_is_compared_with() {
    let mut results = Results::default();
    put(
        &mut results,
        "roundel-postgres",
        Workload::Queue,
        rate(900.0),
    );
    put(&mut results, "absurd", Workload::Queue, rate(300.0));
    put(
        &mut results,
        "graphile-worker",
        Workload::Queue,
        rate(1_000.0),
    );
    let bars = bars(&results);
    let bar = bars.iter().find(|bar| bar.what.contains("graphile"));
    assert_eq!(bar.expect("the best").verdict(), "missed");
    let absurd = ratio(&results, Workload::Queue, "roundel-postgres", "absurd");
    assert_eq!(absurd, Some(3.0));
}

#[test]
fn the_page_shows_both_turns_and_who_was_not_measured() {
    let mut results = Results::default();
    for value in [50_000.0, 60_000.0] {
        put(
            &mut results,
            "roundel-sqlite",
            Workload::Sequence,
            rate(value),
        );
    }
    put(&mut results, "restate", Workload::Sequence, rate(5_000.0));
    let (rows, sync_ms) = (110_000.0, 0.1);
    let limit = Limit { rows, sync_ms };
    results.limits.insert(Place::Sqlite, vec![limit]);
    let alone = Figure {
        p50_ms: Some(0.5),
        p99_ms: Some(0.75),
        cpu: Some(1.2),
        ..Figure::default()
    };
    put(&mut results, "roundel-sqlite", Workload::Alone, alone);
    put(&mut results, "roundel-sqlite", Workload::Queue, rate(9.0));
    let key = ("absurd", Workload::Sequence);
    results.missing.insert(key, "it | failed".to_owned());
    results.absent.insert("pgmq", "no compiler".to_owned());
    // One that failed in one turn only.
    let key = ("graphile-worker", Workload::Queue);
    put(&mut results, key.0, key.1, rate(7.0));
    results.missing.insert(key, "too slow".to_owned());
    let options = Options::parse(Path::new("."), &[]).expect("defaults");
    let page = page(&results, &["Machine: one.".to_owned()], &options);
    for row in [
        "| roundel-sqlite | synchronous=FULL | 50,000 / 60,000 | 0.50 |  | 1 |",
        "| restate | its default | 5,000 | 0.05 |  | 11.0 |",
        "| roundel-sqlite | synchronous=FULL | 0.50 | 0.75 | 5.00 syncs | 1.20 | 1 |",
        "| roundel-sqlite | synchronous=FULL | by 100 at once; 50 at once | 9.00 | 0.00 |  | 1 |",
    ] {
        assert!(page.contains(row), "{row}\n{page}");
    }
    assert!(page.contains("not measured: it / failed"), "{page}");
    let once = "| graphile-worker (not in each turn: too slow) |";
    let once = page.lines().find(|line| line.starts_with(once));
    assert!(once.is_some_and(|line| line.contains("| 7.00 |")), "{page}");
    assert!(page.contains("- pgmq: no compiler."), "{page}");
}

#[test]
fn figures_are_shown_with_as_many_digits_as_mean_something() {
    assert_eq!(shown(1_234_567.0), "1,234,567");
    assert_eq!(shown(100.0), "100");
    assert_eq!(shown(12.345), "12.3");
    assert_eq!(shown(0.123), "0.12");
    assert_eq!(turns(&[2.0, 1.001, 30.0]), "2.00 / 1.00 / 30.0");
    assert_eq!(turns(&[]), "");
}

#[test]
fn what_is_asked_for_is_checked() {
    let parse = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(Path::new("."), &words)
    };
    let some = parse(&["--only", "pgmq,absurd", "--turns", "3"]).expect("options");
    assert!(some.asks_for("pgmq") && !some.asks_for("restate") && !some.whole());
    assert!(parse(&[]).expect("options").whole());
    for wrong in [
        &["--turns", "0"][..],
        &["--only", "nobody"],
        &["--turns"],
        &["-x"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn peers_have_names_of_their_own_and_each_does_something_once() {
    for (at, peer) in PEERS.iter().enumerate() {
        assert!(!peer.runs.is_empty(), "{}", peer.name);
        assert!(PEERS[at + 1..].iter().all(|other| other.name != peer.name));
        for (at, run) in peer.runs.iter().enumerate() {
            let again = peer.runs[at + 1..].iter();
            assert!(again.clone().all(|other| other.workload != run.workload));
        }
    }
}

#[test]
fn every_row_of_a_table_has_as_many_cells_as_its_head() {
    let mut results = Results::default();
    for peer in PEERS {
        for (at, run) in peer.runs.iter().enumerate() {
            let key = (peer.name, run.workload);
            if at % 2 == 0 {
                results.missing.insert(key, "it failed".to_owned());
            } else {
                put(&mut results, peer.name, run.workload, rate(1.0));
            }
        }
    }
    let options = Options::parse(Path::new("."), &[]).expect("defaults");
    let page = page(&results, &[], &options);
    let mut columns = 0;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells = line.matches('|').count();
        if line.starts_with("| | durability") {
            columns = cells;
        }
        assert!(
            columns == 0 || line.starts_with("| aim") || cells == columns,
            "{line}"
        );
        if line.contains("| aim") {
            break;
        }
    }
    assert!(columns > 0);
}

#[test]
fn how_the_jobs_of_every_queue_are_sent_is_said() {
    for run in PEERS.iter().flat_map(|peer| peer.runs) {
        let is_queue = run.workload.name().starts_with("W2");
        assert_eq!(!run.how.is_empty(), is_queue, "{:?}", run.arguments);
    }
}

#[test]
fn the_machine_is_as_busy_as_it_was_in_the_time_that_is_asked_for() {
    let (begun, mut looks) = (Instant::now(), Looks::default());
    let after = |tenths: u64| begun + Duration::from_millis(100 * tenths);
    // A start that keeps both busy, then one of them.
    for (tenths, ticks) in [(0, 1_000), (10, 1_200), (20, 1_300), (30, 1_400)] {
        looks.note(after(tenths), ticks);
    }
    let before = |tenths, time| looks.before(after(tenths), Duration::from_secs_f64(time));
    let near = |seen: Option<f64>, busy: f64| assert!((seen.unwrap() - busy).abs() < 1e-6);
    near(before(30, 2.0), 1.0);
    near(before(15, 1.0), 1.5);
    near(before(30, 100.0), 4.0 / 3.0);
    assert_eq!(before(0, 1.0), None, "no time at all");
    assert_eq!(Looks::default().before(begun, Duration::ZERO), None);
}

#[test]
fn versions_and_busy_time_are_read_where_they_are_written() {
    let lock = "[[package]]\nname = \"ab\"\nversion = \"0.1\"\n\n\
                [[package]]\nname = \"abc\"\nversion = \"1.2.3\"\n";
    assert_eq!(locked(lock, "abc").as_deref(), Some("1.2.3"));
    assert_eq!(locked(lock, "b"), None);
    assert_eq!(busy_ticks("cpu  10 1 5 900 80 2 3 7 0 0\ncpu0 1"), 21);
}
