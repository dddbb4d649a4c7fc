//! The shop's day: orders come in, customers write again, the worker is killed and replaced, until
//! everything has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::time::{Duration, Instant};

use roundel::{Engine, Error, RunId, RunState, Sent, Stats};

use super::outside::Services;
use super::place::Place;
use super::plan::Plan;
use super::screen::{Progress, Screen};
use super::shop::{ADDRESS, ORDER};
use super::worker::Worker;

const TICK: Duration = Duration::from_millis(10);
/// How often the counts are read.
const LOOK: Duration = Duration::from_millis(100);
/// Nothing new in so many looks, and something is wrong. Not a time: a process may be paused.
const PATIENCE: u32 = 300;
/// How long the database may be too busy for one request.
const BUSY: Duration = Duration::from_secs(60);

/// What the demo saw from outside.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) workers: usize,
    pub(super) kills: usize,
    /// Runs that had not ended when a worker was killed, and went on in another.
    pub(super) resumed: BTreeSet<RunId>,
    /// Of these, those that the worker had in hand.
    pub(super) in_hand: BTreeSet<RunId>,
    /// Orders and addresses that were accepted while there was no worker.
    pub(super) meanwhile: u64,
    /// What became of the addresses.
    pub(super) delivered: u64,
    pub(super) queued: u64,
    pub(super) late: u64,
    pub(super) seconds: f64,
    /// The key of an order that a killed worker had in hand.
    pub(super) example: Option<String>,
}

/// Everything that the day needs.
pub(super) struct Day<'a> {
    pub(super) plan: &'a Plan,
    pub(super) place: &'a Place,
    pub(super) engine: &'a Engine,
    pub(super) services: &'a Services,
    pub(super) screen: &'a mut Screen,
}

/// Why the day could not be finished.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error("the worker process: {0}")]
    Process(#[from] std::io::Error),
    #[error("the worker process ended by itself: {0}")]
    Ended(std::process::ExitStatus),
}

