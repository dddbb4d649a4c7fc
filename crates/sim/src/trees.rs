//! Trees of runs that cooperate: real functions over `Cx` whose way is drawn from their input, so
//! that one function is many workflows. They publish, start children, do what can be undone, fail,
//! and handle failures. What they write and undo is in the ledger.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use roundel::future::{Either, select};
use roundel::sim::Undos;
use roundel::{Begun, Cx, Ended, Failure, Retry, RunId, Topic, Tx, Undo, Workflow, child_failures};
use serde::{Deserialize, Serialize};

use crate::flows::{GO, Tally};
use crate::random::Random;
use crate::site;

/// What a run of a tree does.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plot {
    pub(crate) seed: u64,
    /// Levels that may still be below it.
    pub(crate) depth: u8,
    /// What its earlier executions have done.
    #[serde(default)]
    pub(crate) before: Tally,
}

/// Where trees publish.
pub(crate) const NEWS: Topic<Plot> = Topic::named("news");
const TREE: Workflow<Plot, Tally> = Workflow::named("tree");
const TWIG: Workflow<Plot, Tally> = Workflow::named("twig");
const LEAF: Workflow<u32, u32> = Workflow::named("leaf");
/// Undoes a line of this run and execution: which of [`NAMED`].
const STRIKE: Undo<(RunId, u32, usize)> = Undo::named("strike");

/// Names of what can be undone, one for each act.
pub(crate) const DONE: [&str; 4] = ["a0", "a1", "a2", "a3"];
/// Names of what cannot.
const PLAIN: [&str; 4] = ["p0", "p1", "p2", "p3"];
/// Names of steps that publish.
const SENDS: [&str; 4] = ["s0", "s1", "s2", "s3"];
/// Names of steps that are taken while something that was let go may still run.
const BESIDE: [&str; 4] = ["x0", "x1", "x2", "x3"];
/// Names of steps that are undone by name.
pub(crate) const NAMED: [&str; 4] = ["n0", "n1", "n2", "n3"];
/// Names of what is done in any case.
pub(crate) const FINALLY: [&str; 4] = ["f0", "f1", "f2", "f3"];
pub(crate) const CALLS: [&str; 4] = ["c0", "c1", "c2", "c3"];

const SHORT: Duration = Duration::from_millis(40);
/// Runs in a scope that has several parts.
const CROWD: u32 = 36;

/// Is this a step that is taken only when all that was set off has ended?
pub(crate) fn is_in_sequence(name: &str) -> bool {
    name.len() == 2 && name.starts_with(['a', 'n', 'p', 's'])
}

/// Is this a step that can be undone?
pub(crate) fn is_undoable(name: &str) -> bool {
    name.len() == 2 && name.starts_with(['a', 'n', 's', 'x'])
}

/// One run on its way.
pub(crate) struct Way {
    cx: Cx,
    dice: Random,
    depth: u8,
    tally: Tally,
    /// Runs whose failure was handled.
    handled: Vec<RunId>,
}

pub(crate) async fn tree(cx: Cx, plot: Plot) -> Result<Tally, Failure> {
    // Those that hear the same do not all do the same.
    let salt = u64::from_le_bytes(cx.run().as_bytes()[8..].try_into().expect("8 bytes"));
    let mut way = Way {
        dice: Random::new(plot.seed ^ salt),
        depth: plot.depth,
        cx,
        tally: plot.before,
        handled: Vec::new(),
    };
    let acts = 1 + way.dice.below(3);
    for at in 0..acts {
        let acted = way.act(at).await;
        let raced = acted.map_err(|failure| way.seen(failure))?;
        site::maybe_panic();
        if raced {
            break;
        }
    }
    if way.dice.once_in(5) {
        return Err(Failure::business(site::NO));
    }
    if way.cx.execution() < 3 && way.dice.once_in(8) {
        return way.anew().await;
    }
    Ok(way.tally)
}

/// Many at once, none of which does anything.
pub(crate) async fn crowd(cx: Cx, _: Plot) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let inputs: Vec<u32> = (0..CROWD).collect();
    let outputs = cx.children(LEAF, &inputs).await?;
    if outputs != inputs {
        site::complain("sc_62: the results of a crowd are not those of its runs");
    }
    tally.lines += cx
        .step("p0", |_| async { site::write(&cx, "p0") })
        .retry(Retry::exponential(8))
        .await?;
    Ok(tally)
}

