//! Clients and operators: they start, signal, offer, cancel, patch, resume, delete and look. What
//! they asked for they ask again, under the same key, until somebody says what came of it.

use std::time::Duration;

use roundel::sim::Turn;
use roundel_core::{
    Cancel, Claimant, Context, Deadlines, Delete, Name, Offer, Op, Patch, Policy, Reply, Resume,
    RunId, Signal, Start, Started, Target, Timestamp, WorkerId,
};

use crate::drive::{Doing, State};
use crate::flows::Tally;
use crate::marks::Mark;
use crate::random::Random;
use crate::worker::{Ask, Birth, Task};
use crate::world::{Answer, Fault, LEASE, NAMESPACE, World};

#[derive(Debug)]
enum Stage {
    /// Thinks of the next thing, from then on.
    Free(Timestamp),
    /// Asks, from then on.
    Asks(Box<Op>, Timestamp),
    /// Waits for a worker that starts the run itself.
    Local(Box<Op>, usize),
    /// Was told.
    Told(Box<Op>, Box<Answer>),
    /// Has nothing more to do.
    Done,
}

#[derive(Debug)]
pub(crate) struct Client {
    stage: Stage,
    /// How many things it still does.
    left: usize,
    /// In whose process it lives.
    home: usize,
    /// What it started last.
    last: Option<Box<Start>>,
}

impl Client {
    pub(crate) fn new(random: &mut Random, things: usize) -> Client {
        Client {
            stage: Stage::Free(Timestamp(0)),
            left: (3 + random.below(4)).min(things),
            home: 0,
            last: None,
        }
    }

    pub(crate) fn hurry(&mut self, now: Timestamp) {
        if let Stage::Asks(_, at) | Stage::Free(at) = &mut self.stage {
            *at = now.min(*at);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        match &self.stage {
            Stage::Asks(_, at) | Stage::Free(at) => Some(*at),
            _ => None,
        }
    }
}

impl World<'_> {
    /// One thing that a client does. Returns whether there was one.
    pub(crate) fn client_acts(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        if client.is_done() || client.next_time().is_some_and(|at| at > self.now) {
            return false;
        }
        match std::mem::replace(&mut client.stage, Stage::Done) {
            Stage::Free(_) if client.left == 0 => true,
            Stage::Free(at) if at <= self.now => {
                client.left -= 1;
                client.home = self.random.below(self.workers.len());
                self.choose(index);
                true
            }
            Stage::Asks(op, at) if at <= self.now => {
                let home = client.home;
                let answer = self.by_clock_of(home, |world| world.ask_or_break(&op, home));
                self.clients[index].stage = Stage::Told(op, Box::new(answer));
                true
            }
            Stage::Told(op, answer) => {
                self.told(index, op, *answer);
                true
            }
            waiting => {
                self.clients[index].stage = waiting;
                false
            }
        }
    }

    /// The process where these clients wait has died.
    pub(crate) fn clients_of(&mut self, at: usize) {
        for client in &mut self.clients {
            if matches!(client.stage, Stage::Local(_, home) if home == at) {
                let stage = std::mem::replace(&mut client.stage, Stage::Done);
                if let Stage::Local(op, _) = stage {
                    client.stage = Stage::Asks(op, self.now);
                }
            }
        }
    }

    fn known(&mut self) -> Option<(RunId, Option<Name>)> {
        let count = self.book.started.len();
        let at = self.random.below(count.max(1));
        self.book.started.get(at).cloned()
    }

    fn claimant(&mut self, index: usize) -> Option<Claimant> {
        let worker = self.workers[self.clients[index].home].id();
        let lease = LEASE;
        self.random.once_in(2).then_some(Claimant { worker, lease })
    }

    fn choose(&mut self, index: usize) {
        if self.cooperates && self.random.once_in(3) {
            let op = self.cooperate();
            self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
            return;
        }
        let known = self.known();
        let op = match (known, self.random.below(16)) {
            (None, _) | (_, 0..6) => return self.start(index),
            (Some((run, _)), 6..10) => {
                let signal = self.signal(Target::Run(run), index);
                Op::Signal(signal)
            }
            (_, 10 | 11) => Op::Offer(Offer {
                namespace: NAMESPACE,
                name: Name::constant("pick"),
                payload: World::payload(&(self.random.next() >> 12)),
                key: Some(self.fresh_key()),
                claimant: self.claimant(index),
            }),
            (Some((run, _)), 12) => Op::Cancel(Cancel {
                namespace: NAMESPACE,
                target: Target::Run(run),
                claimant: self.claimant(index),
            }),
            (Some((run, _)), 13) if self.faults.operators => Op::Patch(Patch {
                namespace: NAMESPACE,
                target: Target::Run(run),
                patch: World::payload(&serde_json::json!({ "by": index })),
                expected: None,
            }),
            (Some((run, _)), 14) if self.faults.operators => Op::Delete(Delete {
                namespace: NAMESPACE,
                target: Target::Run(run),
                force: self.random.once_in(2),
            }),
            (Some((run, _)), _) if self.random.once_in(2) => Op::Resume(Resume {
                namespace: NAMESPACE,
                target: Target::Run(run),
                skip: false,
            }),
            (Some((run, _)), _) => {
                self.book.looked(self.model.rows(), run);
                return self.rest(index);
            }
        };
        self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
    }

    /// Some clients come back at once, others when runs have long been waiting.
    fn rest(&mut self, index: usize) {
        let span = match self.random.below(4) {
            0 => self.random.next() % 2_000,
            1 => self.random.next() % 200,
            _ => self.random.next() % 10,
        };
        let at = self.now.after(Duration::from_millis(span));
        self.clients[index].stage = Stage::Free(at);
    }

