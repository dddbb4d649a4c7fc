//! Driving one run: turn, commit, again, until it suspends, ends, or is somebody else's.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use roundel_core::{
    Claimed, Committed, Failure, Lane, Op, Refusal, Reply, Round, RunId, RunState, Start, Started,
    Then, Timestamp,
};
use roundel_store::{Ask, Error};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::births::Birth;
use super::line::Entry;
use super::{Note, Pauses, Port, Worker};
use crate::cx::shared::RunInfo;
use crate::live::{LiveRun, StepWork, Turn, is_of_step};
use crate::post::Asked;

/// What became of a commit.
pub(super) enum After {
    /// Still ours.
    Mine(Box<LiveRun>),
    /// It waits, has ended or is parked, as was committed.
    Gone,
    /// It is somebody else's, or nobody knows.
    Lost,
}

/// Why what is in memory is of no use any more.
enum Lost {
    /// The lease is said to be gone.
    Lease,
    /// It was claimed again, at another place in its journal.
    Place(Box<Claimed>),
}

impl Worker {
    pub(super) async fn drive(
        self: Arc<Self>,
        mut live: Box<LiveRun>,
        (port, entry): (Arc<Port>, Entry),
    ) {
        let run = live.run();
        let mut at_work = self.in_turn(entry).await;
        if at_work.is_none() {
            drop(live);
            self.give_back(run).await;
            return self.forget(run);
        }
        loop {
            if let Some(lost) = self.take_notes(&mut live, &port) {
                drop(live);
                self.lost(run, lost).await;
                return;
            }
            if let Some(sealed) = live.sealed() {
                self.unread(live, &sealed).await;
                return;
            }
            let turn = live.turn(self.store().now());
            if is_last(&turn) {
                at_work = None;
            }
            match self.carry_out(live, turn, &port).await {
                After::Mine(still) => live = still,
                After::Gone | After::Lost => return,
            }
            at_work.get_or_insert_with(|| self.at_work());
        }
    }

