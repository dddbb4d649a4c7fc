//! Many schedules, on all cores, and what came of them together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use roundel_core::mutant::{self, Mutant};

use crate::{Mark, Marks, Played, Player};

/// Schedules that a thread takes at once.
const SHARE: u64 = 64;

/// Failed schedules that are kept to be shown.
const KEPT: usize = 10;

/// Each situation is met at least once in so many schedules.
const RARE: u64 = 10_000;

/// What came of many schedules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many were played.
    pub schedules: u64,
    /// How many broke a promise.
    pub violations: u64,
    /// Some of those: the seed, and what should not be.
    pub failed: Vec<(u64, Vec<String>)>,
    /// Requests that reached the store, in all.
    pub ops: u64,
    /// Processes that died, in all.
    pub crashes: u64,
    /// The requests of the schedule in the middle.
    pub median_ops: u64,
    /// The deaths of the schedule in the middle.
    pub median_crashes: u64,
    /// What they ran into.
    pub marks: Marks,
    /// How long it took.
    pub seconds: f64,
    /// How many schedules have so many requests, and so many deaths.
    by_ops: Vec<u64>,
    by_crashes: Vec<u64>,
}

impl Report {
    fn add(&mut self, played: &Played) {
        self.schedules += 1;
        self.ops += played.ops;
        self.crashes += played.crashes;
        count(&mut self.by_ops, played.ops);
        count(&mut self.by_crashes, played.crashes);
        self.marks.add(&played.marks);
        if !played.violations.is_empty() {
            self.violations += 1;
            if self.failed.len() < KEPT {
                self.failed.push((played.seed, played.violations.clone()));
            }
        }
    }

    /// Situations that too few schedules ran into, and how often they should have been: what is not
    /// met is not tested. Of a few schedules nothing is asked.
    #[must_use]
    pub fn rare(&self) -> Vec<(Mark, u64)> {
        let wanted = self.schedules / RARE;
        let marks = Mark::ALL
            .iter()
            .filter(|mark| self.marks.of(**mark) < wanted);
        marks.map(|mark| (*mark, wanted)).collect()
    }

    /// How often the rarest situation was met.
    #[must_use]
    pub fn rarest(&self) -> u64 {
        let met = Mark::ALL.iter().map(|mark| self.marks.of(*mark));
        met.min().unwrap_or(0)
    }

    fn merge(&mut self, other: &Report) {
        self.schedules += other.schedules;
        self.violations += other.violations;
        self.failed.extend(other.failed.iter().cloned());
        self.ops += other.ops;
        self.crashes += other.crashes;
        self.marks.add(&other.marks);
        sum(&mut self.by_ops, &other.by_ops);
        sum(&mut self.by_crashes, &other.by_crashes);
    }
}

fn count(histogram: &mut Vec<u64>, value: u64) {
    let at = usize::try_from(value).unwrap_or(usize::MAX).min(4095);
    if histogram.len() <= at {
        histogram.resize(at + 1, 0);
    }
    histogram[at] += 1;
}

fn sum(histogram: &mut Vec<u64>, other: &[u64]) {
    if histogram.len() < other.len() {
        histogram.resize(other.len(), 0);
    }
    for (sum, one) in histogram.iter_mut().zip(other) {
        *sum += one;
    }
}

fn median(histogram: &[u64]) -> u64 {
    let all: u64 = histogram.iter().sum();
    let mut below = 0;
    let found = histogram.iter().position(|count| {
        below += count;
        below * 2 >= all
    });
    found.unwrap_or(0) as u64
}

/// Plays one schedule; a panic of the code under test is a broken promise too.
pub(crate) fn guarded(seed: u64, play: impl FnOnce() -> Played) -> Played {
    let played = catch_unwind(AssertUnwindSafe(play));
    played.unwrap_or_else(|panic| Played {
        seed,
        hash: 0,
        ops: 0,
        crashes: 0,
        violations: vec![format!("it panicked: {}", said(panic.as_ref()))],
        marks: Marks::default(),
        trace: Vec::new(),
    })
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "something that is not text".into())
}

