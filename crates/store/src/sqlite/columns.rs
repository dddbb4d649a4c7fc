//! How columns become rows. What the database holds and this version does not know is an error of
//! that row, never a guess.

use roundel_core::{
    BadName, CancelMark, Deadline, Deadlines, GateRow, JournalRow, KeyId, KeyKind, KeyRow, Lane,
    LaneId, LatchId, LatchRow, MailId, MailRow, Name, OfferRow, Outcome, Parent, Payload,
    PublicationId, PublicationRow, RunId, RunRow, RunState, StateRow, SubscriptionId,
    SubscriptionRow, Taken, Timestamp, Told, UndoMark, WaitId, WaitRow, WorkerId, WorkerRow,
};
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row};
use serde::de::DeserializeOwned;

/// The columns that every run has something in.
macro_rules! plain_run_columns {
    () => {
        "id, lane, state, priority, execution, epoch, owner, lease_until, ready_at, news_at, \
         timer_at, head, mail_last, mail, matched, waits, watchers, suspect, crashes, cancel, \
         holder, parent_run, parent_execution, parent_call, root, depth, key, created_at, \
         changed_at, outcome"
    };
}
pub(super) use plain_run_columns;

/// The columns of a run, in the order in which [`run`] reads them.
macro_rules! run_columns {
    () => {
        concat!(
            $crate::sqlite::columns::plain_run_columns!(),
            ", told_part, told_execution, told_call, number, publication, undo, \
             forward_by, forward_set_by, rollback_by, rollback_set_by"
        )
    };
}
pub(super) use run_columns;

/// How many there are.
pub(super) const RUN_COLUMNS: usize = 40;

/// A value that cannot be what it should be.
fn strange<E: std::error::Error + Send + Sync + 'static>(column: usize, error: E) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

/// A word or number that this version does not know.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a value this version of roundel knows; a newer one may have written it")]
struct Unknown(String);

fn unknown(column: usize, found: &dyn ToString) -> Error {
    strange(column, Unknown(found.to_string()))
}

pub(super) fn run_id(row: &Row<'_>, column: usize) -> Result<RunId> {
    row.get(column).map(RunId::from_bytes)
}

fn worker_id(row: &Row<'_>, column: usize) -> Result<Option<WorkerId>> {
    Ok(row
        .get::<_, Option<[u8; 16]>>(column)?
        .map(WorkerId::from_bytes))
}

pub(super) fn name(row: &Row<'_>, column: usize) -> Result<Name> {
    Name::new(row.get::<_, String>(column)?).map_err(|error: BadName| strange(column, error))
}

fn time(row: &Row<'_>, column: usize) -> Result<Timestamp> {
    row.get(column).map(Timestamp)
}

fn time_if_any(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
}

pub(super) fn state(row: &Row<'_>, column: usize) -> Result<RunState> {
    let word = row.get_ref(column)?.as_str()?;
    RunState::parse(word).ok_or_else(|| unknown(column, &word))
}

fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| strange(column, error))
}

fn json_if_any<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => json(row, column).map(Some),
    }
}

fn payload(row: &Row<'_>, column: usize) -> Result<Payload> {
    Payload::parse(row.get_ref(column)?.as_str()?).map_err(|error| strange(column, error))
}

fn cancel(row: &Row<'_>, column: usize) -> Result<CancelMark> {
    match row.get(column)? {
        0 => Ok(CancelMark::None),
        1 => Ok(CancelMark::Requested),
        2 => Ok(CancelMark::Seen),
        other => Err(unknown(column, &other)),
    }
}

/// What is stored for a request to end.
pub(super) fn cancel_number(mark: CancelMark) -> i64 {
    match mark {
        CancelMark::None => 0,
        CancelMark::Requested => 1,
        CancelMark::Seen => 2,
    }
}

fn undo(row: &Row<'_>, column: usize) -> Result<UndoMark> {
    let number: u8 = row.get(column)?;
    let mark = UndoMark::ALL.get(usize::from(number)).copied();
    mark.ok_or_else(|| unknown(column, &number))
}

/// A deadline: when, and which run said so.
fn deadline(row: &Row<'_>, from: usize) -> Result<Option<Deadline>> {
    let Some(at) = time_if_any(row, from)? else {
        return Ok(None);
    };
    let set_by = run_id(row, from + 1)?;
    Ok(Some(Deadline { at, set_by }))
}

/// How a run's end is told: part, execution, call.
fn told(row: &Row<'_>, from: usize) -> Result<Told> {
    let Some(part) = row.get::<_, Option<i64>>(from)? else {
        return Ok(Told::Message);
    };
    if part == NOBODY {
        return Ok(Told::Nobody);
    }
    Ok(Told::Latch {
        execution: row.get(from + 1)?,
        call: row.get(from + 2)?,
        part: u8::try_from(part).map_err(|error| strange(from, error))?,
    })
}

