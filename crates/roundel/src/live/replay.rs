//! Replay: the journal's entries, one after the other, matched with what the function asks for.

use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Attempted, Call, CancelMark, Claimed, Context, Divergence, Entry, Failure, JournalRow, Outcome,
    Payload, Timestamp, decode_entries,
};

use super::history::History;
use super::{Driver, Due, Handler, LiveRun};
use crate::cx::shared::{Asked, Phase, RunInfo};

/// A journal, decoded: what the run was started with, and what happened since.
pub(crate) struct Journal {
    pub(crate) input: Payload,
    pub(crate) version: u32,
    pub(crate) unsettled: Option<u32>,
    pub(crate) context: Context,
    pub(crate) entries: Vec<(Entry, Timestamp)>,
}

impl Journal {
    /// Decodes the rows of one execution.
    pub(crate) fn decode<'a>(
        rows: impl IntoIterator<Item = &'a JournalRow>,
    ) -> Result<Journal, Failure> {
        Journal::read(rows, decode_entries)
    }

    /// The rows of one execution, read so.
    pub(crate) fn read<'a>(
        rows: impl IntoIterator<Item = &'a JournalRow>,
        mut read: impl FnMut(&[u8]) -> serde_json::Result<Vec<Entry>>,
    ) -> Result<Journal, Failure> {
        let broken = |what: String| {
            Failure::permanent(format!(
                "the journal cannot be read: {what}; if a newer version of the program wrote it, \
                 run that version, then resume the run"
            ))
            .with_code("undecodable_journal")
        };
        let mut entries = Vec::new();
        for row in rows {
            if row.first != entries.len() as u64 + 1 {
                return Err(broken(format!("entry {} is missing", entries.len() + 1)));
            }
            let decoded = read(&row.entries)
                .map_err(|error| broken(format!("entry {} and on: {error}", row.first)))?;
            entries.extend(decoded.into_iter().map(|entry| (entry, row.at)));
        }
        let mut entries = entries.into_iter();
        match entries.next() {
            Some((
                Entry::Started {
                    input,
                    version,
                    unsettled,
                    context,
                    ..
                },
                _,
            )) => Ok(Journal {
                input,
                version,
                unsettled,
                context,
                entries: entries.collect(),
            }),
            _ => Err(broken("it does not begin with a start".into())),
        }
    }
}

impl Journal {
    /// Must the workflow's function run to bring the run on? Not if it was asked to end or is
    /// rolled back, and nothing is undone by code that only the function gives.
    pub(crate) fn needs_function(&self, claimed: &Claimed) -> bool {
        let back = |(entry, _): &(Entry, Timestamp)| matches!(entry, Entry::RollingBack { .. });
        let kept = |(entry, _): &(Entry, Timestamp)| {
            matches!(
                entry,
                Entry::Kept | Entry::DeadlineMissed { kept: true, .. }
            )
        };
        if self.entries.iter().any(kept) {
            return false;
        }
        if claimed.cancel == CancelMark::None && !self.entries.iter().any(back) {
            return true;
        }
        let mut history = History::default();
        for (at, (entry, _)) in (2..).zip(&self.entries) {
            history.note(entry, at, claimed.execution);
        }
        history.needs_code_of(claimed.execution)
    }
}

impl LiveRun {
    /// The run that was claimed, with its function or, if that is not needed any more, without.
    pub(crate) fn load(
        info: RunInfo,
        handler: &Handler,
        journal: Journal,
        (claimed, driver): (Claimed, Driver),
    ) -> Box<LiveRun> {
        match journal.needs_function(&claimed) {
            true => LiveRun::resume(info, handler, journal, (claimed, driver)),
            false => LiveRun::without_code(info, journal, (claimed, driver)),
        }
    }

    /// The run that was claimed, to be brought to where its journal ends.
    fn resume(
        info: RunInfo,
        handler: &Handler,
        journal: Journal,
        (claimed, driver): (Claimed, Driver),
    ) -> Box<LiveRun> {
        let info = RunInfo {
            context: journal.context,
            ..info
        };
        let mut live = LiveRun::new(info, handler, journal.input, driver);
        live.earlier.unsettled = journal.unsettled;
        live.head = claimed.head;
        live.shared.lock().replaying = !journal.entries.is_empty();
        live.replay = journal.entries.into();
        live.reclaimed(claimed);
        live
    }

    /// Does the next entry belong to a call that the function makes once a resource is open?
    pub(super) fn must_open_first(&self) -> bool {
        let Some((
            Entry::Begun { call, .. } | Entry::Did { call, .. } | Entry::Attempted { call, .. },
            _,
        )) = self.replay.front()
        else {
            return false;
        };
        let inner = self.shared.lock();
        inner.opening > 0 && !inner.calls.contains_key(call)
    }

