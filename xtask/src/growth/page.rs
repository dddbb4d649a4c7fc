//! The page: the pictures, and the figures they are of.

use std::fmt::Write;

use super::plot::{called, duration, words};
use super::{Known, STORES, Stores};
use crate::peers::shown;

const OPENING: &str = "\
# What growth costs

Written by `cargo xtask growth`, which has [`roundel bench growth`](bench.md) measure one axis after
the other, on SQLite (`synchronous=FULL`) and on PostgreSQL (`synchronous_commit=on`), each at its
defaults. Sizes of an axis take turns, and what a picture shows are the middles of the turns. A
database that could not be filled in the time is measured with what is in it by then, and its size
says so.

A rate counts what is durable, with a thousand runs in flight; of journals, replays and fan-outs
that of one run. Times are those of one alone. *Part* is the rate by that of the smallest size.
";

/// What each axis is expected to do, and why.
const AXES: &[(&str, &str)] = &[
    (
        "stored",
        "Runs that have ended lie in tables and indexes by their ids, which grow in the order of \
         time: what is new is written at the end, and nothing looks for what is due among them.",
    ),
    (
        "waiting",
        "Runs that sleep have a place in the index of what is due, and none in memory. A claim \
         reads from the mark of what was due last.",
    ),
    (
        "journal",
        "A round appends one row to the journal and reads none of it.",
    ),
    (
        "replay",
        "A run that has left memory is resumed by reading its journal, all of it: the time grows \
         with its length, the rate does not fall.",
    ),
    (
        "children",
        "A parent that waits for children counts them, in parts, and reads how they ended once.",
    ),
    (
        "workers",
        "Processes share the machine with the server, so more of them are not faster here; what is \
         shown is that they do not stand in each other's way. PostgreSQL only.",
    ),
];

pub(super) fn page(known: &Known) -> String {
    let mut page = OPENING.to_owned();
    page.push('\n');
    for line in &known.machine {
        let _ = writeln!(page, "- {line}");
    }
    for (name, why) in AXES {
        let Some(stores) = known.figures.get(*name) else {
            continue;
        };
        let [title, ..] = words(name);
        let _ = writeln!(page, "\n## {title}\n\n{why}\n");
        let _ = writeln!(page, "![{title}](growth/{name}.svg)\n");
        table(&mut page, name, stores);
    }
    page
}

fn table(page: &mut String, name: &str, stores: &Stores) {
    let [_, sizes, rates, _] = words(name);
    let _ = writeln!(page, "| | {sizes} | {rates} | part | p50 | p99 |");
    let _ = writeln!(page, "|---|---|---|---|---|---|");
    for store in STORES {
        for point in stores.get(*store).into_iter().flatten() {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {:.2} | {} | {} |",
                called(store),
                counted(point.size),
                shown(point.per_second),
                point.ratio,
                duration(point.p50_us),
                duration(point.p99_us)
            );
        }
    }
}

/// With commas.
fn counted(size: u64) -> String {
    match size {
        0..100 => size.to_string(),
        size => shown(size as f64),
    }
}
