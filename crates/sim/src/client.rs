//! Clients and operators: they start, signal, offer, cancel, patch, resume, delete and look. What
//! they asked for they ask again, under the same key, until somebody says what came of it.

mod starts;

use std::collections::VecDeque;
use std::time::Duration;

use roundel_core::{
    Cancel, Claimant, Delete, INCOMING, Name, Offer, Op, Policy, Reply, Resume, RunId, RunRow,
    RunState, Signal, Start, Started, Target, Timestamp, WorkerId,
};

use crate::marks::Mark;
use crate::random::Random;
use crate::world::{Answer, Fault, LEASE, NAMESPACE, World};

/// Runs that are under way when clients start no others.
const UNDER_WAY: usize = 5;

#[derive(Debug)]
pub(crate) enum Stage {
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
    pub(crate) stage: Stage,
    /// How many things it still does.
    left: usize,
    /// In whose process it lives.
    home: usize,
    /// What it started last.
    pub(crate) last: Option<Box<Start>>,
    /// What it published last.
    said: Option<Box<Op>>,
    /// What it asks, if that is fixed.
    asks: VecDeque<Op>,
}

impl Client {
    /// One of so many: the fewer there are, the more each does.
    pub(crate) fn new(random: &mut Random, clients: usize, things: usize) -> Client {
        Client {
            stage: Stage::Free(Timestamp(0)),
            left: ((20 + random.below(12)) / clients).min(things),
            home: 0,
            last: None,
            said: None,
            asks: VecDeque::new(),
        }
    }

    /// From now on it asks for this, one after the other.
    pub(crate) fn follow(&mut self, asks: VecDeque<Op>) {
        (self.left, self.asks) = (asks.len(), asks);
    }

    /// It does one more thing at most, and brings to an end what it has begun.
    pub(crate) fn come_to_an_end(&mut self) {
        self.left = self.left.min(1).max(self.asks.len());
    }

    /// It asks for this before anything else.
    pub(crate) fn asks_next(&mut self, op: Op) {
        self.asks.push_front(op);
        self.left += 1;
    }

