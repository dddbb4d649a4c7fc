//! What clients were told and what was seen to happen, kept apart from the rows, to be held against
//! them in the end (`judge.rs`): promises that rows alone do not show. What is deleted is forgotten
//! here too, when it is, and nothing else is: whatever comes under the same id afterwards is new.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{
    CancelMark, Cancelled, Caused, Consumed, Entry, Failure, MailId, Name, OfferId, Op, Outcome,
    Payload, Reply, Round, Rows, RunId, RunRow, RunState, Sent, Start, Taken, Target, Then, UndoBy,
    UndoMark, WaitId, decode_entries,
};

use crate::site;

/// How often a parked run is let go on.
const RESUMES: u32 = 6;

/// What an operation is about to do, if it is done.
pub(crate) enum Noted {
    Nothing,
    Round {
        /// Messages, and whether they lie in the run's own mailbox.
        consumed: Vec<(u64, bool)>,
        /// The run was asked to end, and may not go forward.
        asked_to_end: bool,
    },
    Cancel(RunId, bool),
    Delete(Box<Deleting>),
}

/// What is there before some of it is deleted.
pub(crate) struct Deleting {
    /// All runs, and who sent them, if a step did.
    runs: Vec<(RunId, Option<RunId>)>,
    /// What lies in their mailboxes.
    mail: Vec<(RunId, u64)>,
}

/// A signal or an offer.
#[derive(Debug, Default)]
pub(crate) struct Message {
    /// The store took it in, whether or not anybody was told.
    pub(crate) accepted: bool,
    pub(crate) consumed: u32,
    /// From whose mailbox.
    by: Option<RunId>,
    /// It was deleted, with its run.
    pub(crate) deleted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Acknowledged starts, and the keys they were made under.
    pub(crate) started: Vec<(RunId, Option<Name>)>,
    /// By what they say.
    pub(crate) messages: BTreeMap<u64, Message>,
    pub(crate) cancelled: BTreeSet<RunId>,
    /// Those of them that are to be left as they are.
    pub(crate) kept: BTreeSet<RunId>,
    /// Runs that were deleted, and not started again since.
    pub(crate) deleted: BTreeSet<RunId>,
    /// Runs that were deleted at some time, and those that sent a command that was.
    pub(crate) ever_deleted: BTreeSet<RunId>,
    /// How many were.
    pub(crate) started_again: u32,
    /// How often something was done in somebody's name.
    pub(crate) audited: usize,
    /// Results that clients were given.
    pub(crate) results: Vec<(RunId, RunState, Option<Outcome>)>,
    /// Runs whose code asked for something else than their journals have.
    pub(crate) diverged: BTreeSet<RunId>,
    resumed: BTreeMap<RunId, u32>,
    /// Batches that something follows, and what that is known by.
    pub(crate) batches: BTreeMap<RunId, u32>,
    /// The last of those that are alike, by workflow and key.
    alike: BTreeMap<(Name, Name), RunId>,
    /// Facts that were handed in.
    pub(crate) arrivals: crate::incoming::Arrivals,
    /// What is known of schedules.
    pub(crate) times: crate::timetables::Timetables,
    /// What is known of runs that belong together.
    pub(crate) kin: crate::kin::Kin,
    pub(crate) violations: Vec<String>,
}

pub(crate) fn value(payload: &Payload) -> Option<u64> {
    payload.as_str().parse().ok()
}

impl Book {
    pub(crate) fn complain(&mut self, what: &str) {
        self.violations.push(what.to_owned());
    }

    pub(crate) fn before(&self, op: &Op, rows: &Rows) -> Noted {
        match op {
            Op::Commit(round) => {
                let waits = round.consumed.iter().filter_map(|consumed| match consumed {
                    Consumed::Wait(name, call) => taken(rows, round.run, name, *call),
                    _ => None,
                });
                let row = rows.run(round.run);
                let asked = self.cancelled.contains(&round.run)
                    || row.is_some_and(|row| row.cancel != CancelMark::None);
                let undoes = row.is_some_and(|row| row.undo == UndoMark::Underway);
                Noted::Round {
                    consumed: waits.collect(),
                    asked_to_end: asked && !undoes,
                }
            }
            Op::Cancel(cancel) => match cancel.target {
                Target::Run(run) => Noted::Cancel(run, cancel.keep),
                Target::Key(_) => Noted::Nothing,
            },
            Op::Delete(_) => {
                let sender = |row: &RunRow| {
                    let key = row.key.as_ref()?.as_str();
                    key.strip_prefix("order:")?.parse().ok()
                };
                let said = |(id, row): (&MailId, _)| Some((id.run, said(row)?));
                Noted::Delete(Box::new(Deleting {
                    runs: rows.runs().map(|row| (row.id, sender(row))).collect(),
                    mail: rows.mail.iter().filter_map(said).collect(),
                }))
            }
            _ => Noted::Nothing,
        }
    }

