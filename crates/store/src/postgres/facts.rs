//! Facts and documents: locked by name, loaded, written, read.
//!
//! A transaction has its number from its first write on, and may then wait for a lock. So one that
//! began earlier may come after one that began later, at the same stream or document; its facts
//! would stand before those that they follow. It is tried again, under a new number.

use std::collections::BTreeSet;

use roundel_core::{
    Changes, DocumentId, FactId, FactRow, LockId, Name, Need, Passing, StreamId, StreamRow, Tail,
};

use sqlx::postgres::PgArguments as Arguments;

use super::link::{Link, arrays, values};
use super::load::Loading;
use super::locks::Patience;
use super::read::{Read, Reader, cut, page};
use super::trouble::Trouble;
use super::values::Id;
use super::write::parted;
use crate::cells::{self, Cells, document_columns, fact_columns, number};
use crate::query::look::Steps;
use crate::query::{
    DocumentFilter, DocumentView, FactFilter, FactView, Projected, ProjectionView,
    without_positions,
};
use crate::{Answer, LOOK, Page, Position, Query, Stretch};

/// What is asked for may have no row to lock. The lock's number is made of its names and of whose
/// it is.
macro_rules! locks {
    ($function:literal) => {
        concat!(
            "SELECT place, ",
            $function,
            "(hashtextextended(concat_ws(E'\\n', 'roundel lock', current_schema(), \
             namespace, name), 0)) FROM unnest($1::text[], $2::text[]) WITH ORDINALITY \
             AS asked (namespace, name, place)"
        )
    };
}
const LOCKS_TRY: &str = locks!("pg_try_advisory_xact_lock");
const LOCKS_WAIT: &str = locks!("pg_advisory_xact_lock");

const FACTS: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE (namespace, id) IN \
     (SELECT * FROM unnest($1::text[], $2::text[]))"
);
const STREAMS: &str = "SELECT asked.namespace, asked.name, last.stream_version, \
     (last.xid > pg_current_xact_id()::text::bigint) \
     FROM unnest($1::text[], $2::text[]) AS asked (namespace, name) CROSS JOIN LATERAL ( \
     SELECT stream_version, xid FROM roundel_fact AS fact WHERE fact.namespace = asked.namespace \
     AND fact.stream = asked.name AND fact.stream IS NOT NULL \
     ORDER BY stream_version DESC LIMIT 1) AS last";
const DOCUMENTS: &str = concat!(
    "SELECT ",
    document_columns!("found."),
    ", (xid > pg_current_xact_id()::text::bigint) \
     FROM unnest($1::text[], $2::text[], $3::bigint[]) AS asked (namespace, path, generation) \
     JOIN roundel_document AS found ON found.namespace = asked.namespace \
     AND found.path = asked.path AND found.generation = asked.generation"
);
const PROJECTIONS: &str = "SELECT namespace, name, said FROM roundel_projection \
     WHERE $1::text IS NULL OR namespace = $1 ORDER BY namespace, name";
const PROJECTION_PUT: &str = "INSERT INTO roundel_projection (namespace, name, generation, said) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) \
     ON CONFLICT (namespace, name) DO UPDATE SET generation = excluded.generation, \
     said = excluded.said";
