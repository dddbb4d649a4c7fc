//! One schedule: everything that is in it, and what happens next.
//!
//! A tick lets one actor do one thing: a worker turns a run or takes an answer, the store takes
//! one request, a client asks, a service answers, a fault strikes. Chance picks, so every order
//! that the real thing can have is one that some seed has.

use std::time::Duration;

use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Call, Entry, Failure, Hint, Name, Op, Payload, Refusal, Reply, RunId, RunState, Timestamp,
    decode_entries,
};
use roundel_store::Model;

use crate::client::Client;
use crate::exhaust::{Plan, Point};
use crate::faults::Faults;
use crate::flows::Flow;
use crate::marks::{Mark, Marks};
use crate::random::Random;
use crate::shrink::Cut;
use crate::site::{self, Line};
use crate::trace::Trace;
use crate::worker::Worker;

pub(crate) const NAMESPACE: Name = Name::constant("default");
pub(crate) const LEASE: Duration = Duration::from_millis(600);
pub(crate) const GRACE: Duration = Duration::from_millis(50);
/// Sweeps, which make up for lost hints, are this far apart.
pub(crate) const SWEEP: Duration = Duration::from_millis(500);
/// Ticks after which a schedule that has not come to rest never will.
const DRAIN: usize = 20_000;

/// What the store says, if it says anything.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Refused(Refusal),
    Unavailable,
    Unknown,
}

pub(crate) type Answer = Result<Reply, Fault>;

/// A request whose sender does not know what became of it, and that is not applied yet.
pub(crate) struct Late {
    op: Op,
    written: Vec<Line>,
}

