//! Facts and documents: loaded, written, read.

use std::sync::Arc;

use roundel_core::{
    Changes, DocumentId, DocumentRow, FactId, FactRow, Name, Passing, Position, Rows, StreamId,
    StreamRow, Tail, Write,
};
use rusqlite::{Connection, OptionalExtension, Result, Statement};

use super::batch::keep;
use super::columns::{self, number};
use super::read::{Reader, cut, page};
use crate::cells::{self, document_columns, fact_columns};
use crate::query::look::Steps;
use crate::query::{
    DocumentFilter, DocumentView, FactFilter, FactView, Projected, ProjectionView,
    without_positions,
};
use crate::{Answer, LOOK, Page, Query, Stretch};

const FACT: &str = concat!(
    "SELECT 0, position, ",
    fact_columns!(),
    " FROM roundel_fact WHERE namespace = ?1 AND id = ?2"
);
const STREAM: &str = "SELECT max(stream_version) FROM roundel_fact \
     WHERE namespace = ?1 AND stream = ?2 AND stream IS NOT NULL";
const DOCUMENT: &str = concat!(
    "SELECT ",
    document_columns!(""),
    " FROM roundel_document WHERE namespace = ?1 AND path = ?2 AND generation = ?3"
);
const PROJECTIONS: &str = "SELECT namespace, name, said FROM roundel_projection \
     WHERE ?1 IS NULL OR namespace = ?1 ORDER BY namespace, name";
const PROJECTION_PUT: &str = "INSERT INTO roundel_projection (namespace, name, generation, said) \
     VALUES (?1, ?2, ?3, ?4) ON CONFLICT (namespace, name) \
     DO UPDATE SET generation = excluded.generation, said = excluded.said";
const TAIL: &str = concat!(
    "SELECT 0, position, ",
    fact_columns!(),
    " FROM roundel_fact WHERE position > ?1 ORDER BY position LIMIT ?2"
);
const HEAD: &str = "SELECT 0, max(position) FROM roundel_fact";
const COUNT: &str = "SELECT count(*) FROM roundel_fact";
const SWEEP: &str = concat!(
    "SELECT ",
    document_columns!(""),
    " FROM roundel_document WHERE namespace = ?1 AND path >= ?2 ORDER BY path, generation LIMIT ?3"
);
const FACT_INSERT: &str = concat!(
    "INSERT INTO roundel_fact (",
    fact_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
);
const DOCUMENT_INSERT: &str = "INSERT INTO roundel_document \
     (namespace, path, generation, version, value, at, projection) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const DOCUMENT_UPDATE: &str = "UPDATE roundel_document SET version = ?4, value = ?5, at = ?6, \
     projection = ?7 WHERE namespace = ?1 AND path = ?2 AND generation = ?3";
const DOCUMENT_DELETE: &str = "DELETE FROM roundel_document \
     WHERE namespace = ?1 AND path = ?2 AND generation = ?3";
/// The last of so many, and the first after it.
const FACTS_END: &str = "SELECT 0, position FROM roundel_fact WHERE position > ?1 \
     ORDER BY position LIMIT 2 OFFSET ?2";
