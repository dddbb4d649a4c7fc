//! One schedule: everything that is in it, and what happens next.
//!
//! A tick lets one actor do one thing: a worker turns a run or takes an answer, the store takes
//! one request, a client asks, a service answers, a fault strikes. Chance picks, so every order
//! that the real thing can have is one that some seed has.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::check::Reader;
use roundel_core::mutant::{self, Mutant};
use roundel_core::{
    Call, Entry, Failure, Hint, Name, Op, Payload, Refusal, Reply, RunId, RunState, Timestamp,
};
use roundel_store::Model;

use crate::Player;
use crate::client::Client;
use crate::exhaust::{Plan, Point};
use crate::faults::Faults;
use crate::flows::Flow;
use crate::kin::News;
use crate::marks::{Mark, Marks};
use crate::operators::is_diverged;
use crate::random::Random;
use crate::scenes::script_of;
use crate::shrink::Cut;
use crate::site::{self, Line};
use crate::timetables::Before;
use crate::trace::Trace;
use crate::worker::Worker;

pub(crate) const NAMESPACE: Name = Name::constant("default");
pub(crate) const LEASE: Duration = Duration::from_millis(600);
pub(crate) const GRACE: Duration = Duration::from_millis(50);
/// Sweeps, which make up for lost hints, are this far apart.
pub(crate) const SWEEP: Duration = Duration::from_millis(500);
/// Ticks after which the faults end, however little was asked.
const FAULTY: usize = 1_000;
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
    pub(crate) reader: &'a RefCell<Reader>,
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
    /// There are schedules, whose times are so far apart.
    pub(crate) times: Option<Duration>,
    pub(crate) trace: Trace,
    pub(crate) marks: Marks,
    pub(crate) book: crate::book::Book,
    /// What breaks at which request, if this is a scenario.
    pub(crate) plan: Plan,
    /// What happens to the request at hand.
    pub(crate) fate: Option<Point>,
    pub(crate) late: Vec<Late>,
    /// The clients that have something to do yet.
    pub(crate) busy: Vec<usize>,
    /// By how much the clock was set ahead, in microseconds.
    pub(crate) ahead: i64,
    /// Requests until the faults end.
    pub(crate) requests: u64,
    pub(crate) ops: u64,
    pub(crate) crashes: u64,
    pub(crate) draining: bool,
    /// Claims are made only where there is something for them, as a rule.
    pub(crate) looks_first: bool,
    /// How a script must end.
    pub(crate) ends_as: Option<(RunId, &'static [RunState])>,
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, player: &'a Player, cut: Cut, trace: Trace) -> World<'a> {
        let mut random = Random::new(seed);
        let bits = random.next() & !cut.without;
        let mut random = match cut.order {
            0 => random,
            order => Random::new(random.next() ^ order),
        };
        let on = |bit: u32| bits >> bit & 1 == 1;
        let faults = Faults::of(on);
        roundel::sim::seed(random.next());
        let site_seed = random.next();
        site::with(|site| {
            site.reset(site_seed);
            site.steps_fail = on(12);
            site.facts = faults.facts;
            site.services_fail = on(13);
            site.code_panics = on(14) && on(15);
            site.undos_fail = if on(27) { 6 } else { 0 };
        });
        let workers = 2 + random.below(2);
        let (drawn, things) = (1 + random.below(3), cut.things);
        let clients = drawn.min(cut.clients);
        let cooperates = on(25) && on(26) && on(28) && on(29) && on(30);
        let times = !cooperates && (38..45).all(on);
        let mut world = World {
            requests: cut.requests,
            flows: &player.flows,
            reader: &player.reader,
            now: Timestamp(1_000_000_000),
            model: Model::default(),
            workers: Vec::new(),
            has_versions: faults.versions,
            cooperates,
            times: times.then(|| crate::timetables::unit(faults.clock_jumps || faults.skew)),
            clients: (0..clients)
                .map(|_| Client::new(&mut random, drawn, things))
                .collect(),
            random,
            faults,
            trace,
            marks: Marks::default(),
            book: crate::book::Book::default(),
            plan: Plan::new(),
            fate: None,
            late: Vec::new(),
            busy: (0..clients).collect(),
            ahead: 0,
            ops: 0,
            crashes: 0,
            draining: false,
            looks_first: true,
            ends_as: None,
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
    pub(crate) fn scenario(seed: u64, player: &'a Player, plan: Plan, trace: Trace) -> World<'a> {
        let cut = Cut {
            clients: 1,
            things: 5,
            ..Cut::default()
        };
        let mut world = World::new(seed, player, cut, trace);
        world.faults = Faults::default();
        world.has_versions = false;
        world.times = None;
        world.plan = plan;
        // Every request is a place at which something can break.
        world.looks_first = false;
        let script = script_of(seed);
        // Every other one is about runs that cooperate.
        let cooperates = script.is_some() || seed % 2 == 1;
        if cooperates && !world.cooperates {
            world.subscribe_all();
        }
        world.cooperates = cooperates;
        if let Some(script) = script {
            site::with(|site| {
                (site.undos_fail, site.next_undos_fail) = (0, script.undos_fail);
                (site.steps_fail, site.services_fail, site.code_panics) = (false, false, false);
            });
            world.follow(&script);
        }
        world.workers.clear();
        world.deploy(2);
        world
    }

    /// Plays it to its end: with faults, then without until all is at rest.
    pub(crate) fn play(&mut self) {
        for _ in 0..FAULTY {
            if self.ops >= self.requests {
                break;
            }
            self.tick();
        }
        // What begins now begins without faults: that is not what schedules are for.
        self.clients.iter_mut().for_each(Client::come_to_an_end);
        self.come_to_rest();
    }

    /// Ends the faults, and plays until nothing is left to do.
    pub(crate) fn come_to_rest(&mut self) {
        self.end_faults();
        self.let_time_pass();
        let end = self.now;
        for tick in 0..DRAIN {
            self.tick();
            if tick % 8 == 0 {
                self.resume_queues();
                self.pause_schedules(end);
            }
            let left = tick % 8 == 0 && self.take_in();
            if tick % 8 == 0 && !left && self.is_at_rest() && !self.resume_parked() {
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
        // Without `after`, which divides: there are hundreds of ticks in a schedule.
        let drawn = self.random.next();
        self.now.0 += i64::from(drawn as u32 % 3000);
        let (workers, busy) = (self.workers.len(), self.busy.len());
        // Workers and clients are picked more often than the store and the services.
        let picked = Random::scaled(drawn, workers * 3 + busy * 2 + 2);
        let first = match picked.checked_sub(workers * 3) {
            None if picked < workers * 2 => picked / 2,
            None => picked - workers,
            Some(client) if client < busy * 2 => workers * 2 + client / 2,
            Some(client) if client == busy * 2 => workers * 2 + busy,
            Some(_) => return self.chance_strikes(),
        };
        // Where one has nothing to do, the next has, or nobody.
        let actors = workers * 2 + busy + 1;
        let mut actor = first;
        while !self.acts_as(actor) {
            actor = if actor + 1 == actors { 0 } else { actor + 1 };
            if actor == first {
                return self.jump_ahead();
            }
        }
    }

    /// One of those who are neither chance nor time does something. Returns whether it could.
    // Most of them could not: to ask should cost less than a call.
    #[inline(always)]
    fn acts_as(&mut self, actor: usize) -> bool {
        let workers = self.workers.len();
        if actor < workers {
            self.worker_acts(actor)
        } else if actor < workers * 2 {
            self.serve_or_break(actor - workers)
        } else if let Some(client) = self.busy.get(actor - workers * 2) {
            self.client_acts(*client)
        } else {
            self.service_answers()
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
    #[inline(never)]
    fn jump_ahead(&mut self) {
        let workers = self.workers.iter().map(Worker::next_time);
        let busy = self.busy.iter();
        let clients = busy.map(|client| self.clients[*client].next_time());
        let clients = (self.workers.len() * 2..).zip(clients);
        let times = (0..).zip(workers).chain(clients);
        let times = times.filter_map(|(actor, at)| Some((at?, actor)));
        // What is due already waits for something else.
        if let Some((at, actor)) = times.filter(|(at, _)| *at > self.now).min() {
            self.now = at;
            self.acts_as(actor);
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
        self.mark_batches(&hints);
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
        answer
    }

    fn apply(&mut self, op: &Op, written: Vec<Line>) -> Answer {
        let (whole, op) = (op, op.asked());
        let noted = self.book.before(op, self.model.rows());
        let rows = self.model.rows();
        let news = self.cooperates.then(|| News::of(op, &written, rows));
        let permits = crate::queues::Permits::of(op, rows);
        let times = self
            .times
            .and_then(|_| Before::of(op, &mut self.book, rows));
        let looked = crate::operators::looked(whole, rows);
        let answer = self.model.decide(whole, self.now);
        self.permits_given(&permits);
        self.trace.op(self.now, op, &answer);
        match &answer {
            Ok(reply) => {
                self.rested_on(looked);
                if matches!(whole, Op::Audited(_)) {
                    self.marks.hit(Mark::Audited);
                    self.book.audited += 1;
                }
                if crate::operators::sends(op) {
                    self.marks.hit(Mark::SentInStep);
                }
                if is_diverged(op) {
                    self.marks.hit(Mark::Diverged);
                }
                if let Some(news) = news {
                    self.kin_after(news, op, reply, &written);
                }
                if !written.is_empty() {
                    site::with(|site| site.commit(written));
                }
                self.book.after(noted, op, reply, self.model.rows());
                if self.times.is_some() {
                    self.times_after(times, op, reply);
                }
            }
            Err(Refusal::Fenced { .. }) => self.marks.hit(Mark::ZombieFenced),
            Err(Refusal::MovedOn { .. }) => self.marks.hit(Mark::OldLookRefused),
            Err(Refusal::NotAtRest { .. }) => self.marks.hit(Mark::UndoRefused),
            Err(Refusal::CancelRequested { .. }) => {
                self.marks.hit(Mark::CancelRefused);
                if begins_effect(op, &mut self.reader.borrow_mut()) {
                    self.marks.hit(Mark::EffectRefused);
                }
            }
            Err(Refusal::Inconsistent { run, what }) => {
                let what = format!("{what} ({run})");
                self.book.complain(&what);
            }
            Err(_) => {}
        }
        answer.map_err(Fault::Refused)
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
        let idle = self.busy.is_empty() && self.workers.iter().all(Worker::is_idle);
        if !idle {
            return false;
        }
        // What waits for a permit waits for a lease to end.
        let rows = self.model.rows();
        let free = rows
            .runs()
            .filter(|row| !crate::queues::is_held_back(rows, row, self.now));
        let next = free.filter_map(|row| row.ready_at);
        match next.min() {
            None => true,
            Some(at) => {
                self.now = self.now.max(at);
                false
            }
        }
    }

    pub(crate) fn fresh_key(&mut self) -> Name {
        let mut text = uuid::Uuid::encode_buffer();
        let key = self.random.id().simple().encode_lower(&mut text);
        Name::new(key.to_owned()).expect("a name")
    }

    pub(crate) fn payload<T: serde::Serialize>(value: &T) -> Payload {
        Payload::encode(value).expect("a small value has a JSON form")
    }

    pub(crate) fn refused(refusal: &Refusal) -> Failure {
        Failure::permanent(refusal).with_code("refused")
    }
}

fn begins_effect(op: &Op, reader: &mut Reader) -> bool {
    let Op::Commit(round) = op else { return false };
    let begins = |entry: &Entry| {
        let Entry::Begun { what, .. } = entry else {
            return false;
        };
        matches!(what, Call::Effect { .. })
    };
    let begins = |all: Arc<Vec<Entry>>| all.iter().any(begins);
    round.count > 0 && reader.read(&round.entries).is_ok_and(begins)
}