/// Facts after a position: those before which none can come any more, or all.
const TAIL: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE (xid, number) > ($1, $2) \
     AND (NOT $3 OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY xid, number LIMIT $4"
);
const HEAD: &str = "SELECT xid, number FROM roundel_fact ORDER BY xid DESC, number DESC LIMIT 1";
const COUNT: &str = "SELECT 0::bigint, count(*) FROM roundel_fact";
const SWEEP: &str = concat!(
    "SELECT ",
    document_columns!(""),
    " FROM roundel_document WHERE namespace = $1 AND path >= $2 ORDER BY path, generation LIMIT $3"
);
const FACT_INSERT: &str = concat!(
    "INSERT INTO roundel_fact (",
    fact_columns!(),
    ") SELECT namespace, id, kind, version, data, at, own, by_name, run, execution, entry, \
     stream, stream_version FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], \
     $5::bytea[], $6::bigint[], $7::boolean[], $8::text[], $9::uuid[], $10::bigint[], \
     $11::bigint[], $12::text[], $13::bigint[]) WITH ORDINALITY AS new (namespace, id, kind, \
     version, data, at, own, by_name, run, execution, entry, stream, stream_version, place) \
     ORDER BY place"
);
const DOCUMENT_PUT: &str = "INSERT INTO roundel_document \
     (namespace, path, generation, version, value, at, projection, xid) \
     SELECT *, pg_current_xact_id()::text::bigint FROM unnest($1::text[], $2::text[], \
     $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::text[]) \
     ON CONFLICT (namespace, path, generation) DO UPDATE SET version = excluded.version, \
     value = excluded.value, at = excluded.at, projection = excluded.projection, \
     xid = excluded.xid";
const DOCUMENT_DELETE: &str = "DELETE FROM roundel_document WHERE (namespace, path, generation) IN \
     (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))";

const READ_FACT: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE namespace = $1 AND id = $2"
);
/// In the order of transactions. Some may still come before the last of those that are there; who
/// must not miss them asks only for what is settled.
const READ_FACTS: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE (xid, number) > ($1, $2) \
     AND ($3::text IS NULL OR namespace = $3) AND ($4::text IS NULL OR kind = $4) \
     AND (NOT $5 OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     AND (xid, number) <= ($7, $8) ORDER BY xid, number LIMIT $6"
);
/// The last of so many, and the first after it.
const FACTS_END: &str = "SELECT xid, number FROM roundel_fact WHERE (xid, number) > ($1, $2) \
     AND (NOT $3 OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY xid, number LIMIT 2 OFFSET $4";
const READ_FACTS_OF_RUN: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE run = $7 AND (xid, number) > ($1, $2) \
     AND ($3::text IS NULL OR namespace = $3) AND ($4::text IS NULL OR kind = $4) \
     AND (NOT $5 OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY run, xid, number LIMIT $6"
);
const READ_STREAM: &str = concat!(
    "SELECT xid, number, ",
    fact_columns!(),
    " FROM roundel_fact WHERE namespace = $1 AND stream = $2 AND stream IS NOT NULL \
     AND stream_version > $3 AND ($4::text IS NULL OR kind = $4) \
     ORDER BY stream_version LIMIT $5"
);
const READ_DOCUMENTS: &str = concat!(
    "SELECT ",
    document_columns!("d."),
    " FROM roundel_document AS d LEFT JOIN roundel_projection AS p \
     ON p.namespace = d.namespace AND p.name = d.projection \
     WHERE d.namespace = $1 AND d.path >= $2 AND d.path < $3 AND d.path <> $4 \
     AND ($5 OR d.value IS NOT NULL) \
     AND d.generation = CASE WHEN p.name IS NULL THEN 0 ELSE p.generation END \
     ORDER BY d.path LIMIT $6"
);
/// Of all tenants and generations.
const ALL_READ_DOCUMENTS: &str = concat!(
    "SELECT ",
    document_columns!(""),
    " FROM roundel_document WHERE (namespace, path, generation) > ($1, $2, $3) \
     AND ($4 OR value IS NOT NULL) ORDER BY namespace, path, generation LIMIT $5"
);
/// Which generation is read, the projection says.
const READ_DOCUMENT: &str = concat!(
    "SELECT ",
    document_columns!("d."),
    " FROM roundel_document AS d LEFT JOIN roundel_projection AS p \
     ON p.namespace = d.namespace AND p.name = d.projection \
     WHERE d.namespace = $1 AND d.path = $2 \
     AND d.generation = CASE WHEN p.name IS NULL THEN 0 ELSE p.generation END"
);

