//! The columns of queues' limits.

use std::time::Duration;

use roundel_core::{Flow, Name, QueueId, QueueRow, Rate, RunRow};

use super::{Cells, Result, int, int_if_any, name, time, unknown};

/// The limits of a queue: namespace, queue, paused, concurrency, rate_count, rate_time,
/// spent_until, changed_at, per_key, turn.
pub(crate) fn queue(row: &impl Cells) -> Result<(QueueId, QueueRow)> {
    let id = QueueId {
        namespace: name(row, 0)?,
        queue: name(row, 1)?,
    };
    let rate = match int_if_any(row, 4)? {
        None => None,
        Some(count) => Some(Rate {
            count,
            per: Duration::from_micros(super::count(row, 5)?),
        }),
    };
    let queue = QueueRow {
        per_key: int_if_any(row, 8)?,
        turn: name_if_any(row, 9)?,
        paused: int::<i64>(row, 2)? != 0,
        concurrency: int_if_any(row, 3)?,
        rate,
        spent_until: time(row, 6)?,
        changed_at: time(row, 7)?,
    };
    Ok((id, queue))
}

/// How a run stands to the limits of its queue.
pub(super) fn flow(row: &impl Cells, column: usize) -> Result<Flow> {
    let number: usize = int_if_any(row, column)?.unwrap_or_default();
    let flow = Flow::ALL.get(number).copied();
    flow.ok_or_else(|| unknown(column, &number))
}

/// A name, if there is one.
pub(super) fn name_if_any(row: &impl Cells, column: usize) -> Result<Option<Name>> {
    match row.bytes(column)? {
        None => Ok(None),
        Some(_) => name(row, column).map(Some),
    }
}

/// How many of a flow key are leased: key, count.
pub(crate) fn permits(row: &impl Cells) -> Result<(Option<Name>, u32)> {
    Ok((name_if_any(row, 0)?, int(row, 1)?))
}

/// When a run is due, in microseconds: by `ready_at`, or by `keyed_at` if it has a flow key.
pub(crate) fn due(row: &RunRow) -> (Option<i64>, Option<i64>) {
    let at = row.ready_at.map(|at| at.0);
    match row.flow_key {
        None => (at, None),
        Some(_) => (None, at),
    }
}

/// What is stored for a queue's rate.
pub(crate) fn rate_numbers(row: &QueueRow) -> (Option<i64>, Option<i64>) {
    let micros = |rate: Rate| i64::try_from(rate.per.as_micros()).unwrap_or(i64::MAX);
    (row.rate.map(|rate| rate.count.into()), row.rate.map(micros))
}

/// The columns of a queue's limits, in the order in which [`queue`] reads them.
macro_rules! queue_columns {
    () => {
        "namespace, queue, paused, concurrency, rate_count, rate_time, spent_until, changed_at, \
         per_key, turn"
    };
}
pub(crate) use queue_columns;
