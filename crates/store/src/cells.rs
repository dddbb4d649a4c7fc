//! How columns become rows, in every database. What a database holds and this version does not
//! know is an error of that row, never a guess.

use roundel_core::{
    BadName, CancelMark, Deadline, Deadlines, GateRow, JournalRow, KeyId, KeyKind, KeyRow, Lane,
    LaneId, LatchId, LatchRow, MailId, MailRow, Name, OfferRow, Outcome, Parent, Payload, Policy,
    PublicationId, PublicationRow, RunId, RunRow, RunState, StateRow, SubscriptionId,
    SubscriptionRow, Taken, Timestamp, Told, UndoMark, WaitId, WaitRow, WorkerId, WorkerRow,
};
use serde::de::DeserializeOwned;

use crate::query::Alike;

mod audits;
mod facts;
mod queues;

pub(crate) use audits::audit;
pub(crate) use facts::{
    document, document_columns, fact, fact_columns, position, projection, said, stream,
};
pub(crate) use queues::{due, permits, queue, queue_columns, rate_numbers};
use queues::{flow, name_if_any};

/// The columns that every run has something in.
macro_rules! plain_run_columns {
    () => {
        "id, lane, state, priority, execution, epoch, owner, lease_until, ready_at, news_at, \
         timer_at, head, mail_last, mail, matched, waits, watchers, suspect, crashes, cancel, \
         holder, parent_run, parent_execution, parent_call, root, depth, key, created_at, \
         changed_at, outcome"
    };
}
pub(crate) use plain_run_columns;

/// The columns of a run, in the order in which [`run`] reads them.
macro_rules! run_columns {
    () => {
        concat!(
            $crate::cells::plain_run_columns!(),
            ", told_part, told_execution, told_call, number, publication, undo, \
             forward_by, forward_set_by, rollback_by, rollback_set_by, flow, \
             flow_key, keyed_at"
        )
    };
}
pub(crate) use run_columns;

/// How many there are.
pub(crate) const RUN_COLUMNS: usize = 43;

/// A row of a database, by column.
pub(crate) trait Cells {
    /// A number; none if the column is null.
    fn int(&self, column: usize) -> Result<Option<i64>>;

    /// The bytes of a text or a blob; none if the column is null.
    fn bytes(&self, column: usize) -> Result<Option<&[u8]>>;
}

/// A value that cannot be what it should be.
#[derive(Debug, thiserror::Error)]
#[error("column {column}: {why}")]
pub(crate) struct Strange {
    pub(crate) column: usize,
    pub(crate) why: String,
}

type Result<T> = std::result::Result<T, Strange>;

// Errors come as values.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn strange(column: usize, error: impl ToString) -> Strange {
    let why = error.to_string();
    Strange { column, why }
}

/// A word or number that this version does not know.
fn unknown(column: usize, found: &dyn std::fmt::Display) -> Strange {
    let why = "is not a value this version of roundel knows; a newer one may have written it";
    strange(column, format!("`{found}` {why}"))
}

fn some<T>(found: Option<T>, column: usize) -> Result<T> {
    found.ok_or_else(|| strange(column, "there is nothing, and something must be"))
}

fn int<T: TryFrom<i64>>(row: &impl Cells, column: usize) -> Result<T> {
    let found = some(row.int(column)?, column)?;
    T::try_from(found).map_err(|_| strange(column, format!("{found} is out of range")))
}

fn int_if_any<T: TryFrom<i64>>(row: &impl Cells, column: usize) -> Result<Option<T>> {
    match row.int(column)? {
        None => Ok(None),
        Some(_) => int(row, column).map(Some),
    }
}

fn text(row: &impl Cells, column: usize) -> Result<&str> {
    let bytes = some(row.bytes(column)?, column)?;
    std::str::from_utf8(bytes).map_err(|error| strange(column, error))
}

pub(crate) fn string(row: &impl Cells, column: usize) -> Result<String> {
    text(row, column).map(str::to_owned)
}

fn id(row: &impl Cells, column: usize) -> Result<[u8; 16]> {
    some(id_if_any(row, column)?, column)
}

fn id_if_any(row: &impl Cells, column: usize) -> Result<Option<[u8; 16]>> {
    let Some(bytes) = row.bytes(column)? else {
        return Ok(None);
    };
    let id = bytes.try_into();
    id.map(Some).map_err(|_| strange(column, "it is not an id"))
}