impl Loading<'_> {
    /// Holds these alone, or notes that others do.
    pub(super) async fn locks(&mut self, wanted: &BTreeSet<LockId>) -> Result<(), Trouble> {
        let missed = &self.known.missed.locks;
        let left = wanted.difference(&self.known.locks);
        let left = left.filter(|lock| !missed.contains(*lock)).cloned();
        let left: Vec<LockId> = left.collect();
        if left.is_empty() {
            return Ok(());
        }
        let sql = match self.patience {
            Patience::Skip => LOCKS_TRY,
            Patience::Wait => LOCKS_WAIT,
        };
        let names = arrays![left; lock => lock.namespace.as_str(), lock.text.as_str()];
        for row in self.link.all(sql, names).await? {
            let place = usize::try_from(row.int(0)?.unwrap_or(1) - 1).unwrap_or_default();
            let refused = self.patience == Patience::Skip && row.int(1)? != Some(1);
            let to = match refused {
                true => &mut self.known.missed.locks,
                false => &mut self.known.locks,
            };
            to.insert(left[place].clone());
        }
        Ok(())
    }

    pub(super) async fn facts(&mut self, wanted: &BTreeSet<FactId>) -> Result<(), Trouble> {
        if wanted.is_empty() {
            return Ok(());
        }
        let names = arrays![wanted; id => id.namespace.as_str(), id.id.as_str()];
        for row in self.link.all(FACTS, names).await? {
            let view = cells::fact(&row)?;
            self.rows.facts.load(view.id, Some(view.row));
        }
        for id in wanted {
            self.rows.facts.load(id.clone(), None);
        }
        Ok(())
    }

    pub(super) async fn streams(&mut self, wanted: &BTreeSet<StreamId>) -> Result<(), Trouble> {
        if wanted.is_empty() {
            return Ok(());
        }
        let names = arrays![wanted; id => id.namespace.as_str(), id.name.as_str()];
        for row in self.link.all(STREAMS, names).await? {
            in_order(&row, 3)?;
            let (namespace, name) = (cells::name(&row, 0)?, cells::name(&row, 1)?);
            let version = cells::stream(&row, 2)?;
            let id = StreamId { namespace, name };
            self.rows.streams.load(id, Some(StreamRow { version }));
        }
        for id in wanted {
            self.rows.streams.load(id.clone(), None);
        }
        Ok(())
    }

    pub(super) async fn documents(&mut self, wanted: &BTreeSet<DocumentId>) -> Result<(), Trouble> {
        if wanted.is_empty() {
            return Ok(());
        }
        let names = arrays![wanted; id =>
            id.namespace.as_str(), id.path.as_str(), i64::from(id.generation)];
        for row in self.link.all(DOCUMENTS, names).await? {
            in_order(&row, 7)?;
            let (id, row) = cells::document(&row)?;
            self.rows.documents.load(id, Some(row));
        }
        for id in wanted {
            self.rows.documents.load(id.clone(), None);
        }
        Ok(())
    }
}

impl Loading<'_> {
    pub(super) async fn projections(&mut self, namespaces: BTreeSet<Name>) -> Result<(), Trouble> {
        for namespace in namespaces {
            let values = values![Some(namespace.as_str())];
            for row in self.link.all(PROJECTIONS, values).await? {
                let (id, row) = cells::projection(&row)?;
                self.rows.projections.load(id, Some(row));
            }
            self.known.whole.insert(Need::Projections(namespace));
        }
        Ok(())
    }

    /// The facts after this one; and whether there are more, before which others may come.
    pub(super) async fn tail(
        &mut self,
        after: Position,
        (limit, settled): (usize, bool),
    ) -> Result<Tail, Trouble> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut tail = Tail::default();
        for row in self.link.all(TAIL, asked(after, settled, limit)?).await? {
            let FactView { position, id, row } = cells::fact(&row)?;
            tail.facts.push(Passing::new(position, id, row));
        }
        if settled && tail.facts.is_empty() {
            let more = self.link.all(TAIL, asked(after, false, 1)?).await?;
            tail.unsettled = !more.is_empty();
        }
        Ok(tail)
    }

    pub(super) async fn sweep(
        &mut self,
        (namespace, path): (&Name, &str),
        limit: usize,
    ) -> Result<Vec<DocumentId>, Trouble> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = values![namespace.as_str(), path, limit];
        let mut swept = Vec::new();
        for row in self.link.all(SWEEP, values).await? {
            let (id, row) = cells::document(&row)?;
            self.rows.documents.load(id.clone(), Some(row));
            swept.push(id);
        }
        Ok(swept)
    }
}

