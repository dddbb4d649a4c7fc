//! Lanes: all of them, always here. Their numbers are their places, and they are only ever added.

use crate::{Lane, LaneId, Rows};

impl Rows {
    /// What a lane stands for.
    ///
    /// # Panics
    /// When the lane was never made.
    #[must_use]
    pub fn lane(&self, id: LaneId) -> &Lane {
        &self.lanes[id.0 as usize - 1]
    }

    /// All lanes, the first having number 1.
    #[must_use]
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The lanes that the database has, in order of their numbers.
    pub fn load_lanes(&mut self, lanes: Vec<Lane>) {
        self.stored_lanes = lanes.len();
        self.lanes = lanes;
        self.note_limits();
    }

    pub(crate) fn find_lane(&self, lane: &Lane) -> Option<LaneId> {
        // What differs most often is compared first.
        let is_it = |known: &Lane| known.workflow == lane.workflow && known == lane;
        let at = self.lanes.iter().position(is_it)?;
        Some(LaneId(u32::try_from(at).expect("few lanes") + 1))
    }

    pub(crate) fn make_lane(&mut self, lane: &Lane) -> LaneId {
        if let Some(id) = self.find_lane(lane) {
            return id;
        }
        self.lanes.push(lane.clone());
        self.note_limits();
        LaneId(u32::try_from(self.lanes.len()).expect("few lanes"))
    }

    /// Those of a worker. Workers name the same lanes in much the same order: the one after that
    /// which was found last is looked at first.
    pub(crate) fn make_lanes(&mut self, lanes: &[Lane]) -> Vec<LaneId> {
        let mut last = LaneId(0);
        let mut make = |lane: &Lane| {
            last = match self.lanes.get(last.0 as usize) {
                Some(next) if next == lane => LaneId(last.0 + 1),
                _ => self.make_lane(lane),
            };
            last
        };
        lanes.iter().map(&mut make).collect()
    }
}
