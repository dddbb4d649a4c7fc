//! Every crash point of a scenario, alone and in pairs: a scenario is a short schedule without
//! faults, and each request that reaches the store has four places at which things can break.

use std::collections::VecDeque;
use std::time::Instant;

use crate::report::{Report, guarded, in_parallel, silently};
use crate::world::{Fault, World};
use crate::{Player, world};

/// Scenarios that are played.
pub const SCENARIOS: u64 = 20;

/// Where it breaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Point {
    /// The process dies, and the request never arrives.
    BeforeBegin,
    /// The commit is lost, and nobody knows.
    NotApplied,
    /// The commit is done, and its reply is lost; so are its hints.
    ReplyLost,
    /// The commit is done, and the process dies before anybody is woken.
    AfterCommit,
}

impl Point {
    const ALL: [Point; 4] = [
        Point::BeforeBegin,
        Point::NotApplied,
        Point::ReplyLost,
        Point::AfterCommit,
    ];
}

/// What breaks at which request, in order.
pub(crate) type Plan = VecDeque<(u64, Point)>;

impl World<'_> {
    /// Does something break at the next request?
    fn planned(&mut self) -> Option<Point> {
        let (at, point) = *self.plan.front()?;
        if at > self.ops {
            return None;
        }
        self.plan.pop_front();
        self.fate = match point {
            Point::BeforeBegin => None,
            other => Some(other),
        };
        Some(point)
    }

    /// Would a claim find nothing, and change nothing? Now and then one is sent all the same:
    /// something may come while it is on its way.
    pub(crate) fn finds_nothing(&mut self, at: usize) -> bool {
        if !self.looks_first || self.random.once_in(4) {
            return false;
        }
        let worker = &mut self.workers[at];
        let next = self.model.next_due(&worker.lanes, self.now);
        let nothing = next.is_none_or(|next| next > self.now);
        if nothing {
            next.into_iter().for_each(|next| worker.claim_at(next));
        }
        nothing
    }

    /// Takes a request of a process to the store, or lets it break. Returns whether there was one.
    #[inline]
    pub(crate) fn serve_or_break(&mut self, at: usize) -> bool {
        let worker = &mut self.workers[at];
        if worker.outbox.is_empty() || !worker.is_served(self.now) {
            return false;
        }
        worker.served_from = None;
        self.serve(at);
        true
    }

    #[inline(never)]
    fn serve(&mut self, at: usize) {
        let point = self.planned();
        if point == Some(Point::BeforeBegin) {
            self.ops += 1;
            return self.crash(at);
        }
        self.by_clock_of(at, |world| world.store_serves(at));
        self.fate = None;
        if point == Some(Point::AfterCommit) {
            self.crash(at);
        }
    }

    /// The same for what a client asks: its process is the one that dies.
    pub(crate) fn ask_or_break(&mut self, op: &roundel_core::Op, home: usize) -> world::Answer {
        let point = self.planned();
        if point == Some(Point::BeforeBegin) {
            self.ops += 1;
            self.crash(home);
            return Err(Fault::Unknown);
        }
        let answer = self.transact(op, Vec::new(), Some(home));
        self.fate = None;
        if point == Some(Point::AfterCommit) {
            self.crash(home);
            return Err(Fault::Unknown);
        }
        answer
    }
}

/// How far the points are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Each alone.
    Alone,
    /// Each pair.
    Pairs,
}

/// The scripts and the first scenarios that are short enough for all pairs of their crash points.
#[must_use]
pub fn short_scenarios() -> Vec<u64> {
    const LONGEST: u64 = 70;
    let player = Player::default();
    let short = |seed: &u64| player.scenario(*seed, Plan::new()).ops <= LONGEST;
    let count = usize::try_from(SCENARIOS).expect("few");
    silently(|| {
        let scripts = crate::scripted().into_iter().filter(short);
        scripts.chain((0..).filter(short).take(count)).collect()
    })
}

/// Plays these scenarios with every crash point, or every pair: those are the report's schedules.
#[must_use]
pub fn exhaust(scenarios: &[u64], reach: Reach) -> Report {
    let begun = Instant::now();
    let player = Player::default();
    let mut plans: Vec<(u64, Plan)> = Vec::new();
    for seed in scenarios {
        let requests = silently(|| player.scenario(*seed, Plan::new()).ops);
        let points =
            |after: u64| (after..requests).flat_map(|at| Point::ALL.map(|point| (at, point)));
        for first in points(0) {
            if reach == Reach::Alone {
                plans.push((*seed, Plan::from([first])));
                continue;
            }
            let pairs = points(first.0 + 1);
            plans.extend(pairs.map(|second| (*seed, Plan::from([first, second]))));
        }
    }
    let mut report = in_parallel(plans.len() as u64, |player, at| {
        let (seed, plan) = &plans[usize::try_from(at).expect("an index")];
        let mut played = guarded(*seed, || player.scenario(*seed, plan.clone()));
        for violation in &mut played.violations {
            *violation = format!("{violation} (breaks at {plan:?})");
        }
        played
    });
    report.seconds = begun.elapsed().as_secs_f64();
    report
}
