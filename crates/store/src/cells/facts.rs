//! The columns of facts and documents.

use roundel_core::{Cause, DocumentId, DocumentRow, FactId, FactRow};

use super::{Cells, Result, int, int_if_any, name, name_if_any, payload, run_id, time};
use crate::query::{FactView, Position};

/// The columns of a fact after its position, in the order in which [`fact`] reads them.
macro_rules! fact_columns {
    () => {
        "namespace, id, kind, version, data, at, own, by_name, run, execution, entry, stream, \
         stream_version"
    };
}
pub(crate) use fact_columns;

/// A fact: its position, in two columns, and those columns.
pub(crate) fn fact(row: &impl Cells) -> Result<FactView> {
    let position = Position {
        batch: super::count(row, 0)?,
        number: super::count(row, 1)?,
    };
    let id = FactId {
        namespace: name(row, 2)?,
        id: name(row, 3)?,
    };
    let cause = match row.bytes(10)? {
        None => None,
        Some(_) => Some(Cause {
            run: run_id(row, 10)?,
            execution: int(row, 11)?,
            entry: super::count(row, 12)?,
        }),
    };
    let stream = match name_if_any(row, 13)? {
        None => None,
        Some(stream) => Some((stream, super::count(row, 14)?)),
    };
    let row = FactRow {
        kind: name(row, 4)?,
        version: int(row, 5)?,
        data: payload(row, 6)?,
        at: time(row, 7)?,
        own: int::<i64>(row, 8)? != 0,
        by: name_if_any(row, 9)?,
        cause,
        stream,
    };
    Ok(FactView { position, id, row })
}

/// A document: namespace, path, version, value, at.
pub(crate) fn document(row: &impl Cells) -> Result<(DocumentId, DocumentRow)> {
    let id = DocumentId {
        namespace: name(row, 0)?,
        path: name(row, 1)?,
    };
    let value = match row.bytes(3)? {
        None => None,
        Some(_) => Some(payload(row, 3)?),
    };
    let version = super::count(row, 2)?;
    let at = time(row, 4)?;
    Ok((id, DocumentRow { version, value, at }))
}

/// How far a stream is: its name, the number of its last fact.
pub(crate) fn stream(row: &impl Cells, from: usize) -> Result<u64> {
    Ok(int_if_any::<i64>(row, from)?.map_or(0, i64::unsigned_abs))
}
