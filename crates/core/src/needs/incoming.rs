//! What facts that come in need, and what is let go when a fact is recorded.

use super::scopes::of_end;
use super::{Need, Stage, of_leftovers, of_record, of_start};
use crate::decide::run_key;
use crate::incoming::{item_gate, item_key};
use crate::{Item, Name, Receive, Record, Rows, RunId};

pub(super) fn of_receive(receive: &Receive, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let facts = receive.items.iter().map(|item| item.fact.clone()).collect();
    of_record(
        &Record::new(receive.namespace.clone(), facts),
        rows,
        stage,
        out,
    );
    of_items(&receive.namespace, &receive.items, rows, stage, out);
}

/// What is recorded, and what a decider puts into queues beside it.
pub(super) fn of_record_and_queues(
    record: &Record,
    rows: &Rows,
    stage: Stage,
    out: &mut Vec<Need>,
) {
    of_record(record, rows, stage, out);
    of_queues(record, rows, stage, out);
}

fn of_queues(record: &Record, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    for start in &record.sent {
        of_start(start, rows, stage, out);
    }
    if record.queued.is_empty() {
        return;
    }
    let facts = record.queued.iter().map(|item| record.fact_id(&item.fact));
    match stage {
        Stage::Keys => out.extend(facts.map(|id| Need::Lock(id.lock()))),
        Stage::Gates => out.extend(facts.map(Need::Fact)),
        Stage::Runs | Stage::Rest | Stage::Found => {}
    }
    of_items(&record.namespace, &record.queued, rows, stage, out);
}

/// The items that are there, and the gate that gives new ones their places. Whoever holds a fact's
/// id is the only one who makes an item of it: its key is looked up once that is held.
fn of_items(namespace: &Name, items: &[Item], rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let run = |item: &Item| {
        let by_key = || {
            let key = run_key(namespace, &item_key(&item.fact.id).ok()?);
            rows.keys.get(&key).and_then(|row| row.run)
        };
        item.from.map(|(run, _)| run).or_else(by_key)
    };
    let runs = || items.iter().filter_map(run);
    match stage {
        Stage::Keys => {}
        Stage::Gates => {
            let new = || items.iter().filter(|item| item.from.is_none());
            let keys = new().filter_map(|item| item_key(&item.fact.id).ok());
            out.extend(keys.map(|key| Need::Key(run_key(namespace, &key))));
            if new().next().is_some() {
                out.push(Need::Gate(item_gate(namespace)));
            }
        }
        Stage::Runs => out.extend(runs().map(Need::Run)),
        Stage::Rest => {
            for row in runs().filter_map(|run| rows.run(run)) {
                of_end(row, out);
            }
        }
        Stage::Found => {
            let runs: std::collections::BTreeSet<RunId> = runs().collect();
            of_leftovers(runs.into_iter(), 0, rows, out);
        }
    }
}