fn asked(after: Position, settled: bool, limit: i64) -> Result<Arguments, Trouble> {
    Ok(values![
        number(after.batch),
        number(after.number),
        settled,
        limit
    ])
}

/// Refuses a transaction that comes after one that began later.
fn in_order(row: &impl Cells, column: usize) -> Result<(), Trouble> {
    match row.int(column)? {
        Some(1) => Err(Trouble::Again("a later transaction was faster".into())),
        _ => Ok(()),
    }
}

pub(super) async fn write(link: &mut Link, changes: &Changes) -> Result<(), Trouble> {
    let (put, _) = parted(&changes.facts);
    if !put.is_empty() {
        let stream = |row: &FactRow| row.stream.clone().unzip();
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.id.as_str(), row.kind.as_str(), i64::from(row.version),
            row.data.as_str().as_bytes(), row.at.0, row.own,
            row.by.as_ref().map(|by| by.as_str().to_owned()),
            row.cause.map(|cause| Id::from(cause.run)),
            row.cause.map(|cause| i64::from(cause.execution)),
            row.cause.map(|cause| number(cause.entry)),
            stream(row).0.map(|name| name.as_str().to_owned()), stream(row).1.map(number)];
        link.execute(FACT_INSERT, values).await?;
    }
    let (put, _) = parted(&changes.projections);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.name.as_str(),
            row.live.as_ref().map(|live| i64::from(live.generation)),
            cells::said(row).into_bytes()];
        link.execute(PROJECTION_PUT, values).await?;
    }
    let (put, deleted) = parted(&changes.documents);
    if !put.is_empty() {
        let values = arrays![put; (id, row) =>
            id.namespace.as_str(), id.path.as_str(), i64::from(id.generation),
            number(row.version), row.value.as_ref().map(|value| value.as_str().as_bytes()),
            row.at.0, row.projection.as_str()];
        link.execute(DOCUMENT_PUT, values).await?;
    }
    if !deleted.is_empty() {
        let values = arrays![deleted; id =>
            id.namespace.as_str(), id.path.as_str(), i64::from(id.generation)];
        link.execute(DOCUMENT_DELETE, values).await?;
    }
    Ok(())
}

