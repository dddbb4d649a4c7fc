//! What strikes: processes die, stop, stand still and come up with other code or another clock; the
//! store is slow, the clock is set.
//!
//! Absent on purpose: locks that are refused. An operation that is set aside for one has changed
//! nothing and is tried again: that is what `unavailable` plays.

use std::time::Duration;

use roundel_core::{Op, Timestamp};

use crate::drive::State;
use crate::incoming::is_item;
use crate::marks::Mark;
use crate::worker::{Ask, Task, Worker};
use crate::world::World;

/// By how much a wrong clock is wrong, in microseconds.
const SKEW: i64 = 600_000_000;

/// Which faults a schedule has: a random subset, so that rare pairs meet undisturbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) crashes: bool,
    pub(crate) pauses: bool,
    pub(crate) clock_jumps: bool,
    pub(crate) lost_hints: bool,
    pub(crate) late_hints: bool,
    pub(crate) unavailable: bool,
    pub(crate) unknown: bool,
    pub(crate) late_commits: bool,
    pub(crate) operators: bool,
    pub(crate) stops: bool,
    /// Workers come up with some versions of the workflows only.
    pub(crate) versions: bool,
    /// Workers come up with code that asks for something else than it did.
    pub(crate) bad_code: bool,
    /// Workers come up with clocks that are wrong by ten minutes.
    pub(crate) skew: bool,
    /// The store does not come to a process's requests for longer than a lease.
    pub(crate) slow: bool,
    /// Operators set limits to queues, and take them away.
    pub(crate) limits: bool,
    /// Clients and steps record facts.
    pub(crate) facts: bool,
}

impl Faults {
    /// By bits, each of which is set in half of the schedules.
    pub(crate) fn of(on: impl Fn(u32) -> bool) -> Faults {
        Faults {
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
            limits: on(33) && on(34) && on(35),
            facts: on(36) && on(37),
        }
    }
}

/// What a process comes up with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deploy {
    /// Which of the workflows it can run.
    pub(crate) flows: Vec<usize>,
    /// Some of them were changed by mistake.
    pub(crate) bad_code: bool,
    /// By how much its clock is wrong, in microseconds.
    pub(crate) skew: i64,
}

