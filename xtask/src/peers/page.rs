//! The page: what was measured, on what, and what it shows.

use std::fmt::Write;

use super::Results;
use super::bars::{self, POSTGRES, SQLITE, bars};
use super::catalogue::{PEERS, Peer, Place, UNMEASURED, WORKLOADS, Workload};
use super::options::Options;
use super::read::{Figure, Limit};

const OPENING: &str = "\
# Roundel beside others

Written by `cargo xtask peers`, which installs what it can of the others, does the same work on each
of them and on Roundel, one after the other on one machine, and reads what their programs print.
Everything is measured once in each turn, others in between; a cell has the figure of each turn, in
their order, which says how far they can be trusted. What is compared is the middle of the turns.

Each has the durability that is its own default, and says so. A server with a wire between does more
than a library over a file: this compares what a user gets, not only code. Programs, database and
workers share the machine.

- *Processors*: everybody's use of them, database included, while the work was done: for Roundel
  during the turns of the work, without those of the raw limit; for others for as long as their
  programs say that it took, without their start.
- *Limit*: the rate by what one durable writer does at most on that database, a hundred rows of
  journal and of runs in a commit, as [`roundel bench`](bench.md) measures it in the same minutes.
  Of a latency, how many small syncs of the disk it is, or on PostgreSQL how many commits of one
  row, there and back. For systems with a store of their own, those of SQLite.
- *Beside Roundel*: how many times as fast Roundel is on the same database; on SQLite for systems
  with a store of their own.

Queues are sent to and worked on in different ways. Those that are sent to one by one, each send
answered when it is durable, are measured beside Roundel doing so; those whose programs send many in
a call, or hand many to a call of the handler, beside Roundel doing that. Where everything is sent
*before all else*, workers start only then.
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
        Workload::Bulk => "W2, sent in bulk: the same, many jobs in a call of the sender",
        Workload::Batches => "W2, in batches: the same, and many jobs in a call of the handler",
        Workload::FanOut => "W3: a parent that starts 100 children and waits for all",
        Workload::Signal => "W4: from the sending of a signal until the run that waited has ended",
    }
}

fn is_rate(workload: Workload) -> bool {
    match workload {
        Workload::Sequence | Workload::Queue | Workload::Bulk | Workload::Batches => true,
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
        (true, _) => "a second",
        (false, Workload::FanOut) => "p50, ms | longest, ms",
        (false, _) => "p50, ms | p99, ms",
    };
    let how = if is_queue(workload) {
        " sent; handled |"
    } else {
        ""
    };
    let head = format!("| | durability |{how} {columns} | limit | processors | beside Roundel |");
    let rule = "|---".repeat(head.matches('|').count() - 1);
    let _ = writeln!(page, "{head}\n{rule}|");
    for row in rows {
        page.push_str(&row);
    }
}

fn is_queue(workload: Workload) -> bool {
    matches!(
        workload,
        Workload::Queue | Workload::Bulk | Workload::Batches
    )
}

fn row(results: &Results, workload: Workload, peer: &'static Peer) -> Option<String> {
    let key = (peer.name, workload);
    let run = peer.runs.iter().find(|run| run.workload == workload)?;
    let mut cells = vec![peer.name.to_owned(), peer.durability.to_owned()];
    if is_queue(workload) {
        cells.push(run.how.to_owned());
    }
    let why = results.missing.get(&key).map(|why| why.replace('|', "/"));
    let figures = match (results.figures.get(&key), why) {
        (Some(figures), None) => figures,
        (Some(figures), Some(why)) => {
            cells[0].push_str(&format!(" (not in each turn: {why})"));
            figures
        }
        (None, why) => {
            cells.push(format!("not measured: {}", why?));
            let columns = 5 + usize::from(is_queue(workload)) + usize::from(!is_rate(workload));
            cells.resize(columns + 1, String::new());
            return Some(line(&cells));
        }
    };
    let of = |value: fn(&Figure) -> Option<f64>| {
        let values: Vec<f64> = figures.iter().filter_map(value).collect();
        turns(&values)
    };
    let middle = bars::middle(results, workload, peer.name);
    let limit = limit(results, peer.place);
    let limit = if is_rate(workload) {
        cells.push(of(|figure| figure.per_second));
        let ratio = middle.zip(limit).map(|(rate, limit)| rate / limit.rows);
        ratio.map_or_else(String::new, shown)
    } else {
        cells.extend([of(|figure| figure.p50_ms), of(|figure| figure.p99_ms)]);
        let syncs = middle.zip(limit).map(|(p50, limit)| p50 / limit.sync_ms);
        syncs.map_or_else(String::new, |syncs| format!("{} syncs", shown(syncs)))
    };
    cells.push(limit);
    cells.extend([of(|figure| figure.cpu), beside(results, workload, peer)]);
    Some(line(&cells))
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
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

/// The middle of what the database did.
fn limit(results: &Results, place: Place) -> Option<Limit> {
    let place = match place {
        Place::Postgres => Place::Postgres,
        Place::Sqlite | Place::Own => Place::Sqlite,
    };
    let limits = results.limits.get(&place)?;
    let middle = |value: fn(&Limit) -> f64| {
        let mut values: Vec<f64> = limits.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Some(Limit {
        rows: middle(|limit| limit.rows)?,
        sync_ms: middle(|limit| limit.sync_ms)?,
    })
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

/// What was seen in each turn, in their order.
pub(super) fn turns(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().copied().map(shown).collect();
    values.join(" / ")
}

/// Three digits that mean something, with commas in large numbers.
pub(crate) fn shown(value: f64) -> String {
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