    /// It is done.
    pub(crate) fn after(&mut self, noted: Noted, op: &Op, reply: &Reply, rows: &Rows) {
        match (op, reply) {
            (Op::Commit(round), _) => {
                self.committed(round, noted);
                self.caused_alike(round, rows);
            }
            (Op::Start(start), Reply::Started(started)) => {
                if started.new && self.deleted.remove(&started.run) {
                    self.started_again += 1;
                }
                if started.new {
                    self.alike(start, rows);
                }
                if let (Some(round), Some(Ok(_))) = (&start.first, started.first.as_deref()) {
                    self.caused_alike(round, rows);
                }
                if let (Some(signal), Some(sent)) = (&start.signal, started.sent) {
                    self.sent(&signal.payload, sent, rows);
                }
            }
            (Op::Signal(signal), Reply::Sent(sent, _)) => self.sent(&signal.payload, *sent, rows),
            (Op::Offer(offer), Reply::Sent(sent, _)) => self.sent(&offer.payload, *sent, rows),
            (Op::Cancel(_), Reply::Cancelled(Cancelled::Requested, _)) => {
                if let Noted::Cancel(run, keep) = noted {
                    self.cancelled.insert(run);
                    self.kept.extend(keep.then_some(run));
                }
            }
            (Op::Delete(_), _) => {
                if let Noted::Delete(before) = noted {
                    self.deleted(&before, rows);
                }
            }
            _ => {}
        }
    }

    fn caused_alike(&mut self, round: &Round, rows: &Rows) {
        for caused in &round.caused {
            if let Caused::Spawn(_, start) | Caused::Send(start) = caused {
                self.alike(start, rows);
            }
        }
    }

    /// What is like another that was started before does not start again in its time.
    fn alike(&mut self, start: &Start, rows: &Rows) {
        let Some(dedupe) = &start.dedupe else { return };
        let of = (start.workflow.clone(), dedupe.key.clone());
        let run = start.run;
        let Some(row) = rows.run(run) else { return };
        let before = self.alike.insert(of, run);
        let before = before.filter(|before| *before != run);
        let Some(before) = before.and_then(|before| rows.run(before)) else {
            return;
        };
        let waits = before.head == 1
            && before.owner.is_none()
            && before.cancel == CancelMark::None
            && !before.state.has_ended();
        let stands_for_it = match dedupe.last {
            true => waits,
            false => row.created_at < before.created_at.after(dedupe.window),
        };
        if stands_for_it {
            let found = format!("co_30: {run} was started, and is like {}", before.id);
            self.complain(&found);
        }
    }

    fn committed(&mut self, round: &Round, noted: Noted) {
        if let Noted::Round {
            consumed,
            asked_to_end,
        } = noted
        {
            for (value, own) in consumed {
                let message = self.messages.entry(value).or_default();
                message.consumed += 1;
                message.by = Some(round.run).filter(|_| own);
            }
            if asked_to_end {
                self.no_way_forward(round);
            }
        }
        if let Then::Park(why) = &round.then {
            self.parked(round, why);
        }
    }

    /// A run is parked as it was: nothing of what it was about to do is recorded.
    fn parked(&mut self, round: &Round, why: &Failure) {
        let touched = round.count > 0 || !round.consumed.is_empty() || !round.caused.is_empty();
        let (run, code) = (round.run, &why.code);
        if touched || !round.opened.is_empty() || !round.closed.is_empty() {
            self.complain(&format!(
                "ru_parked: {run} was parked as {code}, and changed"
            ));
        }
        if code == "diverged" {
            self.diverged.insert(run);
        }
    }

    /// A round of a run that was asked to end: nothing begins in it.
    fn no_way_forward(&mut self, round: &Round) {
        let run = round.run;
        let entries = decode_entries(&round.entries).unwrap_or_default();
        // What undoes is not forward.
        let back = |entry: &&Entry| !matches!(entry, Entry::RollingBack { .. });
        let forward = entries.iter().filter(|_| round.count > 0).take_while(back);
        for entry in forward.filter(|entry| !is_noted(entry)) {
            if let Entry::Begun { .. }
            | Entry::Did { .. }
            | Entry::Attempted { .. }
            | Entry::Continued = entry
            {
                self.complain(&format!(
                    "inv21_cancel: {run} was cancelled, then {entry:?}"
                ));
            }
        }
    }

