//! Operators: what they do in their own name, commands that they complete by hand, and what steps
//! send.

use roundel_core::{
    Audited, Cancel, Caused, Complete, Failure, IfParked, Name, Op, Park, Resume, Rows, RunId,
    RunRow, Target,
};

use crate::flows::Tally;
use crate::marks::Mark;
use crate::world::{NAMESPACE, World};

impl World<'_> {
    /// Some of what operators do is done in somebody's name, and some rests on a look at a run: the
    /// last, or one before.
    pub(crate) fn signed(&mut self, op: Op) -> Op {
        let op = match &op {
            Op::Resume(resume) if self.random.once_in(2) => {
                let row = match resume.target {
                    Target::Run(run) => self.model.rows().run(run),
                    Target::Key(_) => None,
                };
                let epoch = row.map(|row| row.epoch);
                let ago = self.random.below(2) as u64;
                let seen = epoch.map(|epoch| epoch.saturating_sub(ago));
                Op::IfParked(Box::new(IfParked { op, seen }))
            }
            _ => op,
        };
        let operators = matches!(
            op.asked(),
            Op::Cancel(_)
                | Op::Patch(_)
                | Op::Delete(_)
                | Op::Resume(_)
                | Op::Park(_)
                | Op::Complete(_)
                | Op::Limit(_)
        );
        if !operators || !self.random.once_in(5) {
            return op;
        }
        Op::Audited(Box::new(Audited {
            operator: Name::constant("anna"),
            reason: "because".into(),
            op,
        }))
    }

    /// Something was done that rested on this look, if on any.
    pub(crate) fn rested_on(&mut self, looked: Option<(RunId, u64, u64)>) {
        if let Some((run, seen, epoch)) = looked.filter(|(_, seen, epoch)| seen != epoch) {
            let found = format!("{run} was at {epoch}, looked at when at {seen}");
            self.book.complain(&format!("o5_stale_look: {found}"));
        }
    }

    /// Completes a command by hand, after a look at it; if there is none, resumes a run. Who is in
    /// a hurry cancels it first, and does not wait for that.
    pub(crate) fn complete(&mut self, index: usize, run: RunId) -> Op {
        let Some(command) = self.some_command() else {
            return Op::Resume(Resume {
                namespace: NAMESPACE,
                target: Target::Run(run),
                skip: false,
                anew: None,
            });
        };
        self.book.looked(self.model.rows(), command);
        self.marks.hit(Mark::CompletedByHand);
        let tally = Tally {
            rounds: 1 + u32::try_from(self.random.below(1_000)).unwrap_or(0),
            ..Tally::default()
        };
        let target = Target::Run(command);
        let complete = Op::Complete(Complete {
            namespace: NAMESPACE,
            target: target.clone(),
            value: World::payload(&tally),
        });
        if self.random.once_in(3) {
            return complete;
        }
        self.clients[index].asks_next(complete);
        Op::Cancel(Cancel {
            namespace: NAMESPACE,
            target,
            keep: self.random.once_in(4),
            claimant: None,
        })
    }

    /// Parks a run, as whoever has found out that its code would not go on; sometimes on an earlier
    /// look than the last.
    pub(crate) fn park(&mut self, run: RunId) -> Op {
        let epoch = self.model.rows().run(run).map_or(1, |row| row.epoch);
        let ago = self.random.below(2) as u64;
        Op::Park(Box::new(Park {
            namespace: NAMESPACE,
            target: Target::Run(run),
            seen: epoch.saturating_sub(ago),
            failure: Failure::permanent("it would not go on").with_code("diverged"),
        }))
    }

    /// Lets parked runs go on, and rollbacks that failed. Returns whether there were any that had
    /// not been let too often.
    pub(crate) fn resume_parked(&mut self) -> bool {
        let parked: Vec<RunId> = self.book.may_resume(self.model.rows());
        for run in &parked {
            let op = self.let_go_on(*run);
            let _ = self.transact(&op, Vec::new(), Some(0));
        }
        !parked.is_empty()
    }

    /// A command, if there is one; at best one that has not ended.
    fn some_command(&mut self) -> Option<RunId> {
        let rows = self.model.rows();
        let is_command = |row: &&RunRow| rows.lane(row.lane).workflow.as_str() == "order";
        let commands = rows.runs().filter(is_command);
        let mut commands: Vec<(bool, RunId)> = commands
            .map(|row| (row.state.has_ended(), row.id))
            .collect();
        commands.sort_unstable();
        let open = commands.iter().filter(|(ended, _)| !ended).count();
        let among = match open {
            1.. if !self.random.once_in(5) => open,
            _ => commands.len(),
        };
        let at = self.random.below(among.max(1));
        commands.get(at).map(|(_, run)| *run)
    }
}

/// The run that an operation is about, its epoch when it was looked at, and its epoch: of one that
/// rests on a look.
pub(crate) fn looked(op: &Op, rows: &Rows) -> Option<(RunId, u64, u64)> {
    match op {
        Op::Audited(audited) => looked(&audited.op, rows),
        Op::IfParked(parked) => {
            let Op::Resume(resume) = &parked.op else {
                return None;
            };
            let Target::Run(run) = resume.target else {
                return None;
            };
            Some((run, parked.seen?, rows.run(run)?.epoch))
        }
        Op::Park(park) => {
            let Target::Run(run) = park.target else {
                return None;
            };
            Some((run, park.seen, rows.run(run)?.epoch))
        }
        _ => None,
    }
}

/// Does a step of this round send something?
pub(crate) fn sends(op: &Op) -> bool {
    let sent = |caused: &Caused| matches!(caused, Caused::Send(_));
    matches!(op, Op::Commit(round) if round.caused.iter().any(sent))
}

/// Is a run parked by it, because its code asks for something else than it did?
pub(crate) fn is_diverged(op: &Op) -> bool {
    let Op::Commit(round) = op else { return false };
    matches!(&round.then, roundel_core::Then::Park(why) if why.code == "diverged")
}
