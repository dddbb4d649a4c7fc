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
    pub(crate) fn order(&mut self, lanes: impl Iterator<Item = LaneId>) -> Vec<LaneId> {
        self.order_of(lanes, |_| true)
    }

    /// The same, without those that are not `wanted`: they have their turn all the same.
    pub(crate) fn order_of(
        &mut self,
        lanes: impl Iterator<Item = LaneId>,
        wanted: impl Fn(LaneId) -> bool,
    ) -> Vec<LaneId> {
        let (mut asked, mut new) = (Lanes::default(), Vec::new());
        for lane in lanes {
            if asked.add(lane) && !self.known.has(lane) {
                new.push(lane);
            }
        }
        // Those that never came first come before all others.
        let first = new.first().copied();
        let mut order = new;
        order.retain(|lane| wanted(*lane));
        let past = self.past.iter().copied();
        order.extend(past.filter(|lane| asked.has(*lane) && wanted(*lane)));
        if let Some(first) = first {
            self.known.add(first);
            self.past.push(first);
        } else if let Some(at) = self.past.iter().position(|lane| asked.has(*lane)) {
            let first = self.past.remove(at);
            self.past.push(first);
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

    #[test]
    fn b15_a_lane_that_is_not_wanted_has_its_turn_all_the_same() {
        let (mut all, mut some) = (Turns::default(), Turns::default());
        let lanes = [3, 70, 1, 2].map(LaneId);
        let wanted = |lane: LaneId| lane.0 != 70 && lane.0 != 1;
        for asked in [
            &lanes[..2],
            &lanes,
            &lanes[1..],
            &lanes,
            &lanes,
            &lanes[2..],
        ] {
            let mut order = all.order(asked.iter().copied());
            order.retain(|lane| wanted(*lane));
            assert_eq!(some.order_of(asked.iter().copied(), wanted), order);
        }
    }
}