impl Reader<'_> {
    /// A question about facts or documents.
    pub(super) async fn of_facts(&mut self, query: &Query) -> Read<Answer> {
        Ok(match query {
            Query::Fact(id) => {
                let found = cut(self.fact(id).await?, 1);
                Answer::Facts(Stretch::of(found, |fact| fact.position))
            }
            Query::Facts(filter) => Answer::Facts(self.facts(filter).await?),
            Query::Document(id) => Answer::Documents(cut(self.document(id).await?, 1)),
            Query::Documents(filter) => Answer::Documents(self.documents(filter).await?),
            Query::Projections { namespace, count } => {
                Answer::Projections(self.projections(namespace.as_ref(), *count).await?)
            }
            _ => unreachable!("a question about something else"),
        })
    }

    async fn fact(&mut self, id: &FactId) -> Read<Vec<FactView>> {
        let values = values![id.namespace.as_str(), id.id.as_str()];
        self.all(READ_FACT, values, cells::fact).await
    }

    async fn facts(&mut self, filter: &FactFilter) -> Read<Stretch<FactView, Position>> {
        let limit = page(filter.limit);
        let kind = filter.kind.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_ref().map(Name::as_str);
        let Position { batch, number: at } = filter.after.unwrap_or_default();
        let items = match (&filter.stream, filter.run) {
            (Some((stream, after)), _) => {
                let values = values![
                    namespace.unwrap_or_default(),
                    stream.as_str(),
                    number(*after),
                    kind,
                    limit + 1
                ];
                self.all(READ_STREAM, values, cells::fact).await?
            }
            (None, Some(run)) => {
                let values = values![
                    number(batch),
                    number(at),
                    namespace,
                    kind,
                    filter.settled,
                    limit + 1,
                    Id::from(run)
                ];
                self.all(READ_FACTS_OF_RUN, values, cells::fact).await?
            }
            (None, None) => return self.look_at_facts(filter).await,
        };
        Ok(Stretch::of(cut(items, limit), |fact| fact.position))
    }

    async fn look_at_facts(&mut self, filter: &FactFilter) -> Read<Stretch<FactView, Position>> {
        let (settled, last) = (filter.settled, (i64::MAX, i64::MAX));
        let kind = filter.kind.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_ref().map(Name::as_str);
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.after, limit, filter.look.unwrap_or(LOOK));
        while let Some(step) = steps.step() {
            let Position { batch, number: at } = step.before.unwrap_or_default();
            let (batch, at) = (number(batch), number(at));
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let values = values![batch, at, settled, skip];
            let end = self.all(FACTS_END, values, cells::position).await?;
            let (to, below) = match end.as_slice() {
                [to, _] => (number(to.batch), number(to.number)),
                _ => last,
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let most = limit + 1;
            let values = values![batch, at, namespace, kind, settled, most, to, below];
            let fit = cut(self.all(READ_FACTS, values, cells::fact).await?, limit);
            steps.took(fit, &end, |fact| fact.position);
        }
        Ok(steps.stretch())
    }

    async fn document(&mut self, id: &DocumentId) -> Read<Vec<DocumentView>> {
        let values = values![id.namespace.as_str(), id.path.as_str()];
        self.all(READ_DOCUMENT, values, cells::document).await
    }

    async fn projections(&mut self, namespace: Option<&Name>, count: bool) -> Read<Projected> {
        let values = values![namespace.map(Name::as_str)];
        let projections = self.all(PROJECTIONS, values, cells::projection).await?;
        let head = self.all(HEAD, values![], cells::position).await?;
        let facts = match count {
            true => self.all(COUNT, values![], cells::position).await?.pop(),
            false => None,
        };
        Ok(Projected {
            projections,
            head: head.into_iter().next().unwrap_or_default(),
            facts: facts.map(|counted| counted.number),
        })
    }

    async fn documents(&mut self, filter: &DocumentFilter) -> Read<Page<DocumentView>> {
        let limit = page(filter.limit);
        let (after_namespace, after) = filter.after_names();
        let items = if let Some(namespace) = &filter.namespace {
            let (from, to) = filter.range();
            let removed = filter.removed;
            let values = values![namespace.as_str(), from, to, after, removed, limit + 1];
            self.all(READ_DOCUMENTS, values, cells::document).await?
        } else {
            let generation = filter.after_generation();
            let values = values![
                after_namespace,
                after,
                generation,
                filter.removed,
                limit + 1
            ];
            self.all(ALL_READ_DOCUMENTS, values, cells::document)
                .await?
        };
        Ok(cut(items, limit))
    }
}

impl Reader<'_> {
    pub(super) async fn every_fact(&mut self) -> Read<Vec<(FactId, FactRow)>> {
        let none = None::<&str>;
        let last = i64::MAX;
        let values = values![0_i64, 0_i64, none, none, false, last, last, last];
        let views = self.all(READ_FACTS, values, cells::fact).await?;
        Ok(views.into_iter().map(|view| (view.id, view.row)).collect())
    }

    pub(super) async fn every_document(&mut self) -> Read<Vec<DocumentView>> {
        let values = values!["", "", -1_i64, true, i64::MAX];
        self.all(ALL_READ_DOCUMENTS, values, cells::document).await
    }

    pub(super) async fn every_projection(&mut self) -> Read<Vec<ProjectionView>> {
        let values = values![None::<&str>];
        let all = self.all(PROJECTIONS, values, cells::projection).await?;
        Ok(without_positions(all))
    }
}