const FACTS: &str = concat!(
    "SELECT 0, position, ",
    fact_columns!(),
    " FROM roundel_fact WHERE position > ?1 AND (?2 IS NULL OR namespace = ?2) \
     AND (?3 IS NULL OR kind = ?3) AND position <= ?5 ORDER BY position LIMIT ?4"
);
const FACTS_OF_RUN: &str = concat!(
    "SELECT 0, position, ",
    fact_columns!(),
    " FROM roundel_fact INDEXED BY roundel_fact_run WHERE run = ?5 AND position > ?1 \
     AND (?2 IS NULL OR namespace = ?2) AND (?3 IS NULL OR kind = ?3) ORDER BY position LIMIT ?4"
);
const FACTS_OF_STREAM: &str = concat!(
    "SELECT 0, position, ",
    fact_columns!(),
    " FROM roundel_fact INDEXED BY roundel_fact_stream WHERE namespace = ?1 AND stream = ?2 \
     AND stream IS NOT NULL AND stream_version > ?3 AND (?4 IS NULL OR kind = ?4) \
     ORDER BY stream_version LIMIT ?5"
);
/// Which generation is read, the projection says.
const LIVE: &str = concat!(
    "SELECT ",
    document_columns!("d."),
    " FROM roundel_document AS d LEFT JOIN roundel_projection AS p \
     ON p.namespace = d.namespace AND p.name = d.projection \
     WHERE d.namespace = ?1 AND d.path = ?2 \
     AND d.generation = CASE WHEN p.name IS NULL THEN 0 ELSE p.generation END"
);
const DOCUMENTS: &str = concat!(
    "SELECT ",
    document_columns!("d."),
    " FROM roundel_document AS d LEFT JOIN roundel_projection AS p \
     ON p.namespace = d.namespace AND p.name = d.projection \
     WHERE d.namespace = ?1 AND d.path >= ?2 AND d.path < ?3 AND d.path <> ?4 \
     AND (?5 OR d.value IS NOT NULL) \
     AND d.generation = CASE WHEN p.name IS NULL THEN 0 ELSE p.generation END \
     ORDER BY d.path LIMIT ?6"
);
/// Of all tenants and generations.
const ALL_DOCUMENTS: &str = concat!(
    "SELECT ",
    document_columns!(""),
    " FROM roundel_document WHERE (namespace, path, generation) > (?1, ?2, ?3) \
     AND (?4 OR value IS NOT NULL) ORDER BY namespace, path, generation LIMIT ?5"
);

/// The statements that load, of one connection.
pub(super) struct Loads<'c> {
    fact: Statement<'c>,
    stream: Statement<'c>,
    document: Statement<'c>,
    projections: Statement<'c>,
    tail: Statement<'c>,
    sweep: Statement<'c>,
}

impl<'c> Loads<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Loads<'c>> {
        Ok(Loads {
            fact: keep(connection, FACT)?,
            stream: keep(connection, STREAM)?,
            document: keep(connection, DOCUMENT)?,
            projections: keep(connection, PROJECTIONS)?,
            tail: keep(connection, TAIL)?,
            sweep: keep(connection, SWEEP)?,
        })
    }

    pub(super) fn fact(&mut self, id: &FactId, rows: &mut Rows) -> Result<()> {
        let values = (id.namespace.as_str(), id.id.as_str());
        let found = self.fact.query_row(values, columns::fact).optional()?;
        rows.facts.load(id.clone(), found.map(|view| view.row));
        Ok(())
    }

    pub(super) fn stream(&mut self, id: &StreamId, rows: &mut Rows) -> Result<()> {
        let values = (id.namespace.as_str(), id.name.as_str());
        let version = self.stream.query_row(values, columns::stream)?;
        let row = (version > 0).then_some(StreamRow { version });
        rows.streams.load(id.clone(), row);
        Ok(())
    }

    pub(super) fn document(&mut self, id: &DocumentId, rows: &mut Rows) -> Result<()> {
        let values = (id.namespace.as_str(), id.path.as_str(), id.generation);
        let found = self.document.query_row(values, columns::document);
        let found = found.optional()?;
        rows.documents.load(id.clone(), found.map(|(_, row)| row));
        Ok(())
    }
}

impl Loads<'_> {
    pub(super) fn projections(&mut self, namespace: &Name, rows: &mut Rows) -> Result<()> {
        let values = [namespace.as_str()];
        for found in self.projections.query_map(values, columns::projection)? {
            let (id, row) = found?;
            rows.projections.load(id, Some(row));
        }
        Ok(())
    }

    /// One process writes at a time: nothing comes before what is there.
    pub(super) fn tail(&mut self, after: Position, limit: usize, rows: &mut Rows) -> Result<()> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = self
            .tail
            .query_map((number(after.number), limit), columns::fact)?;
        let passing = |view: FactView| Passing::new(view.position, view.id, view.row);
        let facts = found.map(|view| view.map(passing));
        rows.tail = Arc::new(Tail {
            facts: facts.collect::<Result<_>>()?,
            unsettled: false,
        });
        Ok(())
    }

    pub(super) fn sweep(
        &mut self,
        (namespace, path): (&Name, &str),
        limit: usize,
        rows: &mut Rows,
    ) -> Result<()> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values = (namespace.as_str(), path, limit);
        rows.swept.clear();
        for found in self.sweep.query_map(values, columns::document)? {
            let (id, row) = found?;
            rows.documents.load(id.clone(), Some(row));
            rows.swept.push(id);
        }
        Ok(())
    }
}