/// The part of a latch that stands for no latch.
const NOBODY: i64 = -1;

/// What is stored for how a run's end is told.
pub(super) fn told_numbers(told: Told) -> (Option<i64>, Option<u32>, Option<u32>) {
    match told {
        Told::Message => (None, None, None),
        Told::Nobody => (Some(NOBODY), None, None),
        Told::Latch {
            execution,
            call,
            part,
        } => (Some(part.into()), Some(execution), Some(call)),
    }
}

/// Counters stay far below what the database can hold.
pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).expect("a counter below 2^63")
}

fn count(row: &Row<'_>, column: usize) -> Result<u64> {
    let found: i64 = row.get(column)?;
    u64::try_from(found).map_err(|error| strange(column, error))
}

fn count_if_any(row: &Row<'_>, column: usize) -> Result<Option<u64>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => count(row, column).map(Some),
    }
}

/// A run, from the columns of `run_columns!`.
pub(super) fn run(row: &Row<'_>) -> Result<RunRow> {
    let parent = match row.get::<_, Option<[u8; 16]>>(21)? {
        None => None,
        Some(run) => Some(Parent {
            run: RunId::from_bytes(run),
            execution: row.get(22)?,
            call: row.get(23)?,
        }),
    };
    let key = match row.get_ref(26)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(name(row, 26)?),
    };
    Ok(RunRow {
        id: run_id(row, 0)?,
        lane: LaneId(row.get(1)?),
        state: state(row, 2)?,
        priority: row.get(3)?,
        execution: row.get(4)?,
        epoch: count(row, 5)?,
        owner: worker_id(row, 6)?,
        lease_until: time_if_any(row, 7)?,
        ready_at: time_if_any(row, 8)?,
        news_at: time_if_any(row, 9)?,
        timer_at: time_if_any(row, 10)?,
        head: count(row, 11)?,
        mail_last: count(row, 12)?,
        mail: row.get(13)?,
        matched: row.get(14)?,
        waits: row.get(15)?,
        watchers: row.get(16)?,
        suspect: row.get(17)?,
        crashes: row.get(18)?,
        cancel: cancel(row, 19)?,
        holder: worker_id(row, 20)?,
        parent,
        root: run_id(row, 24)?,
        depth: row.get(25)?,
        key,
        created_at: time(row, 27)?,
        changed_at: time(row, 28)?,
        outcome: json_if_any::<Outcome>(row, 29)?,
        told: told(row, 30)?,
        number: row.get(33)?,
        publication: row
            .get::<_, Option<[u8; 16]>>(34)?
            .map(PublicationId::from_bytes),
        undo: undo(row, 35)?,
        deadlines: Deadlines {
            forward: deadline(row, 36)?,
            rollback: deadline(row, 38)?,
        },
    })
}

/// A lane: namespace, workflow, version from this column on.
pub(super) fn lane(row: &Row<'_>, from: usize) -> Result<Lane> {
    Ok(Lane {
        namespace: name(row, from)?,
        workflow: name(row, from + 1)?,
        version: row.get(from + 2)?,
    })
}

/// A journal row: run, execution, first, count, epoch, at, entries.
pub(super) fn journal(row: &Row<'_>) -> Result<JournalRow> {
    Ok(JournalRow {
        run: run_id(row, 0)?,
        execution: row.get(1)?,
        first: count(row, 2)?,
        count: row.get(3)?,
        epoch: count(row, 4)?,
        at: time(row, 5)?,
        entries: row.get_ref(6)?.as_bytes()?.to_vec(),
    })
}

/// A message: run, name, number, execution, call, body, at.
pub(super) fn mail(row: &Row<'_>) -> Result<(MailId, MailRow)> {
    let name = match row.get_ref(1)?.as_str()? {
        "" => None,
        _ => Some(name(row, 1)?),
    };
    let answers = match row.get::<_, Option<u32>>(3)? {
        None => None,
        Some(execution) => Some((execution, row.get(4)?)),
    };
    let id = MailId {
        run: run_id(row, 0)?,
        name,
        number: count(row, 2)?,
    };
    let body = json(row, 5)?;
    let at = time(row, 6)?;
    Ok((id, MailRow { answers, body, at }))
}

/// A wait: run, name, call, place, taken_mail, taken_offer.
pub(super) fn wait(row: &Row<'_>) -> Result<(WaitId, WaitRow)> {
    let id = WaitId {
        run: run_id(row, 0)?,
        name: name(row, 1)?,
        call: row.get(2)?,
    };
    let mail = count_if_any(row, 4)?.map(Taken::Mail);
    let taken = mail.or(count_if_any(row, 5)?.map(Taken::Offer));
    let place = count_if_any(row, 3)?;
    Ok((id, WaitRow { place, taken }))
}

