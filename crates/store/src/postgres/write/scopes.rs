//! Writes what is set off together: subscriptions, publications, latches. And the
//! limits of queues, and the audit.

use roundel_core::{Changes, Deadlines, Write};

use super::{encoded, parted};
use crate::cells::{number, queue_columns, rate_numbers};
use crate::postgres::link::{Link, arrays};
use crate::postgres::trouble::Trouble;
use crate::postgres::values::Id;

const SUBSCRIPTION_PUT: &str = "INSERT INTO roundel_subscription \
     (namespace, topic, workflow, since) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) \
     ON CONFLICT (namespace, topic, workflow) DO UPDATE SET since = excluded.since";
const SUBSCRIPTION_DELETE: &str = "DELETE FROM roundel_subscription AS found \
     USING unnest($1::text[], $2::text[], $3::text[]) AS old (namespace, topic, workflow) \
     WHERE found.namespace = old.namespace AND found.topic = old.topic \
     AND found.workflow = old.workflow";
const PUBLICATION_INSERT: &str = "INSERT INTO roundel_publication \
     (id, namespace, topic, payload, by_run, by_execution, by_call, at, heard, closes_at, \
     deadlines, context) \
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], \
     $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bytea[], \
     $12::bytea[])";
const PUBLICATION_UPDATE: &str = "UPDATE roundel_publication AS found \
     SET heard = new.heard, closes_at = new.closes_at \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS new (id, heard, closes_at) \
     WHERE found.id = new.id";
const PUBLICATION_DELETE: &str = "DELETE FROM roundel_publication WHERE id = ANY($1)";
const LATCH_PUT: &str = "INSERT INTO roundel_latch \
     (run, execution, call, part, open, total, failed, closes_at) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], \
     $6::bigint[], $7::bigint[], $8::bigint[]) \
     ON CONFLICT (run, execution, call, part) DO UPDATE SET open = excluded.open, \
     total = excluded.total, failed = excluded.failed, closes_at = excluded.closes_at";
const LATCH_DELETE: &str = "DELETE FROM roundel_latch AS latch \
     USING unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[]) \
     AS old (run, execution, call, part) \
     WHERE latch.run = old.run AND latch.execution = old.execution AND latch.call = old.call \
     AND latch.part = old.part";
const AUDIT_INSERT: &str = "INSERT INTO roundel_audit \
     (namespace, number, at, operator, reason, action, target, run, detail, answer, seal) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], \
     $6::text[], $7::text[], $8::uuid[], $9::bytea[], $10::text[], $11::bytea[])";

const QUEUE_PUT: &str = concat!(
    "INSERT INTO roundel_queue (",
    queue_columns!(),
    ") SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[], $5::bigint[], \
     $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[]) \
     ON CONFLICT (namespace, queue) DO UPDATE SET paused = excluded.paused, \
     concurrency = excluded.concurrency, rate_count = excluded.rate_count, \
     rate_time = excluded.rate_time, spent_until = excluded.spent_until, \
     changed_at = excluded.changed_at, per_key = excluded.per_key, turn = excluded.turn"
);

pub(super) async fn all(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted) = parted(&changes.subscriptions);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.topic.as_str(), id.workflow.as_str(), row.since.0];
        link.execute(SUBSCRIPTION_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id =>
            id.namespace.as_str(), id.topic.as_str(), id.workflow.as_str()];
        link.execute(SUBSCRIPTION_DELETE, values).await?;
    }
    let (put, _) = parted(&changes.queues);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.queue.as_str(), row.paused,
            row.concurrency.map(i64::from), rate_numbers(row).0, rate_numbers(row).1,
            row.spent_until.0, row.changed_at.0, row.per_key.map(i64::from),
            row.turn.as_ref().map(|key| key.as_str().to_owned())];
        link.execute(QUEUE_PUT, values).await?;
    }
    publications(link, changes).await?;
    latches(link, changes).await
}

async fn publications(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (mut new, mut changed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for (id, write) in &changes.publications {
        match write {
            Write::Insert(row) => new.push((id, row)),
            Write::Update(row) => changed.push((id, row)),
            Write::Delete => gone.push(id),
        }
    }
    if !new.is_empty() {
        let deadlines = |all: &Deadlines| (*all != Deadlines::default()).then(|| encoded(all));
        let values = arrays![new; (id, row) =>
            Id::from(**id), row.namespace.as_str(), row.topic.as_str(),
            row.payload.as_str().as_bytes(), row.by.map(|by| Id::from(by.run)),
            row.by.map(|by| i64::from(by.execution)), row.by.map(|by| i64::from(by.call)),
            row.at.0, i64::from(row.heard), row.closes_at.map(|at| at.0),
            deadlines(&row.deadlines),
            (!row.context.is_empty()).then(|| encoded(&row.context))];
        link.execute(PUBLICATION_INSERT, values).await?;
    }
    if !changed.is_empty() {
        let values = arrays![changed; (id, row) =>
            Id::from(**id), i64::from(row.heard), row.closes_at.map(|at| at.0)];
        link.execute(PUBLICATION_UPDATE, values).await?;
    }
    if !gone.is_empty() {
        let values = arrays![gone; id => Id::from(**id)];
        link.execute(PUBLICATION_DELETE, values).await?;
    }
    let (added, _) = parted(&changes.audit);
    if !added.is_empty() {
        let values = arrays![added; (id, row) =>
            id.namespace.as_str(), number(id.number), row.at.0, row.operator.as_str(),
            row.reason.as_str(), row.action.as_str(), row.target.as_str(), row.run.map(Id::from),
            row.detail.as_ref().map(|detail| detail.as_str().as_bytes()), row.answer.as_str(),
            row.seal.as_slice()];
        link.execute(AUDIT_INSERT, values).await?;
    }
    Ok(())
}

async fn latches(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, deleted) = parted(&changes.latches);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            Id::from(id.run), i64::from(id.execution), i64::from(id.call), i16::from(id.part),
            i64::from(row.open), i64::from(row.total), i64::from(row.failed),
            row.closes_at.map(|at| at.0)];
        link.execute(LATCH_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id =>
            Id::from(id.run), i64::from(id.execution), i64::from(id.call), i16::from(id.part)];
        link.execute(LATCH_DELETE, values).await?;
    }
    Ok(())
}
