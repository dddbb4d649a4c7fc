//! The columns of the audit.

use roundel_core::{AuditId, AuditRow, RunId};

use super::{Cells, Result, count, id_if_any, name, payload, some, strange, string, time};

/// A row of an audit: namespace, number, at, operator, reason, action, target, run, detail, answer,
/// seal.
pub(crate) fn audit(row: &impl Cells) -> Result<(AuditId, AuditRow)> {
    let id = AuditId {
        namespace: name(row, 0)?,
        number: count(row, 1)?,
    };
    let detail = match row.bytes(8)? {
        None => None,
        Some(_) => Some(payload(row, 8)?),
    };
    let seal = some(row.bytes(10)?, 10)?;
    let audit = AuditRow {
        at: time(row, 2)?,
        operator: name(row, 3)?,
        reason: string(row, 4)?,
        action: string(row, 5)?,
        target: string(row, 6)?,
        run: id_if_any(row, 7)?.map(RunId::from_bytes),
        detail,
        answer: string(row, 9)?,
        seal: seal
            .try_into()
            .map_err(|_| strange(10, "it is not a seal"))?,
    };
    Ok((id, audit))
}
