//! Whose turn it is: the order in which a claim looks at the lanes it may take from, so that a busy
//! lane does not starve a quiet one. The lane that came first longest ago comes first.

use roundel_core::LaneId;

/// The lanes that have come first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    /// The one longest ago first.
    past: Vec<LaneId>,
    known: Lanes,
}

impl Turns {
    /// The lanes in the order of this turn, each once. A claim takes all that it may from the first
    /// of them, then what is still missing from the second, and so on.
    pub(crate) fn order(&mut self, lanes: impl ExactSizeIterator<Item = LaneId>) -> Vec<LaneId> {
        let mut asked = Lanes::default();
        let mut order: Vec<LaneId> = Vec::with_capacity(lanes.len());
        // Those that never came first come before all others.
        for lane in lanes {
            if asked.add(lane) && !self.known.has(lane) {
                order.push(lane);
            }
        }
        order.extend(self.past.iter().filter(|lane| asked.has(**lane)));
        if let Some(first) = order.first() {
            if !self.known.add(*first) {
                self.past.retain(|lane| lane != first);
            }
            self.past.push(*first);
        }
        order
    }
}

/// Some lanes: those of the smallest numbers are a bit each, the others are looked for.
#[derive(Clone, Debug, Default)]
struct Lanes {
    small: u64,
    others: Vec<LaneId>,
}

impl Lanes {
    fn bit(lane: LaneId) -> Option<u64> {
        1u64.checked_shl(lane.0)
    }

    fn has(&self, lane: LaneId) -> bool {
        match Lanes::bit(lane) {
            Some(bit) => self.small & bit != 0,
            None => self.others.contains(&lane),
        }
    }

    /// Adds one, and says whether it is new.
    fn add(&mut self, lane: LaneId) -> bool {
        let new = !self.has(lane);
        match Lanes::bit(lane) {
            Some(bit) => self.small |= bit,
            None if new => self.others.push(lane),
            None => {}
        }
        new
    }
}

/// The first of each list, then the second of each, and so on, so many of them.
pub(crate) fn in_turn<T>(lists: Vec<Vec<T>>, limit: usize) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut order = Vec::new();
    while !lists.is_empty() && order.len() < limit {
        lists.retain_mut(|list| {
            let next = list.next().filter(|_| order.len() < limit);
            next.map(|item| order.push(item)).is_some()
        });
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn co_30_lists_take_turns() {
        let lists = || vec![vec![1, 2, 3], vec![4], vec![], vec![5, 6]];
        assert_eq!(in_turn(lists(), 9), [1, 4, 5, 2, 6, 3]);
        assert_eq!(in_turn(lists(), 4), [1, 4, 5, 2]);
        assert_eq!(in_turn(lists(), 0), [0; 0]);
    }

    #[test]
    fn b15_every_lane_comes_first_in_turn_whoever_asks_in_between() {
        let mut turns = Turns::default();
        let lanes = |numbers: &'static [u32]| numbers.iter().copied().map(LaneId);
        let (mine, theirs) = (lanes(&[1, 2]), lanes(&[3, 4]));
        let mut first = Vec::new();
        for _ in 0..4 {
            first.extend(turns.order(mine.clone()).first().map(|lane| lane.0));
            drop(turns.order(theirs.clone()));
        }
        assert_eq!(first, [1, 2, 1, 2]);
        assert!(lanes(&[5, 1]).eq(turns.order(lanes(&[5, 5, 1]))));
        assert!(lanes(&[500, 9]).eq(turns.order(lanes(&[500, 9, 500]))));
    }
}
