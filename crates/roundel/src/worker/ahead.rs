//! Runs that were started here are brought to their first call ahead of the claim that is likely to
//! take them; their first rounds follow it, and are committed with it.
//!
//! Nothing rests on the guess: a round of a run that was not claimed is refused by its fence, and
//! the run is claimed and read like any other. Until the round is answered, whatever comes for the
//! run waits at its port: a lease from this claim, from an earlier one, or from a signal that was
//! faster than the answers, and mail. Who is told of no lease may have one all the same, if the
//! answer to the claim was lost; the answer to the round says so.

use std::sync::Arc;
use std::time::Duration;

use roundel_core::{Claim, Op, Refusal, Reply, Round, RunId, Timestamp};
use roundel_store::{Answered, Ask, Error};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::births::Birth;
use super::drive::After;
use super::line::Entry;
use super::{Port, Worker};
use crate::cx::shared::RunInfo;
use crate::live::{LiveRun, Turn};
use crate::post::Post;

/// How long claims wait for code that runs ahead of them.
const PATIENCE: Duration = Duration::from_millis(1);

/// What came of a claim.
pub(super) struct Landed {
    pub(super) empty: bool,
    /// When there is more.
    pub(super) next: Option<Timestamp>,
}

/// What was heard of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Answer,
    /// It may have leased something all the same.
    Nothing,
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
    pub(super) fn send_claim(self: &Arc<Self>, claim: Claim) -> Flight {
        let (runs, rounds): (Vec<_>, Vec<_>) = self.make_ahead(claim.limit).into_iter().unzip();
        // Not before all of them are made: what they set off cannot be claimed yet.
        rounds.iter().for_each(|round| self.expect_of(round));
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
        let (runs, next) = match reply {
            Ok((Reply::Claimed { runs, next }, _)) => (runs, next),
            Ok(_) => unreachable!("a claim answers with runs"),
            Err((error, _)) => {
                let heard = match error {
                    Error::Unknown(_) => Heard::Nothing,
                    _ => Heard::Answer,
                };
                for ahead in flight.ahead {
                    tokio::spawn(self.clone().follow(ahead, heard));
                }
                return Err(error);
            }
        };
        let empty = runs.is_empty();
        for claimed in runs {
            self.adopt(claimed, Entry::InTurn);
        }
        for ahead in flight.ahead {
            tokio::spawn(self.clone().follow(ahead, Heard::Answer));
        }
        Ok(Landed { empty, next })
    }

    /// Brings those that have waited longest to their first calls.
    fn make_ahead(self: &Arc<Self>, limit: usize) -> Vec<(Begun, Box<Round>)> {
        let until = Instant::now() + PATIENCE;
        let mut ahead = Vec::new();
        let mut in_time = true;
        while in_time && ahead.len() < limit {
            let Some((run, birth, port)) = self.births().take_oldest() else {
                break;
            };
            let Some(mut live) = self.born(run, birth, &port) else {
                if self.no_more_ahead(run, &port, false) {
                    self.forget(run);
                }
                continue;
            };
            match live.turn(self.store().now()) {
                Turn::Commit(round) => ahead.push(((live, port), round)),
                turn => {
                    // What is to be settled is said again at its next turn.
                    if let Turn::Read(call) = turn {
                        live.read_again(call);
                    }
                    self.keep_begun(live, port);
                }
            }
            in_time = Instant::now() < until;
        }
        ahead
    }

    /// It has begun, and has no round yet: it is claimed as it is, unless it was already.
    fn keep_begun(self: &Arc<Self>, live: Box<LiveRun>, port: Arc<Port>) {
        let ports = self.ports();
        self.births().no_more_ahead(live.run());
        let displaced = match ports.get(&live.run()) {
            None => self.cache().put(live),
            Some(known) if Arc::ptr_eq(known, &port) => {
                drop(tokio::spawn(
                    self.clone().drive(live, (port, Entry::InTurn)),
                ));
                None
            }
            Some(_) => Some(live),
        };
        drop(ports);
        drop(displaced);
    }

    pub(super) fn born(&self, run: RunId, birth: Birth, port: &Port) -> Option<Box<LiveRun>> {
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
            deadlines: birth.deadlines,
            context: birth.context,
        };
        let driver = self.driver(port.flag.clone());
        Some(LiveRun::new(info, handler, birth.input, driver))
    }

    /// Is the run leased, as far as is known here?
    fn is_entered(&self, run: RunId, port: &Arc<Port>) -> bool {
        let ports = self.ports();
        ports
            .get(&run)
            .is_some_and(|known| Arc::ptr_eq(known, port))
    }

    /// From now on the run is reached like any other. Is it ours? Nobody may have told us of its
    /// lease; but a round that was taken up had one.
    fn no_more_ahead(&self, run: RunId, port: &Arc<Port>, taken_up: bool) -> bool {
        let mut ports = self.ports();
        self.births().no_more_ahead(run);
        if taken_up && !ports.contains_key(&run) {
            self.enter(&mut ports, run, port);
        }
        ports
            .get(&run)
            .is_some_and(|known| Arc::ptr_eq(known, port))
    }

    /// Goes on with a run, once it is known what became of its first round.
    async fn follow(self: Arc<Self>, ahead: Ahead, claim: Heard) {
        let Ahead { live, port, answer } = ahead;
        let run = live.run();
        let answer = Post::answer(answer).await;
        if let Err((_, Some(ask))) = &answer {
            self.expect_no_more(ask);
        }
        let taken_up = match &answer {
            Ok(_) => true,
            Err((Error::Refused(refusal), _)) => !is_elsewhere(refusal),
            Err(_) => false,
        };
        let unknown = match &answer {
            Err((Error::Unknown(_), _)) => true,
            Err((Error::Unavailable(_), _)) => claim == Heard::Nothing,
            _ => false,
        };
        let entered = self.is_entered(run, &port);
        if unknown && !entered {
            // While it is still ahead, so that nobody drives it under a lease that goes.
            self.give_back(run).await;
        }
        let mine = self.no_more_ahead(run, &port, taken_up);
        let insist = entered && matches!(answer, Err((Error::Unavailable(_), _)));
        let goes_on = taken_up || insist || (entered && unknown);
        if !(mine && goes_on) {
            drop(live);
            if mine {
                self.forget(run);
            } else if taken_up {
                self.give_back(run).await;
            }
            return;
        }
        port.outdated(live.fence());
        self.counters.found_in_memory.one();
        let answer = match answer {
            Err((Error::Unavailable(_), Some(ask))) => self.insist(ask).await,
            other => other,
        };
        if let After::Mine(live) = self.after_commit(live, answer, &port).await {
            self.drive(live, (port, Entry::InTurn)).await;
        }
    }
}

/// A refusal by which the run was never leased under that fence.
fn is_elsewhere(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Fenced { .. } | Refusal::UnknownRun { .. })
}
