//! Claiming: when something is due, and when there is room. At rest nothing is asked; a slow sweep
//! stands behind the hints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use roundel_core::{Claim, Refusal, RunId, Timestamp, limits};
use roundel_store::Error;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc};

use super::ahead::{Flight, Landed};
use super::{Pauses, Port, Worker};

/// Runs one claim may take: enough to fill a batch, few enough to share with other processes.
const AT_ONCE: usize = 256;

/// Claims on their way at once: while one waits for the disk, the next asks for what the slots that
/// became free since can take.
const IN_FLIGHT: usize = 3;
/// The first pause after a claim that failed.
const PAUSE: Duration = Duration::from_millis(10);

/// Claims on their way.
#[derive(Default)]
pub(super) struct Coming {
    claims: AtomicUsize,
    /// How many runs they may bring.
    runs: AtomicUsize,
    /// Claims that failed since the last that did not.
    failed: AtomicU32,
    /// The last claim left something behind that was due.
    more: AtomicBool,
    /// Whoever claims waits for room.
    blocked: AtomicBool,
    room: Notify,
}

impl Worker {
    /// How many more runs may be in hand, by the time that a claim is answered. A run whose last
    /// round is on its way counts no more: another may take its place in the same commit.
    pub(super) fn free_slots(&self, ports: &FxHashMap<RunId, Arc<Port>>) -> usize {
        let leaving = self.leaving.load(Ordering::SeqCst);
        let coming = self.coming.runs.load(Ordering::SeqCst);
        let more = self.more_in_hand();
        (self.config.max_live + leaving + more).saturating_sub(ports.len() + coming)
    }

    /// Keeps room for as many runs as one more claim may ask for.
    fn keep_room(&self) -> usize {
        if self.coming.claims.load(Ordering::SeqCst) >= IN_FLIGHT {
            return 0;
        }
        let ports = self.ports();
        let room = self.free_slots(&ports).min(AT_ONCE).min(limits::CLAIM);
        self.coming.runs.fetch_add(room, Ordering::SeqCst);
        room
    }

    /// There may be room where there was none.
    pub(super) fn room_made(&self) {
        if self.coming.blocked.load(Ordering::SeqCst) {
            self.coming.room.notify_one();
        }
    }

    /// Is no claim on its way?
    pub(super) fn nothing_comes(&self) -> bool {
        self.coming.claims.load(Ordering::SeqCst) == 0
    }

    fn claim_over(&self) {
        self.coming.claims.fetch_sub(1, Ordering::SeqCst);
        self.room_made();
        if self.is_stopping() {
            self.emptied.notify_waiters();
        }
    }

    /// How many runs to ask for now; waits until there is room for one.
    async fn room(&self) -> usize {
        let coming = &self.coming;
        let mut room = self.keep_room();
        while room == 0 && !self.is_stopping() {
            coming.blocked.store(true, Ordering::SeqCst);
            room = self.keep_room();
            if room == 0 && !self.is_stopping() {
                coming.room.notified().await;
                // Those that end together are replaced together.
                tokio::task::yield_now().await;
                room = self.keep_room();
            }
            coming.blocked.store(false, Ordering::SeqCst);
        }
        room
    }
}

pub(super) async fn run(worker: Arc<Worker>) {
    let (sender, flights) = mpsc::unbounded_channel();
    tokio::spawn(land(worker.clone(), flights));
    loop {
        wait_until_due(&worker).await;
        let limit = worker.room().await;
        let coming = &worker.coming;
        coming.claims.fetch_add(1, Ordering::SeqCst);
        if worker.is_stopping() {
            worker.claim_over();
            return;
        }
        drop_idle(&worker);
        let claim = Claim {
            worker: worker.id,
            lanes: worker.lane_ids(),
            limit,
            lease: worker.config.lease,
        };
        if coming.more.load(Ordering::Relaxed) {
            worker.claim_at(Timestamp(0));
        }
        let flight = worker.send_claim(claim);
        if sender.send((flight, limit)).is_err() {
            return;
        }
    }
}

/// Takes over what claims bring, in the order in which they were made.
async fn land(worker: Arc<Worker>, mut flights: mpsc::UnboundedReceiver<(Flight, usize)>) {
    while let Some((flight, limit)) = flights.recv().await {
        let mut landed = worker.land(flight).await;
        if let Err(Error::Refused(Refusal::UnknownWorker { .. })) = landed {
            // It was away for so long, or the clock jumped, that it was taken for gone.
            landed = worker.register().await.map(|()| Landed {
                empty: true,
                next: Some(Timestamp(0)),
            });
        }
        worker.landed(landed);
        worker.coming.runs.fetch_sub(limit, Ordering::SeqCst);
        worker.claim_over();
    }
}

impl Worker {
    fn landed(&self, landed: Result<Landed, Error>) {
        let (counters, coming) = (&self.counters, &self.coming);
        match landed {
            Ok(Landed { empty, next }) => {
                coming.failed.store(0, Ordering::Relaxed);
                if empty {
                    &counters.claims_empty
                } else {
                    &counters.claims_with_runs
                }
                .one();
                let more = next.is_some_and(|next| next <= self.store().now());
                coming.more.store(more, Ordering::Relaxed);
                if let Some(next) = next {
                    self.claim_at(next);
                }
            }
            Err(Error::Closed) => {}
            Err(error) => {
                tracing::warn!(%error, "claim failed");
                counters.claims_failed.one();
                coming.more.store(false, Ordering::Relaxed);
                let times = coming.failed.fetch_add(1, Ordering::Relaxed);
                let pause = Pauses::after(times, self.id.0, PAUSE).next();
                self.claim_at(self.store().now().after(pause));
            }
        }
    }
}

async fn wait_until_due(worker: &Worker) {
    loop {
        let notified = worker.wake_claims.notified();
        let now = worker.store().now();
        let at = {
            let mut due = worker
                .due
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match *due {
                Some(at) if at <= now => {
                    *due = None;
                    return;
                }
                Some(at) => at.min(now.after(worker.config.sweep)),
                None => now.after(worker.config.sweep),
            }
        };
        if worker.is_stopping() {
            return;
        }
        tokio::select! {
            biased;
            () = notified => {}
            () = worker.store().clock().sleep_until(at) => worker.claim_at(Timestamp(0)),
        }
    }
}

fn drop_idle(worker: &Worker) {
    let idle = worker.cache().take_idle(worker.config.cached_for);
    drop(idle);
}
