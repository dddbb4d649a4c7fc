//! The world that workflows touch: the ledger that steps write in their own transaction, and the
//! services that effects call. One for each thread; a schedule begins with an empty one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use roundel::{Attempt, Cx, Failure, RunId};
use roundel_core::mutant::{self, Mutant};

use crate::random::Random;

/// A row of the ledger: run, execution, which step.
pub(crate) type Line = (RunId, u32, &'static str);

#[derive(Default)]
pub(crate) struct Site {
    pub(crate) random: Random,
    /// Steps fail now and then.
    pub(crate) steps_fail: bool,
    /// Services fail now and then.
    pub(crate) services_fail: bool,
    /// Code panics now and then.
    pub(crate) code_panics: bool,
    /// Written by the step at hand, and not committed.
    pub(crate) written: Vec<Line>,
    /// Committed; how often each.
    pub(crate) ledger: BTreeMap<Line, u32>,
    /// Calls that services have done, by key.
    pub(crate) done: BTreeSet<String>,
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
            return Err(Failure::transient("the step failed"));
        }
        site.written.push((cx.run(), cx.execution(), name));
        Ok(1)
    })
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
        let mut wrote = Vec::new();
        self.ledger.retain(|(of, _, name), times| {
            if *of == run {
                wrote.push((*name, *times));
            }
            *of != run
        });
        wrote
    }

    /// What the step at hand wrote is committed.
    pub(crate) fn commit(&mut self, written: Vec<Line>) {
        for line in written {
            let times = if mutant::on(Mutant::Canary) { 2 } else { 1 };
            *self.ledger.entry(line).or_default() += times;
        }
    }
}
