//! What this process does with facts that come in: what it makes of them by its projections, and
//! how it takes what is in the queue, a page at a time.
//!
//! What it cannot take is left where it is, for another process, and keeps nothing behind it.

use futures_util::future::try_join_all;
use roundel_core::{
    Entry, Envelope, Failure, INCOMING, Item, Name, NewFact, Op, Outcome, Payload, Receive,
    Received, Reply, RunId, RunState, Take, Timestamp, decode_entries, limits,
};
use roundel_store::{Answer, DueFilter, Page, Query, RunFilter, RunView};

use super::{Inner, TakenIn};
use crate::Error;

/// So many are taken in one commit.
const AT_ONCE: usize = 100;
/// So many are looked at together.
const PAGE: usize = 1_000;
/// So many are taken by one tick.
pub(super) const MOST: usize = 10_000;

impl Inner {
    /// What this process does with the fact.
    pub(super) fn prepare(&self, item: &mut Item) {
        let projections = &self.projections;
        item.take = match projections.take_in(item.fact.clone()) {
            Ok(Some(fact)) => {
                item.fact = fact;
                Take::Record
            }
            Ok(None) => {
                let kind = &item.fact.kind;
                let text = format!(
                    "facts of the kind `{kind}` are not known to {}; a process that folds them \
                     takes it up",
                    self.name.as_ref().map_or("this process", Name::as_str)
                );
                let failure = Failure::permanent(text).with_code(UNKNOWN);
                Take::Park(Box::new(failure.with_data(kind)))
            }
            Err(failure) => Take::Park(Box::new(failure)),
        };
    }

    /// Takes these in, in as many commits as they need.
    pub(super) async fn receive(&self, items: Vec<Item>) -> Result<Vec<Received>, Error> {
        let mut received = Vec::with_capacity(items.len());
        let mut items = items.into_iter().peekable();
        while let Some(first) = items.next() {
            let (mut bytes, mut some) = (size(&first), vec![first]);
            let fits = |many: usize, bytes| many < AT_ONCE && bytes <= limits::ROUND_BYTES;
            while let Some(next) = items.next_if(|item| fits(some.len(), bytes + size(item))) {
                bytes += size(&next);
                some.push(next);
            }
            received.extend(self.receive_together(some).await?);
        }
        Ok(received)
    }

    async fn receive_together(&self, items: Vec<Item>) -> Result<Vec<Received>, Error> {
        let op = Op::Receive(Receive {
            namespace: self.namespace.clone(),
            items,
            by: self.name.clone(),
            knows: self.projections.knows.clone(),
        });
        let Reply::Received(received) = self.op(op).await? else {
            unreachable!("facts are taken in")
        };
        for one in &received {
            match one {
                Received::Recorded(fact) if fact.new => self.counters.facts_recorded.one(),
                Received::Parked { .. } => {
                    self.counters.facts_failed.one();
                    self.counters.facts_parked.one();
                }
                Received::Waiting { .. } => self.counters.facts_waiting.one(),
                Received::Refused(_) => self.counters.facts_failed.one(),
                _ => {}
            }
        }
        Ok(received)
    }

    /// Takes what is in the queue, in order, until nothing is left that this process can take, or
    /// so many were taken. Says whether there may be more.
    pub(super) async fn drain(
        &self,
        now: Timestamp,
        most: usize,
    ) -> Result<(TakenIn, bool), Error> {
        let mut taken = TakenIn::default();
        // What is taken lets others go, which may stand before it.
        let (mut after, mut again) = (None, false);
        loop {
            let query = Query::Due(DueFilter {
                namespace: self.namespace.clone(),
                workflow: INCOMING,
                now,
                after,
                limit: AT_ONCE,
            });
            let Answer::Runs(page) = self.read(query).await? else {
                unreachable!("runs were asked for")
            };
            let last = page.items.last();
            let last = last.and_then(|run| Some((run.row.ready_at?, run.row.id)));
            let before = taken.each.len();
            // What another process must fold in stays in the queue; what waits as before, waits.
            let left = |run: &RunView, one: &Received| match one {
                Received::Gone | Received::Queued(_) => true,
                Received::Waiting { .. } => run.row.state == RunState::Waiting,
                _ => false,
            };
            let received = self.take(&page.items).await?;
            let received = page.items.iter().zip(received);
            for (_, one) in received.filter(|(run, one)| !left(run, one)) {
                taken.add(&one);
                taken.each.push(one);
            }
            if taken.each.len() >= most {
                return Ok((taken, true));
            }
            again |= taken.each.len() > before;
            after = last.filter(|_| page.more);
            if after.is_none() && !std::mem::take(&mut again) {
                return Ok((taken, false));
            }
        }
    }

