//! Checking runs in flight against the code that is registered here: see `crate::check`.

use futures_util::{StreamExt, stream};
use roundel_core::{Failure, INCOMING, JournalRow, Op, Park, Refusal, RunId, RunState, Target};
use roundel_store::{Answer, Query, RunFilter, RunView};

use super::{Client, Inner};
use crate::Error;
use crate::check::{Judged, Unfit, Verdict, Verdicts};
use crate::live::Rehearsed;
use crate::seal::{Unread, sealed_entries};

/// Runs that are read at a time.
const PAGE: usize = 200;

/// Journals that are read at the same time.
const READS: usize = 16;

/// How often a function may wake itself without coming further.
const YIELDS: u32 = 10_000;

/// States of runs in flight. Those who are parked come first: others may join them on the way.
const IN_FLIGHT: [RunState; 5] = [
    RunState::Parked,
    RunState::Waiting,
    RunState::Ready,
    RunState::Running,
    RunState::RollingBack,
];

impl Client {
    /// Replays every run in flight of this namespace by the workflows that are registered here, and
    /// tells of each what would become of it. Changes nothing, runs no step and no effect.
    ///
    /// Runs that are worked on meanwhile may be missed, or be judged by what they were.
    ///
    /// # Errors
    /// When no workflow is registered, or the database cannot be read.
    pub async fn check(
        &self,
        told: impl FnMut(&Verdicts, &Judged) + Send,
    ) -> Result<Verdicts, Error> {
        self.sweep(Unfit::Go, told).await
    }

    /// The same, and parks those that do not go on with this code, unless somebody works on them:
    /// whoever does finds out.
    ///
    /// # Errors
    /// As [`check`](Client::check).
    pub async fn check_and_park(
        &self,
        told: impl FnMut(&Verdicts, &Judged) + Send,
    ) -> Result<Verdicts, Error> {
        self.sweep(Unfit::Park, told).await
    }

    async fn sweep(
        &self,
        unfit: Unfit,
        mut told: impl FnMut(&Verdicts, &Judged) + Send,
    ) -> Result<Verdicts, Error> {
        if self.inner.code.is_empty() {
            return Err(Error::Setup(
                "no workflow is registered here, so there is nothing to check runs against; run \
                 this from the program that has them"
                    .into(),
            ));
        }
        let mut verdicts = Verdicts::default();
        for state in IN_FLIGHT {
            let (mut before, mut more) = (None, true);
            while more {
                let page;
                (page, more) = self.page_of(state, before).await?;
                before = page.last().map(|view| view.row.id);
                let looks = page.into_iter().map(|view| self.inner.judge(view));
                let mut looks = stream::iter(looks).buffered(READS);
                while let Some(judged) = looks.next().await {
                    let Some(judged) = judged? else { continue };
                    verdicts.add(&judged);
                    if unfit == Unfit::Park && self.park_unfit(&judged).await? {
                        verdicts.parked += 1;
                    }
                    told(&verdicts, &judged);
                }
            }
        }
        Ok(verdicts)
    }

    async fn page_of(
        &self,
        state: RunState,
        before: Option<RunId>,
    ) -> Result<(Vec<RunView>, bool), Error> {
        let filter = RunFilter {
            state: Some(state),
            before,
            ..RunFilter::of(self.inner.namespace.clone(), PAGE)
        };
        let page = self.inner.page_of(filter).await?;
        Ok((page.items, page.more))
    }

