//! What a busy system might do next: random operations that fit the rows there are, for property
//! tests and for holding stores against each other. Same rows, time and seed in, same move out.
//!
//! Most moves are what a worker or client would send; some come too late, some are wrong.

mod batches;
mod draw;
mod facts;
mod leftovers;
mod rounds;
mod signed;

use std::time::Duration;

pub use draw::Draw;
pub use facts::adding;

use batches::alike;
use signed::signed;

use crate::{
    Accept, Anew, Cancel, Claim, Claimant, Complete, Delete, Entry, Failure, Forget, Join, Lane,
    LaneId, Limit, Name, Offer, Op, Park, Patch, Payload, Policy, PublicationId, Publish, QueueId,
    Register, Release, Renew, Resume, Round, Rows, RunId, RunRow, RunState, Signal, Start,
    Subscribe, Target, Timestamp, Undo, WorkerId, encode_entries,
};

/// One move.
#[derive(Clone, Debug)]
pub enum Move {
    /// Somebody asks for this.
    Op(Box<Op>),
    /// Time passes.
    Pass(Duration),
}

static FLOW_KEYS: [Name; 3] = [
    Name::constant("a"),
    Name::constant("b"),
    Name::constant("c"),
];
static NAMESPACES: [Name; 2] = [Name::constant("default"), Name::constant("other")];
static WORKFLOWS: [Name; 2] = [Name::constant("alpha"), Name::constant("beta")];
static PLAIN: [Name; 2] = [Name::constant("go"), Name::constant("stop")];
static OFFERED: [Name; 2] = [Name::constant("job"), Name::constant("turn")];

/// What might happen next.
#[must_use]
pub fn next_move(rows: &Rows, now: Timestamp, seed: u64) -> Move {
    let mut draw = Draw::new(seed);
    let maker = Maker { rows, now };
    if rows.workers.iter().count() < 3 {
        return Move::Op(Box::new(maker.register(&mut draw)));
    }
    let op = match draw.below(145) {
        0..10 => return Move::Pass(draw.span()),
        10 => maker.register(&mut draw),
        11..24 => {
            let start = maker.start(&mut draw);
            let start = maker.dressed(start, &mut draw);
            let start = maker.batched(start, &mut draw);
            Op::Start(alike(start, &mut draw))
        }
        24..36 => maker.claim(&mut draw),
        36..70 => maker.commit(&mut draw),
        70..81 => Op::Signal(maker.signal(&mut draw)),
        81..85 => Op::Offer(maker.offer(&mut draw)),
        85..88 => maker.cancel(&mut draw),
        88..91 => maker.patch(&mut draw),
        91..94 => maker.renew(&mut draw),
        94..97 => maker.release(&mut draw),
        97 => maker.resume(&mut draw),
        100 | 101 => Maker::subscribe(&mut draw),
        102..105 => Op::Publish(maker.publish(&mut draw)),
        105..108 => maker.undo(&mut draw),
        108 => maker.accept(&mut draw),
        109 => maker.resume(&mut draw),
        110 | 111 => maker.join(&mut draw),
        112 | 113 => maker.complete(&mut draw),
        114 | 115 => maker.forget(&mut draw),
        116..119 => maker.redirect(&mut draw),
        119..125 => Maker::limit(&mut draw),
        125..131 => maker.record(&mut draw),
        131..139 => maker.receive(&mut draw),
        139..143 => maker.project(&mut draw),
        143 | 144 => maker.park(&mut draw),
        _ => maker.delete(&mut draw),
    };
    Move::Op(Box::new(signed(op, maker.rows, &mut draw)))
}

/// Makes moves that fit the rows.
struct Maker<'a> {
    rows: &'a Rows,
    now: Timestamp,
}

fn worker(number: u64) -> WorkerId {
    WorkerId(uuid::Uuid::from_u128(0xF000 + u128::from(number)))
}

fn payload(number: u64) -> Payload {
    Payload::encode(&number).expect("a number is JSON")
}

