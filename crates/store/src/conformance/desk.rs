//! A place to ask a store from, with short ways to say things.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use roundel_core::{
    Cancel, Cancelled, Caused, Claim, Claimed, Committed, Delete, LaneId, Lease, Name, Op, Owner,
    Refusal, Register, Release, Renew, Reply, Round, RunId, RunRow, RunState, Sent, Signal, Start,
    Started, Target, Timestamp, WorkerId,
};

use super::Make;
use super::words::{
    A, B, LEASE, NS, child_of, claimant, ending, lane, offering, opening, signal, suspending,
};
use crate::{
    Answer, Answered, Ask, Dump, Error, ManualClock, Query, Request, RunView, Sink, Store,
};

/// A fresh store, two workers, one lane.
pub(super) struct Desk {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) lane: LaneId,
    last: u128,
}

impl Desk {
    pub(super) fn new(make: &Make) -> Desk {
        let (store, clock) = make();
        let lane = LaneId(1);
        let mut desk = Desk {
            store,
            clock,
            lane,
            last: 0x0190 << 112,
        };
        for worker in [A, B] {
            let registered = desk.register(worker, vec![super::words::lane(&NS, "w", 1)]);
            assert_eq!(registered, [desk.lane]);
        }
        desk
    }

    pub(super) fn register(
        &mut self,
        worker: WorkerId,
        lanes: Vec<roundel_core::Lane>,
    ) -> Vec<LaneId> {
        let name = format!("worker {worker}");
        match self.must(Op::Register(Register {
            worker,
            name,
            lanes,
        })) {
            Reply::Registered(lanes) => lanes,
            other => panic!("{other:?}"),
        }
    }

    /// The lane of this version of the workflow that all runs here are of.
    pub(super) fn version(&mut self, worker: WorkerId, version: u32) -> LaneId {
        self.register(worker, vec![lane(&NS, "w", version)])[0]
    }

    pub(super) fn now(&self) -> Timestamp {
        self.store.now()
    }

    pub(super) fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    pub(super) fn op(&self, op: Op) -> Result<Reply, Error> {
        submit(&*self.store, vec![op]).remove(0)
    }

    /// An operation that must be answered.
    pub(super) fn must(&self, op: Op) -> Reply {
        let shown = format!("{op:?}");
        self.op(op)
            .unwrap_or_else(|error| panic!("{error}: {shown}"))
    }

    /// An operation that must be refused, and change nothing.
    pub(super) fn refused(&self, op: Op) -> Refusal {
        let (shown, before) = (format!("{op:?}"), self.dump());
        let refusal = match self.op(op) {
            Err(Error::Refused(refusal)) => refusal,
            other => panic!("{other:?} to {shown}"),
        };
        assert!(
            self.dump() == before,
            "{refusal}, and it changed something: {shown}"
        );
        refusal
    }

    pub(super) fn batch(&self, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
        submit(&*self.store, ops)
    }

    pub(super) fn read(&self, query: Query) -> Result<Answer, Error> {
        read(&*self.store, query)
    }

    pub(super) fn dump(&self) -> Dump {
        dump(&*self.store)
    }

    pub(super) fn new_id(&mut self) -> RunId {
        self.last += 1;
        RunId(uuid::Uuid::from_u128(self.last))
    }

    /// A start that says nothing special.
    pub(super) fn starting(&mut self) -> Start {
        super::words::start(self.new_id())
    }

    pub(super) fn started(&self, start: Start) -> Started {
        match self.must(Op::Start(start)) {
            Reply::Started(started) => started,
            other => panic!("{other:?}"),
        }
    }

    /// A run that nobody has.
    pub(super) fn start(&mut self) -> RunId {
        let start = self.starting();
        self.started(start).run
    }

    /// A run that this worker has.
    pub(super) fn owned(&mut self, worker: WorkerId) -> RunId {
        let start = Start {
            claimant: Some(claimant(worker)),
            ..self.starting()
        };
        self.started(start).run
    }