    /// One entry, given to the function as it was when it was live.
    pub(super) fn replay_entry(&mut self, entry: Entry, at: Timestamp) -> Result<(), Failure> {
        // A journal that was read late may be longer than it was when the run was claimed: what
        // comes of that is fenced.
        let number = self.head.saturating_sub(self.replay.len() as u64);
        self.history
            .note(&entry, number, self.shared.info.execution);
        match entry {
            Entry::Begun { call, what } => self.replay_begun(call, what, at),
            Entry::Did {
                call,
                what,
                outcome,
            } => {
                self.matches(call, &what)?;
                self.timers.retain(|(_, of, _)| *of != call);
                let mut inner = self.shared.lock();
                inner.fresh.retain(|fresh| *fresh != call);
                inner.complete(call, outcome);
                Ok(())
            }
            entry @ Entry::Attempted { .. } => self.replay_attempted(entry),
            Entry::Done { call, outcome } => self.replay_done(call, outcome),
            Entry::Dropped { call } => self.replay_dropped(call),
            Entry::Worked {
                call,
                what,
                value,
                window,
                emitted,
            } => {
                self.matches(call, &what)?;
                self.timers.retain(|(_, of, _)| *of != call);
                self.shared.lock().fresh.retain(|fresh| *fresh != call);
                let closes_at = window.map(|window| at.after(window));
                self.step_worked(call, (value, emitted), closes_at);
                Ok(())
            }
            Entry::Settled {
                call,
                ends,
                failure,
            } => self.replay_settled(call, (ends, failure)),
            Entry::RollingBack { context, .. } => {
                self.shared.lock().context.take(&context);
                self.waits.clear();
                self.enter_rollback();
                Ok(())
            }
            // A rollback reopens it.
            Entry::Ended { .. } if !self.replay.is_empty() => Ok(()),
            Entry::DeadlineMissed { deadline, kept } => {
                self.missed = Some(deadline);
                self.kept |= kept;
                self.replay_cancelled(at)
            }
            Entry::ContextSet { context } => {
                self.shared.lock().context.take(&context);
                Ok(())
            }
            Entry::CancelSeen => self.replay_cancelled(at),
            Entry::Kept => {
                self.kept = true;
                self.replay_cancelled(at)
            }
            Entry::Started { .. } => Ok(()),
            Entry::Continued | Entry::Ended { .. } => Err(Failure::permanent(
                "the journal has ended, but the run has not",
            )),
        }
    }

    /// No user code ran after this. A claim that is older than the journal may not know of it.
    fn replay_cancelled(&mut self, at: Timestamp) -> Result<(), Failure> {
        self.cancel(at, true);
        self.let_go();
        Ok(())
    }

    /// The code let go of a call, as it did when it was live.
    fn replay_dropped(&mut self, call: u32) -> Result<(), Failure> {
        let mut inner = self.shared.lock();
        if !inner.dropped.contains(&call) {
            drop(inner);
            return Err(self.diverged("a call that lost", "nothing of the kind"));
        }
        inner.dropped.retain(|dropped| *dropped != call);
        inner.calls.remove(&call);
        drop(inner);
        self.timers.retain(|(_, of, _)| *of != call);
        self.waits.remove(&call);
        if let Some((_, asked)) = self.children.get_mut(&call) {
            *asked = true;
        }
        if let Some(asked) = self.scopes.get_mut(&call) {
            *asked = true;
        }
        Ok(())
    }

    fn replay_attempted(&mut self, entry: Entry) -> Result<(), Failure> {
        let Entry::Attempted {
            call,
            what,
            attempt,
            failure,
            at,
            retry_at,
        } = entry
        else {
            unreachable!("an attempt")
        };
        self.matches(call, &what)?;
        let mut inner = self.shared.lock();
        inner.fresh.retain(|fresh| *fresh != call);
        let slot = inner.calls.get_mut(&call).expect("just matched");
        slot.phase = Phase::Open;
        slot.attempts.push(Attempted {
            attempt,
            message: failure.message,
            at,
        });
        drop(inner);
        self.timers
            .retain(|(_, of, due)| (*of, *due) != (call, Due::Retry));
        self.timers.insert((retry_at, call, Due::Retry));
        Ok(())
    }