    /// Does what must happen next.
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        live: Box<LiveRun>,
        turn: Turn,
        port: &Arc<Port>,
    ) -> After {
        match turn {
            Turn::Commit(round) => {
                self.expect_of(&round);
                let leaving = matches!(round.then, Then::End(..)).then(|| self.leaving());
                let ask = Ask::Op(Op::Commit(*round));
                let since = Instant::now();
                let answer = self.insist(Box::new(ask)).await;
                if let Err((_, Some(ask))) = &answer {
                    self.expect_no_more(ask);
                }
                self.line.committed(since);
                drop(leaving);
                self.after_commit(live, answer, port).await
            }
            Turn::Step => self.step(live, port).await,
            Turn::Read(call) => self.read(live, call).await,
            Turn::Settle(call, scope) => self.settle(live, call, scope).await,
            Turn::Recall(execution) => self.recall(live, execution).await,
            Turn::Wait(until) => {
                self.wait(port, until).await;
                After::Mine(live)
            }
            Turn::Yield => {
                tokio::task::yield_now().await;
                After::Mine(live)
            }
        }
    }

    /// Hands what came meanwhile to the run; says if what is in memory is of no use any more.
    fn take_notes(&self, live: &mut LiveRun, port: &Port) -> Option<Lost> {
        let mut lost = None;
        for note in port.take() {
            match note {
                Note::Mail(fence, delivery) => live.deliver(fence, delivery),
                Note::Cancel(fence) => live.asked_to_end(fence, self.store().now()),
                Note::Lost => lost = lost.or(Some(Lost::Lease)),
                // An answer that comes late, after that to a later claim.
                Note::Claimed(claimed) if claimed.fence().is_before(live.fence()) => {}
                Note::Claimed(claimed) if live.is_current(&claimed) => {
                    live.reclaimed(*claimed);
                    lost = None;
                }
                Note::Claimed(claimed) => lost = Some(Lost::Place(claimed)),
            }
        }
        lost
    }

    /// What was in memory is gone; if the lease is not, the run goes on from its journal.
    async fn lost(self: &Arc<Self>, run: RunId, lost: Lost) {
        match lost {
            Lost::Lease if self.is_stopping() => self.forget(run),
            Lost::Lease => {
                self.counters.leases_lost.one();
                self.give_back(run).await;
                self.forget(run);
            }
            Lost::Place(claimed) => self.hand_over(run, Some(claimed)),
        }
    }

    /// Gives a lease back, if there is one, so that the run goes on from its journal at once.
    pub(super) async fn give_back(&self, run: RunId) {
        let release = roundel_core::Release {
            worker: self.id,
            runs: vec![run],
            leave: false,
        };
        let ask = || Box::new(Ask::Op(Op::Release(release.clone())));
        while let Err((Error::Unknown(_), _)) = self.insist(ask()).await {
            let until = self.store().now().after(Duration::from_millis(5));
            self.store().clock().sleep_until(until).await;
        }
        // What else a lost answer may have leased comes back when those leases end: a claim says
        // when that is.
        self.claim_at(Timestamp(0));
    }

    /// Asks until the store says yes or no: its troubles are not the run's.
    pub(super) async fn insist(&self, mut ask: Box<Ask>) -> Asked {
        let mut pauses = Pauses::of(self.id.0, Duration::from_millis(5));
        loop {
            match self.post.ask(ask).await {
                Err((Error::Unavailable(_), Some(back))) => {
                    self.counters.rounds_retried.one();
                    let until = self.store().now().after(pauses.next());
                    self.store().clock().sleep_until(until).await;
                    ask = back;
                }
                other => return other,
            }
        }
    }

    pub(super) async fn after_commit(
        self: &Arc<Self>,
        live: Box<LiveRun>,
        answer: Asked,
        port: &Arc<Port>,
    ) -> After {
        let (reply, ask) = match answer {
            Ok(answer) => answer,
            Err((error, _)) => return self.not_committed(live, error).await,
        };
        let (Reply::Committed(committed), Ask::Op(Op::Commit(round))) = (reply, &*ask) else {
            unreachable!("a commit answers with what it committed")
        };
        self.counters.rounds.one();
        self.commit_done(live, committed, round, port)
    }

    /// What follows a round that was committed.
    fn commit_done(
        self: &Arc<Self>,
        mut live: Box<LiveRun>,
        mut committed: Committed,
        round: &Round,
        port: &Arc<Port>,
    ) -> After {
        self.adopt_all(std::mem::take(&mut committed.claimed));
        if committed.slot_freed {
            self.claim_at(Timestamp(0));
        }
        match &round.then {
            Then::Continue | Then::Suspend => {
                if let Some(at) = round.timer_at.filter(|_| !committed.kept) {
                    self.claim_at(at);
                }
                if live.committed(committed) {
                    return After::Mine(live);
                }
                return self.suspended(live, port);
            }
            Then::End(state, _) => self.count_end(*state),
            Then::Park(_) => self.counters.runs_parked.one(),
            Then::ContinueAsNew(..) => {
                let next = committed
                    .kept
                    .then(|| self.next_execution(&live, committed, port));
                if let Some(next) = next.flatten() {
                    return After::Mine(next);
                }
            }
        }
        drop(live);
        self.forget(round.run);
        After::Gone
    }

    fn count_end(&self, state: RunState) {
        match state {
            RunState::Completed => self.counters.runs_completed.one(),
            RunState::Cancelled => self.counters.runs_cancelled.one(),
            _ => self.counters.runs_failed.one(),
        }
    }

    /// The run waits: it stays in memory, without a task, unless it was claimed again already.
    fn suspended(&self, live: Box<LiveRun>, port: &Port) -> After {
        let mut ports = self.ports();
        if port.is_claimed(live.fence()) {
            return After::Mine(live);
        }
        self.leave(&mut ports, live.run());
        let displaced = self.cache().put(live);
        drop(ports);
        drop(displaced);
        After::Gone
    }

    fn next_execution(
        &self,
        live: &LiveRun,
        committed: Committed,
        port: &Port,
    ) -> Option<Box<LiveRun>> {
        let input = live
            .continue_input()
            .expect("a run that begins anew has an input");
        let info: RunInfo = live.next_info();
        let handler = self.handlers.get(&(info.workflow.clone(), info.version))?;
        let next = LiveRun::new(info, handler, input, self.driver(port.flag.clone()));
        Some(next.after_continue(live, committed))
    }

    /// A round that was not committed.
    async fn not_committed(self: &Arc<Self>, mut live: Box<LiveRun>, error: Error) -> After {
        let run = live.run();
        match error {
            Error::Refused(Refusal::CancelRequested { .. }) => {
                live.cancel(self.store().now(), false);
                return After::Mine(live);
            }
            Error::Refused(Refusal::DeadlineMissed { .. }) => {
                live.deadline_missed(self.store().now());
                return After::Mine(live);
            }
            Error::Refused(Refusal::Fenced { .. } | Refusal::UnknownRun { .. }) => {
                self.counters.rounds_fenced.one();
                self.counters.leases_lost.one();
            }
            Error::Refused(refusal) => {
                let failure = Failure::permanent(refusal).with_code("refused");
                let Turn::Commit(round) = live.park(failure) else {
                    unreachable!("it parks")
                };
                let ask = Ask::Op(Op::Commit(*round));
                if self.insist(Box::new(ask)).await.is_ok() {
                    self.counters.runs_parked.one();
                }
            }
            Error::Unknown(_) => {
                // Whatever was committed, the journal knows: begin from there, at once.
                self.give_back(run).await;
            }
            Error::Unavailable(_) | Error::Unusable(_) | Error::Statement(_) | Error::Closed => {}
        }
        drop(live);
        self.forget(run);
        After::Lost
    }

    async fn step(self: &Arc<Self>, live: Box<LiveRun>, port: &Arc<Port>) -> After {
        let run = live.run();
        let clock = self.store().clock().clone();
        let work = StepWork {
            live,
            clock,
            runtime: Some(self.runtime.clone()),
        };
        let answer = self.insist(Box::new(Ask::Work(Box::new(work)))).await;
        let (result, ask) = match answer {
            Ok((reply, ask)) => (Ok(reply), Some(ask)),
            Err((error, ask)) => (Err(error), ask),
        };
        let Some(Ask::Work(work)) = ask.map(|ask| *ask) else {
            self.forget(run);
            return After::Lost;
        };
        let work = work
            .into_any()
            .downcast::<StepWork>()
            .expect("a step comes back as it went");
        let mut live = work.live;
        match result {
            Ok(Reply::Committed(committed)) => {
                self.counters.rounds.one();
                let round = Round::new(run, self.id, 0);
                self.commit_done(live, committed, &round, port)
            }
            Ok(_) => unreachable!("a step answers with what it committed"),
            Err(Error::Refused(refusal)) if is_of_step(&refusal) => {
                live.step_refused(&refusal);
                After::Mine(live)
            }
            Err(error) => self.not_committed(live, error).await,
        }
    }

    /// Waits until something wakes the run, or until that time.
    async fn wait(&self, port: &Port, until: Option<Timestamp>) {
        let clock = self.store().clock().clone();
        let mut timer = pin!(async {
            match until {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        });
        std::future::poll_fn(|context| {
            port.flag.register(context.waker());
            // The flag is lowered by every poll of the function: a note that came during one has
            // nothing else to tell of it.
            if port.flag.is_raised() || port.has_notes() {
                return Poll::Ready(());
            }
            timer.as_mut().poll(context)
        })
        .await;
    }

    /// Starts a run here: its function runs up to its first call before the start is committed,
    /// and that commit holds the start, the lease and the first round.
    pub(crate) fn start_here(
        self: &Arc<Self>,
        start: Start,
        (lane, port): (Lane, Arc<Port>),
        answer: oneshot::Sender<Result<Started, Error>>,
    ) {
        let worker = self.clone();
        tokio::spawn(async move {
            let After::Mine(live) = worker.first_round(start, lane, answer, &port).await else {
                return;
            };
            worker.drive(live, (port, Entry::InTurn)).await;
        });
    }

    async fn first_round(
        self: &Arc<Self>,
        mut start: Start,
        lane: Lane,
        answer: oneshot::Sender<Result<Started, Error>>,
        port: &Arc<Port>,
    ) -> After {
        start.version = Some(lane.version);
        let born = self.born(start.run, Birth::of(&start), port);
        let mut live = born.expect("who starts it here has its workflow");
        start.claimant = Some(live.claimant());
        match live.turn(self.store().now()) {
            Turn::Commit(round) => {
                self.expect_of(&round);
                start.first = Some(round);
            }
            Turn::Read(call) => live.read_again(call),
            Turn::Step | Turn::Settle(..) | Turn::Recall(_) | Turn::Wait(_) | Turn::Yield => {}
        }
        let run: RunId = start.run;
        let ask = Box::new(Ask::Op(Op::Start(start)));
        let (mut started, ask) = match self.post.ask(ask).await {
            Ok((Reply::Started(started), ask)) => (started, ask),
            Ok(_) => unreachable!("a start answers with what it started"),
            Err((error, ask)) => {
                ask.iter().for_each(|ask| self.expect_no_more(ask));
                let unknown = matches!(error, Error::Unknown(_));
                let _ = answer.send(Err(error));
                if unknown {
                    self.give_back(run).await;
                }
                self.forget(run);
                return After::Gone;
            }
        };
        let first = started.first.take().map(|first| *first);
        if !matches!(first, Some(Ok(_))) {
            self.expect_no_more(&ask);
        }
        let mut claimed = std::mem::take(&mut started.claimed);
        // A queue with limits gives its permits to claims alone.
        let mine = first.is_some() || claimed.iter().any(|claimed| claimed.run == run);
        claimed.retain(|claimed| claimed.run != run);
        self.adopt_all(claimed);
        let new = started.new;
        let _ = answer.send(Ok(started));
        if !new || !mine {
            if new {
                self.limited.leave_to_claims(lane.workflow);
            }
            drop(live);
            self.forget(run);
            return After::Gone;
        }
        port.leased.store(true, Ordering::Release);
        self.counters.runs_started.one();
        let Ask::Op(Op::Start(start)) = &*ask else {
            unreachable!("what was asked comes back")
        };
        match (first, &start.first) {
            (Some(Ok(committed)), Some(round)) => {
                self.counters.rounds.one();
                self.commit_done(live, committed, round, port)
            }
            (Some(Err(refusal)), _) => self.not_committed(live, Error::Refused(refusal)).await,
            _ => After::Mine(live),
        }
    }
}

/// Is there nothing to be done of the run but a commit?
fn is_last(turn: &Turn) -> bool {
    matches!(turn, Turn::Commit(round) if matches!(round.then, Then::End(..)))
}
