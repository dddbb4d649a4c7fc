//! The world that workflows touch: the ledger that steps write in their own transaction, and the
//! services that effects call. One for each thread; a schedule begins with an empty one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use roundel::{Attempt, Cx, Failure, RunId};
use roundel_core::mutant::{self, Mutant};

use crate::random::Random;

/// A row of the ledger: of which run and execution, which step, and whether that is undone by it.
pub(crate) type Line = (RunId, u32, &'static str, Way);

/// What a line says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Way {
    Done,
    Undone,
    /// What is done in any case.
    Finally,
}

/// How often a line was committed, and when: the ledger counts all its lines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrote {
    pub(crate) times: u32,
    pub(crate) at: u64,
}

/// What an undo that failed for the moment says.
pub(crate) const NOT_UNDONE: &str = "the undo failed";
/// Why a step fails that is tried again; why a run fails, if it was tried too often.
pub(crate) const FAILED: &str = "the step failed";
/// What a business failure says.
pub(crate) const NO: &str = "no";

#[derive(Default)]
pub(crate) struct Site {
    pub(crate) random: Random,
    /// Steps fail now and then.
    pub(crate) steps_fail: bool,
    /// Some steps record facts.
    pub(crate) facts: bool,
    /// Services fail now and then.
    pub(crate) services_fail: bool,
    /// Code panics now and then.
    pub(crate) code_panics: bool,
    /// How often what is undone may fail to be: sometimes it does.
    pub(crate) undos_fail: u32,
    /// How many of the next do.
    pub(crate) next_undos_fail: u32,
    /// Failures of children that workflows handled.
    pub(crate) handled: u32,
    /// Executions that workflows declared settled, if they ended so.
    pub(crate) settled: BTreeSet<(RunId, u32)>,
    /// What workflows saw that should not be.
    pub(crate) complaints: Vec<String>,
    /// Written by the step at hand, and not committed.
    pub(crate) written: Vec<Line>,
    /// Committed.
    pub(crate) ledger: BTreeMap<Line, Wrote>,
    lines: u64,
    /// Calls that services have done, by key.
    pub(crate) done: BTreeSet<String>,
    /// Those that were undone.
    pub(crate) undone: BTreeSet<String>,
    calls: Vec<Call>,
    last: u64,
}

/// A call that a service has not answered.
struct Call {
    number: u64,
    waker: Option<Waker>,
    answer: Option<bool>,
}

thread_local! {
    static SITE: RefCell<Site> = RefCell::default();
}

/// Looks at the world, or changes it.
pub(crate) fn with<T>(f: impl FnOnce(&mut Site) -> T) -> T {
    SITE.with_borrow_mut(f)
}

/// Writes a line, in the step's transaction.
pub(crate) fn write(cx: &Cx, name: &'static str) -> Result<u32, Failure> {
    with(|site| {
        if site.steps_fail && site.random.once_in(6) {
            return Err(Failure::transient(FAILED));
        }
        let line = (cx.run(), cx.execution(), name, Way::Done);
        site.written.push(line);
        Ok(1)
    })
}

/// Undoes what wrote a line, in a transaction of its own.
pub(crate) fn undo(run: RunId, execution: u32, name: &'static str) -> Result<(), Failure> {
    with(Site::may_undo)?;
    with(|site| site.written.push((run, execution, name, Way::Undone)));
    Ok(())
}

/// Does what is done in any case, in a transaction of its own.
pub(crate) fn finish(run: RunId, execution: u32, name: &'static str) {
    with(|site| site.written.push((run, execution, name, Way::Finally)));
}

/// Undoes a call to a service.
pub(crate) fn undo_call(key: &str) -> Result<(), Failure> {
    with(|site| {
        site.may_undo()?;
        site.undone.insert(key.to_owned());
        Ok(())
    })
}

