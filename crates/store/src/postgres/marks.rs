//! How far a claim has looked: what is due before that has been seen.
//!
//! A run that was claimed leaves an entry behind in the index that schedules, at the time at which
//! it was due, and one at the end of its lease. As long as any transaction is open that may still
//! see them, nobody can remove them, and a claim that begins at the left wades through all of them.
//! So a claim that has just looked at everything (a sweep) notes from where the next may begin.
//!
//! It may miss what was committed late, under an earlier time, or at a priority that was not there
//! before. So it is believed only if it finds something, or for a moment; and sweeps are made again
//! and again, as often as they cost little beside what is between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use roundel_core::{LaneId, Timestamp};

/// How far back a claim looks beyond what has been seen: a batch takes no longer, as a rule.
const LATE: Duration = Duration::from_millis(250);
/// A sweep is made so often at least, while there is something to claim.
const SWEEP: Duration = Duration::from_secs(1);
/// That a claim found nothing is believed for so long.
const EMPTY: Duration = Duration::from_millis(50);
/// Sweeps take one part in so many of the time.
const PART: u32 = 20;

/// Part of the index: a lane, suspects or not, a priority.
pub(super) type Level = (LaneId, bool, i32);

/// What the last sweep saw.
#[derive(Default)]
pub(super) struct Marks {
    swept: Option<(Instant, Duration)>,
    lanes: BTreeSet<LaneId>,
    /// From where to look.
    levels: BTreeMap<Level, Timestamp>,
    /// When the next run was due.
    next: Option<Timestamp>,
}

impl Marks {
    /// Where to look in these lanes, and from when on; none if all is to be looked at.
    pub(super) fn levels(&self, lanes: &[LaneId]) -> Option<Vec<(Level, Timestamp)>> {
        let known = lanes.iter().all(|lane| self.lanes.contains(lane));
        if !known || self.is_older_than(SWEEP) {
            return None;
        }
        let of = |lane: &LaneId| {
            let from = self.levels.range((*lane, false, i32::MIN)..);
            let of_lane = from.take_while(move |((of, ..), _)| of == lane);
            of_lane
                .map(|(level, from)| (*level, *from))
                .collect::<Vec<_>>()
        };
        Some(lanes.iter().flat_map(of).collect())
    }

    /// Is it believed that nothing was found?
    pub(super) fn believes_in_nothing(&self) -> bool {
        !self.is_older_than(EMPTY)
    }

    fn is_older_than(&self, age: Duration) -> bool {
        let swept = self.swept;
        swept.is_none_or(|(at, took)| at.elapsed() > age.max(took * PART))
    }

    /// When to ask again: when the next was due at the last sweep, or for the next sweep.
    pub(super) fn next(&self, now: Timestamp) -> Timestamp {
        let sweep = now.after(SWEEP);
        self.next
            .filter(|at| *at > now)
            .map_or(sweep, |at| at.min(sweep))
    }

    /// All of these lanes was looked at.
    pub(super) fn sweep(&mut self, lanes: &[LaneId], took: Duration, next: Option<Timestamp>) {
        *self = Marks {
            swept: Some((Instant::now(), took)),
            lanes: lanes.iter().copied().collect(),
            levels: BTreeMap::new(),
            next,
        };
    }

    /// A level was looked at: the first that is due there is due then.
    pub(super) fn mark(&mut self, level: Level, first: Option<Timestamp>, now: Timestamp) {
        let late = Timestamp(now.0 - i64::try_from(LATE.as_micros()).unwrap_or(0));
        let from = first.map_or(late, |first| first.min(late));
        self.levels.insert(level, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(3);
    const NOW: Timestamp = Timestamp(9_000_000);

    fn swept() -> Marks {
        let mut marks = Marks::default();
        marks.sweep(
            &[LANE, LaneId(4)],
            Duration::ZERO,
            Some(Timestamp(9_200_000)),
        );
        marks.mark((LANE, false, 0), None, NOW);
        marks.mark((LANE, true, 0), Some(Timestamp(5)), NOW);
        marks.mark((LaneId(4), false, -1), None, NOW);
        marks
    }

    #[test]
    fn it_is_looked_a_little_further_back_or_from_the_first_that_was_left() {
        let late = Timestamp(8_750_000);
        let found = swept().levels(&[LANE]).unwrap();
        let wanted = [((LANE, false, 0), late), ((LANE, true, 0), Timestamp(5))];
        assert_eq!(found, wanted);
    }

    #[test]
    fn b15_lanes_that_no_sweep_has_seen_and_old_sweeps_count_for_nothing() {
        assert_eq!(Marks::default().levels(&[LANE]), None);
        assert_eq!(swept().levels(&[LANE, LaneId(5)]), None);
        let mut marks = swept();
        let ago = |span| Instant::now().checked_sub(span).unwrap();
        marks.swept = Some((ago(2 * SWEEP), Duration::ZERO));
        assert_eq!(marks.levels(&[LANE]), None);
        assert!(!marks.believes_in_nothing());
        marks.swept = Some((ago(2 * SWEEP), SWEEP));
        assert!(
            marks.levels(&[LANE]).is_some(),
            "a sweep that took long is made less often"
        );
    }

    #[test]
    fn it_is_asked_again_when_the_next_is_due_or_for_a_sweep() {
        assert_eq!(swept().next(NOW), Timestamp(9_200_000));
        assert_eq!(swept().next(Timestamp(9_200_000)), Timestamp(10_200_000));
    }
}
