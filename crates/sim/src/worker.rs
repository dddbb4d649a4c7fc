//! A worker, as `crates/roundel/src/worker` has it, without threads: it claims, renews, adopts what
//! it is given and forgets what it loses; `drive.rs` turns its runs. Where the worker waits, this
//! one has a state, and the schedule decides when it goes on, or whether it ever does.

use std::collections::VecDeque;
use std::time::Duration;

use roundel::sim::{Live, Seat};
use roundel_core::{
    Claim, Claimed, Delivery, Fence, Hint, Lane, LaneId, Lease, Payload, Register, Renew, Reply,
    RunId, Start, Timestamp, WorkerId,
};

use crate::drive::State;
use crate::faults::Deploy;
use crate::marks::Mark;
use crate::random::Random;
use crate::world::{Answer, Fault, GRACE, LEASE, NAMESPACE, SWEEP, World};

/// Runs that a worker drives at once.
const ROOM: usize = 6;
/// Waiting runs that it keeps in memory.
const KEPT: usize = 4;

/// Something a run's task must know.
#[derive(Debug)]
pub(crate) enum Note {
    Mail(Fence, Delivery),
    Cancel(Fence),
    Lost,
    Claimed(Box<Claimed>),
}

/// A run that is driven.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) run: RunId,
    /// Another each time that the run is taken up.
    pub(crate) number: u64,
    pub(crate) notes: Vec<Note>,
    pub(crate) leased: bool,
    pub(crate) state: State,
}

/// Something on its way to the store.
#[derive(Debug)]
pub(crate) enum Ask {
    /// What this run's task has in hand.
    Task(RunId),
    Claim(Claim),
    Renew(Renew),
    Register(Register),
}

/// A run that was started here and has not begun.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) run: RunId,
    pub(crate) workflow: roundel_core::Name,
    pub(crate) input: Payload,
    pub(crate) version: Option<u32>,
    pub(crate) key: Option<roundel_core::Name>,
    pub(crate) is_root: bool,
    pub(crate) deadlines: roundel_core::Deadlines,
    pub(crate) context: roundel_core::Context,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) seat: Seat,
    pub(crate) deploy: Deploy,
    /// In the order of its workflows; none until it is registered.
    pub(crate) lanes: Vec<LaneId>,
    registering: bool,
    pub(crate) tasks: Vec<Task>,
    cache: Vec<Live>,
    births: Vec<Birth>,
    pub(crate) outbox: VecDeque<Ask>,
    pub(crate) answers: VecDeque<Answer>,
    /// Told, and not heard yet; in no order.
    pub(crate) hints: Vec<Hint>,
    due: Option<Timestamp>,
    claiming: bool,
    failed: u32,
    pub(crate) renew_at: Timestamp,
    renewing: bool,
    /// The tasks that the renewal under way is for.
    renewed: Vec<u64>,
    /// The last number given to a task.
    pub(crate) last_task: u64,
    /// It does nothing until then: it is paused, or down.
    pub(crate) away_until: Option<Timestamp>,
    /// The store comes to its requests from then on.
    pub(crate) served_from: Option<Timestamp>,
}

impl Worker {
    pub(crate) fn new(random: &mut Random, deploy: Deploy) -> Worker {
        Worker {
            seat: Seat::new(WorkerId(random.id()), LEASE, GRACE, crate::trees::undos()),
            deploy,
            lanes: Vec::new(),
            registering: false,
            tasks: Vec::new(),
            cache: Vec::new(),
            births: Vec::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            hints: Vec::new(),
            due: Some(Timestamp(0)),
            claiming: false,
            failed: 0,
            renew_at: Timestamp(0),
            renewing: false,
            renewed: Vec::new(),
            last_task: 0,
            away_until: None,
            served_from: None,
        }
    }

    pub(crate) fn id(&self) -> WorkerId {
        self.seat.worker
    }

    pub(crate) fn wake_up(&mut self, now: Timestamp) {
        self.away_until = self.away_until.map(|_| now);
        self.served_from = None;
    }

    pub(crate) fn is_away(&self, now: Timestamp) -> bool {
        self.away_until.is_some_and(|until| until > now)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && !self.claiming
    }

