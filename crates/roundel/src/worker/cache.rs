//! Runs that wait, in memory while there is room: the least recently used leave first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use roundel_core::RunId;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::live::LiveRun;
use crate::metrics::Counters;

pub(super) struct Cache {
    counters: Arc<Counters>,
    room: usize,
    number: u64,
    runs: FxHashMap<RunId, (u64, Box<LiveRun>)>,
    order: BTreeMap<u64, (RunId, Instant)>,
}

impl Cache {
    pub(super) fn new(room: usize, counters: Arc<Counters>) -> Cache {
        Cache {
            counters,
            room,
            number: 0,
            runs: FxHashMap::default(),
            order: BTreeMap::new(),
        }
    }

    /// Keeps a run. What it displaces comes back, to be dropped without the lock.
    pub(super) fn put(&mut self, live: Box<LiveRun>) -> Option<Box<LiveRun>> {
        let displaced = self.displace(live);
        self.counters.cached.set(self.runs.len());
        displaced
    }

    fn displace(&mut self, live: Box<LiveRun>) -> Option<Box<LiveRun>> {
        if self.room == 0 {
            return Some(live);
        }
        self.number += 1;
        let run = live.run();
        let before = self.runs.insert(run, (self.number, live));
        self.order.insert(self.number, (run, Instant::now()));
        if let Some((number, live)) = before {
            self.order.remove(&number);
            return Some(live);
        }
        if self.runs.len() <= self.room {
            return None;
        }
        let (_, (oldest, _)) = self.order.pop_first()?;
        self.runs.remove(&oldest).map(|(_, live)| live)
    }

    pub(super) fn take(&mut self, run: RunId) -> Option<Box<LiveRun>> {
        let (number, live) = self.runs.remove(&run)?;
        self.order.remove(&number);
        self.counters.cached.set(self.runs.len());
        Some(live)
    }

    /// Takes out what has waited longer than this.
    pub(super) fn take_idle(&mut self, idle: Duration) -> Vec<LiveRun> {
        let mut idle_runs = Vec::new();
        while let Some((_, (run, since))) = self.order.first_key_value() {
            if since.elapsed() < idle {
                break;
            }
            let run = *run;
            idle_runs.extend(self.take(run).map(|live| *live));
        }
        idle_runs
    }

    /// Takes out everything, to be dropped without the lock.
    pub(super) fn take_all(&mut self) -> Vec<LiveRun> {
        self.take_idle(Duration::ZERO)
    }
}