    /// Takes these items.
    async fn take(&self, runs: &[RunView]) -> Result<Vec<Received>, Error> {
        let envelopes = try_join_all(runs.iter().map(|run| self.envelope(run))).await?;
        let items = runs.iter().zip(envelopes).map(|(run, envelope)| {
            let from = Some((run.row.id, run.row.execution));
            let Some(envelope) = envelope else {
                return unreadable(run, from);
            };
            let mut item = Item {
                fact: envelope.fact(),
                envelope: Payload::null(),
                from,
                take: Take::Record,
                patience: None,
            };
            self.prepare(&mut item);
            item
        });
        self.receive(items.collect()).await
    }

    /// The fact that an item is, as it was last put; none if that is no fact.
    pub(super) async fn envelope(&self, run: &RunView) -> Result<Option<Envelope>, Error> {
        let query = Query::Journal {
            run: run.row.id,
            execution: run.row.execution,
            after: 0,
            limit: 1,
        };
        let Answer::Journal(page) = self.read(query).await? else {
            unreachable!("a journal was asked for")
        };
        let first = page
            .items
            .first()
            .and_then(|row| decode_entries(&row.entries).ok());
        let started = first.and_then(|entries| entries.into_iter().next());
        Ok(match started {
            Some(Entry::Started { input, .. }) => input.decode().ok(),
            _ => None,
        })
    }

    pub(super) async fn items_in(
        &self,
        state: RunState,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunView>, Error> {
        let filter = RunFilter {
            workflow: Some(INCOMING),
            state: Some(state),
            before,
            ..RunFilter::of(self.namespace.clone(), limit)
        };
        self.page_of(filter).await
    }

    /// What others parked because they did not know it, and this process knows: the oldest first.
    pub(super) async fn take_up_unknown(&self) -> Result<TakenIn, Error> {
        let mut taken = TakenIn::default();
        let (mut known, mut after) = (Vec::new(), None);
        let folds = |run: &RunView| match &run.row.outcome {
            Some(Outcome::Failure(failure)) if failure.code == UNKNOWN => {
                let kind = failure.data.as_ref().and_then(|data| data.decode().ok());
                kind.is_some_and(|kind: Name| self.projections.knows(&kind))
            }
            _ => false,
        };
        loop {
            let page = self.items_in(RunState::Parked, after, PAGE).await?;
            after = page.items.last().map(|run| run.row.id);
            known.extend(page.items.into_iter().filter(folds));
            if !page.more {
                break;
            }
        }
        while !known.is_empty() && taken.each.len() < MOST {
            let some = known.split_off(known.len().saturating_sub(AT_ONCE));
            let some: Vec<RunView> = some.into_iter().rev().collect();
            for one in self.take(&some).await? {
                taken.add(&one);
                taken.each.push(one);
            }
        }
        Ok(taken)
    }

    /// Recording some facts let others go, which had waited for them.
    pub(super) async fn after_recording(&self, now: Timestamp) -> Result<(), Error> {
        match self.projections.folds_any() {
            true => self.drain(now, MOST).await.map(drop),
            false => Ok(()),
        }
    }
}

/// The code of facts that nobody knew; its data is their kind.
const UNKNOWN: &str = "unknown_fact";

/// What it takes of a commit.
fn size(item: &Item) -> usize {
    item.envelope.size().max(item.fact.data.size())
}

/// An item that is no fact: somebody has edited it. It stays parked under its own id.
fn unreadable(run: &RunView, from: Option<(RunId, u32)>) -> Item {
    let key = run.row.key.as_ref().map_or("", Name::as_str);
    let id = key.split_once(':').map_or(key, |(_, id)| id).to_owned();
    let id = Name::new(id).unwrap_or(INCOMING);
    let text = "it is no fact: `id`, `kind` and `data` are needed; retry it with those";
    let failure = Failure::permanent(text).with_code("no_fact");
    Item {
        fact: NewFact::new(id, INCOMING, Payload::null()),
        envelope: Payload::null(),
        from,
        take: Take::Park(Box::new(failure)),
        patience: None,
    }
}
