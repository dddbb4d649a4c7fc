//! Whose turn it is: the order in which a claim looks at the lanes it may take from, so that a busy
//! lane does not starve a quiet one. The lane that came first longest ago comes first.

use roundel_core::LaneId;
use rustc_hash::FxHashMap;

/// When each lane last came first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    last: FxHashMap<LaneId, u64>,
    turn: u64,
}

impl Turns {
    /// The lanes in the order of this turn, each once. A claim takes all that it may from the first
    /// of them, then what is still missing from the second, and so on.
    pub(crate) fn order(&mut self, lanes: &[LaneId]) -> impl Iterator<Item = LaneId> + use<> {
        let mut order: Vec<(u64, LaneId)> = Vec::with_capacity(lanes.len());
        for lane in lanes {
            if order.iter().all(|(_, known)| known != lane) {
                order.push((self.last.get(lane).copied().unwrap_or(0), *lane));
            }
        }
        order.sort_by_key(|(last, _)| *last);
        self.turn += 1;
        if let Some((_, first)) = order.first() {
            self.last.insert(*first, self.turn);
        }
        order.into_iter().map(|(_, lane)| lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b15_every_lane_comes_first_in_turn_whoever_asks_in_between() {
        let mut turns = Turns::default();
        let lanes = |numbers: &[u32]| numbers.iter().copied().map(LaneId).collect::<Vec<_>>();
        let (mine, theirs) = (lanes(&[1, 2]), lanes(&[3, 4]));
        let mut first = Vec::new();
        for _ in 0..4 {
            first.extend(turns.order(&mine).next().map(|lane| lane.0));
            drop(turns.order(&theirs));
        }
        assert_eq!(first, [1, 2, 1, 2]);
        assert!(turns.order(&lanes(&[5, 5, 1])).eq(lanes(&[5, 1])));
    }
}
