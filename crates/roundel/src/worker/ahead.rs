//! Runs that were started here are brought to their first call ahead of the claim that is likely to
//! take them; their first rounds follow it, and are committed with it.
//!
//! Nothing rests on the guess: a round of a run that was not claimed is refused by its fence, and
//! the run is claimed and read like any other. An earlier claim that is on its way may take the
//! run as well; claims are answered in the order in which they were made, so that is known by the
//! time that the later one is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roundel_core::{Claim, Claimed, Op, Reply, Round, RunId, Timestamp};
use roundel_store::{Answered, Ask, Error};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::births::Birth;
use super::drive::After;
use super::{Port, Worker};
use crate::cx::shared::RunInfo;
use crate::live::{LiveRun, Turn};
use crate::post::{Asked, Post};

/// How long claims wait for code that runs ahead of them.
const PATIENCE: Duration = Duration::from_millis(1);

/// What came of a claim.
pub(super) struct Landed {
    pub(super) empty: bool,
    /// When there is more.
    pub(super) next: Option<Timestamp>,
}

/// A claim on its way, with what follows it.
pub(super) struct Flight {
    answer: oneshot::Receiver<Answered>,
    ahead: Vec<Ahead>,
}

/// A run that was brought to its first call.
type Begun = (Box<LiveRun>, Arc<Port>);

/// A run that waits for its first round.
struct Ahead {
    live: Box<LiveRun>,
    port: Arc<Port>,
    answer: oneshot::Receiver<Answered>,
}

impl Worker {
    /// Sends a claim, and behind it the first rounds of runs that it is likely to take.
    pub(super) fn send_claim(&self, claim: Claim) -> Flight {
        let (runs, rounds): (Vec<_>, Vec<_>) = self.make_ahead(claim.limit).into_iter().unzip();
        let rounds = rounds.into_iter().map(|round| Ask::Op(Op::Commit(*round)));
        let asks = std::iter::once(Ask::Op(Op::Claim(claim))).chain(rounds);
        let mut answers = self.post.ask_all(asks.collect()).into_iter();
        let answer = answers.next().expect("a claim has an answer");
        let ahead = runs.into_iter().zip(answers);
        let ahead = ahead.map(|((live, port), answer)| Ahead { live, port, answer });
        let ahead = ahead.collect();
        Flight { answer, ahead }
    }

    /// Takes over what a claim brought. Returns when there is more.
    pub(super) async fn land(self: &Arc<Self>, flight: Flight) -> Result<Landed, Error> {
        let reply = Post::answer(flight.answer).await;
        let (mut runs, next) = match reply {
            Ok((Reply::Claimed { runs, next }, _)) => (runs, next),
            Ok(_) => unreachable!("a claim answers with runs"),
            Err((error, _)) => {
                for ahead in flight.ahead {
                    let earlier = self.births().no_more_ahead(ahead.live.run());
                    if let Some(lease) = earlier {
                        self.settle(ahead, lease);
                    }
                }
                return Err(error);
            }
        };
        let empty = runs.is_empty();
        let mut own: FxHashMap<RunId, Claimed> = FxHashMap::default();
        if !flight.ahead.is_empty() {
            own = runs
                .drain(..)
                .map(|claimed| (claimed.run, claimed))
                .collect();
        }
        for ahead in flight.ahead {
            let run = ahead.live.run();
            let earlier = self.births().no_more_ahead(run);
            let lease = own.remove(&run).or(earlier);
            if let Some(lease) = lease {
                self.settle(ahead, lease);
            }
        }
        for claimed in runs.into_iter().chain(own.into_values()) {
            let claimed = self.births().leave_to_later(claimed);
            claimed.into_iter().for_each(|claimed| self.adopt(claimed));
        }
        Ok(Landed { empty, next })
    }

    /// Brings those that have waited longest to their first calls.
    fn make_ahead(&self, limit: usize) -> Vec<(Begun, Box<Round>)> {
        let until = Instant::now() + PATIENCE;
        let mut ahead = Vec::new();
        while ahead.len() < limit && Instant::now() < until {
            let Some((run, birth)) = self.births().take_oldest() else {
                break;
            };
            let port = Port::new(Arc::default());
            let Some(mut live) = self.born(run, birth, &port) else {
                self.births().no_more_ahead(run);
                continue;
            };
            match live.turn(self.store().now()) {
                Turn::Commit(round) => ahead.push(((live, port), round)),
                turn => {
                    if let Turn::Read(call) = turn {
                        live.read_again(call);
                    }
                    // It is claimed as it is.
                    self.births().no_more_ahead(run);
                    let displaced = self.cache().put(live);
                    drop(displaced);
                }
            }
        }
        ahead
    }

    fn born(&self, run: RunId, birth: Birth, port: &Port) -> Option<Box<LiveRun>> {
        let version = birth.version.or_else(|| self.latest(&birth.workflow))?;
        let handler = self.handlers.get(&(birth.workflow.clone(), version))?;
        let info = RunInfo {
            namespace: self.config.namespace.clone(),
            run,
            workflow: birth.workflow,
            version,
            execution: 1,
            key: birth.key,
            is_root: birth.is_root,
        };
        let driver = self.driver(port.flag.clone());
        Some(Box::new(LiveRun::new(info, handler, birth.input, driver)))
    }

    /// The run is leased, and its first round is on its way; unless it was leased before, so that
    /// the round's fence does not fit.
    fn settle(self: &Arc<Self>, ahead: Ahead, lease: Claimed) {
        let Ahead { live, port, answer } = ahead;
        if lease.epoch != live.epoch() {
            self.adopt(lease);
            return;
        }
        port.leased.store(true, Ordering::Release);
        self.enter(live.run(), &port);
        self.counters.found_in_memory.one();
        let worker = self.clone();
        tokio::spawn(async move {
            let answer = worker.insist_on(Post::answer(answer).await).await;
            if let After::Mine(live) = worker.after_commit(live, answer, &port).await {
                worker.drive(live, port).await;
            }
        });
    }

    async fn insist_on(&self, answer: Asked) -> Asked {
        match answer {
            Err((Error::Unavailable(_), Some(ask))) => self.insist(ask).await,
            other => other,
        }
    }

    /// A run that has not begun, and whose input is known here.
    pub(super) fn born_here(&self, claimed: &Claimed, port: &Port) -> Option<Box<LiveRun>> {
        let birth = self.births().take(claimed.run)?;
        let begun = claimed.head > 1 || claimed.execution > 1;
        if begun || claimed.cancel != roundel_core::CancelMark::None {
            return None;
        }
        self.born(claimed.run, birth, port)
    }
}