impl World<'_> {
    pub(crate) fn chance_strikes(&mut self) {
        if self.faults.late_commits && !self.late.is_empty() && self.random.once_in(2) {
            return self.apply_late();
        }
        if self.random.once_in(8) {
            let span = Duration::from_millis(self.random.next() % 400);
            self.now = self.now.after(span);
        }
        let worker = self.random.below(self.workers.len());
        if self.faults.crashes && self.random.once_in(10) {
            self.crash(worker);
        }
        if self.faults.stops && self.random.once_in(16) {
            self.stop(worker);
        }
        if self.faults.pauses && self.random.once_in(12) {
            self.pause(worker);
        }
        if self.faults.slow && self.random.once_in(12) {
            self.slow_down(worker);
        }
        if self.faults.clock_jumps && self.random.once_in(20) {
            self.jump_clock();
        }
    }

    /// The clock is set: an hour ahead, or back to where an earlier jump had left it.
    fn jump_clock(&mut self) {
        const HOUR: i64 = 3_600_000_000;
        let back = self.ahead > 0 && self.random.once_in(2);
        let (mark, jump) = match back {
            true => (Mark::ClockSetBack, -HOUR),
            false => (Mark::ClockJumped, HOUR),
        };
        self.marks.hit(mark);
        self.ahead += jump;
        self.now = Timestamp(self.now.0 + jump);
        if back {
            // A process holds its clock: only those that begin now see that it was set back.
            for at in 0..self.workers.len() {
                self.replace(at);
            }
            for client in &mut self.clients {
                client.hurry(self.now);
            }
        }
    }

    /// A worker stops as it should: what it has is given back, and another takes its place.
    fn stop(&mut self, at: usize) {
        if self.workers[at].lanes.is_empty() {
            return;
        }
        self.marks.hit(Mark::Stopped);
        let worker = &self.workers[at];
        let release = Op::Release(roundel_core::Release {
            worker: worker.id(),
            runs: worker.tasks.iter().map(|task| task.run).collect(),
            leave: true,
        });
        let _ = self.transact(&release, Vec::new(), None);
        self.replace(at);
    }

    /// The process dies: what was in memory is gone, what was committed stays.
    pub(crate) fn crash(&mut self, at: usize) {
        self.crashes += 1;
        self.marks.hit(Mark::Crashed);
        self.replace(at);
    }

    /// The process is gone, with all that was in its memory. Another takes its place.
    pub(crate) fn replace(&mut self, at: usize) {
        let next = self.deployed();
        let dead = std::mem::replace(&mut self.workers[at], next);
        self.trace.say(self.now, || format!("end of {}", dead.id()));
        let down = Duration::from_millis(self.random.next() % 300);
        self.workers[at].away_until = Some(self.now.after(down));
        let mut tasks = dead.tasks;
        for ask in dead.outbox {
            let op = match ask {
                Ask::Task(run) => {
                    let task = tasks.iter_mut().find(|task| task.run == run);
                    task.and_then(|task| task.state.take_op())
                }
                Ask::Claim(claim) => Some(Op::Claim(claim)),
                Ask::Renew(renew) => Some(Op::Renew(renew)),
                Ask::Register(_) => None,
            };
            if let Some(op) = op {
                self.marks.hit(Mark::CrashedInCommit);
                self.leave_behind(op);
            }
        }
        let loading = |task: &Task| matches!(task.state, State::Load(_));
        if tasks.iter().any(loading) {
            self.marks.hit(Mark::CrashedInRecovery);
        }
        self.clients_of(at);
    }

    /// The process stands still, and wakes when its leases have ended.
    pub(crate) fn pause(&mut self, at: usize) {
        if self.workers[at].is_away(self.now) {
            return;
        }
        self.marks.hit(Mark::Paused);
        let id = self.workers[at].id();
        self.trace.say(self.now, || format!("pause of {id}"));
        let span = Duration::from_millis(self.random.next() % 2000);
        self.workers[at].away_until = Some(self.now.after(span));
    }

    /// Another process, with what is deployed at the moment.
    pub(crate) fn deployed(&mut self) -> Worker {
        let newest = |at: usize| self.flows[at].version > 1;
        let replaced = |at: usize| {
            let flow = &self.flows[at];
            let mut others = self.flows.iter();
            others.any(|other| other.name == flow.name && other.version > flow.version)
        };
        let picked = match self.faults.versions {
            true => self.random.below(4),
            false => 3,
        };
        let all = (0..self.flows.len()).filter(|at| self.is_played(*at));
        let flows: Vec<usize> = match (self.has_versions, picked) {
            (false, _) | (true, 0) => all.filter(|at| !newest(*at)).collect(),
            (true, 1) => all.filter(|at| !replaced(*at)).collect(),
            (true, _) => all.collect(),
        };
        let bad_code = self.faults.bad_code && self.random.once_in(3);
        let mut skew = 0;
        if self.faults.skew && self.random.once_in(3) {
            self.marks.hit(Mark::ClockSkewed);
            skew = if self.random.once_in(2) { SKEW } else { -SKEW };
        }
        let deploy = Deploy {
            flows,
            bad_code,
            skew,
        };
        Worker::new(&mut self.random, deploy)
    }

    /// The faults have ended: what is mended is deployed everywhere.
    pub(crate) fn deploy_mended(&mut self) {
        if self.has_versions && self.somebody_waits_for_a_version() {
            self.marks.hit(Mark::VersionWaited);
        }
        let played = (0..self.flows.len())
            .filter(|at| self.is_played(*at))
            .count();
        for at in 0..self.workers.len() {
            let deploy = &self.workers[at].deploy;
            let lacks = self.has_versions && deploy.flows.len() < played;
            if lacks || deploy.bad_code || deploy.skew != 0 {
                self.replace(at);
            }
        }
    }

    /// Is this workflow part of this schedule?
    fn is_played(&self, at: usize) -> bool {
        let flow = &self.flows[at];
        (self.cooperates || !flow.cooperates) && (self.times.is_some() || !flow.keeps_times)
    }

    fn somebody_waits_for_a_version(&self) -> bool {
        let rows = self.model.rows();
        let mut runs = rows.runs().filter(|row| !is_item(rows, row));
        let known = |lane| {
            self.workers
                .iter()
                .any(|worker| worker.lanes.contains(&lane))
        };
        runs.any(|row| !row.state.has_ended() && !known(row.lane))
    }

    /// The store does not come to this process's requests.
    fn slow_down(&mut self, at: usize) {
        self.marks.hit(Mark::StoreSlow);
        let span = Duration::from_millis(self.random.next() % 1500);
        self.workers[at].served_from = Some(self.now.after(span));
    }

    /// Does something by the clock of a process.
    pub(crate) fn by_clock_of<T>(&mut self, at: usize, act: impl FnOnce(&mut Self) -> T) -> T {
        let skew = self.workers[at].deploy.skew;
        self.now.0 += skew;
        let acted = act(self);
        self.now.0 -= skew;
        acted
    }
}
