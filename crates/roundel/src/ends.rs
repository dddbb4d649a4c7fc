//! Runs that end in any process, read off the database: for those who tell of them elsewhere.
//!
//! Nothing is written for this, and no index says what ended when. Roots are found in the order of
//! their ids, which is that of time, each once; one that has not ended is looked at again, the
//! later the longer it goes on already. When a root has ended, all below it has. So a look costs
//! what was started since the last, and at rest next to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use roundel_core::{RunId, RunState, Timestamp};

use crate::ids::first_id_at;
use crate::trace::{Ends, Feed};
use crate::{Client, Error, RunView};

/// So long after its start a run is looked for: by then it is there, also if clocks differ a bit,
/// or its commit took long.
const LATE: Duration = Duration::from_secs(5);
/// Looks are at least this far apart, and at most.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// What goes on is looked at again after this part of the time that it goes on already.
const PART: u32 = 8;
/// And at the latest after this time.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// So many roots are known that have not ended.
const OPEN: usize = 100_000;
/// Items of a page.
const PAGE: usize = 500;
/// Runs that are read at the same time.
const READS: usize = 8;

impl Client {
    /// Runs of this namespace that end from now on, in whichever process: each tree once its root
    /// has ended, the root first. They are read off the database, some seconds after; a tree that
    /// went on for long, after another eighth of that time. As many wait to be read as there is
    /// room for; then nothing more is looked for. Of more than 100,000 trees that go on, the latest
    /// are missed, and so is what is removed before it is looked at.
    #[must_use]
    pub fn ends_anywhere(&self, room: usize) -> Ends {
        let (ends, feed) = Ends::with_room(room);
        let watch = Watch {
            client: self.clone(),
            feed,
            known: RunId::from_bytes(first_id_at(self.now().before(LATE))),
            open: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        tokio::spawn(watch.run());
        ends
    }
}

struct Watch {
    client: Client,
    feed: Arc<Feed>,
    /// Roots with lower ids were found.
    known: RunId,
    /// Those of them that had not ended, and when they are looked at again.
    open: BTreeMap<RunId, Timestamp>,
    /// The same, by time.
    due: BTreeSet<(Timestamp, RunId)>,
}

impl Watch {
    async fn run(mut self) {
        let mut pause = PAUSE[0];
        while let Err(error) = self.what_goes_on().await {
            tracing::warn!(%error, "what goes on could not be read now");
            tokio::time::sleep(PAUSE[1]).await;
        }
        while self.feed.is_heard() {
            let now = self.client.now();
            let due = self.due.first().map(|(at, _)| at.since(now));
            let wait = due.map_or(pause, |due| due.clamp(PAUSE[0], pause));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.feed.unheard() => return,
            }
            pause = match self.look().await {
                Ok(true) => PAUSE[0],
                Ok(false) => (pause * 2).min(PAUSE[1]),
                Err(error) => {
                    tracing::warn!(%error, "what has ended could not be read now");
                    PAUSE[1]
                }
            };
        }
    }

    /// What has not ended when this begins.
    async fn what_goes_on(&mut self) -> Result<(), Error> {
        for state in RunState::ALL.into_iter().filter(|state| !state.has_ended()) {
            let mut page = self.client.runs().in_state(state).limit(PAGE);
            page = page.after(self.known);
            loop {
                let found = page.fetch().await?;
                found.items.iter().for_each(|run| self.goes_on(run));
                match found.items.last() {
                    Some(last) if found.more && self.open.len() < OPEN => {
                        page = page.after(last.row.id);
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Returns whether anything is new.
    async fn look(&mut self) -> Result<bool, Error> {
        let border = RunId::from_bytes(first_id_at(self.client.now().before(LATE)));
        let mut page = self.client.runs().limit(PAGE).after(border);
        let mut new = false;
        while border > self.known {
            let found = page.fetch().await?;
            let later = found
                .items
                .iter()
                .take_while(|run| run.row.id >= self.known);
            let later: Vec<&RunView> = later.collect();
            new |= !later.is_empty();
            for run in &later {
                self.found(run).await?;
            }
            match found.items.last() {
                Some(last) if found.more && later.len() == found.items.len() => {
                    page = page.after(last.row.id);
                }
                _ => self.known = border,
            }
        }
        Ok(new | self.look_again().await?)
    }

    /// At those that had not ended, and are due.
    async fn look_again(&mut self) -> Result<bool, Error> {
        let (now, mut ended) = (self.client.now(), false);
        loop {
            let due = self.due.iter().take_while(|(at, _)| *at <= now);
            let due: Vec<RunId> = due.take(PAGE).map(|(_, run)| *run).collect();
            if due.is_empty() {
                return Ok(ended);
            }
            let client = self.client.clone();
            let reads = due.into_iter().map(|run| {
                let client = client.clone();
                async move { (run, client.run(run).await) }
            });
            let mut reads = stream::iter(reads).buffered(READS);
            while let Some((run, read)) = reads.next().await {
                match read {
                    Ok(view) => {
                        self.found(&view).await?;
                        ended |= view.row.state.has_ended();
                    }
                    Err(Error::NoSuchRun(_)) => self.close(run),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn found(&mut self, run: &RunView) -> Result<(), Error> {
        if !run.row.state.has_ended() {
            self.goes_on(run);
        } else if run.row.parent.is_none() {
            self.tell_tree(run.row.id).await?;
            self.close(run.row.id);
        }
        Ok(())
    }

    fn goes_on(&mut self, run: &RunView) {
        let id = run.row.id;
        if run.row.parent.is_some() {
            return;
        }
        self.close(id);
        if self.open.len() >= OPEN {
            self.feed.miss();
            return;
        }
        let now = self.client.now();
        let more = now.since(run.row.created_at) / PART;
        let at = now.after(more.clamp(PAUSE[0], LONGEST));
        self.open.insert(id, at);
        self.due.insert((at, id));
    }

    fn close(&mut self, run: RunId) {
        if let Some(at) = self.open.remove(&run) {
            self.due.remove(&(at, run));
        }
    }

    /// A root that has ended, and all below it.
    async fn tell_tree(&self, root: RunId) -> Result<(), Error> {
        let mut left = vec![root];
        while let Some(run) = left.pop() {
            self.feed.tell_in_turn(run).await;
            let mut after = None;
            loop {
                let below = match self.client.children(run, after, PAGE).await {
                    Err(Error::NoSuchRun(_)) => break,
                    below => below?,
                };
                left.extend(below.items.iter().map(|run| run.row.id));
                after = below.items.last().map(|run| run.row.id);
                if !below.more {
                    break;
                }
            }
        }
        Ok(())
    }
}
