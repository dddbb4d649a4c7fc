//! Driving one run, as `crates/roundel/src/worker/drive.rs` does: turn, commit, again, until it
//! suspends, ends, or is somebody else's. And the store's side: one request at a time.

use std::time::Duration;

use roundel::sim::{Live, RunInfo, Turn};
use roundel_core::{
    Caused, Claimed, Committed, Fence, Op, Payload, Refusal, Reply, Round, RunId, RunRow, Scope,
    ScopeEnd, Then, Timestamp, may_step,
};

use crate::marks::Mark;
use crate::site;
use crate::worker::{Ask, Birth, Note, Task};
use crate::world::{Answer, Fault, NAMESPACE, World};

/// Where a run's task stands.
#[derive(Debug)]
pub(crate) enum State {
    /// Its journal is to be read.
    Load(Box<Claimed>),
    /// It is to be turned.
    Drive(Live),
    /// It waits for something outside, or until then.
    Wait(Live, Option<Timestamp>),
    /// Something is on its way to the store.
    Asked(Doing),
    /// The store has answered.
    Answered(Doing, Box<Answer>),
    /// The store had no time: it is asked again then.
    Pause(Doing, Timestamp),
    /// Nothing any more.
    Gone,
}

/// What a task has asked the store for.
#[derive(Debug)]
pub(crate) enum Doing {
    Commit(Live, Box<Op>),
    Step(Live),
    Park(Box<Op>),
    GiveBack(Box<Op>),
    /// A start with its first round, and which client waits for it.
    First(Live, Box<Op>, usize),
}

impl State {
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        match self {
            State::Wait(_, until) => *until,
            State::Pause(_, until) => Some(*until),
            _ => None,
        }
    }

    /// What was on its way when the process died.
    pub(crate) fn take_op(&mut self) -> Option<Op> {
        match std::mem::replace(self, State::Gone) {
            State::Asked(
                Doing::Commit(_, op)
                | Doing::Park(op)
                | Doing::GiveBack(op)
                | Doing::First(_, op, _),
            ) => Some(*op),
            // A step needs its code, which is gone.
            _ => None,
        }
    }
}

impl Task {
    #[inline]
    pub(crate) fn can_go_on(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Load(_) | State::Drive(_) | State::Answered(..) => true,
            State::Wait(live, until) => {
                live.is_woken() || !self.notes.is_empty() || until.is_some_and(|at| at <= now)
            }
            State::Pause(_, until) => *until <= now,
            State::Asked(_) | State::Gone => false,
        }
    }
}