impl Day<'_> {
    /// Lives through the day. Whether all went well is for the audit to say.
    pub(super) async fn pass(&mut self) -> Result<Tally, Trouble> {
        let mut tally = Tally::default();
        let begun = Instant::now();
        let mut worker = Some(self.start_worker(begun.elapsed(), &mut tally)?);
        let (mut orders, mut addresses) = (0, self.addresses());
        let (mut kills, mut killed) = (self.plan.kills.iter().peekable(), begun);
        let (mut looked, mut seen) = (Duration::ZERO, Seen::default());
        while seen.same < PATIENCE {
            let now = begun.elapsed();
            let next = kills.peek().copied().filter(|_| worker.is_some());
            let until = next.map_or(self.plan.orders.len(), |kill| kill.after);
            orders = self
                .open_orders(orders..until, now, (&worker, &mut tally))
                .await?;
            self.send_addresses(&mut addresses, (orders, now), (&worker, &mut tally))
                .await?;
            if let Some(victim) = worker.take_if(|_| next.is_some() && orders >= until) {
                self.kill(victim, now, &mut tally).await?;
                killed = Instant::now();
            }
            if worker.is_none()
                && kills
                    .next_if(|kill| killed.elapsed() >= kill.pause)
                    .is_some()
            {
                worker = Some(self.start_worker(now, &mut tally)?);
            }
            if let Some(status) = worker.as_mut().map(Worker::ended).transpose()?.flatten() {
                return Err(Trouble::Ended(status));
            }
            if now >= looked + LOOK {
                looked = now;
                let ended = self.look(&mut seen).await?;
                let sent = orders == self.plan.orders.len() && addresses.is_empty();
                if ended && sent && kills.peek().is_none() {
                    break;
                }
            }
            tokio::time::sleep(TICK).await;
        }
        if let Some(worker) = worker {
            worker.stop()?;
        }
        tally.seconds = begun.elapsed().as_secs_f64();
        Ok(tally)
    }

    fn start_worker(&mut self, now: Duration, tally: &mut Tally) -> Result<Worker, Trouble> {
        let worker = Worker::start(self.place, self.services.address)?;
        tally.workers += 1;
        let (now, id) = (now.as_secs_f64(), worker.id());
        let text = format!("  {now:4.1} s  worker process {id} started");
        self.screen.say(&text);
        Ok(worker)
    }

    /// When which order's customer gives which other address, the last first.
    fn addresses(&self) -> Vec<(Duration, usize)> {
        let orders = self.plan.orders.iter().enumerate();
        let mut addresses: Vec<(Duration, usize)> = orders
            .filter_map(|(index, planned)| Some((planned.address.as_ref()?.0, index)))
            .collect();
        addresses.sort_by(|a, b| b.cmp(a));
        addresses
    }

    /// Starts those of these orders that are due. Returns how many were started so far.
    async fn open_orders(
        &self,
        orders: Range<usize>,
        now: Duration,
        (worker, tally): (&Option<Worker>, &mut Tally),
    ) -> Result<usize, Trouble> {
        let mut started = orders.start;
        let planned = self.plan.orders.get(orders).unwrap_or_default();
        for planned in planned.iter().take_while(|order| order.at <= now) {
            let order = &planned.order;
            let start = || {
                let start = self.engine.start(ORDER, order).key(key(started));
                start.label("customer", &order.customer)
            };
            until_done(|| async { start().await }).await?;
            tally.meanwhile += u64::from(worker.is_none());
            started += 1;
        }
        Ok(started)
    }

    /// Sends the addresses that are due, of orders that were started.
    async fn send_addresses(
        &self,
        addresses: &mut Vec<(Duration, usize)>,
        (started, now): (usize, Duration),
        (worker, tally): (&Option<Worker>, &mut Tally),
    ) -> Result<(), Trouble> {
        while let Some((_, index)) = addresses
            .last()
            .filter(|(at, index)| *at <= now && *index < started)
        {
            let planned = &self.plan.orders[*index];
            let address = planned.address.as_ref().map(|(_, address)| address);
            let address = address.expect("only those who write are listed");
            let send = || {
                let send = self.engine.signal(key(*index), ADDRESS, address);
                send.key("address")
            };
            match until_done(|| async { send().await }).await? {
                Sent::Delivered(_) => tally.delivered += 1,
                Sent::Queued => tally.queued += 1,
                _ => tally.late += 1,
            }
            tally.meanwhile += u64::from(worker.is_none());
            addresses.pop();
        }
        Ok(())
    }

    async fn kill(
        &mut self,
        victim: Worker,
        now: Duration,
        tally: &mut Tally,
    ) -> Result<(), Trouble> {
        let id = victim.id();
        victim.kill()?;
        tally.kills += 1;
        let in_hand = self.runs_in(RunState::Running).await?;
        let mut under_way = in_hand.clone();
        for state in [RunState::Waiting, RunState::Ready, RunState::RollingBack] {
            under_way.extend(self.runs_in(state).await?);
        }
        let (now, all, held) = (now.as_secs_f64(), under_way.len(), in_hand.len());
        self.screen.say(&format!(
            "  {now:4.1} s  killed it (SIGKILL {id}): {all} runs under way, {held} in its hands"
        ));
        let order = in_hand.values().flatten().find(|key| key.starts_with(KEY));
        tally.example = order.cloned().or(tally.example.take());
        tally.in_hand.extend(in_hand.into_keys());
        tally.resumed.extend(under_way.into_keys());
        Ok(())
    }

    /// The runs in this state, with their keys.
    async fn runs_in(&self, state: RunState) -> Result<BTreeMap<RunId, Option<String>>, Trouble> {
        let mut runs = BTreeMap::new();
        let mut list = self.engine.runs().in_state(state).limit(1000);
        loop {
            let page = until_done(|| list.fetch()).await?;
            runs.extend(page.items.iter().map(|run| {
                let key = run.row.key.as_ref().map(ToString::to_string);
                (run.row.id, key)
            }));
            match page.items.last() {
                Some(last) if page.more => list = list.after(last.row.id),
                _ => return Ok(runs),
            }
        }
    }

    /// Shows how far it is. Has everything ended?
    async fn look(&mut self, seen: &mut Seen) -> Result<bool, Trouble> {
        let stats = until_done(|| self.engine.stats()).await?;
        let same = stats == seen.stats;
        seen.same = if same { seen.same + 1 } else { 0 };
        let ended = |workflow: &str| {
            let ended = stats
                .runs
                .iter()
                .filter(|(name, _, state, _)| name.as_str() == workflow && state.has_ended());
            ended.map(|(_, _, _, count)| count).sum::<u64>()
        };
        let all: u64 = stats.runs.iter().map(|(_, _, _, count)| count).sum();
        let (done, parcels) = (ended("order"), ended("parcel"));
        let orders = self.plan.orders.len() as u64;
        self.screen.progress(Progress {
            done,
            orders,
            parcels,
            busy: self.services.book().busy,
        });
        let at_rest = stats
            .runs
            .iter()
            .filter(|(_, _, state, _)| state.has_ended());
        let at_rest: u64 = at_rest.map(|(_, _, _, count)| count).sum();
        seen.stats = stats;
        Ok(done == orders && at_rest == all)
    }
}

/// What the last looks saw.
#[derive(Default)]
struct Seen {
    stats: Stats,
    /// How often in a row.
    same: u32,
}

const KEY: &str = "order-";

/// An order's key, by its place in the plan.
pub(super) fn key(index: usize) -> String {
    format!("{KEY}{:03}", index + 1)
}

/// Repeats what the database was too busy for, as any client would: under the same key.
async fn until_done<T, F, Fut>(mut ask: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(Error::Unavailable(_) | Error::Unknown(_)) if begun.elapsed() < BUSY => {}
            other => return other,
        }
    }
}