impl Maker<'_> {
    fn register(&self, draw: &mut Draw) -> Op {
        let known = self.rows.workers.iter().count() as u64;
        let worker = worker(if known < 3 { known } else { draw.below(3) });
        let mut lanes = Vec::new();
        for namespace in &NAMESPACES {
            for workflow in &WORKFLOWS {
                for version in 1..=2 {
                    let (namespace, workflow) = (namespace.clone(), workflow.clone());
                    lanes.push(Lane {
                        namespace,
                        workflow,
                        version,
                    });
                }
            }
        }
        lanes.truncate(1 + draw.below(8) as usize);
        Op::Register(Register {
            worker,
            name: format!("worker {worker}"),
            lanes,
        })
    }

    fn limit(draw: &mut Draw) -> Op {
        let queue = QueueId {
            namespace: draw.pick(&NAMESPACES).clone(),
            queue: draw.pick(&WORKFLOWS).clone(),
        };
        let mut limit = Limit::of(queue);
        match draw.below(5) {
            4 => limit.per_key = Some(Some(draw.below(3) as u32).filter(|_| !draw.one_in(4))),
            0 => limit.paused = Some(draw.one_in(3)),
            1 => limit.rate = Some(draw.rate()),
            _ => limit.concurrency = Some(Some(draw.below(5) as u32).filter(|_| !draw.one_in(4))),
        }
        Op::Limit(limit)
    }

    fn runs(&self) -> Vec<&RunRow> {
        let mut runs: Vec<&RunRow> = self.rows.runs().collect();
        runs.sort_by_key(|run| run.id);
        runs
    }

    /// A run, the newer the likelier; sometimes one that is not there.
    fn some_run(&self, draw: &mut Draw) -> RunId {
        let runs = self.runs();
        if runs.is_empty() || draw.one_in(30) {
            return RunId(uuid::Uuid::from_u128(draw.next().into()));
        }
        let near = runs.len().min(1 + draw.below(12) as usize);
        runs[runs.len() - 1 - draw.below(near as u64) as usize].id
    }

    fn namespace_of(&self, run: RunId, draw: &mut Draw) -> Name {
        let lane = self
            .rows
            .run(run)
            .map(|row| self.rows.lane(row.lane).namespace.clone());
        let foreign = draw.one_in(30);
        lane.filter(|_| !foreign)
            .unwrap_or_else(|| draw.pick(&NAMESPACES).clone())
    }

    fn key(draw: &mut Draw) -> Name {
        Name::new(format!("key {}", draw.below(6))).expect("a name")
    }

    fn target(&self, draw: &mut Draw) -> (Name, Target) {
        if draw.one_in(5) {
            return (draw.pick(&NAMESPACES).clone(), Target::Key(Self::key(draw)));
        }
        let run = self.some_run(draw);
        (self.namespace_of(run, draw), Target::Run(run))
    }

    fn claimant(draw: &mut Draw) -> Option<Claimant> {
        let worker = worker(draw.below(3));
        draw.one_in(2).then_some(Claimant {
            worker,
            lease: draw.lease(),
        })
    }

    /// A start that sets nothing else off.
    fn start(&self, draw: &mut Draw) -> Start {
        let at = self.now.after(draw.span());
        let label = |draw: &mut Draw| (draw.pick(&PLAIN).clone(), format!("v{}", draw.below(3)));
        Start {
            namespace: NAMESPACES[usize::from(draw.one_in(8))].clone(),
            run: RunId(uuid::Uuid::from_u128(
                (self.rows.runs().count() as u128) << 64 | u128::from(draw.next()),
            )),
            workflow: draw.pick(&WORKFLOWS).clone(),
            version: draw.one_in(3).then(|| 1 + draw.below(2) as u32),
            key: draw.one_in(3).then(|| Self::key(draw)),
            input: payload(draw.below(2)),
            labels: (0..draw.below(3)).map(|_| label(draw)).collect(),
            priority: [0, 0, 0, -1, 5][draw.below(5) as usize],
            flow_key: draw.one_in(4).then(|| draw.pick(&FLOW_KEYS).clone()),
            dedupe: None,
            at: draw.one_in(6).then_some(at),
            parent: None,
            deadlines: draw.deadlines(self.now),
            context: draw.context(),
            claimant: None,
            first: None,
            signal: None,
            batch: None,
        }
    }

    /// The start, perhaps leased at once, with a first round or a signal.
    fn dressed(&self, mut start: Start, draw: &mut Draw) -> Start {
        start.claimant = Self::claimant(draw);
        if let Some(claimant) = start.claimant.filter(|_| draw.one_in(2)) {
            let round = Round::new(start.run, claimant.worker, 1);
            start.first = Some(Box::new(self.first_round(round, &start.namespace, draw)));
        }
        if draw.one_in(4) {
            let key = start.key.clone().filter(|_| draw.one_in(2));
            let mut signal = self.signal(draw);
            signal.namespace = start.namespace.clone();
            signal.target = key.map_or(Target::Run(start.run), Target::Key);
            start.signal = Some(Box::new(signal));
        }
        if draw.one_in(30) {
            start.run = self.some_run(draw);
        }
        start
    }

    fn signal(&self, draw: &mut Draw) -> Signal {
        let (namespace, target) = self.target(draw);
        let name = if draw.one_in(3) {
            draw.pick(&OFFERED)
        } else {
            draw.pick(&PLAIN)
        };
        Signal {
            namespace,
            target,
            name: name.clone(),
            payload: payload(draw.below(3)),
            policy: match draw.below(8) {
                0 | 1 => Policy::Drop,
                2 => Policy::Discard,
                3 => Policy::Offer,
                _ => Policy::Keep,
            },
            expires: draw.one_in(6).then(|| draw.span()),
            key: draw.one_in(4).then(|| Self::key(draw)),
            claimant: Self::claimant(draw),
        }
    }

    fn offer(&self, draw: &mut Draw) -> Offer {
        Offer {
            namespace: NAMESPACES[usize::from(draw.one_in(8))].clone(),
            name: draw.pick(&OFFERED).clone(),
            payload: payload(draw.below(3)),
            key: draw.one_in(4).then(|| Self::key(draw)),
            claimant: Self::claimant(draw),
        }
    }

    fn claim(&self, draw: &mut Draw) -> Op {
        let all = self.rows.lanes().len() as u64;
        let mut lanes: Vec<LaneId> = (1..=all).map(|lane| LaneId(lane as u32)).collect();
        if draw.one_in(3) {
            lanes.retain(|_| draw.one_in(2));
        }
        let limit = 1 + draw.below(4) as usize;
        let workers = if draw.one_in(40) { 9 } else { 3 };
        let worker = worker(draw.below(workers));
        Op::Claim(Claim {
            worker,
            lanes,
            limit,
            lease: draw.lease(),
        })
    }

    fn owned_by(&self, worker: WorkerId) -> Vec<RunId> {
        let owned = self
            .runs()
            .into_iter()
            .filter(|run| run.owner == Some(worker));
        owned.map(|run| run.id).collect()
    }

    fn commit(&self, draw: &mut Draw) -> Op {
        let leased: Vec<_> = self
            .runs()
            .into_iter()
            .filter(|run| run.owner.is_some())
            .collect();
        if leased.is_empty() {
            return self.claim(draw);
        }
        let row = leased[draw.below(leased.len() as u64) as usize];
        let mut round = self.round(row, draw);
        if draw.one_in(40) {
            round.epoch -= 1;
        }
        if draw.one_in(60) {
            round.worker = worker(draw.below(3));
        }
        Op::Commit(round)
    }

    fn cancel(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        Op::Cancel(Cancel {
            namespace,
            target,
            keep: draw.one_in(3),
            claimant: Self::claimant(draw),
        })
    }

    fn patch(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        let expected = draw.one_in(3).then(|| draw.below(3));
        Op::Patch(Patch {
            namespace,
            target,
            patch: draw.patch(),
            expected,
        })
    }

    fn renew(&self, draw: &mut Draw) -> Op {
        let worker = worker(draw.below(3));
        let mut runs = self.owned_by(worker);
        runs.push(self.some_run(draw));
        Op::Renew(Renew {
            worker,
            runs,
            lease: draw.lease(),
        })
    }

    fn release(&self, draw: &mut Draw) -> Op {
        let worker = worker(draw.below(3));
        let mut runs = self.owned_by(worker);
        runs.retain(|_| draw.one_in(2));
        runs.push(self.some_run(draw));
        Op::Release(Release {
            worker,
            runs,
            leave: draw.one_in(40),
        })
    }

    fn resume(&self, draw: &mut Draw) -> Op {
        let stuck = [RunState::Parked, RunState::RollbackFailed];
        let parked = self
            .runs()
            .into_iter()
            .find(|run| stuck.contains(&run.state));
        let (namespace, target) = match parked {
            Some(run) => (self.namespace_of(run.id, draw), Target::Run(run.id)),
            None => self.target(draw),
        };
        let anew = parked.filter(|_| draw.one_in(4)).map(|run| {
            let lane = self.rows.lane(run.lane);
            let started = Entry::Started {
                workflow: lane.workflow.clone(),
                version: lane.version,
                input: payload(draw.below(9)),
                unsettled: Some(run.execution),
                context: draw.context(),
                due: None,
            };
            Anew {
                execution: run.execution - u32::from(draw.one_in(8)),
                started: encode_entries(&[started]),
            }
        });
        Op::Resume(Resume {
            namespace,
            target,
            skip: draw.one_in(3),
            anew,
        })
    }

    fn publish(&self, draw: &mut Draw) -> Publish {
        let publications = self.rows.publications.iter();
        let known = publications.count() as u128;
        let again = draw.one_in(10) && known > 0;
        let id = match again {
            true => *self.rows.publications.iter().next().expect("some").0,
            false => PublicationId(uuid::Uuid::from_u128(known << 64 | u128::from(draw.next()))),
        };
        Publish {
            namespace: NAMESPACES[usize::from(draw.one_in(8))].clone(),
            id,
            topic: draw.pick(&PLAIN).clone(),
            payload: payload(draw.below(2)),
            window: draw.one_in(4).then(|| draw.span()),
            deadlines: draw.deadlines(self.now),
            context: draw.context(),
        }
    }

    fn join(&self, draw: &mut Draw) -> Op {
        let all: Vec<_> = self.rows.publications.iter().map(|(id, _)| *id).collect();
        let Some(publication) = draw.one_of(&all).copied() else {
            return Self::subscribe(draw);
        };
        let row = self.rows.publications.get(&publication).expect("listed");
        Op::Join(Join {
            namespace: row.namespace.clone(),
            publication,
            workflow: draw.pick(&WORKFLOWS).clone(),
        })
    }

    fn forget(&self, draw: &mut Draw) -> Op {
        let all: Vec<_> = self.rows.publications.iter().map(|(id, _)| *id).collect();
        let Some(publication) = draw.one_of(&all).copied() else {
            return self.delete(draw);
        };
        let row = self.rows.publications.get(&publication).expect("listed");
        Op::Forget(Forget {
            namespace: match draw.one_in(8) {
                true => draw.pick(&NAMESPACES).clone(),
                false => row.namespace.clone(),
            },
            publication,
        })
    }

    fn complete(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        Op::Complete(Complete {
            namespace,
            target,
            value: payload(draw.below(9)),
        })
    }

    fn subscribe(draw: &mut Draw) -> Op {
        Op::Subscribe(Subscribe {
            namespace: NAMESPACES[usize::from(draw.one_in(8))].clone(),
            topic: draw.pick(&PLAIN).clone(),
            workflow: draw.pick(&WORKFLOWS).clone(),
            on: !draw.one_in(4),
        })
    }

    fn undo(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        Op::Undo(Undo { namespace, target })
    }

    fn accept(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        Op::Accept(Accept { namespace, target })
    }

    /// Sometimes on an earlier look than the last.
    fn park(&self, draw: &mut Draw) -> Op {
        let run = self.some_run(draw);
        let epoch = self.rows.run(run).map_or(1, |row| row.epoch);
        Op::Park(Box::new(Park {
            namespace: self.namespace_of(run, draw),
            target: Target::Run(run),
            seen: epoch.saturating_sub(u64::from(draw.one_in(4))),
            failure: Failure::permanent("it would not go on"),
        }))
    }

    fn delete(&self, draw: &mut Draw) -> Op {
        let (namespace, target) = self.target(draw);
        Op::Delete(Delete {
            namespace,
            target,
            force: draw.one_in(2),
        })
    }
}