/// A gate's counters: waiters, offers.
pub(super) fn gate(row: &Row<'_>, from: usize) -> Result<GateRow> {
    Ok(GateRow {
        waiters: count(row, from)?,
        offers: count(row, from + 1)?,
    })
}

/// An offer: place, payload, taken_by, at.
pub(super) fn offer(row: &Row<'_>, from: usize) -> Result<(u64, OfferRow)> {
    let place = count(row, from)?;
    let taken_by = row.get::<_, Option<[u8; 16]>>(from + 2)?;
    let offer = OfferRow {
        payload: payload(row, from + 1)?,
        taken_by: taken_by.map(RunId::from_bytes),
        at: time(row, from + 3)?,
    };
    Ok((place, offer))
}

/// A key's owner and answer: run, digest, sent.
pub(super) fn key(row: &Row<'_>, from: usize) -> Result<KeyRow> {
    let run = row.get::<_, Option<[u8; 16]>>(from)?;
    Ok(KeyRow {
        run: run.map(RunId::from_bytes),
        digest: u128::from_be_bytes(row.get(from + 1)?),
        sent: json_if_any(row, from + 2)?,
    })
}

/// A key: namespace, kind, key.
pub(super) fn key_id(row: &Row<'_>) -> Result<KeyId> {
    let word = row.get_ref(1)?.as_str()?;
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    Ok(KeyId {
        namespace: name(row, 0)?,
        kind: kind.ok_or_else(|| unknown(1, &word))?,
        key: row.get(2)?,
    })
}

/// A run's own state: version, value.
pub(super) fn own_state(row: &Row<'_>, from: usize) -> Result<StateRow> {
    Ok(StateRow {
        version: count(row, from)?,
        value: payload(row, from + 1)?,
    })
}

/// A subscription: namespace, topic, workflow, since.
pub(super) fn subscription(row: &Row<'_>) -> Result<(SubscriptionId, SubscriptionRow)> {
    let id = SubscriptionId {
        namespace: name(row, 0)?,
        topic: name(row, 1)?,
        workflow: name(row, 2)?,
    };
    let since = time(row, 3)?;
    Ok((id, SubscriptionRow { since }))
}

/// A publication: id, namespace, topic, payload, by_run, by_execution, by_call, at, heard,
/// closes_at, deadlines, context.
pub(super) fn publication(row: &Row<'_>) -> Result<(PublicationId, PublicationRow)> {
    let by = match row.get::<_, Option<[u8; 16]>>(4)? {
        None => None,
        Some(run) => Some(Parent {
            run: RunId::from_bytes(run),
            execution: row.get(5)?,
            call: row.get(6)?,
        }),
    };
    let publication = PublicationRow {
        namespace: name(row, 1)?,
        topic: name(row, 2)?,
        payload: payload(row, 3)?,
        by,
        at: time(row, 7)?,
        heard: row.get(8)?,
        closes_at: time_if_any(row, 9)?,
        deadlines: json_if_any(row, 10)?.unwrap_or_default(),
        context: json_if_any(row, 11)?.unwrap_or_default(),
    };
    Ok((row.get(0).map(PublicationId::from_bytes)?, publication))
}

/// A latch: run, execution, call, part, open, total, failed, closes_at.
pub(super) fn latch(row: &Row<'_>) -> Result<(LatchId, LatchRow)> {
    let id = LatchId {
        run: run_id(row, 0)?,
        execution: row.get(1)?,
        call: row.get(2)?,
        part: row.get(3)?,
    };
    let latch = LatchRow {
        open: row.get(4)?,
        total: row.get(5)?,
        failed: row.get(6)?,
        closes_at: time_if_any(row, 7)?,
    };
    Ok((id, latch))
}

/// A worker: id, name, started_at, seen_at, suspect.
pub(super) fn worker(row: &Row<'_>) -> Result<WorkerRow> {
    let suspect = row.get::<_, Option<[u8; 16]>>(4)?;
    Ok(WorkerRow {
        id: row.get(0).map(WorkerId::from_bytes)?,
        name: row.get(1)?,
        started_at: time(row, 2)?,
        seen_at: time(row, 3)?,
        suspect: suspect.map(RunId::from_bytes),
    })
}

/// A watch: watched, watcher, execution, call.
pub(super) fn watch(row: &Row<'_>) -> Result<(RunId, RunId, u32, u32)> {
    Ok((run_id(row, 0)?, run_id(row, 1)?, row.get(2)?, row.get(3)?))
}

/// A label: run, name, value.
pub(super) fn label(row: &Row<'_>) -> Result<(RunId, Name, String)> {
    Ok((run_id(row, 0)?, name(row, 1)?, row.get(2)?))
}