    /// Parks a run that does not go on with this code, as its worker would. Returns whether it did.
    async fn park_unfit(&self, judged: &Judged) -> Result<bool, Error> {
        let Some(failure) = judged.failure.as_ref().filter(|_| judged.is_left()) else {
            return Ok(false);
        };
        let park = Op::Park(Box::new(Park {
            namespace: self.inner.namespace.clone(),
            target: Target::Run(judged.run),
            seen: judged.epoch,
            failure: Failure::clone(failure),
        }));
        match self.act(park).await {
            Ok(_) => Ok(true),
            Err(Error::Refused(
                Refusal::NotWaiting { .. } | Refusal::MovedOn { .. } | Refusal::UnknownRun { .. },
            )) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Before it takes work: does what is to be done about runs that do not go on with this code.
    pub(crate) async fn make_fit(&self, unfit: Unfit) -> Result<(), Error> {
        let mut first = None;
        let told = |_: &Verdicts, judged: &Judged| {
            if judged.is_left() && first.is_none() {
                first = Some(judged.clone());
            }
        };
        let verdicts = self.sweep(unfit, told).await?;
        let Some(first) = first else { return Ok(()) };
        let Judged { run, workflow, .. } = &first;
        let text = format!(
            "{} of {} runs in flight do not go on with this code; the first is run {run} of \
             `{workflow}` version {}: {}; restore the old code, or give the new code a version of \
             its own and keep the old one registered",
            verdicts.total().unfit(),
            verdicts.total().runs,
            first.version,
            first.sentence(),
        );
        if unfit == Unfit::Refuse {
            return Err(Error::Unfit(text));
        }
        tracing::warn!(parked = verdicts.parked, "{text}");
        Ok(())
    }
}

impl Inner {
    /// What would become of a run; none if it has gone, or is of a kind that has no code.
    async fn judge(&self, view: RunView) -> Result<Option<Judged>, Error> {
        if view.lane.workflow == INCOMING {
            return Ok(None);
        }
        let verdict = self.rehearse(&view).await?;
        let Some(verdict) = verdict else {
            return Ok(None);
        };
        let (verdict, failure) = match verdict {
            Ok(verdict) => (verdict, None),
            Err(failure) => (Verdict::of(failure.clone()), Some(Box::new(failure))),
        };
        Ok(Some(Judged {
            run: view.row.id,
            key: view.row.key,
            workflow: view.lane.workflow,
            version: view.lane.version,
            state: view.row.state,
            verdict,
            epoch: view.row.epoch,
            failure,
        }))
    }

    async fn rehearse(&self, view: &RunView) -> Result<Option<Result<Verdict, Failure>>, Error> {
        let (code, run) = (&self.code, view.row.id);
        let Some(handler) = code.handler(&view.lane.workflow, view.lane.version) else {
            return Ok(Some(Ok(Verdict::Pinned)));
        };
        let rows = self.rows_of(run, view.row.execution).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        if let Some(sealed) = sealed_entries(&rows) {
            let unread = Unread::of(&sealed, self.post.keys());
            return match unread {
                Unread::NoKey(_) => Err(Error::Setup(format!("run {run} is sealed: {unread}"))),
                Unread::Broken(_) => Ok(Some(Err(unread.failure(run)))),
            };
        }
        let mut live = match code.rehearsal((view, handler), &rows) {
            Ok(live) => live,
            Err(failure) => return Ok(Some(Err(failure))),
        };
        drop(rows);
        for _ in 0..YIELDS {
            match live.rehearse() {
                Err(failure) => return Ok(Some(Err(failure))),
                Ok(Rehearsed::Through) => return Ok(Some(Ok(Verdict::Compatible))),
                Ok(Rehearsed::UpTo(entry)) => return Ok(Some(Ok(Verdict::UpTo(entry)))),
                Ok(Rehearsed::Yield) => tokio::task::yield_now().await,
                Ok(Rehearsed::Recall(execution)) => {
                    let rows = self.rows_of(run, execution).await?;
                    live.recalled(execution, &rows, |workflow, version| {
                        code.handler(workflow, version).cloned()
                    });
                }
            }
        }
        let Rehearsed::UpTo(entry) = live.up_to_here() else {
            unreachable!("it says how far it is")
        };
        Ok(Some(Ok(Verdict::UpTo(entry))))
    }

    async fn rows_of(&self, run: RunId, execution: u32) -> Result<Vec<JournalRow>, Error> {
        let query = Query::Journal {
            run,
            execution,
            after: 0,
            limit: usize::MAX,
        };
        match self.read(query).await? {
            Answer::Journal(page) => Ok(page.items),
            _ => unreachable!("a journal was asked for"),
        }
    }
}
