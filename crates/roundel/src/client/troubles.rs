//! The troubleshooting queue: all that waits for an operator, commands, runs, rollbacks and signals
//! alike.
//!
//! What is acted upon in bulk is read page by page, from the newest to the oldest, so that what is
//! parked again at once is not taken up a second time.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt};
use roundel_core::{Class, Failure, RunState};
use roundel_store::{Answer, Page, Query, SignalFilter, Stretch};

use super::{Client, Remedy, Runs, Trouble, TroubleId};
use crate::Error;

/// Requests under way at a time: they share commits.
const AT_ONCE: usize = 64;
/// Runs in a page.
const PAGE: usize = 1000;
/// Failures that a look reads at most, of each kind, to find those that were asked for.
const READ: usize = 1_000;
/// A signal that is passed costs as much as so many runs: its message and its run are read.
const OF_SIGNAL: usize = 4;
/// How many are acted upon unless more are allowed.
const MOST: usize = 10_000;

/// What waits for an operator, to be narrowed: then fetched page by page, counted, grouped by what
/// went wrong, or acted upon.
#[derive(Clone, Debug)]
pub struct Parked {
    runs: Runs,
    after: Option<TroubleId>,
    only: Option<Kind>,
    code: Option<String>,
    fingerprint: Option<String>,
    most: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Runs,
    Signals,
}

/// Failures that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct TroubleGroup {
    /// [`Failure::fingerprint`].
    pub fingerprint: String,
    /// What they mean.
    pub class: Class,
    /// A stable word for programs.
    pub code: String,
    /// For people: that of the newest.
    pub message: String,
    /// Of which workflows or queues.
    pub workflows: Vec<String>,
    /// How many there are.
    pub count: usize,
    /// The newest.
    pub newest: TroubleId,
    /// The oldest.
    pub oldest: TroubleId,
}

/// What came of acting upon many.
#[derive(Debug, Default)]
pub struct Remedied {
    /// On how many it was done.
    pub done: usize,
    /// Those that refused, the first of them with the reason.
    pub refused: Vec<(TroubleId, Error)>,
    /// There are more that were not looked at.
    pub more: bool,
}

impl Client {
    /// What waits for an operator: parked commands and runs, rollbacks that failed and nobody has
    /// accepted, and signals that their runs ended without; newest runs first.
    #[must_use]
    pub fn parked(&self) -> Parked {
        Parked {
            runs: self.runs(),
            after: None,
            only: None,
            code: None,
            fingerprint: None,
            most: MOST,
        }
    }
}