    fn fresh_key(&mut self) -> Name {
        Name::new(format!("k{:x}", self.random.next())).expect("a name")
    }

    fn signal(&mut self, target: Target, index: usize) -> Signal {
        Signal {
            namespace: NAMESPACE,
            target,
            name: Name::constant("go"),
            payload: World::payload(&(self.random.next() >> 12)),
            policy: Policy::Keep,
            key: Some(self.fresh_key()),
            claimant: self.claimant(index),
        }
    }

    /// Starts a run, at best here and with its first round; sometimes again under a used key.
    fn start(&mut self, index: usize) {
        if let Some(last) = &self.clients[index].last
            && self.random.once_in(6)
        {
            // It has forgotten that it did.
            let again = Op::Start(Start::clone(last));
            self.clients[index].stage = Stage::Asks(Box::new(again), self.now);
            return;
        }
        let flow = self.pick_flow();
        let known = self.known().and_then(|(_, key)| key);
        let key = match known {
            Some(key) if self.random.once_in(4) => Some(key),
            _ => self.random.once_in(2).then(|| self.fresh_key()),
        };
        let run = RunId(self.random.id());
        let mut start = Start {
            namespace: NAMESPACE,
            run,
            workflow: self.flows[flow].name.clone(),
            version: Some(self.flows[flow].version),
            key,
            input: self.input_of(flow),
            labels: Vec::new(),
            priority: 0,
            at: None,
            parent: None,
            deadlines: Deadlines::default(),
            context: Context::default(),
            claimant: None,
            first: None,
            signal: None,
        };
        if self.random.once_in(5) {
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
        if here && self.random.once_in(2) {
            return self.start_here(index, start);
        }
        if here && start.key.is_none() {
            self.workers[home].expect(&start);
        }
        self.clients[index].stage = Stage::Asks(Box::new(Op::Start(start)), self.now);
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

    /// Can this process run what is started?
    pub(crate) fn knows(&self, at: usize, start: &Start) -> bool {
        let flows = self.workers[at].deploy.flows.iter();
        { flows }.any(|flow| {
            let flow = &self.flows[*flow];
            flow.name == start.workflow && start.version.is_none_or(|it| it == flow.version)
        })
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
        (live, op, client): (roundel::sim::Live, Box<Op>, usize),
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
        let first = started.first.take();
        let mut claimed = std::mem::take(&mut started.claimed);
        claimed.retain(|claimed| claimed.run != run);
        for claimed in claimed {
            self.adopt(at, claimed);
        }
        let new = started.new;
        self.tell_client(client, Ok(Reply::Started(started)));
        if !new {
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
            _ => self.workers[at].tasks[index].state = State::Drive(live),
        }
    }

    fn tell_client(&mut self, client: usize, answer: Answer) {
        let stage = std::mem::replace(&mut self.clients[client].stage, Stage::Done);
        if let Stage::Local(op, _) = stage {
            self.clients[client].stage = Stage::Told(op, Box::new(answer));
        } else {
            self.clients[client].stage = stage;
        }
    }

    /// A client learns what came of what it asked for.
    fn told(&mut self, index: usize, op: Box<Op>, answer: Answer) {
        let reply = match answer {
            Ok(reply) => reply,
            Err(Fault::Refused(_)) => {
                return self.rest(index);
            }
            Err(Fault::Unavailable | Fault::Unknown) => {
                self.marks.hit(Mark::Repeated);
                let again = self.now.after(Duration::from_millis(10));
                self.clients[index].stage = Stage::Asks(op, again);
                return;
            }
        };
        let home = self.clients[index].home;
        self.rest(index);
        match (&*op, reply) {
            (Op::Start(start), Reply::Started(started)) => {
                self.start_told(start, started, home);
            }
            (Op::Signal(signal), Reply::Sent(sent, claimed)) => {
                self.marks.hit(match sent {
                    roundel_core::Sent::Delivered(_) => Mark::SignalDelivered,
                    _ => Mark::SignalQueued,
                });
                self.taken(home, signal.claimant.map(|by| by.worker), claimed);
            }
            (Op::Offer(offer), Reply::Sent(sent, claimed)) => {
                if matches!(sent, roundel_core::Sent::Delivered(_)) {
                    self.marks.hit(Mark::OfferDelivered);
                }
                self.taken(home, offer.claimant.map(|by| by.worker), claimed);
            }
            (Op::Cancel(cancel), Reply::Cancelled(_, claimed)) => {
                self.marks.hit(Mark::Cancelled);
                self.taken(home, cancel.claimant.map(|by| by.worker), claimed);
            }
            (Op::Delete(_), Reply::Deleted { .. }) => self.marks.hit(Mark::Deleted),
            (Op::Resume(_), Reply::Resumed) => self.marks.hit(Mark::Resumed),
            (Op::Publish(_), Reply::Published(published)) if !published.new => {
                self.marks.hit(Mark::PublishedAgain);
            }
            _ => {}
        }
    }

    fn start_told(&mut self, start: &Start, started: Started, home: usize) {
        self.book.started(started.run, start.key.as_ref());
        let by = start.claimant.map(|by| by.worker);
        self.taken(home, by, started.claimed);
    }

    /// Runs that an operation of this process leased to its worker.
    fn taken(&mut self, home: usize, by: Option<WorkerId>, claimed: Vec<roundel_core::Claimed>) {
        if by == Some(self.workers[home].id()) {
            for claimed in claimed {
                self.adopt(home, claimed);
            }
        }
    }
}