/// The statements that write, of one connection.
pub(super) struct Writes<'c> {
    fact: Statement<'c>,
    document_insert: Statement<'c>,
    document_update: Statement<'c>,
    document_delete: Statement<'c>,
    projection: Statement<'c>,
}

impl<'c> Writes<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Writes<'c>> {
        Ok(Writes {
            fact: keep(connection, FACT_INSERT)?,
            document_insert: keep(connection, DOCUMENT_INSERT)?,
            document_update: keep(connection, DOCUMENT_UPDATE)?,
            document_delete: keep(connection, DOCUMENT_DELETE)?,
            projection: keep(connection, PROJECTION_PUT)?,
        })
    }

    pub(super) fn all(&mut self, changes: &Changes) -> Result<()> {
        for (id, write) in &changes.facts {
            if let Write::Insert(row) | Write::Update(row) = write {
                self.fact(id, row)?;
            }
        }
        for (id, write) in &changes.projections {
            if let Write::Insert(row) | Write::Update(row) = write {
                let generation = row.live.as_ref().map(|live| live.generation);
                let (namespace, name) = (id.namespace.as_str(), id.name.as_str());
                let values = (namespace, name, generation, cells::said(row));
                self.projection.execute(values)?;
            }
        }
        for (id, write) in &changes.documents {
            let (statement, row) = match write {
                Write::Insert(row) => (&mut self.document_insert, row),
                Write::Update(row) => (&mut self.document_update, row),
                Write::Delete => {
                    let values = (id.namespace.as_str(), id.path.as_str(), id.generation);
                    self.document_delete.execute(values)?;
                    continue;
                }
            };
            put_document(statement, id, row)?;
        }
        Ok(())
    }

    fn fact(&mut self, id: &FactId, row: &FactRow) -> Result<()> {
        let (stream, version) = row.stream.as_ref().map(|(name, at)| (name, *at)).unzip();
        let values = (
            id.namespace.as_str(),
            id.id.as_str(),
            row.kind.as_str(),
            row.version,
            row.data.as_str(),
            row.at.0,
            row.own,
            row.by.as_ref().map(Name::as_str),
            row.cause.map(|cause| *cause.run.as_bytes()),
            row.cause.map(|cause| cause.execution),
            row.cause.map(|cause| number(cause.entry)),
            stream.map(Name::as_str),
            version.map(number),
        );
        self.fact.execute(values)?;
        Ok(())
    }
}

fn put_document(statement: &mut Statement<'_>, id: &DocumentId, row: &DocumentRow) -> Result<()> {
    statement.execute((
        id.namespace.as_str(),
        id.path.as_str(),
        id.generation,
        number(row.version),
        row.value.as_ref().map(roundel_core::Payload::as_str),
        row.at.0,
        row.projection.as_str(),
    ))?;
    Ok(())
}