impl Parked {
    /// Of this workflow, or the queue of this command.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn of(mut self, workflow: impl Into<Cow<'static, str>>) -> Result<Parked, Error> {
        self.runs = self.runs.of(workflow)?;
        Ok(self)
    }

    /// With this label.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn with_label(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<Parked, Error> {
        self.runs = self.runs.with_label(name, value)?;
        Ok(self)
    }

    /// Whose failure has this code.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Parked {
        self.code = Some(code.into());
        self
    }

    /// Whose failure is like these: [`TroubleGroup::fingerprint`].
    #[must_use]
    pub fn in_group(mut self, fingerprint: impl Into<String>) -> Parked {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// So many at a time, 1 to 1,000.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Parked {
        self.runs = self.runs.limit(limit);
        self
    }

    /// A [look](Parked::look) passes so many rows at most, 1 to [`LOOK`](crate::LOOK), which it is
    /// unless said.
    #[must_use]
    pub fn within(mut self, rows: usize) -> Parked {
        self.runs = self.runs.within(rows);
        self
    }

    /// Those after this one: the last of the page before, or where the look before ended.
    #[must_use]
    pub fn after(mut self, last: impl Into<TroubleId>) -> Parked {
        let last = last.into();
        self.runs = self.runs.after(last.run());
        self.after = Some(last);
        self
    }

    /// No signals.
    #[must_use]
    pub fn only_runs(mut self) -> Parked {
        self.only = Some(Kind::Runs);
        self
    }

    /// Nothing but signals.
    #[must_use]
    pub fn only_signals(mut self) -> Parked {
        self.only = Some(Kind::Signals);
        self
    }

    /// At most so many are acted upon; 10,000 unless said.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Parked {
        self.most = most;
        self
    }

    fn fits(&self, trouble: &Trouble) -> bool {
        if self.code.is_none() && self.fingerprint.is_none() {
            return true;
        }
        let Some(why) = trouble.why() else {
            return false;
        };
        let code = self.code.as_ref();
        let print = self.fingerprint.as_ref();
        code.is_none_or(|code| why.code == *code)
            && print.is_none_or(|print| why.fingerprint() == *print)
    }

    /// How many are read at a time.
    fn at_once(&self) -> usize {
        match self.code.is_some() || self.fingerprint.is_some() {
            true => PAGE,
            false => self.runs.filter.limit,
        }
    }

    /// A look at those in this state.
    async fn in_state(&self, state: RunState) -> Result<Part, Error> {
        let mut filter = self.runs.filter.clone();
        filter.state = Some(state);
        filter.limit = self.at_once();
        let mut part = Part::default();
        loop {
            let looked = self.runs.client.inner.look(filter.clone());
            let Stretch { items, next } = looked.await?;
            let read = items.len();
            let waits = items.into_iter().filter(|run| run.row.awaits_operator());
            let waits = waits.map(|run| Trouble::Run(Box::new(run)));
            part.items.extend(waits.filter(|run| self.fits(run)));
            part.next = next.map(TroubleId::Run);
            filter.before = next;
            if part.is_over(read, filter.limit, self.runs.filter.limit) {
                return Ok(part);
            }
        }
    }

    /// A look at the signals. They have no labels.
    async fn signals(&self) -> Result<Part, Error> {
        let runs = &self.runs.filter;
        let mut part = Part::default();
        let mut filter = SignalFilter {
            namespace: runs.namespace.clone(),
            workflow: runs.workflow.clone(),
            before: self.after.map(TroubleId::place),
            limit: self.at_once(),
            look: runs.look.div_ceil(OF_SIGNAL),
        };
        if runs.label.is_some() {
            return Ok(part);
        }
        loop {
            let query = Query::Parked(filter.clone());
            let Answer::Parked(found) = self.runs.client.inner.read(query).await? else {
                unreachable!("parked signals were asked for")
            };
            let read = found.items.len();
            let signals = found.items.into_iter();
            let signals = signals.map(|signal| Trouble::Signal(Box::new(signal)));
            part.items
                .extend(signals.filter(|signal| self.fits(signal)));
            let place = |(run, number)| TroubleId::Signal(run, number);
            part.next = found.next.map(place);
            filter.before = found.next;
            if part.is_over(read, filter.limit, runs.limit) {
                return Ok(part);
            }
        }
    }

    /// A page: as many as were asked for if there are that many. Where few fit among many, that
    /// takes several [looks](Parked::look).
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn fetch(&self) -> Result<Page<Trouble>, Error> {
        let (mut asked, mut items) = (self.clone(), Vec::new());
        loop {
            let found = asked.look().await?;
            asked.runs.filter.limit -= found.items.len();
            items.extend(found.items);
            match found.next {
                Some(next) if asked.runs.filter.limit > 0 => asked = asked.after(next),
                next => {
                    let more = next.is_some();
                    return Ok(Page { items, more });
                }
            }
        }
    }

    /// One look, which passes a bounded number of rows, whether they fit or not: it takes little
    /// time, and may find less than a page, or nothing, although there is more. Go on
    /// [after](Parked::after) its [`next`](Stretch::next), until that is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look(&self) -> Result<Stretch<Trouble, TroubleId>, Error> {
        let mut parts = Vec::new();
        if self.only != Some(Kind::Signals) {
            parts.push(self.in_state(RunState::Parked).await?);
            parts.push(self.in_state(RunState::RollbackFailed).await?);
        }
        if self.only != Some(Kind::Runs) {
            parts.push(self.signals().await?);
        }
        Ok(together(parts, self.runs.filter.limit))
    }

    /// All that fit, a page at a time.
    fn pages(&self) -> Pages {
        Pages(Some(self.clone().limit(PAGE)))
    }

    /// How many there are.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn count(&self) -> Result<usize, Error> {
        let (mut count, mut pages) = (0, self.pages());
        while let Some(page) = pages.next().await? {
            count += page.len();
        }
        Ok(count)
    }

    /// Those whose failures are alike, together; the largest group first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn groups(&self) -> Result<Vec<TroubleGroup>, Error> {
        Ok(self.groups_within(usize::MAX).await?.items)
    }

    /// The same, of the newest: of what so many [looks](Parked::look) find. `next` says where they
    /// ended, if they did not look at all.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn groups_within(
        &self,
        looks: usize,
    ) -> Result<Stretch<TroubleGroup, TroubleId>, Error> {
        let mut groups: BTreeMap<String, TroubleGroup> = BTreeMap::new();
        let (mut asked, mut next) = (self.clone().limit(PAGE), None);
        for _ in 0..looks {
            let found = asked.look().await?;
            for run in &found.items {
                if let Some(why) = run.why() {
                    add(&mut groups, run, &why);
                }
            }
            next = found.next;
            let Some(next) = next else { break };
            asked = asked.after(next);
        }
        let mut items: Vec<TroubleGroup> = groups.into_values().collect();
        items.sort_by_key(|group| (Reverse(group.count), group.fingerprint.clone()));
        Ok(Stretch { items, next })
    }

    /// Does this about all that fit, up to [`at_most`](Self::at_most); each in a commit of its own,
    /// audited if the client acts in somebody's name. `told` hears how many are done so far.
    /// Whatever is no longer parked when its turn comes refuses, alone.
    ///
    /// # Errors
    /// When the database cannot be read or written; what was done until then stays.
    pub async fn act(
        &self,
        remedy: &Remedy,
        mut told: impl FnMut(&Remedied),
    ) -> Result<Remedied, Error> {
        let mut sum = Remedied::default();
        let mut left = self.most;
        let mut pages = match remedy.is_for_signals() {
            true => self.clone().only_signals().pages(),
            false => self.clone().only_runs().pages(),
        };
        while left > 0 {
            let Some(page) = pages.next().await? else {
                return Ok(sum);
            };
            sum.more |= page.len() > left;
            let acts = page.into_iter().take(left).map(|trouble| {
                let (client, remedy) = (self.runs.client.clone(), remedy.clone());
                let id = trouble.id();
                async move { (id, client.remedy(id, &remedy).await) }
            });
            left -= acts.len();
            let mut acts = stream::iter(acts).buffer_unordered(AT_ONCE);
            while let Some((id, did)) = acts.next().await {
                match did {
                    Ok(()) => sum.done += 1,
                    Err(error @ (Error::Refused(_) | Error::NoSuchRun(_) | Error::Value(_))) => {
                        sum.refused.push((id, error));
                    }
                    Err(error) => return Err(error),
                }
                told(&sum);
            }
        }
        sum.more |= pages.0.is_some();
        Ok(sum)
    }
}

