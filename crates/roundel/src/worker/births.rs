//! Runs that were started here and have not begun: whoever claims one need not read its journal,
//! and can bring it to its first call ahead of the claim.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Caused, Context, Deadlines, Name, Op, Payload, Round, RunId, Start};
use roundel_store::Ask;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::{Port, Worker};

/// Bytes of inputs that are kept.
const ROOM: usize = 16 << 20;
/// What an input costs beyond its own size.
const EACH: usize = 256;

/// What a run was started with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Birth {
    pub(super) workflow: Name,
    pub(super) version: Option<u32>,
    pub(super) input: Payload,
    pub(super) key: Option<Name>,
    pub(super) is_root: bool,
    pub(super) deadlines: Deadlines,
    pub(super) context: Context,
}

#[derive(Default)]
pub(super) struct Births {
    births: FxHashMap<RunId, Birth>,
    /// By age. Some of these have been taken.
    order: VecDeque<(RunId, Instant)>,
    bytes: usize,
    /// Runs whose first rounds are made, or on their way behind a claim: how they are reached.
    ahead: FxHashMap<RunId, Arc<Port>>,
}

impl Births {
    /// Keeps it while there is room. In a queue that is longer than that, those that came first are
    /// also needed first; so the newest is the one that is not kept.
    pub(super) fn put(&mut self, start: &Start, kept_for: Duration) {
        while let Some((oldest, since)) = self.order.front() {
            let oldest = *oldest;
            if self.births.contains_key(&oldest) && since.elapsed() < kept_for {
                break;
            }
            self.order.pop_front();
            self.take(oldest);
        }
        let birth = Birth::of(start);
        let size = birth.cost();
        if self.bytes + size > ROOM || kept_for.is_zero() {
            return;
        }
        self.bytes += size;
        self.order.push_back((start.run, Instant::now()));
        if let Some(before) = self.births.insert(start.run, birth) {
            self.bytes -= before.cost();
        }
    }

    pub(super) fn take(&mut self, run: RunId) -> Option<Birth> {
        let birth = self.births.remove(&run)?;
        self.bytes -= birth.cost();
        Some(birth)
    }

    /// The one that has waited longest: from now on it is ahead of its claim.
    pub(super) fn take_oldest(&mut self) -> Option<(RunId, Birth, Arc<Port>)> {
        loop {
            let (run, _) = self.order.pop_front()?;
            if let Some(birth) = self.take(run) {
                let port = Port::new(Arc::default());
                self.ahead.insert(run, port.clone());
                return Some((run, birth, port));
            }
        }
    }

    /// How a run is reached that is ahead of its claim.
    pub(super) fn ahead(&self, run: RunId) -> Option<&Arc<Port>> {
        self.ahead.get(&run)
    }

    /// It is known what became of its first round.
    pub(super) fn no_more_ahead(&mut self, run: RunId) {
        self.ahead.remove(&run);
    }
}

impl Birth {
    pub(super) fn of(start: &Start) -> Birth {
        Birth {
            workflow: start.workflow.clone(),
            version: start.version,
            input: start.input.clone(),
            key: start.key.clone(),
            is_root: start.parent.is_none(),
            deadlines: start.deadlines,
            context: start.context.clone(),
        }
    }

    fn cost(&self) -> usize {
        self.input.size() + self.context.size() + EACH
    }
}

impl Worker {
    /// This run is about to be started, and may be claimed here.
    pub(crate) fn expect(&self, start: &Start) {
        if let Some(batch) = &start.batch {
            return batch.members.iter().for_each(|start| self.expect(start));
        }
        let soon = start.at.is_none() && start.priority == 0 && start.claimant.is_none();
        // Another may stand for it, or take its place.
        let soon = soon && start.dedupe.is_none();
        let known = self.latest(&start.workflow).is_some();
        if soon && known && start.namespace == self.config.namespace {
            self.births().put(start, self.config.cached_for);
        }
    }

    /// A round is on its way: what it sets off may be claimed here.
    pub(super) fn expect_of(&self, round: &Round) {
        set_off(round).for_each(|start| self.expect(start));
    }

    /// What was asked for was not done: neither is there what it would have set off.
    pub(super) fn expect_no_more(&self, ask: &Ask) {
        let round = match ask {
            Ask::Op(Op::Start(start)) => start.first.as_deref(),
            Ask::Op(Op::Commit(round)) => Some(round),
            _ => None,
        };
        if let Some(round) = round {
            let mut births = self.births();
            set_off(round).for_each(|start| drop(births.take(start.run)));
        }
    }
}

/// The runs that a round starts.
fn set_off(round: &Round) -> impl Iterator<Item = &Start> {
    round.caused.iter().flat_map(|caused| match caused {
        Caused::Child(_, start) | Caused::Spawn(_, start) => std::slice::from_ref(&**start),
        Caused::Children(_, starts) => starts.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn start(number: u128, bytes: usize) -> Start {
        Start::new(
            Name::new("default").expect("a name"),
            run(number),
            Name::new("work").expect("a name"),
            Payload::encode(&"x".repeat(bytes)).expect("a text"),
        )
    }

    #[test]
    fn what_was_put_is_taken_once_the_oldest_first() {
        let mut births = Births::default();
        for number in 1..=3 {
            births.put(&start(number, 5), LONG);
        }
        assert!(births.take(run(1)).is_some());
        assert_eq!(births.take(run(1)), None);
        let oldest = births.take_oldest().expect("two are left");
        assert_eq!(oldest.0, run(2));
        assert_eq!(oldest.1.input, start(2, 5).input);
        assert!(births.ahead(run(2)).is_some() && births.ahead(run(3)).is_none());
        births.no_more_ahead(run(2));
        assert!(births.ahead(run(2)).is_none());
        assert!(births.take(run(3)).is_some());
        assert!(births.take_oldest().is_none());
        assert_eq!(births.bytes, 0);
    }

    #[test]
    fn the_newest_is_not_kept_when_there_is_no_room() {
        let mut births = Births::default();
        for number in 0..100 {
            births.put(&start(number, 1 << 20), LONG);
        }
        assert!(births.bytes <= ROOM);
        assert!(births.take(run(0)).is_some());
        assert!(births.take(run(99)).is_none());
        births.put(&start(100, 1 << 20), LONG);
        assert!(births.take(run(100)).is_some(), "there is room again");
    }

    #[test]
    fn the_old_make_room() {
        let mut births = Births::default();
        births.put(&start(1, 5), LONG);
        std::thread::sleep(Duration::from_millis(2));
        births.put(&start(2, 5), Duration::from_millis(1));
        assert!(births.take(run(1)).is_none());
        assert!(births.take(run(2)).is_some());
        assert!(births.order.len() <= 1);
    }
}
