//! The simulator: seeded schedules over the real rules and the real runs in memory, with virtual
//! time and faults, each held against what was promised.
//!
//! Same seed, same schedule: everything that could differ comes from one generator. A schedule is
//! played on one thread; threads play different seeds and share nothing.
//!
//! Absent on purpose: the asynchronous worker. It is mirrored by `worker.rs` and `drive.rs`, so
//! that every place where it waits is a place where a schedule can crash it.

mod asks;
mod batches;
mod book;
mod client;
mod conditions;
mod drive;
mod exhaust;
mod facts;
mod faults;
mod flows;
mod hints;
mod incoming;
mod judge;
mod kin;
mod marks;
mod operators;
mod queues;
mod random;
mod report;
mod scenes;
mod shrink;
mod site;
mod timetables;
mod trace;
mod trees;
mod worker;
mod world;

pub use exhaust::{Point, Reach, SCENARIOS, exhaust, short_scenarios};
pub use marks::{Mark, Marks};
pub use report::{Hunt, Report, hunt, play_all};
pub use roundel_core::mutant::Mutant;
pub use scenes::scripted;
pub use shrink::Cut;

use std::cell::RefCell;

use flows::Flow;
use roundel_core::check::Reader;
use roundel_core::{RunRow, RunState};
use trace::Trace;
use world::World;

/// What came of one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// Of which seed.
    pub seed: u64,
    /// A fingerprint of what happened.
    pub hash: u64,
    /// Requests that reached the store.
    pub ops: u64,
    /// Processes that died.
    pub crashes: u64,
    /// What should not be.
    pub violations: Vec<String>,
    /// What it ran into.
    pub marks: Marks,
    /// What happened, if it was asked for.
    pub trace: Vec<String>,
}

/// Plays schedules, one after the other.
#[derive(Debug)]
pub struct Player {
    flows: Vec<Flow>,
    /// Of the journals of earlier schedules.
    reader: RefCell<Reader>,
}

impl Default for Player {
    fn default() -> Player {
        Player {
            flows: flows::all(),
            reader: RefCell::default(),
        }
    }
}

impl Player {
    /// Plays the schedule of this seed.
    #[must_use]
    pub fn play(&self, seed: u64) -> Played {
        self.played(seed, Cut::default(), Trace::silent())
    }

    /// Plays it and tells what happened.
    #[must_use]
    pub fn tell(&self, seed: u64, cut: Cut) -> Played {
        self.played(seed, cut, Trace::told())
    }

    /// Plays it; a panic of the code under test is a broken promise too.
    fn guarded(&self, seed: u64, cut: Cut) -> Played {
        report::guarded(seed, || self.played(seed, cut, Trace::silent()))
    }

    fn played(&self, seed: u64, cut: Cut, trace: Trace) -> Played {
        let mut world = World::new(seed, self, cut, trace);
        world.play();
        self.judged(seed, world)
    }

    /// Plays a scenario, in which only that breaks which is planned.
    pub(crate) fn scenario(&self, seed: u64, plan: exhaust::Plan) -> Played {
        let mut world = World::scenario(seed, self, plan, Trace::silent());
        world.come_to_rest();
        world.judge_script();
        self.judged(seed, world)
    }

    fn judged(&self, seed: u64, world: World<'_>) -> Played {
        let World {
            mut book,
            model,
            trace,
            mut marks,
            ops,
            crashes,
            ..
        } = world;
        site::with(|site| book.judge(&model, site, &mut self.reader.borrow_mut()));
        let completed = |row: &RunRow| row.state == RunState::Completed;
        let mended = book
            .diverged
            .iter()
            .filter_map(|run| model.rows().run(*run));
        for _ in 0..site::with(|site| site.handled) {
            marks.hit(Mark::FailureHandled);
        }
        for _ in 0..book.started_again {
            marks.hit(Mark::StartedAgain);
        }
        for _ in mended.filter(|row| completed(row)) {
            marks.hit(Mark::Mended);
        }
        Played {
            seed,
            hash: trace.hash(),
            ops,
            crashes,
            violations: book.violations,
            marks,
            trace: shrink::readable(trace.into_lines()),
        }
    }
}