impl Reader<'_> {
    /// A question about facts or documents.
    pub(super) fn of_facts(&self, query: &Query) -> Result<Answer> {
        Ok(match query {
            Query::Fact(id) => {
                let found = cut(self.fact(id)?, 1);
                Answer::Facts(Stretch::of(found, |fact| fact.position))
            }
            Query::Facts(filter) => Answer::Facts(self.facts(filter)?),
            Query::Document(id) => Answer::Documents(cut(self.document(id)?, 1)),
            Query::Documents(filter) => Answer::Documents(self.documents(filter)?),
            Query::Projections { namespace, count } => {
                Answer::Projections(self.projections(namespace.as_ref(), *count)?)
            }
            _ => unreachable!("a question about something else"),
        })
    }

    fn fact(&self, id: &FactId) -> Result<Vec<FactView>> {
        let values = (id.namespace.as_str(), id.id.as_str());
        self.all(FACT, values, columns::fact)
    }

    fn facts(&self, filter: &FactFilter) -> Result<Stretch<FactView, Position>> {
        let limit = page(filter.limit);
        let kind = filter.kind.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_ref().map(Name::as_str);
        let after = number(filter.after.unwrap_or_default().number);
        let items = match (&filter.stream, filter.run) {
            (Some((stream, after)), _) => {
                let namespace = namespace.unwrap_or_default();
                let values = (namespace, stream.as_str(), number(*after), kind, limit + 1);
                self.all(FACTS_OF_STREAM, values, columns::fact)?
            }
            (None, Some(run)) => {
                let values = (after, namespace, kind, limit + 1, run.as_bytes());
                self.all(FACTS_OF_RUN, values, columns::fact)?
            }
            (None, None) => return self.look_at_facts(filter),
        };
        Ok(Stretch::of(cut(items, limit), |fact| fact.position))
    }

    fn look_at_facts(&self, filter: &FactFilter) -> Result<Stretch<FactView, Position>> {
        let kind = filter.kind.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_ref().map(Name::as_str);
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.after, limit, filter.look.unwrap_or(LOOK));
        while let Some(step) = steps.step() {
            let after = number(step.before.unwrap_or_default().number);
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let end = self.all(FACTS_END, (after, skip), columns::position)?;
            let to = match end.as_slice() {
                [to, _] => number(to.number),
                _ => i64::MAX,
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = (after, namespace, kind, limit + 1, to);
            let fit = cut(self.all(FACTS, values, columns::fact)?, limit);
            steps.took(fit, &end, |fact| fact.position);
        }
        Ok(steps.stretch())
    }

    fn document(&self, id: &DocumentId) -> Result<Vec<DocumentView>> {
        let values = (id.namespace.as_str(), id.path.as_str());
        self.all(LIVE, values, columns::document)
    }

    fn projections(&self, namespace: Option<&Name>, count: bool) -> Result<Projected> {
        let namespace = namespace.map(Name::as_str);
        let head = self.all(HEAD, [], columns::position)?;
        let facts = match count {
            true => self.all(COUNT, [], |row| row.get(0))?.pop(),
            false => None,
        };
        Ok(Projected {
            projections: self.all(PROJECTIONS, [namespace], columns::projection)?,
            head: head.into_iter().next().unwrap_or_default(),
            facts: facts.map(i64::unsigned_abs),
        })
    }

    fn documents(&self, filter: &DocumentFilter) -> Result<Page<DocumentView>> {
        let limit = page(filter.limit);
        let (after_namespace, after) = filter.after_names();
        let items = if let Some(namespace) = &filter.namespace {
            let (from, to) = filter.range();
            let removed = filter.removed;
            let values = (namespace.as_str(), from, to, after, removed, limit + 1);
            self.all(DOCUMENTS, values, columns::document)?
        } else {
            let generation = filter.after_generation();
            let values = (
                after_namespace,
                after,
                generation,
                filter.removed,
                limit + 1,
            );
            self.all(ALL_DOCUMENTS, values, columns::document)?
        };
        Ok(cut(items, limit))
    }
}

impl Reader<'_> {
    pub(super) fn every_fact(&self) -> Result<Vec<(FactId, FactRow)>> {
        let values = (0, None::<&str>, None::<&str>, i64::MAX, i64::MAX);
        let views = self.all(FACTS, values, columns::fact)?;
        Ok(views.into_iter().map(|view| (view.id, view.row)).collect())
    }

    pub(super) fn every_document(&self) -> Result<Vec<DocumentView>> {
        let values = ("", "", -1, true, i64::MAX);
        self.all(ALL_DOCUMENTS, values, columns::document)
    }

    pub(super) fn every_projection(&self) -> Result<Vec<ProjectionView>> {
        self.all(PROJECTIONS, [None::<&str>], columns::projection)
            .map(without_positions)
    }
}