pub(crate) struct World<'a> {
    pub(crate) flows: &'a [Flow],
    pub(crate) random: Random,
    pub(crate) now: Timestamp,
    pub(crate) model: Model,
    pub(crate) workers: Vec<Worker>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Faults,
    /// There are several versions of some workflows.
    pub(crate) has_versions: bool,
    /// Some runs are trees that publish and undo.
    pub(crate) cooperates: bool,
    pub(crate) trace: Trace,
    pub(crate) marks: Marks,
    pub(crate) book: crate::book::Book,
    /// What breaks at which request, if this is a scenario.
    pub(crate) plan: Plan,
    /// What happens to the request at hand.
    pub(crate) fate: Option<Point>,
    pub(crate) late: Vec<Late>,
    idle: usize,
    /// By how much the clock was set ahead, in microseconds.
    pub(crate) ahead: i64,
    /// Ticks until the faults end.
    ticks: usize,
    pub(crate) ops: u64,
    pub(crate) crashes: u64,
    pub(crate) draining: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, flows: &'a [Flow], cut: Cut, trace: Trace) -> World<'a> {
        let mut random = Random::new(seed);
        let bits = random.next() & !cut.without;
        let mut random = match cut.order {
            0 => random,
            order => Random::new(random.next() ^ order),
        };
        let on = |bit: u32| bits >> bit & 1 == 1;
        let faults = Faults {
            // Nearly all schedules have crashes: they are what this is about.
            crashes: on(0) || on(1) || on(2),
            pauses: on(3),
            clock_jumps: on(4) && on(5),
            lost_hints: on(6),
            late_hints: on(7),
            unavailable: on(8),
            unknown: on(9),
            late_commits: on(10),
            operators: on(11),
            stops: on(16),
            versions: on(17) && on(18),
            bad_code: on(19) && on(20),
            skew: on(21) && on(22),
            slow: on(23) && on(24),
        };
        roundel::sim::seed(random.next());
        let site_seed = random.next();
        site::with(|site| {
            site.reset(site_seed);
            site.steps_fail = on(12);
            site.services_fail = on(13);
            site.code_panics = on(14) && on(15);
            site.undos_fail = if on(27) { 6 } else { 0 };
        });
        let workers = 2 + random.below(2);
        let clients = (1 + random.below(3)).min(cut.clients);
        let things = cut.things;
        let mut world = World {
            ticks: cut.ticks,
            flows,
            now: Timestamp(1_000_000_000),
            model: Model::default(),
            workers: Vec::new(),
            has_versions: faults.versions,
            cooperates: on(25) && on(26),
            clients: (0..clients)
                .map(|_| Client::new(&mut random, things))
                .collect(),
            random,
            faults,
            trace,
            marks: Marks::default(),
            book: crate::book::Book::default(),
            plan: Plan::new(),
            fate: None,
            late: Vec::new(),
            idle: 0,
            ahead: 0,
            ops: 0,
            crashes: 0,
            draining: false,
        };
        world.deploy(workers);
        if world.cooperates {
            world.subscribe_all();
        }
        world
    }

    fn deploy(&mut self, workers: usize) {
        for _ in 0..workers {
            let worker = self.deployed();
            self.workers.push(worker);
        }
    }

    /// A short schedule in which only that breaks which is planned.
    pub(crate) fn scenario(seed: u64, flows: &'a [Flow], plan: Plan, trace: Trace) -> World<'a> {
        let cut = Cut {
            clients: 1,
            things: 3,
            ..Cut::default()
        };
        let mut world = World::new(seed, flows, cut, trace);
        world.faults = Faults::default();
        world.has_versions = false;
        world.plan = plan;
        world.workers.clear();
        world.deploy(2);
        world
    }

    /// Plays it to its end: with faults, then without until all is at rest.
    pub(crate) fn play(&mut self) {
        for _ in 0..self.ticks {
            self.tick();
        }
        self.come_to_rest();
    }

    /// Ends the faults, and plays until nothing is left to do.
    pub(crate) fn come_to_rest(&mut self) {
        self.end_faults();
        for tick in 0..DRAIN {
            self.tick();
            if tick % 16 == 0 && self.is_at_rest() && !self.resume_parked() {
                return;
            }
        }
        self.book.complain("it does not come to rest");
    }

    fn end_faults(&mut self) {
        self.trace.say(self.now, || "faults end".into());
        self.faults = Faults::default();
        self.draining = true;
        site::with(|site| {
            site.steps_fail = false;
            site.services_fail = false;
            site.code_panics = false;
        });
        while !self.late.is_empty() {
            self.apply_late();
        }
        self.deploy_mended();
        for worker in &mut self.workers {
            worker.wake_up(self.now);
        }
    }

    fn tick(&mut self) {
        // Without `after`, which divides: there are a thousand ticks in a schedule.
        self.now.0 += (self.random.next() % 1500).cast_signed();
        let workers = self.workers.len();
        let actors = workers * 3 + self.clients.len() * 2 + 2;
        let picked = self.random.below(actors);
        let did = if picked < workers * 2 {
            self.worker_acts(picked % workers)
        } else if picked < workers * 3 {
            self.serve_or_break(picked - workers * 2)
        } else if picked < actors - 2 {
            let client = (picked - workers * 3) / 2;
            self.client_acts(client)
        } else if picked == actors - 2 {
            self.service_answers()
        } else {
            self.chance_strikes()
        };
        self.idle = if did { 0 } else { self.idle + 1 };
        if self.idle > actors * 2 {
            self.jump_ahead();
        }
    }

    fn service_answers(&mut self) -> bool {
        if !site::with(|site| site.waits_for_answer()) {
            return false;
        }
        let waker = site::with(site::Site::answer_one);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Nobody has anything to do: on to the next time at which somebody has.
    fn jump_ahead(&mut self) {
        self.idle = 0;
        let workers = self.workers.iter().filter_map(Worker::next_time);
        let clients = self.clients.iter().filter_map(Client::next_time);
        if let Some(next) = workers.chain(clients).min() {
            self.now = self.now.max(next);
        }
    }

    /// Decides an operation, unless a fault strikes; tells whoever listens in that process.
    pub(crate) fn transact(
        &mut self,
        op: &Op,
        mut written: Vec<Line>,
        home: Option<usize>,
    ) -> Answer {
        self.ops += 1;
        if mutant::on(Mutant::StepOutsideRound) && !written.is_empty() {
            site::with(|site| site.commit(std::mem::take(&mut written)));
        }
        match self.fate {
            Some(Point::NotApplied) => return Err(Fault::Unknown),
            Some(Point::ReplyLost | Point::AfterCommit) => {
                let _ = self.apply(op, written);
                self.model.take_hints();
                return Err(Fault::Unknown);
            }
            _ => {}
        }
        if self.faults.unavailable && self.random.once_in(16) {
            self.marks.hit(Mark::Unavailable);
            return Err(Fault::Unavailable);
        }
        if self.faults.unknown && self.random.once_in(20) {
            let kind = self.random.below(3);
            if kind == 0 {
                self.marks.hit(Mark::UnknownAborted);
            } else if kind == 1 && self.faults.late_commits {
                self.marks.hit(Mark::UnknownLate);
                self.late.push(Late {
                    op: op.clone(),
                    written,
                });
            } else {
                self.marks.hit(Mark::UnknownCommitted);
                let _ = self.apply(op, written);
                self.model.take_hints();
            }
            return Err(Fault::Unknown);
        }
        let answer = self.apply(op, written);
        let hints = self.model.take_hints();
        let parked = |hint: &Hint| matches!(hint, Hint::AtRest(_, RunState::Parked, _));
        if matches!(op, Op::Claim(_)) && hints.iter().any(parked) {
            self.marks.hit(Mark::ParkedAsSuspect);
        }
        let changed = match &answer {
            Ok(Reply::Claimed { runs, .. }) => !runs.is_empty(),
            Ok(Reply::Renewed(_) | Reply::Registered(_)) | Err(_) => false,
            Ok(_) => true,
        };
        if changed || !hints.is_empty() {
            self.tell(&hints, home);
        }
        answer.map_err(Fault::Refused)
    }

    fn apply(&mut self, op: &Op, written: Vec<Line>) -> Result<Reply, Refusal> {
        let noted = self.book.before(op, self.model.rows());
        let news = match self.cooperates {
            true => crate::kin::News::of(op, &written, self.model.rows()),
            false => crate::kin::News::default(),
        };
        let answer = self.model.decide(op, self.now);
        self.trace.op(self.now, op, &answer);
        match &answer {
            Ok(reply) => {
                if is_diverged(op) {
                    self.marks.hit(Mark::Diverged);
                }
                if self.cooperates {
                    self.kin_after(news, op, reply, &written);
                }
                if !written.is_empty() {
                    site::with(|site| site.commit(written));
                }
                self.book.after(noted, op, reply, self.model.rows());
            }
            Err(Refusal::Fenced { .. }) => self.marks.hit(Mark::ZombieFenced),
            Err(Refusal::NotAtRest { .. }) => self.marks.hit(Mark::UndoRefused),
            Err(Refusal::CancelRequested { .. }) => {
                self.marks.hit(Mark::CancelRefused);
                if begins_effect(op) {
                    self.marks.hit(Mark::EffectRefused);
                }
            }
            Err(Refusal::Inconsistent { run, what }) => {
                let what = format!("{what} ({run})");
                self.book.complain(&what);
            }
            Err(_) => {}
        }
        answer
    }

    /// A commit whose outcome was unknown comes through after all.
    pub(crate) fn apply_late(&mut self) {
        let at = self.random.below(self.late.len());
        let Late { op, written } = self.late.swap_remove(at);
        let applied = self.apply(&op, written).is_ok();
        if applied {
            self.marks.hit(Mark::LateApplied);
        }
        self.model.take_hints();
    }

    /// An operation of a process that has died meanwhile may still reach the store.
    pub(crate) fn leave_behind(&mut self, op: Op) {
        if self.faults.late_commits {
            let written = Vec::new();
            self.late.push(Late { op, written });
        }
    }

    /// Is there nothing left to do, ever? If all that is left is far ahead, as after a clock that
    /// was set back, time goes there.
    fn is_at_rest(&mut self) -> bool {
        let idle =
            self.clients.iter().all(Client::is_done) && self.workers.iter().all(Worker::is_idle);
        if !idle {
            return false;
        }
        let next = self.model.rows().runs().filter_map(|row| row.ready_at);
        match next.min() {
            None => true,
            Some(at) => {
                self.now = self.now.max(at);
                false
            }
        }
    }

    /// Lets parked runs go on, and rollbacks that failed. Returns whether there were any that had
    /// not been let too often.
    fn resume_parked(&mut self) -> bool {
        let parked: Vec<RunId> = self.book.may_resume(self.model.rows());
        for run in &parked {
            let op = self.let_go_on(*run);
            let _ = self.transact(&op, Vec::new(), Some(0));
        }
        !parked.is_empty()
    }

    pub(crate) fn payload<T: serde::Serialize>(value: &T) -> Payload {
        Payload::encode(value).expect("a small value has a JSON form")
    }

    pub(crate) fn refused(refusal: &Refusal) -> Failure {
        Failure::permanent(refusal).with_code("refused")
    }
}

fn is_diverged(op: &Op) -> bool {
    let Op::Commit(round) = op else { return false };
    matches!(&round.then, roundel_core::Then::Park(why) if why.code == "diverged")
}

fn begins_effect(op: &Op) -> bool {
    let Op::Commit(round) = op else { return false };
    let begins = |entry: &Entry| {
        let Entry::Begun { what, .. } = entry else {
            return false;
        };
        matches!(what, Call::Effect { .. })
    };
    round.count > 0 && decode_entries(&round.entries).is_ok_and(|all| all.iter().any(begins))
}
