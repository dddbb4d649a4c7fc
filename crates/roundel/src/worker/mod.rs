//! The worker: claims runs, drives them, commits their rounds. One task for each run that is
//! leased; runs that wait have none, and stay in memory only as long as there is room.

mod ahead;
mod births;
mod cache;
mod claims;
mod drive;
mod ear;
mod limited;
mod line;
mod load;
mod pause;
mod port;
mod reads;
mod remote;
mod renew;
mod unread;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use roundel_core::{
    Claimed, Lane, LaneId, Name, Op, Register, Release, Reply, RunId, Timestamp, WorkerId,
};
use roundel_store::Store;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use crate::cx::NamedUndos;
pub(crate) use crate::live::Handlers;
use crate::metrics::Counters;
use crate::post::Post;
use crate::projections::Projections;
use crate::rests::Rests;

use births::Births;
use cache::Cache;
pub(crate) use ear::{Ear, Idlers};
use limited::Limited;
use line::{Entry, Line};
use pause::Pauses;
pub(crate) use port::{Note, Port};
use port::{Placed, newest_claim};
pub(crate) use reads::scope_runs;
pub(crate) use remote::Brought;

/// How long stopping waits for the answers to claims.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// How a worker behaves.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) namespace: Name,
    pub(crate) name: Arc<str>,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) max_live: usize,
    /// How many more may be in hand; unless said, as many as get done in the time of a commit.
    pub(crate) in_hand: Option<usize>,
    pub(crate) cached_runs: usize,
    pub(crate) cached_for: Duration,
    pub(crate) sweep: Duration,
    /// No thread renews leases: a test does, by its own time.
    pub(crate) renewed_by_hand: bool,
    /// It works in the name of somebody elsewhere, beside whoever works here.
    pub(crate) elsewhere: bool,
    /// Functions that undo, by name.
    pub(crate) undos: Arc<NamedUndos>,
    pub(crate) projections: Arc<Projections>,
}

pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) config: Config,
    pub(crate) post: Arc<Post>,
    pub(crate) handlers: Arc<Handlers>,
    lanes: OnceLock<Vec<(LaneId, (Name, u32))>>,
    ports: Mutex<FxHashMap<RunId, Arc<Port>>>,
    cache: Mutex<Cache>,
    births: Mutex<Births>,
    limited: Limited,
    /// Runs whose last round is on its way: each will make room for another.
    leaving: AtomicUsize,
    line: Line,
    due: Mutex<Option<Timestamp>>,
    wake_claims: Notify,
    coming: claims::Coming,
    renewals: renew::Renewals,
    stopping: AtomicBool,
    /// Whatever is leased from now on is let go.
    gone: AtomicBool,
    emptied: Notify,
    pub(crate) counters: Arc<Counters>,
    pub(crate) rests: Arc<Rests>,
    pub(crate) runtime: tokio::runtime::Handle,
}

/// A run's last round is on its way.
struct Leaving<'a>(&'a Worker);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker {
    pub(crate) fn new(
        config: Config,
        post: Arc<Post>,
        handlers: Arc<Handlers>,
        (counters, rests): (Arc<Counters>, Arc<Rests>),
    ) -> Worker {
        Worker {
            id: crate::ids::new_worker(),
            cache: Mutex::new(Cache::new(config.cached_runs, counters.clone())),
            births: Mutex::default(),
            limited: Limited::default(),
            leaving: AtomicUsize::new(0),
            line: Line::default(),
            config,
            post,
            handlers,
            lanes: OnceLock::new(),
            ports: Mutex::default(),
            due: Mutex::new(Some(Timestamp(0))),
            wake_claims: Notify::new(),
            coming: claims::Coming::default(),
            renewals: renew::Renewals::default(),
            stopping: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            emptied: Notify::new(),
            counters,
            rests,
            runtime: tokio::runtime::Handle::current(),
        }
    }

    /// Claims what it can run, which has been made known.
    pub(crate) fn start(self: &Arc<Self>) {
        tokio::spawn(claims::run(self.clone()));
        if !self.config.renewed_by_hand {
            renew::start(self);
        }
    }