    fn sent(&mut self, payload: &Payload, sent: Sent, rows: &Rows) {
        let (Some(value), Sent::Delivered(_) | Sent::Queued) = (value(payload), sent) else {
            return;
        };
        let message = self.messages.entry(value).or_default();
        message.accepted = true;
        if message.deleted {
            // The run is there again, and so is the message, if it was sent again.
            let is_it = |(_, row): (_, _)| said(row) == Some(value);
            message.deleted = !rows.mail.iter().any(is_it);
        }
    }

    /// What is gone is forgotten: what happened to it, and what it did.
    fn deleted(&mut self, before: &Deleting, rows: &Rows) {
        let gone = before.runs.iter();
        for (run, sender) in gone.filter(|(run, _)| rows.run(*run).is_none()) {
            self.deleted.insert(*run);
            self.ever_deleted
                .extend([Some(*run), *sender].into_iter().flatten());
            self.cancelled.remove(run);
            self.kept.remove(run);
            self.results.retain(|(of, ..)| of != run);
            let mail = before.mail.iter().filter(|(of, _)| of == run);
            for (_, value) in mail {
                self.messages.entry(*value).or_default().deleted = true;
            }
            let consumed = |message: &&mut Message| message.by == Some(*run);
            for message in self.messages.values_mut().filter(consumed) {
                // Sent again to a run that is there again, it is another message.
                (message.consumed, message.by, message.deleted) = (0, None, true);
            }
            for (name, times) in site::with(|site| site.forget(*run)) {
                if times != 1 {
                    self.complain(&format!("inv1_one_effect: {name} of {run}: {times} times"));
                }
            }
        }
    }

    /// A client was told which run it has started.
    pub(crate) fn started(&mut self, run: RunId, key: Option<&Name>) {
        let lives = |run: &RunId| !self.deleted.contains(run);
        let mut known = self.started.iter().filter(|(of, _)| lives(of));
        let another = |(of, under): &(RunId, Option<Name>)| under.as_ref() == key && (*of != run);
        if key.is_some() && lives(&run) && known.any(another) {
            self.complain("inv18_one_key: two runs for one key");
        }
        if self.started.iter().all(|(of, _)| *of != run) {
            self.started.push((run, key.cloned()));
        }
    }

    pub(crate) fn looked(&mut self, rows: &Rows, run: RunId) {
        if let Some(row) = rows.run(run).filter(|row| row.state.has_ended()) {
            self.results.push((run, row.state, row.outcome.clone()));
        }
    }

    /// How often it was let go on.
    pub(crate) fn resumed(&self, run: RunId) -> u32 {
        self.resumed.get(&run).copied().unwrap_or_default()
    }

    pub(crate) fn may_resume(&mut self, rows: &Rows) -> Vec<RunId> {
        let failed =
            |row: &RunRow| row.state == RunState::RollbackFailed && row.undo == UndoMark::Possible;
        let parked = rows.runs();
        let parked = parked.filter(|row| row.state == RunState::Parked || failed(row));
        // Nobody mends what is spoiled.
        let parked = parked.filter(|row| rows.lane(row.lane).workflow != roundel_core::INCOMING);
        let parked = parked.map(|row| (Reverse(row.depth), row.id));
        // The lowest first: what is above it cannot be undone before it.
        let mut parked: Vec<(Reverse<u16>, RunId)> = parked.collect();
        parked.sort_unstable();
        let mut parked: Vec<RunId> = parked.into_iter().map(|(_, run)| run).collect();
        parked.retain(|run| {
            let times = self.resumed.entry(*run).or_default();
            *times += 1;
            *times <= RESUMES
        });
        parked
    }
}

/// What a message says, if it is a signal.
pub(crate) fn said(row: &roundel_core::MailRow) -> Option<u64> {
    match &row.body {
        Outcome::Value(payload) if row.answers.is_none() => value(payload),
        _ => None,
    }
}

/// What a wait is matched to, and whether that lies in the run's own mailbox.
fn taken(rows: &Rows, run: RunId, name: &Name, call: u32) -> Option<(u64, bool)> {
    let id = WaitId {
        run,
        name: name.clone(),
        call,
    };
    match rows.waits.get(&id)?.taken? {
        Taken::Mail(number) => {
            let name = Some(name.clone());
            let row = rows.mail.get(&MailId { run, name, number })?;
            Some((said(row)?, true))
        }
        Taken::Offer(place) => {
            let gate = roundel_core::GateId {
                namespace: crate::world::NAMESPACE,
                name: name.clone(),
            };
            let row = rows.offers.get(&OfferId { gate, place })?;
            Some((value(&row.payload)?, false))
        }
    }
}

/// What is to be done in any case is only noted; nothing has begun.
fn is_noted(entry: &Entry) -> bool {
    matches!(entry, Entry::Did { what, .. } if what.undo() == Some(&UndoBy::Finally))
}
