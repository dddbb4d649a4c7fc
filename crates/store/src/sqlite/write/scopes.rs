//! Writes what is set off together: subscriptions, publications, latches. And the
//! limits of queues, and the audit.

use roundel_core::{
    AuditId, AuditRow, Changes, Deadlines, Name, Payload, PublicationId, PublicationRow, QueueId,
    QueueRow, Write,
};
use rusqlite::{Connection, Result, Statement};

use super::encoded;
use crate::cells::{queue_columns, rate_numbers};
use crate::sqlite::batch::keep;
use crate::sqlite::columns::number;

const SUBSCRIPTION_PUT: &str = "INSERT OR REPLACE INTO roundel_subscription \
     (namespace, topic, workflow, since) VALUES (?1, ?2, ?3, ?4)";
const SUBSCRIPTION_DELETE: &str = "DELETE FROM roundel_subscription \
     WHERE namespace = ?1 AND topic = ?2 AND workflow = ?3";
const PUBLICATION_PUT: &str = "INSERT OR REPLACE INTO roundel_publication \
     (id, namespace, topic, payload, by_run, by_execution, by_call, at, heard, closes_at, \
     deadlines, context) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const PUBLICATION_DELETE: &str = "DELETE FROM roundel_publication WHERE id = ?1";
const LATCH_PUT: &str = "INSERT OR REPLACE INTO roundel_latch \
     (run, execution, call, part, open, total, failed, closes_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const LATCH_DELETE: &str = "DELETE FROM roundel_latch \
     WHERE run = ?1 AND execution = ?2 AND call = ?3 AND part = ?4";
const AUDIT_INSERT: &str = "INSERT INTO roundel_audit \
     (namespace, number, at, operator, reason, action, target, run, detail, answer, seal) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

const QUEUE_PUT: &str = concat!(
    "INSERT OR REPLACE INTO roundel_queue (",
    queue_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
);

/// The statements, of one connection.
pub(super) struct Scopes<'c> {
    subscription_put: Statement<'c>,
    subscription_delete: Statement<'c>,
    publication_put: Statement<'c>,
    publication_delete: Statement<'c>,
    latch_put: Statement<'c>,
    latch_delete: Statement<'c>,
    audit_insert: Statement<'c>,
    queue_put: Statement<'c>,
}

impl<'c> Scopes<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Scopes<'c>> {
        let prepare = |sql| keep(connection, sql);
        Ok(Scopes {
            subscription_put: prepare(SUBSCRIPTION_PUT)?,
            subscription_delete: prepare(SUBSCRIPTION_DELETE)?,
            publication_put: prepare(PUBLICATION_PUT)?,
            publication_delete: prepare(PUBLICATION_DELETE)?,
            latch_put: prepare(LATCH_PUT)?,
            latch_delete: prepare(LATCH_DELETE)?,
            audit_insert: prepare(AUDIT_INSERT)?,
            queue_put: prepare(QUEUE_PUT)?,
        })
    }

    pub(super) fn all(&mut self, changes: &Changes) -> Result<()> {
        for (id, write) in &changes.subscriptions {
            let key = (
                id.namespace.as_str(),
                id.topic.as_str(),
                id.workflow.as_str(),
            );
            match write {
                Write::Insert(row) | Write::Update(row) => {
                    let values = (key.0, key.1, key.2, row.since.0);
                    self.subscription_put.execute(values)?;
                }
                Write::Delete => drop(self.subscription_delete.execute(key)?),
            }
        }
        for (id, write) in &changes.publications {
            match write {
                Write::Insert(row) | Write::Update(row) => self.publication(*id, row)?,
                Write::Delete => drop(self.publication_delete.execute([id.as_bytes()])?),
            }
        }
        for (id, write) in &changes.latches {
            let key = (id.run.as_bytes(), id.execution, id.call, id.part);
            match write {
                Write::Insert(row) | Write::Update(row) => {
                    let (open, total, failed) = (row.open, row.total, row.failed);
                    let closes_at = row.closes_at.map(|at| at.0);
                    let values = (key.0, key.1, key.2, key.3, open, total, failed, closes_at);
                    self.latch_put.execute(values)?;
                }
                Write::Delete => drop(self.latch_delete.execute(key)?),
            }
        }
        for (id, write) in &changes.queues {
            if let Write::Insert(row) | Write::Update(row) = write {
                self.queue(id, row)?;
            }
        }
        for (id, write) in &changes.audit {
            if let Write::Insert(row) = write {
                self.audit(id, row)?;
            }
        }
        Ok(())
    }

    fn queue(&mut self, id: &QueueId, row: &QueueRow) -> Result<()> {
        let (count, time) = rate_numbers(row);
        let values = (
            id.namespace.as_str(),
            id.queue.as_str(),
            row.paused,
            row.concurrency,
            count,
            time,
            row.spent_until.0,
            row.changed_at.0,
            row.per_key,
            row.turn.as_ref().map(Name::as_str),
        );
        self.queue_put.execute(values)?;
        Ok(())
    }

    fn audit(&mut self, id: &AuditId, row: &AuditRow) -> Result<()> {
        let values = (
            id.namespace.as_str(),
            number(id.number),
            row.at.0,
            row.operator.as_str(),
            &row.reason,
            &row.action,
            &row.target,
            row.run.map(|run| *run.as_bytes()),
            row.detail.as_ref().map(Payload::as_str),
            &row.answer,
            row.seal,
        );
        self.audit_insert.execute(values)?;
        Ok(())
    }

    fn publication(&mut self, id: PublicationId, row: &PublicationRow) -> Result<()> {
        let by = row.by.as_ref();
        let deadlines = Some(row.deadlines).filter(|all| *all != Deadlines::default());
        let context = Some(&row.context).filter(|context| !context.is_empty());
        let values = (
            id.as_bytes(),
            row.namespace.as_str(),
            row.topic.as_str(),
            row.payload.as_str(),
            by.map(|by| by.run.as_bytes()),
            by.map(|by| by.execution),
            by.map(|by| by.call),
            row.at.0,
            row.heard,
            row.closes_at.map(|at| at.0),
            deadlines.map(|all| encoded(&all)).transpose()?,
            context.map(encoded).transpose()?,
        );
        self.publication_put.execute(values)?;
        Ok(())
    }
}