    /// Makes itself and what it can run known; again, if it was taken for gone.
    pub(crate) async fn register(&self) -> Result<(), roundel_store::Error> {
        let known: Vec<(Name, u32)> = self.handlers.keys().cloned().collect();
        let lane = |(workflow, version): &(Name, u32)| Lane {
            namespace: self.config.namespace.clone(),
            workflow: workflow.clone(),
            version: *version,
        };
        let lanes = known.iter().map(lane).collect();
        let name = self.config.name.to_string();
        let register = Op::Register(Register {
            worker: self.id,
            name,
            lanes,
        });
        let Reply::Registered(ids) = self.post.op(register).await? else {
            unreachable!("a registration answers with lanes")
        };
        let _ = self.lanes.set(ids.into_iter().zip(known).collect());
        Ok(())
    }

    fn ports(&self) -> MutexGuard<'_, FxHashMap<RunId, Arc<Port>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn births(&self) -> MutexGuard<'_, Births> {
        self.births.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane_ids(&self) -> Vec<LaneId> {
        self.lanes
            .get()
            .into_iter()
            .flatten()
            .map(|(id, _)| *id)
            .collect()
    }

    pub(crate) fn workflow_of(&self, lane: LaneId) -> Option<&(Name, u32)> {
        self.lanes
            .get()?
            .iter()
            .find(|(id, _)| *id == lane)
            .map(|(_, workflow)| workflow)
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.post.store()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// While this lives, a run's last round is on its way: another may be claimed in its place, at
    /// best in the same commit.
    fn leaving(&self) -> Leaving<'_> {
        self.leaving.fetch_add(1, Ordering::SeqCst);
        self.room_made();
        Leaving(self)
    }

    /// Takes over runs that an operation of this process leased to it.
    pub(crate) fn adopt_all(self: &Arc<Self>, claimed: Vec<Claimed>) {
        for claimed in claimed {
            self.adopt(claimed, Entry::AtOnce);
        }
    }

    fn adopt(self: &Arc<Self>, claimed: Claimed, entry: Entry) {
        let placed = self.place(&mut self.ports(), claimed);
        if let Some(placed) = placed {
            self.launch(placed, entry);
        }
    }

    /// Whoever drives the run hears of its claim. Returns what it takes to drive it if nobody does.
    fn place(&self, ports: &mut FxHashMap<RunId, Arc<Port>>, claimed: Claimed) -> Option<Placed> {
        let run = claimed.run;
        if let Some(port) = ports.get(&run) {
            port.post(Note::Claimed(Box::new(claimed)));
            return None;
        }
        let mut births = self.births();
        let ahead = births.ahead(run).cloned();
        let birth = births.take(run);
        drop(births);
        if let Some(port) = ahead {
            // Whoever waits for its first round takes it up.
            self.enter(ports, run, &port);
            port.post(Note::Claimed(Box::new(claimed)));
            return None;
        }
        let cached = self
            .cache()
            .take(run)
            .filter(|live| live.is_current(&claimed));
        let flag = cached
            .as_ref()
            .map_or_else(Arc::default, |live| live.flag.clone());
        let port = Port::new(flag);
        self.enter(ports, run, &port);
        Some(Placed {
            claimed,
            port,
            cached,
            birth,
        })
    }

    fn launch(self: &Arc<Self>, placed: Placed, entry: Entry) {
        let Placed {
            claimed,
            port,
            cached,
            birth,
        } = placed;
        let unbegun = claimed.head == 1
            && claimed.execution == 1
            && claimed.cancel == roundel_core::CancelMark::None;
        let birth = birth.filter(|_| unbegun);
        let cached = cached.or_else(|| self.born(claimed.run, birth?, &port));
        let worker = self.clone();
        if let Some(mut live) = cached {
            self.counters.found_in_memory.one();
            live.reclaimed(claimed);
            tokio::spawn(worker.drive(live, (port, entry)));
        } else {
            tokio::spawn(worker.load_and_drive(claimed, (port, entry)));
        }
    }

    /// The run is leased, and from now on reached like this.
    fn enter(&self, ports: &mut FxHashMap<RunId, Arc<Port>>, run: RunId, port: &Arc<Port>) {
        port.leased.store(true, Ordering::Release);
        ports.insert(run, port.clone());
        self.gauge(ports);
        if self.gone.load(Ordering::SeqCst) {
            port.post(Note::Lost);
        }
    }

    /// A place for a run that begins here, if there is room. Nothing is leased yet.
    pub(crate) fn take_place(&self, run: RunId) -> Option<Arc<Port>> {
        let mut ports = self.ports();
        if self.is_stopping() || self.free_slots(&ports) == 0 {
            return None;
        }
        let port = Port::new(Arc::default());
        ports.insert(run, port.clone());
        self.gauge(&ports);
        Some(port)
    }

    /// May a run of this workflow begin here at once, as far as is known?
    pub(crate) fn may_begin_here(&self, workflow: &Name) -> bool {
        !self.limited.is_left_to_claims(workflow)
    }

    /// How a run is reached that is leased by this worker.
    fn port(&self, run: RunId) -> Option<Arc<Port>> {
        let ports = self.ports();
        let port = ports.get(&run).cloned();
        port.or_else(|| self.births().ahead(run).cloned())
    }

    /// The number of runs driven here has changed.
    fn gauge(&self, ports: &FxHashMap<RunId, Arc<Port>>) {
        if self.config.elsewhere {
            return;
        }
        self.counters.live.set(ports.len());
        if ports.len() <= 1 {
            self.store()
                .watch_closely(!ports.is_empty() || self.rests.anybody_waits());
        }
    }

    /// The run is no longer driven here. If it was claimed meanwhile, it is again.
    fn forget(self: &Arc<Self>, run: RunId) {
        self.hand_over(run, None);
    }

    /// The run is no longer driven as it was, but by whoever takes up this claim, or one that came
    /// meanwhile. All under one lock: who stops must not find nothing in hand in between, and leave
    /// with a lease.
    fn hand_over(self: &Arc<Self>, run: RunId, claimed: Option<Box<Claimed>>) {
        let mut ports = self.ports();
        let came = ports.get(&run).map(|port| port.take());
        let mut notes: Vec<Note> = claimed.map(Note::Claimed).into_iter().collect();
        notes.extend(came.unwrap_or_default());
        let Some((claimed, later)) = newest_claim(notes) else {
            self.leave(&mut ports, run);
            return;
        };
        ports.remove(&run);
        let placed = self.place(&mut ports, claimed);
        if let Some(port) = ports.get(&run) {
            later.into_iter().for_each(|note| port.post(note));
        }
        drop(ports);
        if let Some(placed) = placed {
            self.launch(placed, Entry::AtOnce);
        }
    }

    /// One run less is driven here: there is room for another.
    fn leave(&self, ports: &mut FxHashMap<RunId, Arc<Port>>, run: RunId) {
        ports.remove(&run);
        self.gauge(ports);
        self.room_made();
        if ports.is_empty() && self.is_stopping() {
            self.emptied.notify_waiters();
        }
    }

    /// Something may be due from then on.
    pub(crate) fn claim_at(&self, at: Timestamp) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|known| at < known) {
            *due = Some(at);
            drop(due);
            self.wake_claims.notify_one();
        }
    }

    /// The highest version of the workflow that this worker has.
    pub(crate) fn latest(&self, workflow: &Name) -> Option<u32> {
        self.handlers
            .keys()
            .filter(|(name, _)| name == workflow)
            .map(|(_, version)| *version)
            .max()
    }

    /// Lets go of everything at once, as a crash would.
    pub(crate) fn abandon(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.gone.store(true, Ordering::SeqCst);
        self.wake_claims.notify_one();
        self.room_made();
        self.renewals.stop();
        for port in self.ports().values() {
            port.post(Note::Lost);
        }
        let cached = self.cache().take_all();
        drop(cached);
    }

    /// While the worker stops: waits until this is so.
    async fn until(&self, so: impl Fn() -> bool) {
        loop {
            let notified = self.emptied.notified();
            if so() {
                return;
            }
            notified.await;
        }
    }

    /// Stops claiming, lets what runs go on for so long, then gives the rest up.
    pub(crate) async fn stop(&self, drain: Duration) {
        if !self.stopping.swap(true, Ordering::SeqCst) {
            self.wake_claims.notify_one();
            self.room_made();
        }
        // A claim that is on its way may bring runs yet.
        let landed = self.until(|| self.nothing_comes());
        let _ = tokio::time::timeout(STRAGGLERS, landed).await;
        let emptied = self.until(|| self.ports().is_empty());
        let _ = tokio::time::timeout(drain, emptied).await;
        self.gone.store(true, Ordering::SeqCst);
        let runs: Vec<RunId> = self.ports().keys().copied().collect();
        for port in self.ports().values() {
            port.post(Note::Lost);
        }
        let release = Release {
            worker: self.id,
            runs,
            leave: true,
        };
        let _ = self.post.op(Op::Release(release)).await;
        self.renewals.stop();
        let cached = self.cache().take_all();
        drop(cached);
    }
}
