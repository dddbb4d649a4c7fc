//! Clients start runs, at best in their own process and with the first round.

use roundel::sim::Turn;
use std::time::Duration;

use roundel_core::{
    BATCH, Claimant, Deadline, Deadlines, Dedupe, Name, Op, Reply, RunId, Start, Target, Timestamp,
};

use super::Stage;
use crate::drive::{Doing, State};
use crate::flows::Tally;
use crate::marks::Mark;
use crate::worker::{Ask, Birth, Task};
use crate::world::{Answer, Fault, LEASE, NAMESPACE, World};

impl World<'_> {
    /// Starts what it started last once more: it has forgotten that it did, or was never told.
    pub(super) fn start_again(&mut self, index: usize) -> bool {
        let Some(last) = &self.clients[index].last else {
            return false;
        };
        let again = Op::Start(Start::clone(last));
        self.clients[index].stage = Stage::Asks(Box::new(again), self.now);
        true
    }

    /// Was what it started last deleted?
    pub(super) fn misses_its_run(&self, index: usize) -> bool {
        let last = self.clients[index].last.as_ref();
        last.is_some_and(|last| self.book.deleted.contains(&last.run))
    }

    /// Starts a run, at best here and with its first round; sometimes again under a used key.
    pub(super) fn start(&mut self, index: usize) {
        if self.random.once_in(6) && self.start_again(index) {
            return;
        }
        let flow = self.pick_flow();
        if self.flows[flow].name == BATCH {
            return self.send_batch(index);
        }
        let known = self.known().and_then(|(_, key)| key);
        let key = match known {
            Some(key) if self.random.once_in(4) => Some(key),
            _ => self.random.once_in(2).then(|| self.fresh_key()),
        };
        let run = RunId(self.random.id());
        let input = self.input_of(flow);
        let mut start = Start {
            version: Some(self.flows[flow].version),
            key,
            flow_key: self.flow_key(),
            deadlines: self.hurry_up(flow, run),
            ..Start::new(NAMESPACE, run, self.flows[flow].name.clone(), input)
        };
        start.dedupe = self.dedupe().filter(|_| start.key.is_none());
        if self.random.once_in(5) && start.dedupe.is_none() {
            let mut signal = self.signal(Target::Run(run), index);
            if let Some(key) = &start.key {
                signal.target = Target::Key(key.clone());
            }
            start.signal = Some(Box::new(signal));
        }
        self.clients[index].last = Some(Box::new(start.clone()));
        let home = self.clients[index].home;
        let here = self.workers[home].has_room() && !self.workers[home].is_away(self.now);
        let here = here && self.knows(home, &start);
        if here && self.random.once_in(2) && start.dedupe.is_none() {
            return self.start_here(index, start);
        }
        if here && start.key.is_none() {
            self.workers[home].expect(&start);
        }
        self.clients[index].stage = Stage::Asks(Box::new(Op::Start(start)), self.now);
    }

    /// Some are like others.
    fn dedupe(&mut self) -> Option<Dedupe> {
        let wanted = self.random.once_in(8);
        wanted.then(|| Dedupe {
            key: Name::constant(["a", "b"][self.random.below(2)]),
            window: Duration::from_millis(self.random.next() % 3_000),
            last: self.random.once_in(2),
        })
    }

    /// Some trees must have ended by then.
    fn hurry_up(&mut self, flow: usize, set_by: RunId) -> Deadlines {
        if !self.flows[flow].cooperates {
            return Deadlines::default();
        }
        let mut due = |often: usize| {
            let at = Timestamp(self.now.0 + (self.random.next() % 2_000_000).cast_signed());
            self.random
                .once_in(often)
                .then_some(Deadline { at, set_by })
        };
        Deadlines {
            forward: due(2),
            rollback: due(5),
        }
    }

    fn input_of(&mut self, flow: usize) -> roundel_core::Payload {
        match self.flows[flow].cooperates {
            true => self.plot(),
            false => World::payload(&Tally::default()),
        }
    }

    fn pick_flow(&mut self) -> usize {
        if let Some(flow) = self.pick_tree() {
            return flow;
        }
        loop {
            let alone = self.flows.iter().take_while(|flow| !flow.cooperates);
            let flow = self.random.below(alone.count());
            if self.flows[flow].version == 1 || self.has_versions {
                return flow;
            }
        }
    }

    fn start_here(&mut self, index: usize, mut start: Start) {
        let (run, home) = (start.run, self.clients[index].home);
        let plain = start.clone();
        let birth = Birth {
            run,
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            version: start.version,
            key: start.key.clone(),
            is_root: true,
            deadlines: start.deadlines,
            context: start.context.clone(),
        };
        let mut live = self.born(home, birth);
        let worker = self.workers[home].id();
        start.claimant = Some(Claimant {
            worker,
            lease: LEASE,
        });
        match live.turn(self.now) {
            Turn::Commit(round) => {
                self.marks.hit(Mark::FirstRound);
                start.first = Some(round);
            }
            Turn::Read(call) => live.read_again(call),
            Turn::Step | Turn::Settle(..) | Turn::Recall(_) | Turn::Wait(_) | Turn::Yield => {}
        }
        self.clients[index].stage = Stage::Local(Box::new(Op::Start(plain)), home);
        let worker = &mut self.workers[home];
        worker.last_task += 1;
        worker.tasks.push(Task {
            run,
            number: worker.last_task,
            notes: Vec::new(),
            leased: false,
            state: State::Asked(Doing::First(live, Box::new(Op::Start(start)), index)),
        });
        worker.outbox.push_back(Ask::Task(run));
    }

    /// A start with its first round was answered.
    pub(crate) fn first_settled(
        &mut self,
        at: usize,
        index: usize,
        (mut live, op, client): (roundel::sim::Live, Box<Op>, usize),
        answer: Answer,
    ) {
        let run = live.run();
        let mut started = match answer {
            Ok(Reply::Started(started)) => started,
            Ok(_) => unreachable!("a start answers as one"),
            Err(fault) => {
                let unknown = matches!(fault, Fault::Unknown);
                self.tell_client(client, Err(fault));
                if unknown {
                    self.give_back(at, index);
                } else {
                    self.forget(at, run);
                }
                return;
            }
        };
        let first = started.first.take().map(|first| *first);
        let claimed = std::mem::take(&mut started.claimed);
        let (own, others): (Vec<_>, Vec<_>) =
            claimed.into_iter().partition(|claimed| claimed.run == run);
        for claimed in others {
            self.adopt(at, claimed);
        }
        let new = started.new;
        // A queue with limits gives its permits to claims alone.
        let mine = first.is_some() || !own.is_empty();
        self.tell_client(client, Ok(Reply::Started(started)));
        if !new || !mine {
            return self.forget(at, run);
        }
        self.workers[at].tasks[index].leased = true;
        let Op::Start(Start { first: round, .. }) = &*op else {
            unreachable!("what was asked comes back")
        };
        match (first, round) {
            (Some(Ok(committed)), Some(round)) => {
                self.commit_done((at, index), live, committed, round);
            }
            (Some(Err(refusal)), _) => {
                self.not_committed(at, index, live, Fault::Refused(refusal));
            }
            _ => {
                own.into_iter().for_each(|claimed| live.reclaimed(claimed));
                self.workers[at].tasks[index].state = State::Drive(live);
            }
        }
    }
}