pub(crate) async fn leaf(_: Cx, number: u32) -> Result<u32, Failure> {
    std::future::ready(Ok(number)).await
}

impl Way {
    /// A way without chance.
    pub(crate) fn along(cx: Cx) -> Way {
        Way {
            cx,
            dice: Random::new(1),
            depth: 1,
            tally: Tally::default(),
            handled: Vec::new(),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// One thing. Returns whether something was let go that may still run.
    async fn act(&mut self, at: usize) -> Result<bool, Failure> {
        let acts = if self.depth > 0 { 19 } else { 11 };
        match self.dice.below(acts) {
            0 | 1 => self.line(DONE[at]).await,
            2 => self.call(CALLS[at]).await,
            3 => self.line(PLAIN[at]).await,
            4 if self.dice.once_in(3) => self.fail(DONE[at]).await,
            4 => self.wait().await,
            5 if self.dice.once_in(3) => Err(Failure::business(site::NO)),
            5..8 => self.line(DONE[at]).await,
            8 | 9 => self.line(NAMED[at]).await,
            10 => self.finally(FINALLY[at]).await,
            11 | 12 => self.publish().await,
            13 => self.line(SENDS[at]).await,
            14 => self.children().await,
            15 => self.child().await,
            16 | 17 => self.handle(at).await,
            _ => return self.race(at).await,
        }?;
        Ok(false)
    }

    /// What a run below is to do.
    fn below(&mut self) -> Plot {
        Plot {
            seed: self.dice.next(),
            depth: self
                .depth
                .saturating_sub(1 + u8::from(self.dice.once_in(2))),
            before: Tally::default(),
        }
    }

    /// A failure that was handled is not seen again.
    fn seen(&self, failure: Failure) -> Failure {
        for ended in child_failures(&failure) {
            if self.handled.contains(&ended.run()) {
                let run = ended.run();
                site::complain(&format!("sc_27: the failure of {run} is presented again"));
            }
        }
        failure
    }

    pub(crate) async fn line(&mut self, name: &'static str) -> Result<(), Failure> {
        let (cx, below) = (&self.cx.clone(), self.below());
        let wrote = cx.step(name, |tx: Tx| async move {
            if name.starts_with('s') {
                NEWS.publish(&tx, &below)?;
            }
            site::write(cx, name)
        });
        let wrote = wrote.retry(Retry::exponential(8));
        self.tally.lines += match is_undoable(name) {
            true => match NAMED.iter().position(|named| *named == name) {
                Some(which) => {
                    let of = (cx.run(), cx.execution(), which);
                    wrote.undo_by(STRIKE, &of).await?
                }
                None => wrote.undo(undo(cx, name)).await?,
            },
            false => wrote.await?,
        };
        Ok(())
    }

    /// Something that is done in any case.
    pub(crate) async fn finally(&mut self, name: &'static str) -> Result<(), Failure> {
        let (run, execution) = (self.cx.run(), self.cx.execution());
        let work = move |_| async move {
            site::finish(run, execution, name);
            Ok::<(), Failure>(())
        };
        self.cx.finally(name, work).await
    }

    /// Begins anew, sometimes with what it did as settled.
    async fn anew(mut self) -> Result<Tally, Failure> {
        let next = Plot {
            before: self.tally,
            ..self.below()
        };
        let settled = self.dice.once_in(2);
        self.anew_with(settled, &next).await
    }

    /// The next execution, with this input.
    pub(crate) async fn anew_with(
        self,
        settled: bool,
        next: &impl Serialize,
    ) -> Result<Tally, Failure> {
        let anew = self.cx.continue_as_new(next);
        if settled {
            let this = (self.cx.run(), self.cx.execution());
            site::with(|site| site.settled.insert(this));
            return anew.settled().await;
        }
        anew.await
    }

    /// Not much time, now and then.
    fn haste(&mut self) -> Option<Duration> {
        let span = Duration::from_millis(self.dice.next() % 1_000);
        self.dice.once_in(5).then_some(span)
    }

    /// A step that fails is not undone.
    async fn fail(&mut self, name: &'static str) -> Result<(), Failure> {
        let cx = &self.cx;
        let failed = cx.step(name, |_| async move {
            site::write(cx, name)?;
            Err::<u32, _>(Failure::business(site::NO))
        });
        failed.undo(undo(cx, name)).await.map(drop)
    }

    pub(crate) async fn call(&mut self, name: &'static str) -> Result<(), Failure> {
        let called = self
            .cx
            .effect(name, site::call)
            .retry(Retry::exponential(8));
        let undone = |begun: Begun<u32>| async move {
            site::undo_call(begun.key())?;
            Ok::<(), Failure>(())
        };
        let called = called.undo(undone).await;
        self.tally.calls += called.map_err(|failure| Failure::business(failure.message))?;
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), Failure> {
        match self.dice.once_in(2) {
            true => self.cx.sleep(SHORT).await,
            false => drop(self.cx.wait(GO).within(SHORT).await),
        }
        Ok(())
    }

    pub(crate) async fn publish(&mut self) -> Result<(), Failure> {
        let below = self.below();
        let haste = self.haste();
        let published = self.cx.publish(NEWS, &below);
        let ended = match haste {
            Some(span) => published.forward_deadline(span).await?,
            None => published.await?,
        };
        all_completed(&ended);
        Ok(())
    }

    async fn children(&mut self) -> Result<(), Failure> {
        let plots: Vec<Plot> = (0..1 + self.dice.below(3)).map(|_| self.below()).collect();
        let outputs = self.cx.children(TREE, &plots).await?;
        if outputs.len() != plots.len() {
            let (got, wanted) = (outputs.len(), plots.len());
            site::complain(&format!("sc_62: {wanted} children have {got} results"));
        }
        Ok(())
    }

    async fn child(&mut self) -> Result<(), Failure> {
        let (below, haste) = (self.below(), self.haste());
        let child = self.cx.child(TWIG, &below);
        match haste {
            // Forward and back.
            Some(span) => child.deadline(span).await.map(drop),
            None => child.await.map(drop),
        }
    }

    /// Goes on although what it set off failed.
    async fn handle(&mut self, at: usize) -> Result<(), Failure> {
        let below = self.below();
        match self.cx.publish(NEWS, &below).await {
            Ok(ended) => all_completed(&ended),
            Err(failure) => {
                let failure = self.seen(failure);
                let failed = child_failures(&failure);
                self.handled.extend(failed.iter().map(Ended::run));
                site::with(|site| site.handled += 1);
            }
        }
        self.line(DONE[at]).await
    }

    /// Lets go of what it set off, unless that is quick.
    async fn race(&mut self, at: usize) -> Result<bool, Failure> {
        if self.dice.once_in(2) {
            // Done after what is let go has ended, though nobody reads how.
            self.finally(FINALLY[at]).await?;
        }
        let below = self.below();
        if self.dice.once_in(2) {
            // What is let go may just have begun.
            let called = self.called_first(CALLS[at], &below).await;
            self.tally.calls += called;
            return self.beside(at).await;
        }
        let sleep = self.cx.sleep(SHORT / 4);
        match select(self.cx.publish(NEWS, &below), sleep).await {
            Either::Left((ended, _)) => {
                all_completed(&ended?);
                Ok(false)
            }
            Either::Right(_) => self.beside(at).await,
        }
    }

    /// A line beside what was let go, or none: then the run may end at once.
    async fn beside(&mut self, at: usize) -> Result<bool, Failure> {
        if self.dice.once_in(2) {
            self.line(BESIDE[at]).await?;
        }
        Ok(true)
    }
}

impl Way {
    async fn called_first(&self, name: &'static str, below: &Plot) -> u32 {
        let called = self.cx.effect(name, site::call);
        let late = async {
            self.cx.sleep(SHORT / 4).await;
            self.cx.publish(NEWS, below).await
        };
        match select(pin!(called), pin!(late)).await {
            Either::Left((called, _)) => called.unwrap_or(0),
            Either::Right(_) => 0,
        }
    }
}

/// What is waited for without a failure has completed.
fn all_completed(ended: &[Ended]) {
    if ended.iter().any(|ended| ended.failure().is_some()) {
        site::complain("sc_22: a publication succeeded, and a subscriber did not");
    }
}

/// What undoes by name.
pub(crate) fn undos() -> Undos {
    thread_local! {
        static UNDOS: Undos = Undos::one(STRIKE, |_, (run, execution, which)| async move {
            site::undo(run, execution, NAMED[which])
        });
    }
    UNDOS.with(Undos::clone)
}

type Undoing = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// Undoes a line: by a line of its own.
fn undo(cx: &Cx, name: &'static str) -> impl Fn(Tx, u32) -> Undoing + Send + Sync + 'static {
    let (run, execution) = (cx.run(), cx.execution());
    move |_, _| Box::pin(async move { site::undo(run, execution, name) })
}