/// Something that a workflow saw should not be.
pub(crate) fn complain(what: &str) {
    with(|site| site.complaints.push(what.to_owned()));
}

/// Fails as a bug in a workflow would, now and then.
pub(crate) fn maybe_panic() {
    let panics = with(|site| site.code_panics && site.random.once_in(12));
    assert!(!panics, "a bug in the workflow");
}

/// Forgets a call when its future is dropped.
struct Pending(u64);

impl Drop for Pending {
    fn drop(&mut self) {
        with(|site| site.calls.retain(|call| call.number != self.0));
    }
}

/// Calls a service. It answers at once, or when the schedule says so.
pub(crate) async fn call(attempt: Attempt) -> Result<u32, Failure> {
    let number = with(|site| {
        site.last += 1;
        let at_once = site.random.once_in(3);
        let answer = at_once.then(|| !(site.services_fail && site.random.once_in(4)));
        let number = site.last;
        site.calls.push(Call {
            number,
            waker: None,
            answer,
        });
        number
    });
    let pending = Pending(number);
    let done = poll_fn(|context| {
        with(|site| {
            let mut calls = site.calls.iter_mut();
            let call = calls.find(|call| call.number == number).expect("pending");
            match call.answer {
                Some(done) => Poll::Ready(done),
                None => {
                    call.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    })
    .await;
    drop(pending);
    if !done {
        return Err(Failure::transient("the service failed"));
    }
    with(|site| site.done.insert(attempt.key()));
    Ok(1)
}

impl Site {
    /// Begins anew.
    pub(crate) fn reset(&mut self, seed: u64) {
        *self = Site {
            random: Random::new(seed),
            ..Site::default()
        };
    }

    fn may_undo(&mut self) -> Result<(), Failure> {
        if self.next_undos_fail > 0 {
            self.next_undos_fail -= 1;
            return Err(Failure::business(NO));
        }
        if self.undos_fail == 0 || !self.random.once_in(4) {
            return Ok(());
        }
        self.undos_fail -= 1;
        match self.random.below(6) {
            0 => panic!("a bug in what undoes"),
            1..4 => Err(Failure::business(NO)),
            _ => Err(Failure::transient(NOT_UNDONE)),
        }
    }

    pub(crate) fn waits_for_answer(&self) -> bool {
        self.calls.iter().any(|call| call.answer.is_none())
    }

    /// A service answers one of the calls, the sooner the earlier it was made.
    pub(crate) fn answer_one(&mut self) -> Option<Waker> {
        let fails = self.services_fail && self.random.once_in(4);
        let mut calls = self.calls.iter_mut();
        let call = calls.find(|call| call.answer.is_none())?;
        call.answer = Some(!fails);
        call.waker.take()
    }

    /// The keys of the calls that services have done for a run.
    pub(crate) fn done_for(&self, run: RunId) -> impl Iterator<Item = &String> {
        let first = run.to_string();
        let done = self.done.range(first.clone()..);
        done.take_while(move |key| key.starts_with(&first))
    }

    /// A run is deleted: whatever comes under its id is another. Returns what it had written.
    pub(crate) fn forget(&mut self, run: RunId) -> Vec<(&'static str, u32)> {
        let done: Vec<String> = self.done_for(run).cloned().collect();
        for key in &done {
            self.done.remove(key);
        }
        self.settled.retain(|(of, _)| *of != run);
        let mut wrote = Vec::new();
        self.ledger.retain(|(of, _, name, _), line| {
            if *of == run {
                wrote.push((*name, line.times));
            }
            *of != run
        });
        wrote
    }

    /// What the step at hand wrote is committed.
    pub(crate) fn commit(&mut self, written: Vec<Line>) {
        for line in written {
            let times = if mutant::on(Mutant::Canary) { 2 } else { 1 };
            self.lines += 1;
            let wrote = self.ledger.entry(line).or_default();
            wrote.times += times;
            wrote.at = self.lines;
        }
    }
}