pub(crate) fn run_id(row: &impl Cells, column: usize) -> Result<RunId> {
    id(row, column).map(RunId::from_bytes)
}

fn worker_id(row: &impl Cells, column: usize) -> Result<Option<WorkerId>> {
    Ok(id_if_any(row, column)?.map(WorkerId::from_bytes))
}

pub(crate) fn name(row: &impl Cells, column: usize) -> Result<Name> {
    Name::new(string(row, column)?).map_err(|error: BadName| strange(column, error))
}

fn time(row: &impl Cells, column: usize) -> Result<Timestamp> {
    int(row, column).map(Timestamp)
}

fn time_if_any(row: &impl Cells, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.int(column)?.map(Timestamp))
}

pub(crate) fn state(row: &impl Cells, column: usize) -> Result<RunState> {
    let word = text(row, column)?;
    RunState::parse(word).ok_or_else(|| unknown(column, &word))
}

fn json<T: DeserializeOwned>(row: &impl Cells, column: usize) -> Result<T> {
    let text = some(row.bytes(column)?, column)?;
    serde_json::from_slice(text).map_err(|error| strange(column, error))
}

fn json_if_any<T: DeserializeOwned>(row: &impl Cells, column: usize) -> Result<Option<T>> {
    match row.bytes(column)? {
        None => Ok(None),
        Some(_) => json(row, column).map(Some),
    }
}

fn payload(row: &impl Cells, column: usize) -> Result<Payload> {
    Payload::parse(text(row, column)?).map_err(|error| strange(column, error))
}

fn cancel(row: &impl Cells, column: usize) -> Result<CancelMark> {
    match int::<i64>(row, column)? {
        0 => Ok(CancelMark::None),
        1 => Ok(CancelMark::Requested),
        2 => Ok(CancelMark::Seen),
        other => Err(unknown(column, &other)),
    }
}

/// What is stored for a request to end.
pub(crate) fn cancel_number(mark: CancelMark) -> i64 {
    match mark {
        CancelMark::None => 0,
        CancelMark::Requested => 1,
        CancelMark::Seen => 2,
    }
}

fn undo(row: &impl Cells, column: usize) -> Result<UndoMark> {
    let number: u8 = int(row, column)?;
    let mark = UndoMark::ALL.get(usize::from(number)).copied();
    mark.ok_or_else(|| unknown(column, &number))
}

/// A deadline: when, and which run said so.
fn deadline(row: &impl Cells, from: usize) -> Result<Option<Deadline>> {
    let Some(at) = time_if_any(row, from)? else {
        return Ok(None);
    };
    let set_by = run_id(row, from + 1)?;
    Ok(Some(Deadline { at, set_by }))
}

/// How a run's end is told: part, execution, call.
fn told(row: &impl Cells, from: usize) -> Result<Told> {
    let Some(part) = row.int(from)? else {
        return Ok(Told::Message);
    };
    if part == NOBODY {
        return Ok(Told::Nobody);
    }
    Ok(Told::Latch {
        execution: int(row, from + 1)?,
        call: int(row, from + 2)?,
        part: u8::try_from(part).map_err(|error| strange(from, error))?,
    })
}

/// The part of a latch that stands for no latch.
const NOBODY: i64 = -1;