impl World<'_> {
    /// The store takes the next request of a process. Returns whether there was one.
    pub(crate) fn store_serves(&mut self, at: usize) -> bool {
        let Some(ask) = self.workers[at].outbox.pop_front() else {
            return false;
        };
        let home = Some(at);
        let answer = match ask {
            Ask::Task(run) => {
                self.serve_task(at, run);
                return true;
            }
            Ask::Claim(claim) => self.transact(&Op::Claim(claim), Vec::new(), home),
            Ask::Renew(renew) => self.transact(&Op::Renew(renew), Vec::new(), home),
            Ask::Register(register) => self.transact(&Op::Register(register), Vec::new(), home),
        };
        self.workers[at].answers.push_back(answer);
        true
    }

    fn serve_task(&mut self, at: usize, run: RunId) {
        let task = self.workers[at].task(run).expect("it asked");
        let state = std::mem::replace(&mut task.state, State::Gone);
        let State::Asked(doing) = state else {
            unreachable!("it asked for something")
        };
        let home = Some(at);
        let (doing, answer) = match doing {
            Doing::Step(live) => self.serve_step(at, live),
            Doing::Commit(live, op) => {
                let answer = self.transact(&op, Vec::new(), home);
                (Doing::Commit(live, op), answer)
            }
            Doing::First(live, op, client) => {
                let answer = self.transact(&op, Vec::new(), home);
                (Doing::First(live, op, client), answer)
            }
            Doing::Park(op) => {
                let answer = self.transact(&op, Vec::new(), home);
                (Doing::Park(op), answer)
            }
            Doing::GiveBack(op) => {
                let answer = self.transact(&op, Vec::new(), home);
                (Doing::GiveBack(op), answer)
            }
        };
        let task = self.workers[at].task(run).expect("it asked");
        task.state = State::Answered(doing, Box::new(answer));
    }

    /// Runs the step's code and commits its round, in one transaction.
    fn serve_step(&mut self, at: usize, live: Live) -> (Doing, Answer) {
        let (run, worker, fence) = (live.run(), self.workers[at].id(), live.fence());
        if let Err(refusal) = may_step(self.model.rows(), run, (worker, fence), self.now) {
            self.ops += 1;
            if matches!(refusal, Refusal::Fenced { .. }) {
                self.marks.hit(Mark::ZombieFenced);
            }
            return (Doing::Step(live), Err(Fault::Refused(refusal)));
        }
        site::with(|site| site.written.clear());
        let (live, worked) = live.step(self.now);
        let mut written = site::with(|site| std::mem::take(&mut site.written));
        if !worked.keep {
            written.clear();
        }
        let op = Op::Commit(worked.round);
        let answer = self.transact(&op, written, Some(at));
        (Doing::Step(live), answer)
    }

    /// One thing that a run's task does.
    pub(crate) fn task_acts(&mut self, at: usize, index: usize) {
        let task = &mut self.workers[at].tasks[index];
        match std::mem::replace(&mut task.state, State::Gone) {
            State::Load(claimed) => self.load(at, index, *claimed),
            State::Drive(live) | State::Wait(live, _) => self.drive(at, index, live),
            State::Answered(doing, answer) => self.settle(at, index, doing, *answer),
            State::Pause(doing, _) => self.ask(at, index, doing),
            State::Asked(_) | State::Gone => unreachable!("it cannot go on"),
        }
    }

    fn ask(&mut self, at: usize, index: usize, doing: Doing) {
        let worker = &mut self.workers[at];
        worker.tasks[index].state = State::Asked(doing);
        let run = worker.tasks[index].run;
        worker.outbox.push_back(Ask::Task(run));
    }

    fn load(&mut self, at: usize, index: usize, claimed: Claimed) {
        let rows = self.model.journal(claimed.run, claimed.execution);
        let worker = &self.workers[at];
        let flow = self.flow_of(at, claimed.lane);
        let flow = &self.flows[flow.expect("it claims what it can run")];
        let about = RunInfo {
            namespace: NAMESPACE,
            run: claimed.run,
            workflow: flow.name.clone(),
            version: flow.version,
            execution: claimed.execution,
            key: claimed.key.clone(),
            is_root: claimed.parent.is_none(),
            deadlines: claimed.deadlines,
            context: roundel_core::Context::default(),
        };
        let fence = claimed.fence();
        self.marks.hit(Mark::Replayed);
        match Live::load(
            about,
            flow.code(worker.deploy.bad_code),
            rows,
            (claimed, &worker.seat, &mut self.reader.borrow_mut()),
        ) {
            Ok(live) => {
                let run = live.run();
                self.workers[at].tasks[index].state = State::Drive(live);
                if self.faults.late_hints {
                    self.workers[at].hear_of(run);
                }
            }
            Err(failure) => {
                // Deleted meanwhile: the round that says so is refused, or it is a lost journal.
                let run = self.workers[at].tasks[index].run;
                let mut round = Round::new(run, self.workers[at].id(), fence.epoch);
                round.created_at = fence.created_at;
                round.then = Then::Park(Box::new(failure));
                self.ask(at, index, Doing::Park(Box::new(Op::Commit(round))));
            }
        }
    }

    pub(crate) fn born(&self, at: usize, birth: Birth) -> Live {
        let deploy = &self.workers[at].deploy;
        let flows = deploy.flows.iter().map(|flow| &self.flows[*flow]);
        let is_it = |flow: &&crate::flows::Flow| {
            flow.name == birth.workflow && birth.version.is_none_or(|it| it == flow.version)
        };
        let latest = flows.filter(is_it).max_by_key(|flow| flow.version);
        let flow = latest.expect("known");
        let about = RunInfo {
            namespace: NAMESPACE,
            run: birth.run,
            workflow: birth.workflow,
            version: flow.version,
            execution: 1,
            key: birth.key,
            is_root: birth.is_root,
            deadlines: birth.deadlines,
            context: birth.context,
        };
        let function = flow.code(deploy.bad_code);
        Live::born(about, function, birth.input, &self.workers[at].seat)
    }

    /// The workflow of a lane, if this process can run it.
    fn flow_of(&self, at: usize, lane: roundel_core::LaneId) -> Option<usize> {
        let worker = &self.workers[at];
        let known = worker.lanes.iter().position(|known| *known == lane)?;
        Some(worker.deploy.flows[known])
    }

    fn drive(&mut self, at: usize, index: usize, mut live: Live) {
        let now = self.now;
        let mut lost = None;
        for note in std::mem::take(&mut self.workers[at].tasks[index].notes) {
            if let Note::Mail(fence, _) | Note::Cancel(fence) = note
                && fence.is_before(live.fence())
            {
                self.marks.hit(Mark::LateNews);
            }
            match note {
                Note::Mail(fence, delivery) => live.deliver(fence, delivery),
                Note::Cancel(fence) => live.asked_to_end(fence, now),
                Note::Lost => lost = lost.or(Some(None)),
                // An answer that comes late, after that to a later claim.
                Note::Claimed(claimed) if claimed.fence().is_before(live.fence()) => {}
                Note::Claimed(claimed) if live.is_current(&claimed) => {
                    live.reclaimed(*claimed);
                    lost = None;
                }
                Note::Claimed(claimed) => lost = Some(Some(claimed)),
            }
        }
        match lost {
            None => {}
            Some(None) => {
                self.marks.hit(Mark::LeaseLost);
                return self.give_back(at, index);
            }
            Some(Some(claimed)) => {
                let run = live.run();
                self.forget(at, run);
                return self.adopt(at, *claimed);
            }
        }
        match live.turn(now) {
            Turn::Commit(round) => {
                for caused in &round.caused {
                    if let Caused::Child(_, start) | Caused::Spawn(_, start) = caused
                        && self.knows(at, start)
                    {
                        self.workers[at].expect(start);
                    }
                }
                self.ask(at, index, Doing::Commit(live, Box::new(Op::Commit(*round))));
            }
            Turn::Step => self.ask(at, index, Doing::Step(live)),
            Turn::Read(call) => {
                let state = self.model.rows().states.get(&live.run());
                let state = state.map(|state| (state.version, state.value.clone()));
                let state = state.unwrap_or_else(|| (0, Payload::null()));
                if self.faults.unavailable && self.random.once_in(8) {
                    live.read_again(call);
                } else {
                    live.state_read(call, state);
                }
                self.workers[at].tasks[index].state = State::Drive(live);
            }
            Turn::Settle(call, scope) => self.settle_scope((at, index), live, (call, scope)),
            Turn::Recall(execution) => self.recall((at, index), live, execution),
            Turn::Wait(until) => {
                self.workers[at].tasks[index].state = State::Wait(live, until);
            }
            Turn::Yield => self.workers[at].tasks[index].state = State::Drive(live),
        }
    }

    /// Reads what an earlier execution of the run did.
    fn recall(&mut self, (at, index): (usize, usize), mut live: Live, execution: u32) {
        let rows = self.model.journal(live.run(), execution);
        let bad_code = self.workers[at].deploy.bad_code;
        live.recalled(execution, rows, |name, version| {
            let mut flows = self.flows.iter();
            let flow = flows.find(|flow| (&flow.name, flow.version) == (name, version))?;
            Some(flow.code(bad_code).clone())
        });
        self.workers[at].tasks[index].state = State::Drive(live);
    }

    /// Reads how the runs of a scope ended.
    fn settle_scope(
        &mut self,
        (at, index): (usize, usize),
        mut live: Live,
        (call, scope): (u32, Scope),
    ) {
        if !self.faults.unavailable || !self.random.once_in(8) {
            let ends = self.ends_of(live.run(), scope);
            self.marks.hit(match ends.len() {
                33.. => Mark::CrowdSettled,
                _ => Mark::ScopeSettled,
            });
            live.settled(call, ends);
        }
        self.workers[at].tasks[index].state = State::Drive(live);
    }

    /// How the runs of a scope ended.
    fn ends_of(&self, run: RunId, scope: Scope) -> Vec<ScopeEnd> {
        let runs = match scope {
            Scope::Child(child) => vec![child],
            Scope::Call { execution, call } => self.model.scope(run, execution, call),
        };
        let rows = runs.into_iter().filter_map(|id| self.model.rows().run(id));
        let workflow = |row: &RunRow| self.model.rows().lane(row.lane).workflow.clone();
        rows.map(|row| ScopeEnd::of(row, workflow(row))).collect()
    }

    /// The store has answered.
    fn settle(&mut self, at: usize, index: usize, doing: Doing, answer: Answer) {
        let run = self.workers[at].tasks[index].run;
        let unavailable = matches!(answer, Err(Fault::Unavailable));
        if unavailable && !matches!(doing, Doing::First(..)) {
            return self.wait_a_little(at, index, doing);
        }
        match doing {
            Doing::First(live, op, client) => {
                self.first_settled(at, index, (live, op, client), answer);
            }
            Doing::GiveBack(_) if matches!(answer, Err(Fault::Unknown)) => {
                self.wait_a_little(at, index, doing);
            }
            Doing::GiveBack(_) => {
                self.workers[at].claim_at(Timestamp(0));
                self.forget(at, run);
            }
            Doing::Park(_) => self.forget(at, run),
            Doing::Commit(live, op) => match answer {
                Ok(Reply::Committed(committed)) => {
                    let Op::Commit(round) = &*op else {
                        unreachable!("a commit is one")
                    };
                    self.commit_done((at, index), live, committed, round);
                }
                Err(fault) => self.not_committed(at, index, live, fault),
                Ok(_) => unreachable!("a commit answers as one"),
            },
            Doing::Step(mut live) => match answer {
                Ok(Reply::Committed(committed)) => {
                    let round = Round::new(run, self.workers[at].id(), 0);
                    self.commit_done((at, index), live, committed, &round);
                }
                Err(Fault::Refused(refusal)) if roundel::sim::is_of_step(&refusal) => {
                    live.step_refused(&refusal);
                    self.workers[at].tasks[index].state = State::Drive(live);
                }
                Err(fault) => self.not_committed(at, index, live, fault),
                Ok(_) => unreachable!("a commit answers as one"),
            },
        }
    }

    /// The same is asked again, soon.
    fn wait_a_little(&mut self, at: usize, index: usize, doing: Doing) {
        let until = self.now.after(Duration::from_millis(5));
        self.workers[at].tasks[index].state = State::Pause(doing, until);
    }

    pub(crate) fn commit_done(
        &mut self,
        (at, index): (usize, usize),
        mut live: Live,
        mut committed: Committed,
        round: &Round,
    ) {
        let run = live.run();
        self.note_conditions(&committed, round);
        for claimed in std::mem::take(&mut committed.claimed) {
            self.adopt(at, claimed);
        }
        let worker = &mut self.workers[at];
        if committed.slot_freed {
            worker.claim_at(Timestamp(0));
        }
        match &round.then {
            Then::Continue | Then::Suspend => {
                if let Some(timer) = round.timer_at.filter(|_| !committed.kept) {
                    worker.claim_at(timer);
                }
                let kept = live.committed(committed);
                let fence = live.fence();
                let newer = |its: Fence| its != fence && !its.is_before(fence);
                let claims =
                    |note: &Note| matches!(note, Note::Claimed(claimed) if newer(claimed.fence()));
                if kept || worker.tasks[index].notes.iter().any(claims) {
                    worker.tasks[index].state = State::Drive(live);
                    return;
                }
                worker.tasks.remove(index);
                worker.claim_at(self.now);
                worker.keep(live);
            }
            Then::ContinueAsNew(..) if committed.kept => {
                self.marks.hit(Mark::ContinuedAsNew);
                let lane = self.model.rows().run(run).map(|row| row.lane);
                let flow = lane.and_then(|lane| self.flow_of(at, lane));
                let (flows, worker) = (self.flows, &mut self.workers[at]);
                match flow {
                    Some(flow) => {
                        let function = flows[flow].code(worker.deploy.bad_code);
                        let next = live.anew(function, committed, &worker.seat);
                        worker.tasks[index].state = State::Drive(next);
                    }
                    None => self.forget(at, run),
                }
            }
            Then::Park(_) => {
                self.marks.hit(Mark::Parked);
                self.forget(at, run);
            }
            Then::End(..) | Then::ContinueAsNew(..) => self.forget(at, run),
        }
    }

    /// A round that was not committed.
    pub(crate) fn not_committed(&mut self, at: usize, index: usize, mut live: Live, fault: Fault) {
        let run = live.run();
        match fault {
            Fault::Refused(Refusal::CancelRequested { .. }) => {
                live.cancel(self.now);
                self.workers[at].tasks[index].state = State::Drive(live);
            }
            Fault::Refused(Refusal::DeadlineMissed { .. }) => {
                live.deadline_missed(self.now);
                self.workers[at].tasks[index].state = State::Drive(live);
            }
            Fault::Refused(Refusal::Fenced { .. } | Refusal::UnknownRun { .. }) => {
                self.forget(at, run);
            }
            Fault::Refused(refusal) => {
                let round = live.park(World::refused(&refusal));
                self.ask(at, index, Doing::Park(Box::new(Op::Commit(*round))));
            }
            Fault::Unknown => self.give_back(at, index),
            Fault::Unavailable => self.forget(at, run),
        }
    }

    /// Gives a lease back, if there is one, so that the run goes on from its journal at once.
    pub(crate) fn give_back(&mut self, at: usize, index: usize) {
        let worker = &mut self.workers[at];
        let run = worker.tasks[index].run;
        let release = Op::Release(roundel_core::Release {
            worker: worker.id(),
            runs: vec![run],
            leave: false,
        });
        worker.tasks[index].state = State::Asked(Doing::GiveBack(Box::new(release)));
        worker.outbox.push_back(Ask::Task(run));
    }
}

#[cfg(test)]
mod tests;
