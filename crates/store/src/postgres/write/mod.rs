//! Writes what a batch decided: one statement for each kind of row, whatever their number, with an
//! array for each column; and one for all that every round writes (`rounds`).

pub(super) mod lone;
mod messages;
pub(super) mod rounds;
mod scopes;
pub(super) mod text;

use std::collections::BTreeSet;

use roundel_core::{Changes, KeyId, Rows, RunId, WorkerRow, Write};

use super::facts;
use super::link::{Link, arrays, values};
use super::search::lane_number;
use super::trouble::Trouble;
use super::values::Id;
use crate::cells::number;
use rounds::Written;

const LANES: &str = "INSERT INTO roundel_lane (id, namespace, workflow, version) \
     SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::bigint[])";
const LABELS: &str = "INSERT INTO roundel_label (run, name, value) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[]) \
     ON CONFLICT (run, name) DO UPDATE SET value = excluded.value";
const STATES_PUT: &str = "INSERT INTO roundel_state (run, version, value) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) \
     ON CONFLICT (run) DO UPDATE SET version = excluded.version, value = excluded.value";
const STATES_DELETE: &str = "DELETE FROM roundel_state WHERE run = ANY($1)";
const WORKERS_PUT: &str = "INSERT INTO roundel_worker \
     (id, name, started_at, seen_at, suspect, lanes) SELECT * FROM unnest($1::uuid[], \
     $2::text[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bytea[]) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, started_at = excluded.started_at, \
     seen_at = excluded.seen_at, suspect = excluded.suspect, lanes = excluded.lanes";
const WORKERS_DELETE: &str = "DELETE FROM roundel_worker WHERE id = ANY($1)";
/// Everything under a run, and the run, in one flight. That it waited for the end of others is left
/// to them.
const RUN_DELETE: &str = "WITH latch AS (DELETE FROM roundel_latch WHERE run = ANY($1)), \
     publication AS (DELETE FROM roundel_publication WHERE by_run = ANY($1)), \
     journal AS (DELETE FROM roundel_journal WHERE run = ANY($1)), \
     mail AS (DELETE FROM roundel_mail WHERE run = ANY($1)), \
     wait AS (DELETE FROM roundel_wait WHERE run = ANY($1)), \
     watch AS (DELETE FROM roundel_watch WHERE watched = ANY($1)), \
     state AS (DELETE FROM roundel_state WHERE run = ANY($1)), \
     key AS (DELETE FROM roundel_key WHERE run = ANY($1)), \
     label AS (DELETE FROM roundel_label WHERE run = ANY($1)) \
     DELETE FROM roundel_run WHERE id = ANY($1)";

/// Is this the last that a transaction writes?
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Between,
    /// It is; and which batch of which process this was is to be noted, if that is said.
    Last(Option<(Id, u64)>),
}

/// Writes everything. `rows` says in which namespace a wait's run is; `empty` are the keys for
/// which there is a row that says nothing yet: those that are not used are free again in the end.
pub(super) async fn all(
    link: &mut Link,
    changes: &Changes,
    (rows, turn): (&Rows, Turn),
    empty: &mut BTreeSet<KeyId>,
) -> Result<Option<Written>, Trouble> {
    if !changes.lanes.is_empty() {
        let lanes: Vec<_> = (changes.first_lane..).zip(&changes.lanes).collect();
        let values = arrays![lanes; (id, lane) =>
            lane_number(roundel_core::LaneId(*id)), lane.namespace.as_str(),
            lane.workflow.as_str(), i64::from(lane.version)];
        link.execute(LANES, values).await?;
    }
    if !changes.labels.is_empty() {
        let values = arrays![changes.labels; (run, name, value) =>
            Id::from(*run), name.as_str(), value.as_str()];
        link.execute(LABELS, values).await?;
    }
    messages::all(link, changes, rows, empty).await?;
    states(link, changes).await?;
    workers(link, changes).await?;
    scopes::all(link, changes).await?;
    facts::write(link, changes).await?;
    let note = match turn {
        Turn::Between => None,
        Turn::Last(note) => {
            messages::delete_keys(link, &empty.iter().collect::<Vec<_>>()).await?;
            note
        }
    };
    let written = (changes.runs.as_slice(), changes.journal.as_slice());
    if changes.deleted.is_empty() {
        return rounds::all(link, written, note).await;
    }
    rounds::all(link, written, None).await?;
    let runs: Vec<Id> = changes.deleted.iter().copied().map(Id::from).collect();
    link.execute(RUN_DELETE, values![runs]).await?;
    rounds::all(link, (&[], &[]), note).await
}

/// Those that are put, and those that are deleted.
pub(super) fn parted<K, V>(writes: &[(K, Write<V>)]) -> (Vec<(&K, &V)>, Vec<&K>) {
    let (mut put, mut deleted) = (Vec::new(), Vec::new());
    for (key, write) in writes {
        match write {
            Write::Insert(row) | Write::Update(row) => put.push((key, row)),
            Write::Delete => deleted.push(key),
        }
    }
    (put, deleted)
}

fn encoded<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("rows have a JSON form")
}

async fn states(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted): (_, Vec<&RunId>) = parted(&changes.states);
    if !put.is_empty() {
        let values = arrays![put; (run, row) =>
            Id::from(**run), number(row.version), row.value.as_str().as_bytes()];
        link.execute(STATES_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; run => Id::from(**run)];
        link.execute(STATES_DELETE, values).await?;
    }
    Ok(())
}

async fn workers(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted) = parted(&changes.workers);
    if !put.is_empty() {
        let put: Vec<&WorkerRow> = put.into_iter().map(|(_, row)| row).collect();
        let values = arrays![put; row =>
            Id::from(row.id), row.name.as_str(), row.started_at.0, row.seen_at.0,
            row.suspect.map(Id::from),
            encoded(&row.lanes.iter().map(|lane| lane.0).collect::<Vec<u32>>())];
        link.execute(WORKERS_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; worker => Id::from(**worker)];
        link.execute(WORKERS_DELETE, values).await?;
    }
    Ok(())
}
