//! The page: what was measured, on what, and what it shows.

use std::fmt::Write;

use super::Results;
use super::bars::{self, POSTGRES, SQLITE, bars};
use super::catalogue::{PEERS, Peer, Place, UNMEASURED, WORKLOADS, Workload};
use super::options::Options;
use super::read::Figure;

const OPENING: &str = "\
# Roundel beside others

Written by `cargo xtask peers`, which installs what it can of the others, does the same work on each
of them and on Roundel, one after the other on one machine, and reads what their programs print.
Everything is measured once in each turn, others in between; a cell with two figures has the lowest
and the highest of the turns, which says how far they can be trusted.

Each has the durability that is its own default, and says so. A server with a wire between does more
than a library over a file: this compares what a user gets, not only code. Programs, database and
workers share the machine.

- *Processors*: everybody's use of them, from the start of a program to its end, database included;
  for Roundel with the measurement of the raw limit, which takes turns with it.
- *Limit*: the rate by what one durable writer does at most on that database, a hundred rows of
  journal and of runs in a commit, as [`roundel bench`](bench.md) measures it in the same minutes;
  for systems with a store of their own, that of SQLite.
- *Beside Roundel*: how many times as fast Roundel is on the same database; on SQLite for systems
  with a store of their own.
";

pub(super) fn page(results: &Results, machine: &[String], options: &Options) -> String {
    let mut page = OPENING.to_owned();
    page.push('\n');
    for line in machine {
        let _ = writeln!(page, "- {line}");
    }
    let _ = writeln!(page, "- Turns: {}.", options.turns);
    for workload in WORKLOADS {
        section(&mut page, results, *workload);
    }
    aims(&mut page, results);
    unmeasured(&mut page, results);
    page
}

fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Sequence => {
            "W1, many at once: steps a second, runs of five, up to 1,000 in flight"
        }
        Workload::Alone => "W1, one at a time: a run of five steps, from its start to its end",
        Workload::Queue => "W2, one by one: jobs a second, from the first send to the last end",
        Workload::Batches => "W2, in batches: the same, a hundred jobs in a call of the handler",
        Workload::FanOut => "W3: a parent that starts 100 children and waits for all",
        Workload::Signal => "W4: from the sending of a signal until the run that waited has ended",
    }
}

fn is_rate(workload: Workload) -> bool {
    match workload {
        Workload::Sequence | Workload::Queue | Workload::Batches => true,
        Workload::Alone | Workload::FanOut | Workload::Signal => false,
    }
}

fn section(page: &mut String, results: &Results, workload: Workload) {
    let rows: Vec<String> = PEERS
        .iter()
        .filter(|peer| peer.runs.iter().any(|run| run.workload == workload))
        .filter_map(|peer| row(results, workload, peer))
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n## {}\n", title(workload));
    let columns = match (is_rate(workload), workload) {
        (true, _) => "a second | limit",
        (false, Workload::FanOut) => "p50, ms | longest, ms",
        (false, _) => "p50, ms | p99, ms",
    };
    let _ = writeln!(
        page,
        "| | durability | {columns} | processors | beside Roundel |"
    );
    let _ = writeln!(page, "|---|---|---|---|---|---|");
    for row in rows {
        page.push_str(&row);
    }
}

fn row(results: &Results, workload: Workload, peer: &'static Peer) -> Option<String> {
    let key = (peer.name, workload);
    let name = peer.name;
    if let Some(why) = results.missing.get(&key) {
        let why = why.replace('|', "/");
        return Some(format!(
            "| {name} | {} | not measured: {why} | | | |\n",
            peer.durability
        ));
    }
    let figures = results.figures.get(&key)?;
    let of = |value: fn(&Figure) -> Option<f64>| {
        let values: Vec<f64> = figures.iter().filter_map(value).collect();
        span(&values)
    };
    let (first, second) = if is_rate(workload) {
        let rate = bars::middle(results, workload, name);
        let limit = limit(results, peer.place);
        let ratio = rate.zip(limit).map(|(rate, limit)| rate / limit);
        (
            of(|figure| figure.per_second),
            ratio.map_or_else(String::new, shown),
        )
    } else {
        (of(|figure| figure.p50_ms), of(|figure| figure.p99_ms))
    };
    let cpu = of(|figure| Some(figure.cpu));
    let beside = beside(results, workload, peer);
    Some(format!(
        "| {name} | {} | {first} | {second} | {cpu} | {beside} |\n",
        peer.durability
    ))
}

/// How many times as fast Roundel is.
fn beside(results: &Results, workload: Workload, peer: &Peer) -> String {
    let own = match peer.place {
        Place::Postgres => POSTGRES,
        Place::Sqlite | Place::Own => SQLITE,
    };
    if peer.name == own {
        return "1".to_owned();
    }
    let ratio = if is_rate(workload) {
        bars::ratio(results, workload, own, peer.name)
    } else {
        bars::ratio(results, workload, peer.name, own)
    };
    ratio.map_or_else(String::new, shown)
}

fn limit(results: &Results, place: Place) -> Option<f64> {
    let place = match place {
        Place::Postgres => Place::Postgres,
        Place::Sqlite | Place::Own => Place::Sqlite,
    };
    let mut limits = results.limits.get(&place)?.clone();
    limits.sort_by(f64::total_cmp);
    limits.get(limits.len() / 2).copied()
}

fn aims(page: &mut String, results: &Results) {
    let _ = writeln!(
        page,
        "\n## What was aimed at\n\nBy the middle of the turns.\n"
    );
    let _ = writeln!(page, "| aim | at least | seen | |\n|---|---|---|---|");
    for bar in bars(results) {
        let seen = bar.seen.map_or_else(String::new, shown);
        let (what, at_least, verdict) = (&bar.what, bar.at_least, bar.verdict());
        let _ = writeln!(page, "| {what} | {at_least} | {seen} | {verdict} |");
    }
}

fn unmeasured(page: &mut String, results: &Results) {
    let _ = writeln!(page, "\n## Not measured\n");
    for (name, why) in &results.absent {
        let _ = writeln!(page, "- {name}: {why}.");
    }
    for (name, why) in UNMEASURED {
        let _ = writeln!(page, "- {name}: {why}.");
    }
}

/// The lowest and the highest, or one if they look alike.
pub(super) fn span(values: &[f64]) -> String {
    let low = values.iter().copied().min_by(f64::total_cmp);
    let high = values.iter().copied().max_by(f64::total_cmp);
    match low.zip(high) {
        None => String::new(),
        Some((low, high)) if shown(low) == shown(high) => shown(low),
        Some((low, high)) => format!("{} to {}", shown(low), shown(high)),
    }
}

/// Three digits that mean something, with commas in large numbers.
pub(super) fn shown(value: f64) -> String {
    if value >= 100.0 {
        let digits = format!("{value:.0}");
        let mut text = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at) % 3 == 0 {
                text.push(',');
            }
            text.push(digit);
        }
        return text;
    }
    if value >= 10.0 {
        return format!("{value:.1}");
    }
    format!("{value:.2}")
}