/// Plays the schedules of `count` seeds, the first being `first`, on all cores.
#[must_use]
pub fn play_all(first: u64, count: u64) -> Report {
    in_parallel(count, |player, at| {
        guarded(first + at, || player.play(first + at))
    })
}

/// Panics are part of the schedules; each would be printed otherwise.
pub(crate) fn silently<T>(play: impl FnOnce() -> T) -> T {
    std::panic::set_hook(Box::new(|_| {}));
    let played = play();
    let _ = std::panic::take_hook();
    played
}

/// Plays so many schedules on all cores, and adds up what came of them.
pub(crate) fn in_parallel(count: u64, play: impl Fn(&Player, u64) -> Played + Sync) -> Report {
    silently(|| on_all_cores(count, play))
}

fn on_all_cores(count: u64, play: impl Fn(&Player, u64) -> Played + Sync) -> Report {
    let begun = Instant::now();
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let on = mutant::switched();
    // A core that has less to do otherwise takes more of them.
    let next = AtomicU64::new(0);
    let part = || {
        mutant::switch(on);
        let player = Player::default();
        let mut report = Report::default();
        loop {
            let first = next.fetch_add(SHARE, Ordering::Relaxed);
            if first >= count {
                return report;
            }
            for at in first..count.min(first + SHARE) {
                report.add(&play(&player, at));
            }
        }
    };
    let mut all = Report::default();
    thread::scope(|scope| {
        let playing: Vec<_> = (0..threads).map(|_| scope.spawn(part)).collect();
        for thread in playing {
            all.merge(&thread.join().expect("a player catches panics"));
        }
    });
    all.failed.sort();
    all.failed.truncate(KEPT);
    all.seconds = begun.elapsed().as_secs_f64();
    all.median_ops = median(&all.by_ops);
    all.median_crashes = median(&all.by_crashes);
    all
}

/// Schedules within which a bug must be found.
const HUNT: u64 = 10_000;

/// Which of the bugs that were switched on were found.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// Each with the schedules that it took; none if it was not found.
    pub mutants: Vec<(Mutant, Option<u64>)>,
    /// How long it took.
    pub seconds: f64,
}

impl Hunt {
    /// How many were found.
    #[must_use]
    pub fn caught(&self) -> usize {
        self.mutants.iter().filter(|(_, at)| at.is_some()).count()
    }
}

/// Switches bugs on, one after the other, and plays until a promise is broken.
///
/// # Panics
/// When a thread cannot be joined.
#[must_use]
pub fn hunt(mutants: &[Mutant], first: u64) -> Hunt {
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; mutants.len()]);
    let search = || {
        let player = Player::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(mutant) = mutants.get(at) else {
                break;
            };
            mutant::switch(Some(*mutant));
            let broken = |seed: &u64| !guarded(*seed, || player.play(*seed)).violations.is_empty();
            let seed = (first..first + HUNT).find(broken);
            found.lock().expect("no panic here")[at] = seed.map(|seed| seed - first + 1);
        }
        mutant::switch(None);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(search);
        }
    });
    let _ = std::panic::take_hook();
    let found = found.into_inner().expect("no panic here");
    Hunt {
        mutants: mutants.iter().copied().zip(found).collect(),
        seconds: begun.elapsed().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inv30_a_situation_that_is_not_met_makes_the_report_fail() {
        let mut report = Report {
            schedules: 1_000_000,
            ..Report::default()
        };
        assert_eq!(report.rare().len(), Mark::ALL.len());
        for mark in Mark::ALL {
            (0..100).for_each(|_| report.marks.hit(*mark));
        }
        assert_eq!((report.rare(), report.rarest()), (Vec::new(), 100));
        report.schedules = 1_010_000;
        assert_eq!(report.rare().len(), Mark::ALL.len(), "the more, the more");
        let zombies = Mark::ZombieFenced;
        let mut all_but_one = Report {
            schedules: 20_000,
            ..Report::default()
        };
        for mark in Mark::ALL.iter().filter(|mark| **mark != zombies) {
            (0..2).for_each(|_| all_but_one.marks.hit(*mark));
        }
        assert_eq!(all_but_one.rare(), [(zombies, 2)]);
        all_but_one.schedules = RARE - 1;
        assert_eq!(all_but_one.rare(), [], "of a few nothing is asked");
    }
}