    /// Mostly it waits for an answer, or for the time to come: then this says so at once.
    #[inline]
    fn has_nothing_to_do(&self, now: Timestamp) -> bool {
        let claims = !self.claiming && self.due.is_some_and(|due| due <= now);
        let renews = !self.renewing && self.renew_at <= now;
        let told = !self.answers.is_empty() || !self.hints.is_empty();
        let has_begun = !self.lanes.is_empty();
        has_begun
            && !(told || claims || renews)
            && !self.tasks.iter().any(|task| task.can_go_on(now))
    }

    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        if self.away_until.is_some() {
            return self.away_until;
        }
        let tasks = self.tasks.iter().filter_map(|task| task.state.next_time());
        let renewal = (!self.tasks.is_empty()).then_some(self.renew_at);
        let next = tasks.chain(self.due).chain(renewal).min();
        let next = next.map(|at| Timestamp(at.0.saturating_sub(self.deploy.skew)));
        next.into_iter().chain(self.served_from).min()
    }

    /// Does the store come to its requests?
    pub(crate) fn is_served(&self, now: Timestamp) -> bool {
        self.served_from.is_none_or(|from| from <= now)
    }

    pub(crate) fn claim_at(&mut self, at: Timestamp) {
        if self.due.is_none_or(|known| at < known) {
            self.due = Some(at);
        }
    }

    pub(crate) fn task(&mut self, run: RunId) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.run == run)
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.lanes.is_empty() && self.tasks.len() < ROOM
    }

    /// This run is about to be started, and may be claimed here.
    pub(crate) fn expect(&mut self, start: &Start) {
        if start.at.is_none() && start.claimant.is_none() && self.births.len() < KEPT {
            self.births.push(Birth {
                run: start.run,
                workflow: start.workflow.clone(),
                input: start.input.clone(),
                version: start.version,
                key: start.key.clone(),
                is_root: start.parent.is_none(),
                deadlines: start.deadlines,
                context: start.context.clone(),
            });
        }
    }

    pub(crate) fn birth(&mut self, run: RunId) -> Option<Birth> {
        let at = self.births.iter().position(|birth| birth.run == run)?;
        Some(self.births.remove(at))
    }

    /// Keeps a run that waits, in the place of the oldest if there is no other.
    pub(crate) fn keep(&mut self, live: Live) {
        if self.cache.len() == KEPT {
            drop(self.cache.remove(0));
        }
        self.cache.push(live);
    }

    fn cached(&mut self, run: RunId) -> Option<Live> {
        let at = self.cache.iter().position(|live| live.run() == run)?;
        Some(self.cache.remove(at))
    }
}

