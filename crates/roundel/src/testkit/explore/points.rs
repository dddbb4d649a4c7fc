//! The places that one play comes to, counted and named, and what strikes there.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use roundel_core::{Fence, Op, Round, RunId, WorkerId};
use roundel_store::{Ask, Fate, Faults, Memory, Point, Tx, TxError, Work, Worked};
use tokio::sync::Notify;

use super::schedule::{Kind, Place, Places, Schedule};
use super::words::Words;
use crate::testkit::clock::VirtualClock;

/// Requests after which a play is taken for one that never ends.
const ENDLESS: u32 = 20_000;

/// Something that must be true after every commit.
pub(super) struct Law {
    pub(super) name: String,
    pub(super) holds: Box<dyn Fn(Tx) -> Result<(), String> + Send + Sync>,
}

/// Where one play is.
pub(crate) struct Points {
    state: Mutex<State>,
    broken: Notify,
    clock: OnceLock<Arc<VirtualClock>>,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    places: Places,
    words: Words,
    lines: Vec<Line>,
    /// Is each request that the store has before it aborted at its commit? In their order.
    aborts: VecDeque<bool>,
    aborting: bool,
    laws: Vec<Arc<Law>>,
    broken: Option<String>,
    struck: u32,
}

/// One place, as it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    after: Duration,
    who: String,
    place: Option<(Place, u32)>,
    pub(super) what: String,
    pub(super) struck: Option<Kind>,
}

