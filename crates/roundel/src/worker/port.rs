//! Ports: how a run that is driven here is reached, and what it is told.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use roundel_core::{Claimed, Delivery, Fence};

use super::births::Birth;
use crate::flag::Flag;
use crate::live::LiveRun;

/// How a run that is being driven is reached.
pub(crate) struct Port {
    pub(super) flag: Arc<Flag>,
    notes: Mutex<Vec<Note>>,
    /// The database knows of the lease.
    pub(super) leased: AtomicBool,
}

/// Something a run's task must know.
pub(crate) enum Note {
    /// What was told under a fence that has passed is known.
    Mail(Fence, Delivery),
    Cancel(Fence),
    Lost,
    Claimed(Box<Claimed>),
}

/// A run that is to be driven here from now on.
pub(super) struct Placed {
    pub(super) claimed: Claimed,
    pub(super) port: Arc<Port>,
    pub(super) cached: Option<Box<LiveRun>>,
    pub(super) birth: Option<Birth>,
}

/// The newest claim of these notes, and what was told after it.
pub(super) fn newest_claim(notes: Vec<Note>) -> Option<(Claimed, Vec<Note>)> {
    let mut newest: Option<(Claimed, Vec<Note>)> = None;
    for note in notes {
        match (note, &mut newest) {
            (Note::Claimed(claimed), Some((known, _)))
                if claimed.fence().is_before(known.fence()) => {}
            (Note::Claimed(claimed), _) => newest = Some((*claimed, Vec::new())),
            (note, Some((_, later))) => later.push(note),
            (_, None) => {}
        }
    }
    newest
}

impl Port {
    pub(super) fn new(flag: Arc<Flag>) -> Arc<Port> {
        Arc::new(Port {
            flag,
            notes: Mutex::default(),
            leased: AtomicBool::new(false),
        })
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(&self, note: Note) {
        self.notes().push(note);
        self.flag.wake_by_ref();
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes().is_empty()
    }

    /// Was the run claimed after this, or another under its id, and its task has not taken it up?
    pub(super) fn is_claimed(&self, fence: Fence) -> bool {
        let newer = |note: &Note| {
            let Note::Claimed(claimed) = note else {
                return false;
            };
            let its = claimed.fence();
            its != fence && !its.is_before(fence)
        };
        self.notes().iter().any(newer)
    }

    /// Leases up to this are known to the run's task, which has just begun.
    pub(super) fn outdated(&self, fence: Fence) {
        let known = |claimed: &Claimed| claimed.epoch <= fence.epoch;
        let newer = |note: &Note| !matches!(note, Note::Claimed(claimed) if known(claimed));
        self.notes().retain(newer);
    }

    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use roundel_core::{CancelMark, Deadlines, LaneId, Name, RunId, Timestamp};
    use roundel_store::{Memory, SystemClock};

    use super::*;
    use crate::post::Post;
    use crate::worker::{Config, Worker};

    const RUN: RunId = RunId(uuid::Uuid::from_u128(1));

    fn claimed(epoch: u64) -> Note {
        Note::Claimed(Box::new(Claimed {
            run: RUN,
            epoch,
            created_at: Timestamp(1),
            lane: LaneId(1),
            execution: 1,
            head: 1,
            parent: None,
            key: None,
            cancel: CancelMark::None,
            deadlines: Deadlines::default(),
            suspect: false,
            inbox: Vec::new(),
            at: Timestamp(1),
        }))
    }

    #[test]
    fn the_newest_claim_is_taken_and_what_was_told_after_it() {
        let epochs = |notes: Vec<Note>| {
            newest_claim(notes).map(|(claimed, later)| (claimed.epoch, later.len()))
        };
        assert_eq!(epochs(vec![Note::Lost]), None);
        assert_eq!(epochs(vec![Note::Lost, claimed(3)]), Some((3, 0)));
        // An answer that came late, after that to a later claim.
        assert_eq!(
            epochs(vec![claimed(5), Note::Lost, claimed(3)]),
            Some((5, 1))
        );
        assert_eq!(
            epochs(vec![claimed(3), Note::Lost, claimed(5)]),
            Some((5, 0))
        );
    }

    fn worker() -> Arc<Worker> {
        let config = Config {
            namespace: Name::constant("default"),
            name: "it".into(),
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            max_live: 10,
            in_hand: None,
            cached_runs: 10,
            cached_for: Duration::from_secs(60),
            sweep: Duration::from_secs(30),
            renewed_by_hand: true,
            elsewhere: false,
            undos: Arc::default(),
            projections: Arc::default(),
        };
        let store = Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let post = Arc::new(Post::new(store, Arc::default()));
        let shared = (Arc::default(), Arc::default());
        Arc::new(Worker::new(config, post, Arc::default(), shared))
    }

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        std::pin::pin!(future).poll(&mut context).is_ready()
    }

    #[tokio::test]
    async fn ro_13_who_stops_does_not_find_nothing_in_hand_while_a_claim_is_handed_over() {
        let worker = worker();
        let port = worker.take_place(RUN).expect("there is room");
        port.post(claimed(2));
        worker.stopping.store(true, Ordering::SeqCst);
        let emptied = worker.emptied.notified();
        worker.forget(RUN);
        assert!(!is_ready(emptied), "it is in hand still");
        let next = worker
            .ports()
            .get(&RUN)
            .cloned()
            .expect("it is driven again");
        assert!(!Arc::ptr_eq(&next, &port) && next.leased.load(Ordering::Acquire));

        next.take();
        let emptied = worker.emptied.notified();
        worker.forget(RUN);
        assert!(is_ready(emptied) && worker.ports().is_empty());
    }
}
