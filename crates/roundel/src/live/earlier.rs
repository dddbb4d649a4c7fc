//! Executions before the one at hand. What they did is undone with it, unless they were declared
//! settled; their journals say what that is, and are read when it comes to that.

use std::task::Wake;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{Entry, Failure, JournalRow, Name, Then, UndoMark, encode_entries};

use super::{Handler, Journal, LiveRun, POLLS, Turn};

/// What the run knows of its earlier executions.
#[derive(Default)]
pub(super) struct Earlier {
    /// The first of them that is undone with this one.
    pub(super) unsettled: Option<u32>,
    /// How many executions before this one are in the history.
    known: u32,
    /// One whose function is run over its journal, for how its calls are undone.
    replayed: Option<Box<LiveRun>>,
    /// Why they cannot be undone here.
    failed: Option<Failure>,
}

/// How the function asked to begin anew.
#[derive(Clone, Debug)]
pub(crate) struct Anew {
    pub(crate) input: roundel_core::Payload,
    pub(crate) version: Option<u32>,
    /// What was done so far is not undone any more.
    pub(crate) settled: bool,
}

impl LiveRun {
    /// Ends this execution; the next begins with the round that says so.
    pub(super) fn begin_anew(&mut self, anew: Anew) -> Turn {
        let info = &self.shared.info;
        let this = Some(info.execution).filter(|_| self.has_something_to_undo());
        let settled = anew.settled && !mutant::on(Mutant::SettledUndone);
        let unsettled = self.earlier.unsettled.or(this).filter(|_| !settled);
        let started = Entry::Started {
            workflow: info.workflow.clone(),
            version: anew.version.unwrap_or(info.version),
            input: anew.input.clone(),
            unsettled,
            context: self.shared.lock().context.clone(),
            due: None,
        };
        if anew.settled {
            self.draft.undo = Some(UndoMark::Nothing);
        }
        self.draft.push(Entry::Continued);
        self.draft.anew = Some((anew.input, unsettled));
        let started = encode_entries(&[started]);
        self.commit(Then::ContinueAsNew(started, anew.version))
    }

    /// What must happen before all that is to be undone is known; none if it is.
    ///
    /// # Errors
    /// When it cannot be known here.
    pub(super) fn recall(&mut self) -> Result<Option<Turn>, Failure> {
        if !self.may_start_rollback() {
            return Ok(None);
        }
        if let Some(failure) = self.earlier.failed.take() {
            return Err(failure);
        }
        if let Some(mut old) = self.earlier.replayed.take() {
            if !old.gather()? {
                let turn = match self.flag.is_raised() {
                    true => Turn::Yield,
                    false => Turn::Wait(None),
                };
                self.earlier.replayed = Some(old);
                return Ok(Some(turn));
            }
            let undos = std::mem::take(&mut old.shared.lock().undos);
            self.shared.lock().undos.extend(undos);
            self.flag.wake_by_ref();
        }
        let next = self.shared.info.execution - 1 - self.earlier.known;
        let first = self.earlier.unsettled;
        Ok(first
            .filter(|first| next >= *first)
            .map(|_| Turn::Recall(next)))
    }

    /// The journal of an earlier execution, as [`Turn::Recall`] asked for it.
    pub(crate) fn recalled<'a>(
        &mut self,
        execution: u32,
        rows: impl IntoIterator<Item = &'a JournalRow>,
        handler: impl Fn(&Name, u32) -> Option<Handler>,
    ) {
        self.flag.wake_by_ref();
        let journal = match Journal::decode(rows) {
            Ok(journal) => journal,
            Err(failure) => {
                self.earlier.failed = Some(failure);
                return;
            }
        };
        for (at, (entry, _)) in (2..).zip(&journal.entries) {
            self.history.note(entry, at, execution);
        }
        self.earlier.known += 1;
        if !self.history.needs_code_of(execution) {
            return;
        }
        let mut info = self.shared.info.clone();
        (info.execution, info.version) = (execution, journal.version);
        info.context = journal.context;
        let Some(handler) = handler(&info.workflow, info.version) else {
            self.earlier.failed = Some(Failure::permanent(format!(
                "execution {execution} of the run was of version {} of `{}`, which is not \
                 registered here; register it, then resume the run",
                info.version, info.workflow
            )));
            return;
        };
        let mut old = LiveRun::new(info, &handler, journal.input, self.driver.clone());
        old.head = 1 + journal.entries.len() as u64;
        old.shared.lock().replaying = true;
        old.shared.lock().rehearsing = self.shared.lock().rehearsing;
        old.replay = journal.entries.into();
        self.earlier.replayed = Some(old);
    }

    /// Runs the function of an execution that is over along its journal. Returns whether it has
    /// come to its end.
    fn gather(&mut self) -> Result<bool, Failure> {
        for _ in 0..POLLS {
            if self.poll() || self.start_finally()? {
                continue;
            }
            if self.must_open_first() {
                return Ok(false);
            }
            match self.replay.pop_front() {
                None => return Ok(true),
                Some((Entry::Continued, _)) => {}
                Some((entry, at)) => self.replay_entry(entry, at)?,
            }
        }
        self.flag.wake_by_ref();
        Ok(false)
    }
}
