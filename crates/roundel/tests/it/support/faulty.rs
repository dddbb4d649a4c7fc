//! A store that does what a test says: loses, holds and refuses requests, or dies with them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use roundel::{Clock, RunId};
use roundel_core::{Hint, Op};
use roundel_store::{Answer, Answered, Ask, Boxed, Error, Listener, Query, Request, Sink, Store};

use super::{PATIENCE, until};

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing unusual.
    Pass,
    /// It is not done, and the caller is told so.
    Unavailable,
    /// It is not done, and the caller does not know.
    LoseRequest,
    /// It is done, and the caller does not know.
    LoseReply,
    /// It is done, and no answer ever comes.
    Silence,
    /// It waits until [`Faulty::release`].
    Hold,
    /// It is done, and the answer waits until [`Faulty::release`].
    HoldReply,
    /// The process dies before it is done.
    CrashBefore,
    /// The process dies when it is done.
    CrashAfter,
}

/// Says what happens to each request.
type Rule = Box<dyn FnMut(&Ask) -> Fault + Send>;

/// A store that does what a test says.
pub struct Faulty {
    pub(super) inner: Arc<dyn Store>,
    /// Is the store beneath only this one's?
    own: bool,
    way: Arc<Way>,
}

/// The way to the store and back.
#[derive(Default)]
struct Way {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cut: bool,
    closed: bool,
    without_hints: bool,
    rule: Option<Rule>,
    held: Vec<Request>,
    held_replies: Vec<(Arc<dyn Sink>, Vec<Answered>)>,
    seen: u64,
    /// Requests that have passed, and are not answered.
    under_way: usize,
    /// One after which the process dies, and which is not done yet.
    last: bool,
}

impl Way {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Faulty {
    pub(super) fn new(inner: Arc<dyn Store>, own: bool) -> Faulty {
        Faulty {
            inner,
            own,
            way: Arc::default(),
        }
    }

