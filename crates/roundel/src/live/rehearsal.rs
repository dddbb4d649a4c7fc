//! A rehearsal: the function is run along its journal, by the code that replays it, and no further.
//! Nothing is committed, no step or effect runs, no resource is opened; what the function does
//! between its calls it does here too, as in every replay.

use std::task::Wake;

use roundel_core::Failure;

use super::{LiveRun, POLLS, Turn};

/// How far a rehearsal has come.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Rehearsed {
    /// To the end of the journal: the run would go on from there.
    Through,
    /// To this entry: the function opens a resource first, or does not come to rest.
    UpTo(u64),
    /// The journal of this earlier execution is needed: call `recalled`, then again.
    Recall(u32),
    /// Nothing yet: let others run, then again.
    Yield,
}

impl LiveRun {
    /// From now on nothing outside is touched. Before the first turn.
    pub(crate) fn rehearsing(self: Box<Self>) -> Box<LiveRun> {
        self.shared.lock().rehearsing = true;
        self
    }

    /// Brings the function along its journal.
    ///
    /// # Errors
    /// What the run would be parked with.
    pub(crate) fn rehearse(&mut self) -> Result<Rehearsed, Failure> {
        for _ in 0..POLLS {
            match self.recall()? {
                None => {}
                Some(Turn::Recall(execution)) => return Ok(Rehearsed::Recall(execution)),
                Some(Turn::Yield) => return Ok(Rehearsed::Yield),
                Some(_) => return Ok(self.up_to_here()),
            }
            self.start_rollback()?;
            if self.poll() || self.start_finally()? {
                continue;
            }
            if self.must_open_first() {
                return Ok(self.up_to_here());
            }
            match self.replay.pop_front() {
                Some((entry, at)) => self.replay_entry(entry, at)?,
                None => return self.misread().map(|()| Rehearsed::Through),
            }
        }
        self.flag.wake_by_ref();
        Ok(Rehearsed::Yield)
    }

    /// The next entry is not reached.
    pub(crate) fn up_to_here(&self) -> Rehearsed {
        Rehearsed::UpTo(self.head - self.replay.len() as u64 + 1)
    }

    /// Has the function ended because what was recorded does not fit its types?
    fn misread(&self) -> Result<(), Failure> {
        match &self.returned {
            Some(Err(failure)) if failure.code == crate::cx::UNDECODABLE => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}