/// What is stored for how a run's end is told.
pub(crate) fn told_numbers(told: Told) -> (Option<i64>, Option<u32>, Option<u32>) {
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

/// Counters stay far below what the database can hold. A place beyond that was made up by whoever
/// asks for what comes after it: nothing does.
pub(crate) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(row: &impl Cells, column: usize) -> Result<u64> {
    int(row, column)
}

fn count_if_any(row: &impl Cells, column: usize) -> Result<Option<u64>> {
    int_if_any(row, column)
}

/// A run, from the columns of `run_columns!`.
pub(crate) fn run(row: &impl Cells) -> Result<RunRow> {
    let parent = match id_if_any(row, 21)? {
        None => None,
        Some(run) => Some(Parent {
            run: RunId::from_bytes(run),
            execution: int(row, 22)?,
            call: int(row, 23)?,
        }),
    };
    Ok(RunRow {
        id: run_id(row, 0)?,
        lane: LaneId(int(row, 1)?),
        state: state(row, 2)?,
        priority: int(row, 3)?,
        execution: int(row, 4)?,
        epoch: count(row, 5)?,
        owner: worker_id(row, 6)?,
        lease_until: time_if_any(row, 7)?,
        ready_at: time_if_any(row, 8)?.or(time_if_any(row, 42)?),
        news_at: time_if_any(row, 9)?,
        timer_at: time_if_any(row, 10)?,
        head: count(row, 11)?,
        mail_last: count(row, 12)?,
        mail: int(row, 13)?,
        matched: int(row, 14)?,
        waits: int(row, 15)?,
        watchers: int(row, 16)?,
        suspect: int::<i64>(row, 17)? != 0,
        crashes: int(row, 18)?,
        cancel: cancel(row, 19)?,
        holder: worker_id(row, 20)?,
        parent,
        root: run_id(row, 24)?,
        depth: int(row, 25)?,
        key: name_if_any(row, 26)?,
        created_at: time(row, 27)?,
        changed_at: time(row, 28)?,
        outcome: json_if_any::<Outcome>(row, 29)?,
        told: told(row, 30)?,
        number: int_if_any(row, 33)?,
        publication: id_if_any(row, 34)?.map(PublicationId::from_bytes),
        undo: undo(row, 35)?,
        deadlines: Deadlines {
            forward: deadline(row, 36)?,
            rollback: deadline(row, 38)?,
        },
        flow: flow(row, 40)?,
        flow_key: name_if_any(row, 41)?,
    })
}

/// A lane: namespace, workflow, version from this column on.
pub(crate) fn lane(row: &impl Cells, from: usize) -> Result<Lane> {
    Ok(Lane {
        namespace: name(row, from)?,
        workflow: name(row, from + 1)?,
        version: int(row, from + 2)?,
    })
}

/// A journal row: run, execution, first, count, epoch, at, entries.
pub(crate) fn journal(row: &impl Cells) -> Result<JournalRow> {
    Ok(JournalRow {
        run: run_id(row, 0)?,
        execution: int(row, 1)?,
        first: count(row, 2)?,
        count: int(row, 3)?,
        epoch: count(row, 4)?,
        at: time(row, 5)?,
        entries: some(row.bytes(6)?, 6)?.to_vec(),
    })
}

/// A message: run, name, number, execution, call, body, at, policy, expires_at, parked_at.
pub(crate) fn mail(row: &impl Cells) -> Result<(MailId, MailRow)> {
    let name = match text(row, 1)? {
        "" => None,
        _ => Some(name(row, 1)?),
    };
    let answers = match int_if_any::<u32>(row, 3)? {
        None => None,
        Some(execution) => Some((execution, int(row, 4)?)),
    };
    let id = MailId {
        run: run_id(row, 0)?,
        name,
        number: count(row, 2)?,
    };
    let body = json(row, 5)?;
    let policy = usize::from(int::<u8>(row, 7)?);
    let mail = MailRow {
        answers,
        body,
        at: time(row, 6)?,
        policy: *some(Policy::ALL.get(policy), 7)?,
        expires_at: time_if_any(row, 8)?,
        parked_at: time_if_any(row, 9)?,
    };
    Ok((id, mail))
}

/// A wait: run, name, call, place, taken_mail, taken_offer.
pub(crate) fn wait(row: &impl Cells) -> Result<(WaitId, WaitRow)> {
    let id = WaitId {
        run: run_id(row, 0)?,
        name: name(row, 1)?,
        call: int(row, 2)?,
    };
    let mail = count_if_any(row, 4)?.map(Taken::Mail);
    let taken = mail.or(count_if_any(row, 5)?.map(Taken::Offer));
    let place = count_if_any(row, 3)?;
    Ok((id, WaitRow { place, taken }))
}

/// A gate's counters: waiters, offers.
pub(crate) fn gate(row: &impl Cells, from: usize) -> Result<GateRow> {
    Ok(GateRow {
        waiters: count(row, from)?,
        offers: count(row, from + 1)?,
    })
}

/// An offer: place, payload, taken_by, at.
pub(crate) fn offer(row: &impl Cells, from: usize) -> Result<(u64, OfferRow)> {
    let place = count(row, from)?;
    let taken_by = id_if_any(row, from + 2)?;
    let offer = OfferRow {
        payload: payload(row, from + 1)?,
        taken_by: taken_by.map(RunId::from_bytes),
        at: time(row, from + 3)?,
    };
    Ok((place, offer))
}

/// A key's owner and answer: run, digest, sent.
pub(crate) fn key(row: &impl Cells, from: usize) -> Result<KeyRow> {
    let run = id_if_any(row, from)?;
    Ok(KeyRow {
        run: run.map(RunId::from_bytes),
        digest: u128::from_be_bytes(id(row, from + 1)?),
        sent: json_if_any(row, from + 2)?,
    })
}

/// A key: namespace, kind, key.
pub(crate) fn key_id(row: &impl Cells) -> Result<KeyId> {
    let word = text(row, 1)?;
    let kind = KeyKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    Ok(KeyId {
        namespace: name(row, 0)?,
        kind: kind.ok_or_else(|| unknown(1, &word))?,
        key: string(row, 2)?,
    })
}

/// A run's own state: version, value.
pub(crate) fn own_state(row: &impl Cells, from: usize) -> Result<StateRow> {
    Ok(StateRow {
        version: count(row, from)?,
        value: payload(row, from + 1)?,
    })
}

/// A subscription: namespace, topic, workflow, since.
pub(crate) fn subscription(row: &impl Cells) -> Result<(SubscriptionId, SubscriptionRow)> {
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
pub(crate) fn publication(row: &impl Cells) -> Result<(PublicationId, PublicationRow)> {
    let by = match id_if_any(row, 4)? {
        None => None,
        Some(run) => Some(Parent {
            run: RunId::from_bytes(run),
            execution: int(row, 5)?,
            call: int(row, 6)?,
        }),
    };
    let publication = PublicationRow {
        namespace: name(row, 1)?,
        topic: name(row, 2)?,
        payload: payload(row, 3)?,
        by,
        at: time(row, 7)?,
        heard: int(row, 8)?,
        closes_at: time_if_any(row, 9)?,
        deadlines: json_if_any(row, 10)?.unwrap_or_default(),
        context: json_if_any(row, 11)?.unwrap_or_default(),
    };
    Ok((id(row, 0).map(PublicationId::from_bytes)?, publication))
}

/// A latch: run, execution, call, part, open, total, failed, closes_at.
pub(crate) fn latch(row: &impl Cells) -> Result<(LatchId, LatchRow)> {
    let id = LatchId {
        run: run_id(row, 0)?,
        execution: int(row, 1)?,
        call: int(row, 2)?,
        part: int(row, 3)?,
    };
    let latch = LatchRow {
        open: int(row, 4)?,
        total: int(row, 5)?,
        failed: int(row, 6)?,
        closes_at: time_if_any(row, 7)?,
    };
    Ok((id, latch))
}

/// Runs that are alike: workflow, version, state, owner, count, unread messages.
pub(crate) fn alike(row: &impl Cells) -> Result<Alike> {
    let (name, version) = (name(row, 0)?, int(row, 1)?);
    let (state, owner) = (state(row, 2)?, worker_id(row, 3)?);
    Ok((name, version, state, owner, int(row, 4)?, int(row, 5)?))
}

/// A worker: id, name, started_at, seen_at, suspect, lanes.
pub(crate) fn worker(row: &impl Cells) -> Result<WorkerRow> {
    let suspect = id_if_any(row, 4)?;
    let lanes: Option<Vec<u32>> = json_if_any(row, 5)?;
    Ok(WorkerRow {
        id: id(row, 0).map(WorkerId::from_bytes)?,
        name: string(row, 1)?,
        started_at: time(row, 2)?,
        seen_at: time(row, 3)?,
        suspect: suspect.map(RunId::from_bytes),
        lanes: lanes.unwrap_or_default().into_iter().map(LaneId).collect(),
    })
}

/// A watch: watched, watcher, execution, call.
pub(crate) fn watch(row: &impl Cells) -> Result<(RunId, RunId, u32, u32)> {
    Ok((run_id(row, 0)?, run_id(row, 1)?, int(row, 2)?, int(row, 3)?))
}

/// A label: run, name, value.
pub(crate) fn label(row: &impl Cells) -> Result<(RunId, Name, String)> {
    Ok((run_id(row, 0)?, name(row, 1)?, string(row, 2)?))
}