/// What a look found of one kind, and where the next begins.
#[derive(Default)]
struct Part {
    items: Vec<Trouble>,
    next: Option<TroubleId>,
    read: usize,
}

impl Part {
    /// So many were read, of as many as were asked for: what a row's failure is, and whether
    /// somebody has accepted it, is known once it was read, so it is read on for a while.
    fn is_over(&mut self, read: usize, asked: usize, wanted: usize) -> bool {
        self.read += read;
        let enough = self.items.len() >= wanted || self.read >= READ;
        read < asked || enough || self.next.is_none()
    }
}

/// The newest of all parts: down to where the first of them begins next, so that none is missed.
fn together(parts: Vec<Part>, limit: usize) -> Stretch<Trouble, TroubleId> {
    let places = parts.iter().filter_map(|part| part.next);
    let mut next = places.max_by_key(|next| next.place());
    let mut items: Vec<Trouble> = parts.into_iter().flat_map(|part| part.items).collect();
    items.sort_by_key(|trouble| Reverse(trouble.id().place()));
    items.retain(|trouble| next.is_none_or(|next| trouble.id().place() >= next.place()));
    if items.len() > limit {
        items.truncate(limit);
        next = items.last().map(Trouble::id);
    }
    Stretch { items, next }
}

/// Pages, until there are no more.
struct Pages(Option<Parked>);

impl Pages {
    async fn next(&mut self) -> Result<Option<Vec<Trouble>>, Error> {
        let Some(asked) = self.0.take() else {
            return Ok(None);
        };
        let page = asked.fetch().await?;
        let last = page.items.last().map(Trouble::id);
        self.0 = last.filter(|_| page.more).map(|last| asked.after(last));
        Ok(Some(page.items))
    }
}

fn add(groups: &mut BTreeMap<String, TroubleGroup>, trouble: &Trouble, why: &Failure) {
    let fingerprint = why.fingerprint();
    let (id, workflow) = (trouble.id(), trouble.workflow().to_string());
    let group = groups.entry(fingerprint.clone());
    let group = group.or_insert_with(|| TroubleGroup {
        fingerprint,
        class: why.class,
        code: why.code.clone(),
        message: why.message.clone(),
        workflows: Vec::new(),
        count: 0,
        newest: id,
        oldest: id,
    });
    group.count += 1;
    // They come newest first.
    group.oldest = id;
    if let Err(place) = group.workflows.binary_search(&workflow) {
        group.workflows.insert(place, workflow);
    }
}