    pub(crate) fn hurry(&mut self, now: Timestamp) {
        if let Stage::Asks(_, at) | Stage::Free(at) = &mut self.stage {
            *at = now.min(*at);
        }
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
    #[inline]
    pub(crate) fn client_acts(&mut self, index: usize) -> bool {
        let client = &self.clients[index];
        let rests = client.next_time().is_some_and(|at| at > self.now);
        !rests && self.next_of_client(index)
    }

    // Apart, so that looking whether there is anything to do stays cheap.
    #[inline(never)]
    fn next_of_client(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        match std::mem::replace(&mut client.stage, Stage::Done) {
            Stage::Free(_) if client.left == 0 => {
                self.busy.retain(|busy| *busy != index);
                true
            }
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

    /// Some run for which this holds, if there is one.
    fn some_run(&mut self, fits: impl Fn(&RunRow) -> bool) -> Option<RunId> {
        let drawn = self.random.next();
        // Facts that came in are not what clients started.
        let all = self.model.rows();
        let item = |row: &RunRow| all.lane(row.lane).workflow == INCOMING;
        let rows = all.runs().filter(|row| fits(row) && !item(row));
        rows.map(|row| row.id)
            .min_by_key(|run| run.0.as_u64_pair().1 ^ drawn)
    }

    /// A run to send a signal to: mostly one that waits.
    fn addressee(&mut self, run: RunId) -> RunId {
        let waiting = match self.random.once_in(4) {
            true => None,
            false => self.some_run(|row| row.waits > 0),
        };
        waiting.unwrap_or(run)
    }

    /// A run to let go on: one that is parked, if there is one.
    fn stuck(&mut self, run: RunId) -> RunId {
        let parked = self.some_run(|row| row.state == RunState::Parked);
        parked.unwrap_or(run)
    }

    /// May another run begin? Not many are under way at a time, and what begins late has little
    /// left to run into.
    fn may_start(&self) -> bool {
        let all = self.model.rows();
        let item = |row: &RunRow| all.lane(row.lane).workflow == INCOMING;
        let open = |row: &&RunRow| !row.state.has_ended() && !item(row);
        let under_way = all.runs().filter(open).count();
        under_way < UNDER_WAY && self.ops * 4 < self.requests * 3 || self.draining
    }

    /// Deletes what somebody started last, which is likely to be under way, or else this run. Some
    /// start it again at once, while a worker may still have the one that is gone in memory.
    fn delete(&mut self, index: usize, run: RunId) -> Op {
        let client = self.random.below(self.clients.len());
        let last = self.clients[client].last.clone();
        let run = last.as_ref().map_or(run, |last| last.run);
        if let Some(last) = last.filter(|_| self.random.once_in(2)) {
            self.clients[index].asks_next(Op::Start(*last));
        }
        Op::Delete(Delete {
            namespace: NAMESPACE,
            target: Target::Run(run),
            force: !self.random.once_in(4),
        })
    }

    pub(crate) fn claimant(&mut self, index: usize) -> Option<Claimant> {
        let worker = self.workers[self.clients[index].home].id();
        let lease = LEASE;
        self.random.once_in(2).then_some(Claimant { worker, lease })
    }

    fn choose(&mut self, index: usize) {
        if self.ask_next(index) {
            return;
        }
        if self.misses_its_run(index) && !self.random.once_in(4) {
            self.start_again(index);
            return;
        }
        if self.cooperates && self.random.once_in(3) {
            let op = self.cooperate_again(index);
            self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
            return;
        }
        if self.faults.limits && self.random.once_in(5) {
            let op = self.limit();
            let op = self.signed(op);
            self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
            return;
        }
        if let Some(op) = self.beside_runs(index) {
            self.clients[index].left += 1;
            self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
            return;
        }
        let known = self.known();
        let first = match self.may_start() {
            true => 0,
            false => 6,
        };
        let op = match (known, first + self.random.below(23 - first)) {
            (None, _) | (_, 0..6) => return self.start(index),
            (Some((run, _)), 6..12) => {
                let run = self.addressee(run);
                let signal = self.signal(Target::Run(run), index);
                Op::Signal(signal)
            }
            (_, 12..15) => Op::Offer(Offer {
                namespace: NAMESPACE,
                name: Name::constant("pick"),
                payload: World::payload(&(self.random.next() >> 12)),
                key: Some(self.fresh_key()),
                claimant: self.claimant(index),
            }),
            (Some((run, _)), 15 | 16) => Op::Cancel(Cancel {
                namespace: NAMESPACE,
                target: Target::Run(run),
                keep: self.random.once_in(4),
                claimant: self.claimant(index),
            }),
            (Some((run, _)), 21 | 22) => self.patch(run),
            (Some((run, _)), 19) if self.faults.operators => self.complete(index, run),
            (Some((run, _)), 20) if self.faults.operators => self.park(run),
            (Some((run, _)), 17 | 18) if self.faults.operators => self.delete(index, run),
            (Some((run, _)), _) if self.random.once_in(2) => Op::Resume(Resume {
                namespace: NAMESPACE,
                target: Target::Run(self.stuck(run)),
                skip: false,
                anew: None,
            }),
            (Some((run, _)), _) => {
                self.book.looked(self.model.rows(), run);
                return self.rest(index);
            }
        };
        let op = self.signed(op);
        self.clients[index].stage = Stage::Asks(Box::new(op), self.now);
    }

    /// What it does beside what it does with runs.
    fn beside_runs(&mut self, index: usize) -> Option<Op> {
        if self.faults.facts && self.random.once_in(4) {
            return Some(self.about_facts());
        }
        let asks = self.times.is_some() && self.random.once_in(3);
        asks.then(|| self.about_times(index))
    }

    /// The next of what is fixed; what is to be undone must have ended.
    fn ask_next(&mut self, index: usize) -> bool {
        let client = &mut self.clients[index];
        let Some(op) = client.asks.pop_front() else {
            return false;
        };
        if let Op::Undo(undo) = &op
            && let Target::Run(run) = undo.target
            && let Some(row) = self.model.rows().run(run)
            && !row.state.has_ended()
        {
            client.asks_next(op);
            self.rest(index);
            return true;
        }
        client.stage = Stage::Asks(Box::new(op), self.now);
        true
    }

    /// What is asked of runs that cooperate; sometimes what was published is published again.
    fn cooperate_again(&mut self, index: usize) -> Op {
        if self.random.once_in(4)
            && let Some(said) = &self.clients[index].said
        {
            return Op::clone(said);
        }
        let op = self.cooperate();
        if matches!(op, Op::Publish(_)) {
            self.clients[index].said = Some(Box::new(op.clone()));
        }
        op
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

    fn signal(&mut self, target: Target, index: usize) -> Signal {
        Signal {
            namespace: NAMESPACE,
            target,
            name: Name::constant("go"),
            payload: World::payload(&(self.random.next() >> 12)),
            policy: Policy::Keep,
            expires: None,
            key: Some(self.fresh_key()),
            claimant: self.claimant(index),
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
            Err(Fault::Refused(refusal)) => {
                if matches!(*op, Op::Record(_)) {
                    self.note_recorded(Some(&refusal));
                }
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
        match (op.asked(), reply) {
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
            (Op::Delete(_), Reply::Deleted { .. }) => {
                self.marks.hit(Mark::Deleted);
                for other in 0..self.clients.len() {
                    if self.misses_its_run(other) {
                        self.clients[other].hurry(self.now);
                    }
                }
            }
            (Op::Record(_), Reply::Recorded(_)) => self.note_recorded(None),
            (Op::Receive(receive), Reply::Received(received)) => {
                self.note_received(&receive.items, &received);
            }
            (Op::Follow(_), Reply::Followed(came)) => self.note_followed(&came),
            (Op::Resume(_), Reply::Resumed) => self.marks.hit(Mark::Resumed),
            (Op::Patch(patch), Reply::Patched(_)) => self.note_patched(&patch.target),
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