    /// What a process died of reached the database: a server may still be at it.
    pub(super) fn await_last(&self) {
        let begun = Instant::now();
        while self.way.lock().last {
            assert!(begun.elapsed() < PATIENCE, "waited in vain for its last");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn close_if_own(&self) {
        if self.own {
            self.inner.close();
        }
    }

    /// From now on, asks what happens to each request.
    pub fn rule(&self, rule: impl FnMut(&Ask) -> Fault + Send + 'static) {
        self.way.lock().rule = Some(Box::new(rule));
    }

    /// From now on, nothing unusual happens.
    pub fn mend(&self) {
        self.way.lock().rule = None;
    }

    /// The next request that fits meets this; those after it do not.
    pub fn once(&self, fault: Fault, fits: impl Fn(&Ask) -> bool + Send + 'static) {
        let mut left = true;
        self.rule(move |ask| {
            if left && fits(ask) {
                left = false;
                return fault;
            }
            Fault::Pass
        });
    }

    /// Waits until all that passed before a rule came is answered: a renewal that is under way
    /// would otherwise meet the time that a test sets next.
    pub async fn settled(&self) {
        until("nothing is under way", || async {
            self.way.lock().under_way == 0
        })
        .await;
    }

    /// Has the rule of [`Faulty::once`] or another one struck this often?
    pub fn struck(&self) -> u64 {
        self.way.lock().seen
    }

    /// Nothing goes to the database or comes from it any more.
    pub fn cut(&self) {
        self.way.lock().cut = true;
    }

    pub fn is_cut(&self) -> bool {
        self.way.lock().cut
    }

    /// Hints are lost from now on.
    pub fn lose_hints(&self) {
        self.way.lock().without_hints = true;
    }

    /// Lets what was held go on.
    pub fn release(&self) {
        let mut state = self.way.lock();
        let held = std::mem::take(&mut state.held);
        let replies = std::mem::take(&mut state.held_replies);
        state.under_way += held.len();
        drop(state);
        self.inner.submit(held);
        for (sink, answers) in replies {
            sink.deliver(answers);
        }
    }

    /// Is a request held that fits?
    pub fn holds(&self, fits: impl Fn(&Ask) -> bool) -> bool {
        self.way.lock().held.iter().any(|held| fits(&held.ask))
    }

    /// How many requests and answers are held.
    pub fn held(&self) -> usize {
        let state = self.way.lock();
        state.held.len() + state.held_replies.len()
    }

    fn judge(&self, request: Request) -> Option<Request> {
        let mut state = self.way.lock();
        if state.cut {
            return None;
        }
        let rule = state.rule.as_mut();
        let fault = rule.map_or(Fault::Pass, |rule| rule(&request.ask));
        state.seen += u64::from(fault != Fault::Pass);
        let Request { ask, tag, sink } = request;
        let answer = |result, ask| {
            let answered = Answered { tag, result, ask };
            sink.deliver(vec![answered]);
            None
        };
        match fault {
            _ if state.closed => answer(Err(Error::Closed), ask),
            Fault::Unavailable => answer(Err(Error::Unavailable("a fault".into())), ask),
            Fault::LoseRequest => answer(Err(Error::Unknown("a fault".into())), ask),
            Fault::CrashBefore => {
                state.cut = true;
                None
            }
            Fault::Pass
            | Fault::LoseReply
            | Fault::Silence
            | Fault::Hold
            | Fault::HoldReply
            | Fault::CrashAfter => {
                state.cut = fault == Fault::CrashAfter;
                let relay = Relay {
                    way: self.way.clone(),
                    fault,
                    sink,
                };
                let request = Request {
                    ask,
                    tag,
                    sink: Arc::new(relay),
                };
                if fault == Fault::Hold {
                    state.held.push(request);
                    return None;
                }
                state.under_way += 1;
                state.last |= fault == Fault::CrashAfter;
                Some(request)
            }
        }
    }
}

impl Store for Faulty {
    fn submit(&self, requests: Vec<Request>) {
        let passed: Vec<Request> = requests
            .into_iter()
            .filter_map(|request| self.judge(request))
            .collect();
        if !passed.is_empty() {
            self.inner.submit(passed);
        }
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        let state = self.way.lock();
        if state.cut || state.closed {
            return Box::pin(async { Err(Error::Closed) });
        }
        drop(state);
        self.inner.read(query)
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.inner.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let way = self.way.clone();
        self.inner.listen(Arc::new(Ear { way, listener }));
    }

    fn watch_closely(&self, closely: bool) {
        self.inner.watch_closely(closely);
    }

    fn close(&self) {
        self.way.lock().closed = true;
        if self.own {
            self.inner.close();
        }
    }
}

struct Relay {
    way: Arc<Way>,
    fault: Fault,
    sink: Arc<dyn Sink>,
}

impl Sink for Relay {
    fn deliver(&self, mut answers: Vec<Answered>) {
        self.way.lock().under_way -= answers.len();
        if self.fault == Fault::CrashAfter {
            self.way.lock().last = false;
        }
        if self.way.lock().cut || self.fault == Fault::Silence {
            return;
        }
        if self.fault == Fault::HoldReply {
            let reply = (self.sink.clone(), answers);
            self.way.lock().held_replies.push(reply);
            return;
        }
        if self.fault == Fault::LoseReply {
            for answer in &mut answers {
                answer.result = Err(Error::Unknown("a fault".into()));
            }
        }
        self.sink.deliver(answers);
    }
}

struct Ear {
    way: Arc<Way>,
    listener: Arc<dyn Listener>,
}

impl Ear {
    fn hears(&self) -> bool {
        let state = self.way.lock();
        !state.cut && !state.closed && !state.without_hints
    }
}

impl Listener for Ear {
    fn hints(&self, hints: Vec<Hint>) {
        if self.hears() {
            self.listener.hints(hints);
        }
    }

    fn others_committed(&self) {
        if self.hears() {
            self.listener.others_committed();
        }
    }
}

/// Is this a round of that run, or a step of it?
pub fn is_round_of(ask: &Ask, run: RunId) -> bool {
    match ask {
        Ask::Op(Op::Commit(round)) => round.run == run,
        Ask::Op(_) => false,
        Ask::Work(work) => work.lease().0 == run,
    }
}

/// Is this a round, a step, or a start with its first round?
pub fn is_round(ask: &Ask) -> bool {
    matches!(ask, Ask::Op(Op::Commit(_) | Op::Start(_)) | Ask::Work(_))
}
