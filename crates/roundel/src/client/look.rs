//! Looking at runs: journals, messages, children, workers, and whether all is sound.

use std::borrow::Cow;
use std::sync::Arc;

use roundel_core::check::Violation;
use roundel_core::{Entry, JournalRow, Lane, Name, RunId, Timestamp, WorkerRow, decode_entries};
use roundel_store::{Answer, Checked, Depth, MailView, Page, Query, RunView, StateView, verify};

use super::{Client, Inner, To};
use crate::{Error, Metrics};

impl Client {
    /// The journal of a run's current execution.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn journal(&self, to: impl Into<To>) -> Result<Vec<Entry>, Error> {
        let row = self.run(to).await?.row;
        self.read_journal(row.id, row.execution).await
    }

    /// The journal of one execution of a run.
    ///
    /// # Errors
    /// When there is no such run, or it had no such execution.
    pub async fn journal_of(&self, run: RunId, execution: u32) -> Result<Vec<Entry>, Error> {
        if !(1..=self.run(run).await?.row.execution).contains(&execution) {
            return Err(Error::NoSuchRun(format!("{run}, execution {execution},")));
        }
        self.read_journal(run, execution).await
    }

    /// The journal of one execution of a run as it is stored: by rounds, with their times.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn rounds(&self, run: RunId, execution: u32) -> Result<Vec<JournalRow>, Error> {
        let query = Query::Journal {
            run,
            execution,
            after: 0,
            limit: usize::MAX,
        };
        match self.inner.read(query).await? {
            Answer::Journal(page) => Ok(page.items),
            _ => unreachable!("a journal was asked for"),
        }
    }

    async fn read_journal(&self, run: RunId, execution: u32) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for row in self.rounds(run, execution).await? {
            let decoded = decode_entries(&row.entries);
            entries.extend(decoded.map_err(|error| Error::Value(error.to_string()))?);
        }
        Ok(entries)
    }

    /// A run's unread messages, in order of arrival, after this number, so many at most.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn mail(
        &self,
        to: impl Into<To>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<MailView>, Error> {
        let run = self.run(to).await?.row.id;
        match self.inner.read(Query::Mail(run, after, limit)).await? {
            Answer::Mail(mail) => Ok(mail),
            _ => unreachable!("messages were asked for"),
        }
    }

    /// A run's own state as it is stored.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn own_state(&self, run: RunId) -> Result<Option<StateView>, Error> {
        match self.inner.read(Query::State(run)).await? {
            Answer::State(state) => Ok(state),
            _ => unreachable!("a state was asked for"),
        }
    }

    /// A client of another namespace in the same database. What it starts begins in whichever
    /// process works there, which this one does not.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn in_namespace(&self, name: impl Into<Cow<'static, str>>) -> Result<Client, Error> {
        let namespace = Name::new(name.into())?;
        if namespace == self.inner.namespace {
            return Ok(self.clone());
        }
        let inner = Inner {
            post: self.inner.post.in_namespace(namespace.clone()),
            namespace,
            worker: None,
            code: self.inner.code.clone(),
            rests: self.inner.rests.clone(),
            counters: self.inner.counters.clone(),
            answer_within: self.inner.answer_within,
            name: self.inner.name.clone(),
            projections: self.inner.projections.clone(),
            deciders: self.inner.deciders.clone(),
            sweep: self.inner.sweep,
            idlers: self.inner.idlers.clone(),
            hears_all: self.inner.hears_all,
        };
        Ok(Client {
            inner: Arc::new(inner),
            ..self.clone()
        })
    }

    /// What the engine has counted since it started, in all namespaces.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.inner.counters.snapshot()
    }

    /// The workers that are known, of all namespaces.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn workers(&self) -> Result<Vec<WorkerRow>, Error> {
        match self.inner.read(Query::Workers).await? {
            Answer::Workers(workers) => Ok(workers),
            _ => unreachable!("workers were asked for"),
        }
    }

    /// What workers can run, of all namespaces, by the numbers of their lanes, from 1 on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn lanes(&self) -> Result<Vec<Lane>, Error> {
        match self.inner.read(Query::Lanes).await? {
            Answer::Lanes(lanes) => Ok(lanes),
            _ => unreachable!("lanes were asked for"),
        }
    }

    /// Checks everything that is stored, in all namespaces, against what must be true of it, page
    /// by page; others may go on working. What a page broke is told, with what has been looked at.
    ///
    /// # Errors
    /// When rows cannot be read.
    pub async fn verify(
        &self,
        told: impl FnMut(&Checked, Vec<Violation>) + Send,
    ) -> Result<Checked, Error> {
        let store = self.inner.post.store();
        Ok(verify(&**store, Depth::Entries, told).await?)
    }

    /// The store's time: what the times in rows are compared with.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.post.store().now()
    }

    /// The namespace whose runs it talks to.
    #[must_use]
    pub fn namespace(&self) -> &Name {
        &self.inner.namespace
    }

    /// The runs directly below a run, oldest first.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn children(
        &self,
        to: impl Into<To>,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunView>, Error> {
        let run = self.run(to).await?.row.id;
        match self.inner.read(Query::Children(run, after, limit)).await? {
            Answer::Runs(page) => Ok(page),
            _ => unreachable!("runs were asked for"),
        }
    }
}
