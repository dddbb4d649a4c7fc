//! The columns of facts and documents.

use roundel_core::{
    Cause, DocumentId, DocumentRow, FactId, FactRow, Position, ProjectionId, ProjectionRow,
};

use super::{Cells, Result, int, int_if_any, name, name_if_any, payload, run_id, time};
use crate::query::{FactView, ProjectionView};

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

/// The columns of a document, in the order in which [`document`] reads them.
macro_rules! document_columns {
    ($of:literal) => {
        concat!(
            $of,
            "namespace, ",
            $of,
            "path, ",
            $of,
            "version, ",
            $of,
            "value, ",
            $of,
            "at, ",
            $of,
            "projection, ",
            $of,
            "generation"
        )
    };
}
pub(crate) use document_columns;

/// A document, from those columns.
pub(crate) fn document(row: &impl Cells) -> Result<(DocumentId, DocumentRow)> {
    let id = DocumentId {
        namespace: name(row, 0)?,
        path: name(row, 1)?,
        generation: int(row, 6)?,
    };
    let value = match row.bytes(3)? {
        None => None,
        Some(_) => Some(payload(row, 3)?),
    };
    let row = DocumentRow {
        projection: name(row, 5)?,
        version: super::count(row, 2)?,
        value,
        at: time(row, 4)?,
    };
    Ok((id, row))
}

/// A projection: namespace, name, said.
pub(crate) fn projection(row: &impl Cells) -> Result<ProjectionView> {
    let id = ProjectionId {
        namespace: name(row, 0)?,
        name: name(row, 1)?,
    };
    let said = row.bytes(2)?.unwrap_or_default();
    let said = serde_json::from_slice(said).map_err(|error| super::strange(2, error))?;
    Ok((id, said))
}

/// A position, in two columns; the first of all if there is none.
pub(crate) fn position(row: &impl Cells) -> Result<Position> {
    Ok(Position {
        batch: int_if_any(row, 0)?.unwrap_or_default(),
        number: int_if_any(row, 1)?.unwrap_or_default(),
    })
}

/// A projection, as it is stored.
pub(crate) fn said(row: &ProjectionRow) -> String {
    serde_json::to_string(row).expect("a projection is JSON")
}

/// How far a stream is: its name, the number of its last fact.
pub(crate) fn stream(row: &impl Cells, from: usize) -> Result<u64> {
    Ok(int_if_any::<i64>(row, from)?.map_or(0, i64::unsigned_abs))
}