    /// A run that this worker suspended after beginning these waits.
    pub(super) fn waiting(&mut self, worker: WorkerId, waits: &[(u32, &'static str)]) -> RunId {
        let run = self.owned(worker);
        self.commit(suspending(opening(self.round(run), waits)));
        run
    }

    /// A child that this worker has, of a run that goes on.
    pub(super) fn owned_child(&mut self, parent: RunId, worker: WorkerId) -> RunId {
        let start = self.starting();
        let child = child_of(&self.run(parent), 1, start);
        let id = child.run;
        let child = Start {
            claimant: Some(claimant(worker)),
            ..child
        };
        let mut round = self.round(parent);
        round.caused.push(Caused::Child(1, Box::new(child)));
        self.commit(round);
        id
    }

    /// Waits for that run's end in call 5, and suspends.
    pub(super) fn watching(&self, watcher: RunId, target: Target) -> Committed {
        let mut round = suspending(self.round(watcher));
        round.caused.push(Caused::Watch(5, NS, target));
        self.commit(round)
    }

    pub(super) fn claim_next(
        &self,
        worker: WorkerId,
        limit: usize,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        self.claim_from(worker, &[self.lane], limit)
    }

    pub(super) fn claim_from(
        &self,
        worker: WorkerId,
        lanes: &[LaneId],
        limit: usize,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        let (lanes, lease) = (lanes.to_vec(), LEASE);
        match self.must(Op::Claim(Claim {
            worker,
            lanes,
            limit,
            lease,
        })) {
            Reply::Claimed { runs, next } => (runs, next),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn claim(&self, worker: WorkerId, limit: usize) -> Vec<Claimed> {
        self.claim_next(worker, limit).0
    }

    pub(super) fn claimed_ids(&self, worker: WorkerId, limit: usize) -> Vec<RunId> {
        self.claim(worker, limit)
            .iter()
            .map(|claimed| claimed.run)
            .collect()
    }

    pub(super) fn view(&self, run: RunId) -> Option<RunView> {
        match self.read(Query::Run(NS, Target::Run(run))) {
            Ok(Answer::Run(view)) => view.map(|view| *view),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn run(&self, run: RunId) -> RunRow {
        self.view(run)
            .unwrap_or_else(|| panic!("run {run} is there"))
            .row
    }

    pub(super) fn state(&self, run: RunId) -> RunState {
        self.run(run).state
    }

    /// Who has the run.
    pub(super) fn owner(&self, run: RunId) -> Owner {
        let row = self.run(run);
        Owner {
            worker: row.owner.expect("somebody has the run"),
            fence: self.round(run).fence(),
        }
    }

    /// An empty round of the run by whoever has it.
    pub(super) fn round(&self, run: RunId) -> Round {
        let row = self.run(run);
        let mut round = Round::new(run, row.owner.expect("somebody has the run"), row.epoch);
        round.created_at = Some(row.created_at);
        round.parent = row.parent.map(|parent| parent.run);
        round
    }

    pub(super) fn commit(&self, round: Round) -> Committed {
        match self.must(Op::Commit(round)) {
            Reply::Committed(committed) => committed,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn end(&self, run: RunId) -> Committed {
        self.commit(ending(self.round(run), RunState::Completed))
    }

    pub(super) fn send(&self, signal: Signal) -> Sent {
        match self.must(Op::Signal(signal)) {
            Reply::Sent(sent, _) => sent,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn signal(&self, run: RunId, name: &'static str, value: u32) -> Sent {
        self.send(signal(run, name, value))
    }

    pub(super) fn offer(&self, name: &'static str, value: u32) -> Sent {
        match self.must(Op::Offer(offering(name, value))) {
            Reply::Sent(sent, _) => sent,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn release(&self, worker: WorkerId, runs: &[RunId]) -> usize {
        let (runs, leave) = (runs.to_vec(), false);
        match self.must(Op::Release(Release {
            worker,
            runs,
            leave,
        })) {
            Reply::Released(count) => count,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn renew(&self, worker: WorkerId, run: RunId) -> Lease {
        let (runs, lease) = (vec![run], LEASE);
        match self.must(Op::Renew(Renew {
            worker,
            runs,
            lease,
        })) {
            Reply::Renewed(mut renewed) => renewed.remove(0).lease,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn cancel(&self, run: RunId) -> Cancelled {
        self.ends(run, false)
    }

    /// Cancels it without undo.
    pub(super) fn keep(&self, run: RunId) -> Cancelled {
        self.ends(run, true)
    }

    fn ends(&self, run: RunId, keep: bool) -> Cancelled {
        let (namespace, target, claimant) = (NS, Target::Run(run), None);
        match self.must(Op::Cancel(Cancel {
            namespace,
            target,
            keep,
            claimant,
        })) {
            Reply::Cancelled(answer, _) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// What is unread, as (name, value), in order of arrival.
    pub(super) fn mail(&self, run: RunId) -> Vec<(String, u32)> {
        let Ok(Answer::Mail(mail)) = self.read(Query::Mail(run, 0, usize::MAX)) else {
            panic!("the mail of {run}")
        };
        let shown = mail.iter().map(|(id, row)| {
            let name = id.name.as_ref().map_or("", Name::as_str).to_owned();
            (name, super::words::value_of(&row.body))
        });
        shown.collect()
    }
}

impl Drop for Desk {
    /// Whatever a test did, the rows it leaves behind are sound.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            sound(&*self.store);
        }
    }
}

/// The rows hold what must hold after any list of operations; a store that was closed is let be.
pub(super) fn sound(store: &dyn Store) {
    let mut found = Vec::new();
    let told = |_: &crate::Checked, violations| found.extend(violations);
    match wait_for(crate::verify(store, crate::Depth::Rows, told)) {
        Ok(_) | Err(Error::Closed) => assert_eq!(found, []),
        Err(error) => panic!("the rows cannot be read: {error}"),
    }
}

/// Remove a run, and all below it.
pub(super) fn deleting(run: RunId, force: bool) -> Op {
    Op::Delete(Delete {
        namespace: NS,
        target: Target::Run(run),
        force,
    })
}

struct Tray(mpsc::Sender<Answered>);

impl Sink for Tray {
    fn deliver(&self, answers: Vec<Answered>) {
        for answer in answers {
            let _ = self.0.send(answer);
        }
    }
}

/// Submits requests together and waits for their answers, in the order of the requests.
pub(super) fn submit_all(store: &dyn Store, asks: Vec<Ask>) -> Vec<Answered> {
    let (sender, receiver) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Tray(sender));
    let count = asks.len();
    let request = |(tag, ask): (usize, Ask)| Request {
        ask: Box::new(ask),
        tag: tag as u64,
        sink: Arc::clone(&sink),
    };
    store.submit(asks.into_iter().enumerate().map(request).collect());
    let mut answers: Vec<Answered> = receiver.iter().take(count).collect();
    assert_eq!(answers.len(), count, "every request is answered once");
    answers.sort_by_key(|answer| answer.tag);
    answers
}

/// Submits operations together and waits for their replies.
pub(super) fn submit(store: &dyn Store, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
    let answers = submit_all(store, ops.into_iter().map(Ask::Op).collect());
    answers.into_iter().map(|answer| answer.result).collect()
}

/// Reads and waits.
pub(super) fn read(store: &dyn Store, query: Query) -> Result<Answer, Error> {
    wait_for(store.read(query))
}

/// Waits on this thread.
pub(super) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => return answer,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Every row.
pub(super) fn dump(store: &dyn Store) -> Dump {
    match read(store, Query::Dump) {
        Ok(Answer::Dump(dump)) => *dump,
        other => panic!("no dump: {other:?}"),
    }
}