impl Points {
    pub(super) fn new(schedule: Schedule) -> Arc<Points> {
        let state = State {
            schedule,
            ..State::default()
        };
        Arc::new(Points {
            state: Mutex::new(state),
            broken: Notify::new(),
            clock: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By whose time things are told.
    pub(in crate::testkit) fn by(&self, clock: &Arc<VirtualClock>) {
        let _ = self.clock.set(clock.clone());
    }

    fn elapsed(&self) -> Duration {
        self.clock
            .get()
            .map_or(Duration::ZERO, |clock| clock.elapsed())
    }

    /// A process asks the store for something. What strikes?
    pub(in crate::testkit) fn request(
        self: &Arc<Self>,
        process: u32,
        ask: Box<Ask>,
    ) -> (Box<Ask>, Option<Kind>) {
        let after = self.elapsed();
        let mut state = self.state();
        let what = state.words.ask(&ask);
        let mut struck = state.come_to(Place::Request);
        let renewal = matches!(*ask, Ask::Op(Op::Renew(_)));
        if renewal && matches!(struck, Some(Kind::Late | Kind::Stall)) {
            // Whoever renews waits for the answer, and holds up all else.
            struck = None;
        }
        let at = state.places.requests;
        state.tell(Line {
            after,
            who: format!("process {process}"),
            place: Some((Place::Request, at)),
            what,
            struck,
        });
        let line = state.lines.len() - 1;
        if at == ENDLESS {
            let text = format!("it comes to no end: {ENDLESS} requests were made to the store");
            drop(state);
            self.break_off(text);
        } else {
            drop(state);
        }
        (self.watched(ask, line), struck)
    }

    /// Somebody outside of all processes asks for something.
    pub(in crate::testkit) fn outside(&self, ask: &Ask) {
        let after = self.elapsed();
        let mut state = self.state();
        let what = state.words.ask(ask);
        state.tell(Line {
            after,
            who: "the test".into(),
            place: None,
            what,
            struck: None,
        });
    }

    /// The store gets a request: is it aborted at its commit?
    pub(in crate::testkit) fn enqueue(&self, abort: bool) {
        self.state().aborts.push_back(abort);
    }

    /// An attempt of an effect is about to be made. What strikes?
    pub(in crate::testkit) fn attempt(
        &self,
        name: &str,
        (run, attempt): (RunId, u32),
        last: bool,
    ) -> Option<Kind> {
        let after = self.elapsed();
        let mut state = self.state();
        let mut place = None;
        let mut struck = None;
        if !last {
            struck = state.come_to(Place::Attempt);
            place = Some((Place::Attempt, state.places.attempts));
        }
        let run = state.words.run(run);
        state.tell(Line {
            after,
            who: "call".into(),
            place,
            what: format!("attempt {attempt} of effect `{name}` of {run}"),
            struck,
        });
        struck
    }

    /// A process is about to be given hints. Are they lost?
    pub(in crate::testkit) fn hints(&self) -> bool {
        let mut state = self.state();
        let struck = state.come_to(Place::Hints);
        if struck.is_some() {
            let (after, at) = (self.elapsed(), state.places.hints);
            state.tell(Line {
                after,
                who: "hint".into(),
                place: Some((Place::Hints, at)),
                what: "what the last commit made ready".into(),
                struck,
            });
        }
        struck.is_some()
    }

    /// A process came up.
    pub(in crate::testkit) fn up(&self, process: u32) {
        let (after, who) = (self.elapsed(), format!("process {process}"));
        let what = "is up".to_owned();
        self.state().tell(Line {
            after,
            who,
            place: None,
            what,
            struck: None,
        });
    }

    /// Something was committed.
    pub(in crate::testkit) fn committed(&self, memory: &Memory) {
        let laws = self.state().laws.clone();
        for law in laws {
            let held = memory.transact(|tx| {
                let held = (law.holds)(tx);
                Err::<(), Looked>(Looked(held))
            });
            if let Err(Looked(Err(text))) = held {
                self.break_off(format!("`{}` does not always hold: {text}", law.name));
            }
        }
    }

    pub(super) fn always(&self, law: Law) {
        self.state().laws.push(Arc::new(law));
    }

    /// The play is over, like this.
    fn break_off(&self, text: String) {
        self.state().broken.get_or_insert(text);
        self.broken.notify_one();
    }

    /// Why the play was broken off, once it is.
    pub(super) async fn broken(&self) -> String {
        loop {
            self.broken.notified().await;
            if let Some(text) = self.why_broken() {
                return text;
            }
        }
    }

    pub(super) fn why_broken(&self) -> Option<String> {
        self.state().broken.clone()
    }

    pub(super) fn places(&self) -> Places {
        self.state().places
    }

    pub(super) fn struck(&self) -> u32 {
        self.state().struck
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.state().lines.clone()
    }

    fn watched(self: &Arc<Self>, ask: Box<Ask>, line: usize) -> Box<Ask> {
        match *ask {
            Ask::Op(_) => ask,
            Ask::Work(work) => Box::new(Ask::Work(Box::new(Watched {
                work,
                points: self.clone(),
                line,
            }))),
        }
    }
}

impl State {
    fn come_to(&mut self, place: Place) -> Option<Kind> {
        let at = self.places.of(place);
        *at += 1;
        let struck = self.schedule.at(place, *at);
        self.struck += u32::from(struck.is_some());
        struck
    }

    fn tell(&mut self, line: Line) {
        self.lines.push(line);
    }
}

/// What a law said; the transaction in which it looked is never kept.
struct Looked(Result<(), String>);

impl From<TxError> for Looked {
    fn from(error: TxError) -> Looked {
        Looked(Err(error.to_string()))
    }
}

impl Faults for Points {
    fn at(&self, point: Point) -> Fate {
        let mut state = self.state();
        match point {
            Point::Begin => {
                state.aborting = state.aborts.pop_front().unwrap_or(false);
                Fate::Proceed
            }
            Point::Commit if state.aborting => Fate::Abort,
            Point::Commit | Point::Committed => Fate::Proceed,
        }
    }

    fn may_abort(&self) -> bool {
        self.state().aborting
    }
}

/// A step whose round is told once it is known.
struct Watched {
    work: Box<dyn Work>,
    points: Arc<Points>,
    line: usize,
}

impl Watched {
    fn tell(&self, round: &Round) {
        let mut state = self.points.state();
        let what = state.words.round(round);
        state.lines[self.line].what = what;
    }
}

impl Work for Watched {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        self.work.lease()
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let worked = self.work.run(tx);
        self.tell(&worked.round);
        worked
    }

    fn refused(&mut self, error: TxError) -> Round {
        let round = self.work.refused(error);
        self.tell(&round);
        round
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self.work.into_any()
    }
}

impl Line {
    /// What went wrong there, as a sentence.
    pub(super) fn sentence(&self) -> Option<String> {
        let Line { who, what, .. } = self;
        Some(match self.struck? {
            Kind::Before => format!("{who} crashes before {what} is applied"),
            Kind::After => format!("{who} crashes after {what}"),
            Kind::Unknown => format!("{who} is not told whether {what} happened; it did"),
            Kind::Refused => format!("{what} fails: the database is not available"),
            Kind::Late => format!("the answer to {what} comes late"),
            Kind::Stall => format!("{who} stands still before {what}, longer than its lease"),
            Kind::Fails => format!("{what} fails before anything is called"),
            Kind::Lost => format!("{what} is called, and its answer is lost"),
            Kind::Hint => "a hint is lost".to_owned(),
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = crate::testkit::timeline::shown(self.after);
        let place = match self.place {
            Some((Place::Request, at)) => at.to_string(),
            Some((Place::Attempt, at)) => format!("e{at}"),
            Some((Place::Hints, at)) => format!("h{at}"),
            None => String::new(),
        };
        write!(f, "{after:>16}  {place:>4}  {}: {}", self.who, self.what)?;
        match self.struck {
            Some(kind) => write!(f, "  <== {}", kind.mark()),
            None => Ok(()),
        }
    }
}

impl Kind {
    fn mark(self) -> &'static str {
        match self {
            Kind::Before => "crash before it",
            Kind::After => "crash after it",
            Kind::Unknown => "done, but unknown",
            Kind::Refused => "not done",
            Kind::Late => "answered late",
            Kind::Stall => "stands still",
            Kind::Fails => "fails",
            Kind::Lost => "answer lost",
            Kind::Hint => "lost",
        }
    }
}