    fn replay_begun(&mut self, call: u32, what: Call, at: Timestamp) -> Result<(), Failure> {
        self.matches(call, &what)?;
        match &what {
            Call::Sleep { .. } if mutant::on(Mutant::SleepLostInReplay) => {}
            Call::Sleep { until } => {
                self.timers.insert((*until, call, Due::Sleep));
            }
            Call::Wait {
                until: Some(until), ..
            } => {
                self.timers.insert((*until, call, Due::WaitEnds));
            }
            Call::Child { run, .. } => {
                self.children.insert(call, (*run, false));
            }
            Call::Children { .. } | Call::Batch { .. } => {
                self.scopes.insert(call, false);
            }
            Call::Publish { window, .. } => {
                self.scopes.insert(call, false);
                if let Some(window) = window {
                    self.timers
                        .insert((at.after(*window), call, Due::WindowCloses));
                }
            }
            _ => {}
        }
        let mut inner = self.shared.lock();
        inner.fresh.retain(|fresh| *fresh != call);
        let slot = inner.calls.get_mut(&call).expect("just matched");
        match (&slot.ask, &what) {
            (
                Asked::Wait {
                    offerable: true, ..
                },
                Call::Wait { signal, .. },
            ) => {
                self.waits.insert(call, (signal.clone(), true));
            }
            (_, Call::Wait { signal, .. }) => {
                self.waits.insert(call, (signal.clone(), false));
            }
            (Asked::Effect(tries), _) => {
                if let Some(total) = tries.total {
                    self.timers.insert((at.after(total), call, Due::CallEnds));
                }
            }
            _ => {}
        }
        slot.phase = Phase::Open;
        slot.begun_at = Some(at);
        slot.what = what;
        Ok(())
    }

    fn replay_done(&mut self, call: u32, outcome: Outcome) -> Result<(), Failure> {
        let scope = self.scopes.remove(&call).is_some();
        let child = self.children.remove(&call).is_some() || scope;
        let mut inner = self.shared.lock();
        let open = inner
            .calls
            .get(&call)
            .is_some_and(|slot| slot.phase == Phase::Open);
        if !open || inner.dropped.contains(&call) {
            drop(inner);
            if child {
                // The code had let go of it; it ended all the same.
                return Ok(());
            }
            let recorded = format!("the end of call {call}");
            return Err(self.diverged(&recorded, "nothing that it could end"));
        }
        inner.complete(call, outcome);
        drop(inner);
        self.timers.retain(|(_, of, _)| *of != call);
        self.waits.remove(&call);
        Ok(())
    }

    /// Does the code ask for what the journal has?
    fn matches(&self, call: u32, what: &Call) -> Result<(), Failure> {
        let inner = self.shared.lock();
        let asked = inner.calls.get(&call).map(|slot| slot.what.clone());
        drop(inner);
        match asked {
            Some(asked) if asked.signature() == what.signature() => Ok(()),
            Some(asked) => Err(self.diverged(&what.to_string(), &asked.to_string())),
            None if self.returned.is_some() => {
                Err(self.diverged(&what.to_string(), "nothing more: it returned"))
            }
            None => Err(self.diverged(&what.to_string(), "nothing at this place")),
        }
    }

    fn diverged(&self, recorded: &str, asked: &str) -> Failure {
        let entry = self.head.saturating_sub(self.replay.len() as u64);
        Failure::permanent(format!(
            "run {} diverged at entry {entry}: the journal has {recorded}, the code asked for \
             {asked}; restore the old code, or start new runs on a new version; then resume it",
            self.run()
        ))
        .with_code(Divergence::CODE)
        .with_data(&Divergence {
            entry,
            recorded: recorded.to_owned(),
            asked: asked.to_owned(),
        })
    }

    /// The journal has been replayed: what had begun and is not done goes on.
    pub(super) fn replayed(&mut self, now: Timestamp) {
        let mut inner = self.shared.lock();
        inner.replaying = false;
        let retrying: Vec<u32> = self
            .timers
            .iter()
            .filter(|(_, _, due)| *due == Due::Retry)
            .map(|(_, call, _)| *call)
            .collect();
        let mut effects: Vec<u32> = inner
            .calls
            .iter()
            .filter(|(call, slot)| {
                matches!(slot.ask, Asked::Effect(_))
                    && slot.phase == Phase::Open
                    && !retrying.contains(call)
            })
            .map(|(call, _)| *call)
            .collect();
        effects.sort_unstable();
        let dropped = inner.dropped.clone();
        drop(inner);
        if mutant::on(Mutant::EffectLostInReplay) || self.cancelling.is_some() {
            return;
        }
        self.look_at_all_again();
        for call in effects.into_iter().filter(|call| !dropped.contains(call)) {
            self.start_attempt(call, now);
        }
    }
}
