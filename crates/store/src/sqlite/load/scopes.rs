//! What runs that cooperate hang on: topics, publications, latches, and what calls set off.
//! And the limits of queues.

use roundel_core::{LatchId, Name, PublicationId, QueueId, Rows, RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::super::batch::keep;
use super::columns;
use crate::Permits;
use crate::cells::queue_columns;

const SUBSCRIBERS: &str = "SELECT namespace, topic, workflow, since FROM roundel_subscription \
     WHERE namespace = ?1 AND topic = ?2";
const PUBLICATION: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication WHERE id = ?1";
const OPEN_PUBLICATIONS: &str = "SELECT id FROM roundel_publication \
     INDEXED BY roundel_publication_window \
     WHERE namespace = ?1 AND topic = ?2 AND closes_at > ?3 ORDER BY id";
const LATCH: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch WHERE run = ?1 AND execution = ?2 AND call = ?3 AND part = ?4";
const SCOPE: &str = "SELECT id FROM roundel_run INDEXED BY roundel_run_scope \
     WHERE parent_run = ?1 AND parent_execution = ?2 AND parent_call = ?3 \
     AND number IS NOT NULL ORDER BY number";
const HEARD: &str = "SELECT id FROM roundel_run INDEXED BY roundel_run_publication \
     WHERE publication = ?1 LIMIT 1";
const LAST_AUDIT: &str = "SELECT namespace, number, at, operator, reason, action, target, run, \
     detail, answer, seal FROM roundel_audit WHERE namespace = ?1 ORDER BY number DESC LIMIT 1";

const QUEUE: &str = concat!(
    "SELECT ",
    queue_columns!(),
    " FROM roundel_queue WHERE namespace = ?1 AND queue = ?2"
);
/// Those of a lane that count.
const PERMITS: &str = "SELECT flow_key, count(*) FROM roundel_run INDEXED BY roundel_run_flow \
     WHERE lane = ?1 AND flow = 1 GROUP BY flow_key";

/// The statements that load all this, of one connection.
pub(super) struct Scopes<'c> {
    subscribers: Statement<'c>,
    publication: Statement<'c>,
    open_publications: Statement<'c>,
    latch: Statement<'c>,
    scope: Statement<'c>,
    heard: Statement<'c>,
    last_audit: Statement<'c>,
    queue: Statement<'c>,
    permits: Statement<'c>,
}

impl<'c> Scopes<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Scopes<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Scopes {
            subscribers: prepare(SUBSCRIBERS)?,
            publication: prepare(PUBLICATION)?,
            open_publications: prepare(OPEN_PUBLICATIONS)?,
            latch: prepare(LATCH)?,
            scope: prepare(SCOPE)?,
            heard: prepare(HEARD)?,
            last_audit: prepare(LAST_AUDIT)?,
            queue: prepare(QUEUE)?,
            permits: prepare(PERMITS)?,
        })
    }

    pub(super) fn subscribers(
        &mut self,
        namespace: &Name,
        topic: &Name,
        rows: &mut Rows,
    ) -> Result<()> {
        let values = (namespace.as_str(), topic.as_str());
        let found = self.subscribers.query_map(values, columns::subscription)?;
        for subscription in found {
            let (id, row) = subscription?;
            rows.subscriptions.load(id, Some(row));
        }
        Ok(())
    }

    pub(super) fn publication(&mut self, id: PublicationId, rows: &mut Rows) -> Result<()> {
        let found = self
            .publication
            .query_row([id.as_bytes()], columns::publication)
            .optional()?;
        rows.publications.load(id, found.map(|(_, row)| row));
        Ok(())
    }

    pub(super) fn latch(&mut self, id: LatchId, rows: &mut Rows) -> Result<()> {
        let values = (id.run.as_bytes(), id.execution, id.call, id.part);
        let found = self.latch.query_row(values, columns::latch).optional()?;
        rows.latches.load(id, found.map(|(_, row)| row));
        Ok(())
    }

    pub(super) fn open_publications(
        &mut self,
        (namespace, topic): (&Name, &Name),
        rows: &mut Rows,
        now: Timestamp,
    ) -> Result<()> {
        let values = (namespace.as_str(), topic.as_str(), now.0);
        let found = self
            .open_publications
            .query_map(values, |row| row.get(0).map(PublicationId::from_bytes))?;
        rows.open_publications = found.collect::<Result<_>>()?;
        for id in rows.open_publications.clone() {
            self.publication(id, rows)?;
        }
        Ok(())
    }

    /// A run that the publication set off, if one is left.
    pub(super) fn heard(&mut self, id: PublicationId) -> Result<Option<RunId>> {
        let heard = self
            .heard
            .query_row([id.as_bytes()], |row| columns::run_id(row, 0));
        heard.optional()
    }

    /// The last row of a namespace's audit.
    pub(super) fn last_audit(&mut self, namespace: &Name, rows: &mut Rows) -> Result<()> {
        let found = self
            .last_audit
            .query_row([namespace.as_str()], columns::audit);
        if let Some((id, row)) = found.optional()? {
            rows.audit.load(id, Some(row));
        }
        Ok(())
    }

    pub(super) fn queue(&mut self, id: &QueueId, rows: &mut Rows) -> Result<()> {
        let values = (id.namespace.as_str(), id.queue.as_str());
        let found = self.queue.query_row(values, columns::queue).optional()?;
        rows.queues.load(id.clone(), found.map(|(_, row)| row));
        Ok(())
    }

    /// How many permits a queue has given.
    pub(super) fn permits(&mut self, id: &QueueId, rows: &mut Rows) -> Result<()> {
        let mut held = Permits::new();
        for lane in rows.lanes_of(id) {
            for one in self.permits.query_map([lane.0], columns::permits)? {
                let (key, count) = one?;
                *held.entry(key).or_default() += count;
            }
        }
        rows.permits.insert(id.clone(), held);
        Ok(())
    }

    /// The runs that one call set off together, in order.
    pub(super) fn scope(&mut self, scope: (RunId, u32, u32)) -> Result<Vec<RunId>> {
        let values = (scope.0.as_bytes(), scope.1, scope.2);
        let found = self
            .scope
            .query_map(values, |row| columns::run_id(row, 0))?;
        found.collect()
    }
}