impl World<'_> {
    /// One thing that a worker does. Returns whether there was one.
    #[inline]
    pub(crate) fn worker_acts(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        if worker.is_away(self.now) {
            return false;
        }
        if worker.has_nothing_to_do(Timestamp(self.now.0 + worker.deploy.skew)) {
            worker.away_until = None;
            // What `acts` would have drawn.
            self.random.skip(1 + u64::from(self.faults.late_hints));
            return false;
        }
        self.by_clock_of(at, |world| world.acts(at))
    }

    #[inline(never)]
    fn acts(&mut self, at: usize) -> bool {
        let now = self.now;
        let worker = &mut self.workers[at];
        worker.away_until = None;
        if worker.lanes.is_empty() {
            return self.register(at);
        }
        if !worker.hints.is_empty() && self.random.once_in(64) {
            let picked = self.random.below(worker.hints.len());
            // What is about a run that is not driven here may come when it is.
            if worker.can_hear(&worker.hints[picked]) {
                let hint = worker.hints.swap_remove(picked);
                worker.hint(hint);
                return true;
            }
        }
        // What a renewal brings may be told when its runs have long gone on.
        let late = self.faults.late_hints && self.random.once_in(2);
        if !late && let Some(answer) = worker.answers.pop_front() {
            self.answered(at, answer);
            return true;
        }
        let first = self.random.below(worker.tasks.len().max(1));
        let mut tasks = (first..worker.tasks.len()).chain(0..first);
        let ready = tasks.find(|index| worker.tasks[*index].can_go_on(now));
        if worker.renew_at <= now && !worker.renewing && self.renew(at) {
            return true;
        }
        if let Some(index) = ready
            && !self.random.once_in(8)
        {
            self.task_acts(at, index);
            return true;
        }
        self.claim(at)
    }

    fn register(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        if let Some(answer) = worker.answers.pop_front() {
            worker.registering = false;
            if let Ok(Reply::Registered(lanes)) = answer {
                worker.lanes = lanes;
            }
            return true;
        }
        if worker.registering {
            return false;
        }
        worker.registering = true;
        let lane = |flow: &usize| Lane {
            namespace: NAMESPACE,
            workflow: self.flows[*flow].name.clone(),
            version: self.flows[*flow].version,
        };
        let register = Register {
            worker: worker.id(),
            name: String::new(),
            lanes: worker.deploy.flows.iter().map(lane).collect(),
        };
        worker.outbox.push_back(Ask::Register(register));
        true
    }

    fn claim(&mut self, at: usize) -> bool {
        let now = self.now;
        let worker = &mut self.workers[at];
        let due = worker.due.is_some_and(|due| due <= now);
        if worker.claiming || !due || worker.tasks.len() >= ROOM {
            return false;
        }
        // A sweep makes up for hints that were lost.
        worker.due = Some(now.after(SWEEP));
        if self.finds_nothing(at) {
            return false;
        }
        let worker = &mut self.workers[at];
        worker.claiming = true;
        worker.outbox.push_back(Ask::Claim(Claim {
            worker: worker.id(),
            lanes: worker.lanes.clone(),
            limit: ROOM - worker.tasks.len(),
            lease: LEASE,
        }));
        true
    }

    fn renew(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        worker.renew_at = self.now.after(LEASE / 3);
        worker.renewed.clear();
        if worker.tasks.iter().all(|task| !task.leased) {
            return false;
        }
        let mut runs = Vec::with_capacity(worker.tasks.len());
        for task in worker.tasks.iter().filter(|task| task.leased) {
            runs.push(task.run);
            worker.renewed.push(task.number);
        }
        worker.renewing = true;
        worker.outbox.push_back(Ask::Renew(Renew {
            worker: worker.id(),
            runs,
            lease: LEASE,
        }));
        true
    }

    /// A claim or a renewal was answered.
    fn answered(&mut self, at: usize, answer: Answer) {
        let now = self.now;
        let worker = &mut self.workers[at];
        match answer {
            Ok(Reply::Claimed { runs, next }) => {
                worker.claiming = false;
                worker.failed = 0;
                if let Some(next) = next {
                    worker.claim_at(next);
                }
                for claimed in runs {
                    self.adopt(at, claimed);
                }
            }
            Ok(Reply::Renewed(renewed)) => {
                worker.renewing = false;
                for (one, number) in renewed.into_iter().zip(worker.renewed.drain(..)) {
                    // After a lost answer two may be on their way; the run says whose this is.
                    let its = |task: &&mut Task| (task.number, task.run) == (number, one.run);
                    let Some(task) = worker.tasks.iter_mut().find(its) else {
                        continue;
                    };
                    match one.lease {
                        Lease::Kept {
                            fence,
                            cancel,
                            inbox,
                        } => {
                            task.notes.extend(cancel.then_some(Note::Cancel(fence)));
                            let mail = |delivery| Note::Mail(fence, delivery);
                            task.notes.extend(inbox.into_iter().map(mail));
                        }
                        Lease::Lost => task.notes.push(Note::Lost),
                    }
                }
            }
            Ok(_) => unreachable!("claims and renewals answer as such"),
            Err(Fault::Refused(refusal)) => {
                self.book
                    .complain(&format!("a worker was refused: {refusal}"));
            }
            Err(_) => {
                // Which of the two it was does not matter: both are tried again.
                worker.renewing = false;
                worker.claiming = false;
                worker.failed = (worker.failed + 1).min(6);
                let pause = Duration::from_millis(5 << worker.failed);
                worker.claim_at(now.after(pause));
            }
        }
    }

    /// Takes over a run that an operation of this process leased to it.
    pub(crate) fn adopt(&mut self, at: usize, claimed: Claimed) {
        let worker = &mut self.workers[at];
        if let Some(task) = worker.task(claimed.run) {
            self.marks.hit(Mark::ClaimedElsewhere);
            task.notes.push(Note::Claimed(Box::new(claimed)));
            return;
        }
        let run = claimed.run;
        let cached = worker.cached(run).filter(|live| live.is_current(&claimed));
        let begun = claimed.head > 1 || claimed.execution > 1;
        let state = if let Some(mut live) = cached {
            self.marks.hit(Mark::FoundInMemory);
            live.reclaimed(claimed);
            State::Drive(live)
        } else if let Some(birth) = worker
            .birth(run)
            .filter(|_| !begun && claimed.cancel == roundel_core::CancelMark::None)
        {
            self.marks.hit(Mark::BornHere);
            let mut live = self.born(at, birth);
            live.reclaimed(claimed);
            State::Drive(live)
        } else {
            State::Load(Box::new(claimed))
        };
        let worker = &mut self.workers[at];
        worker.last_task += 1;
        worker.tasks.push(Task {
            run,
            number: worker.last_task,
            notes: Vec::new(),
            leased: true,
            state,
        });
    }

    /// The run is no longer driven here. If it was claimed meanwhile, it is again.
    pub(crate) fn forget(&mut self, at: usize, run: RunId) {
        let worker = &mut self.workers[at];
        let index = worker.tasks.iter().position(|task| task.run == run);
        let Some(index) = index else { return };
        let mut notes = worker.tasks.remove(index).notes;
        worker.claim_at(self.now);
        let claims = |note: &Note| matches!(note, Note::Claimed(_));
        let Some(last) = notes.iter().rposition(claims) else {
            return;
        };
        let later = notes.split_off(last + 1);
        if let Some(Note::Claimed(claimed)) = notes.pop() {
            self.adopt(at, *claimed);
        }
        if let Some(task) = self.workers[at].task(run) {
            task.notes.extend(later);
        }
    }
}
