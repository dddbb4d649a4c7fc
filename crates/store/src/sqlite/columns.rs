//! The rows of SQLite, column by column; what they mean is the same in every database.

use roundel_core::{
    AuditId, AuditRow, GateRow, JournalRow, KeyId, KeyRow, Lane, LatchId, LatchRow, MailId,
    MailRow, Name, OfferRow, PublicationId, PublicationRow, QueueId, QueueRow, RunId, RunRow,
    RunState, StateRow, SubscriptionId, SubscriptionRow, WaitId, WaitRow, WorkerRow,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};

use crate::SignalView;
use crate::cells::{self, Cells, Strange, strange};
pub(super) use crate::cells::{
    RUN_COLUMNS, cancel_number, number, plain_run_columns, run_columns, told_numbers,
};
use crate::query::Alike;

impl Cells for Row<'_> {
    fn int(&self, column: usize) -> std::result::Result<Option<i64>, Strange> {
        self.get(column).map_err(|error| strange(column, error))
    }

    fn bytes(&self, column: usize) -> std::result::Result<Option<&[u8]>, Strange> {
        let value = self.get_ref(column);
        let value = value.map_err(|error| strange(column, error))?;
        value
            .as_bytes_or_null()
            .map_err(|error| strange(column, error))
    }
}

fn wrapped(error: Strange) -> Error {
    Error::FromSqlConversionFailure(error.column, Type::Text, Box::new(error))
}

pub(super) fn run_id(row: &Row<'_>, column: usize) -> Result<RunId> {
    cells::run_id(row, column).map_err(wrapped)
}

pub(super) fn name(row: &Row<'_>, column: usize) -> Result<Name> {
    cells::name(row, column).map_err(wrapped)
}

pub(super) fn state(row: &Row<'_>, column: usize) -> Result<RunState> {
    cells::state(row, column).map_err(wrapped)
}

pub(super) fn run(row: &Row<'_>) -> Result<RunRow> {
    cells::run(row).map_err(wrapped)
}

pub(super) fn lane(row: &Row<'_>, from: usize) -> Result<Lane> {
    cells::lane(row, from).map_err(wrapped)
}

pub(super) fn journal(row: &Row<'_>) -> Result<JournalRow> {
    cells::journal(row).map_err(wrapped)
}

pub(super) fn signal(row: &Row<'_>) -> Result<SignalView> {
    SignalView::of(row).map_err(wrapped)
}

pub(super) fn mail(row: &Row<'_>) -> Result<(MailId, MailRow)> {
    cells::mail(row).map_err(wrapped)
}

pub(super) fn wait(row: &Row<'_>) -> Result<(WaitId, WaitRow)> {
    cells::wait(row).map_err(wrapped)
}

pub(super) fn gate(row: &Row<'_>, from: usize) -> Result<GateRow> {
    cells::gate(row, from).map_err(wrapped)
}

pub(super) fn offer(row: &Row<'_>, from: usize) -> Result<(u64, OfferRow)> {
    cells::offer(row, from).map_err(wrapped)
}

pub(super) fn key(row: &Row<'_>, from: usize) -> Result<KeyRow> {
    cells::key(row, from).map_err(wrapped)
}

pub(super) fn key_id(row: &Row<'_>) -> Result<KeyId> {
    cells::key_id(row).map_err(wrapped)
}

pub(super) fn own_state(row: &Row<'_>, from: usize) -> Result<StateRow> {
    cells::own_state(row, from).map_err(wrapped)
}

pub(super) fn subscription(row: &Row<'_>) -> Result<(SubscriptionId, SubscriptionRow)> {
    cells::subscription(row).map_err(wrapped)
}

pub(super) fn publication(row: &Row<'_>) -> Result<(PublicationId, PublicationRow)> {
    cells::publication(row).map_err(wrapped)
}

pub(super) fn latch(row: &Row<'_>) -> Result<(LatchId, LatchRow)> {
    cells::latch(row).map_err(wrapped)
}

pub(super) fn fact(row: &Row<'_>) -> Result<crate::FactView> {
    cells::fact(row).map_err(wrapped)
}

pub(super) fn document(row: &Row<'_>) -> Result<crate::DocumentView> {
    cells::document(row).map_err(wrapped)
}

pub(super) fn projection(row: &Row<'_>) -> Result<crate::ProjectionView> {
    cells::projection(row).map_err(wrapped)
}

pub(super) fn position(row: &Row<'_>) -> Result<crate::Position> {
    cells::position(row).map_err(wrapped)
}

pub(super) fn stream(row: &Row<'_>) -> Result<u64> {
    cells::stream(row, 0).map_err(wrapped)
}

pub(super) fn audit(row: &Row<'_>) -> Result<(AuditId, AuditRow)> {
    cells::audit(row).map_err(wrapped)
}

pub(super) fn permits(row: &Row<'_>) -> Result<(Option<Name>, u32)> {
    cells::permits(row).map_err(wrapped)
}

pub(super) fn queue(row: &Row<'_>) -> Result<(QueueId, QueueRow)> {
    cells::queue(row).map_err(wrapped)
}

pub(super) fn alike(row: &Row<'_>) -> Result<Alike> {
    cells::alike(row).map_err(wrapped)
}

pub(super) fn worker(row: &Row<'_>) -> Result<WorkerRow> {
    cells::worker(row).map_err(wrapped)
}

pub(super) fn watch(row: &Row<'_>) -> Result<(RunId, RunId, u32, u32)> {
    cells::watch(row).map_err(wrapped)
}

pub(super) fn label(row: &Row<'_>) -> Result<(RunId, Name, String)> {
    cells::label(row).map_err(wrapped)
}
