//! Answers questions, each in one read transaction, so that an answer is consistent in itself.

use std::collections::BTreeMap;

use roundel_core::{
    GateId, JournalRow, KeyKind, Name, OfferId, OfferRow, Refusal, RunId, Target, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, ToSql, params};

use super::columns::{self, number, run_columns};
use crate::cells::queue_columns;
use crate::query::look;
use crate::{
    Answer, DueFilter, Dump, JournalPage, Page, Permits, Query, QueueView, RunView, TopicView,
    topic_of,
};

/// Rows in one page.
const PAGE: usize = 1_000;

/// A run with its lane. The run is looked up first, whatever the planner thinks of it.
macro_rules! run_view {
    ($from:literal) => {
        concat!(
            "SELECT ",
            run_columns!(),
            ", namespace, workflow, version FROM ",
            $from,
            " CROSS JOIN (SELECT id AS lane_id, namespace, workflow, version FROM roundel_lane) \
             ON lane_id = lane "
        )
    };
}
pub(super) use run_view;

const RUN: &str = concat!(run_view!("roundel_run"), "WHERE id = ?1 AND namespace = ?2");
const RUN_OF_KEY: &str =
    "SELECT run FROM roundel_key WHERE namespace = ?1 AND kind = ?2 AND key = ?3";
const CHILDREN: &str = concat!(
    run_view!("roundel_run INDEXED BY roundel_run_parent"),
    "WHERE parent_run = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
);
/// The lane is looked up once, so that the index gives them in order.
const DUE: &str = concat!(
    run_view!("roundel_run INDEXED BY roundel_run_ready"),
    "WHERE lane = (SELECT id FROM roundel_lane WHERE namespace = ?1 AND workflow = ?2 \
     AND version = 1) AND suspect = 0 AND priority = 0 AND ready_at IS NOT NULL \
     AND (state = 'ready' OR ready_at <= ?3) AND (ready_at, id) > (?4, ?5) \
     ORDER BY ready_at, id LIMIT ?6"
);
const SCOPE: &str = concat!(
    run_view!("roundel_run INDEXED BY roundel_run_scope"),
    "WHERE parent_run = ?1 AND parent_execution = ?2 AND parent_call = ?3 AND number >= ?4 \
     AND number IS NOT NULL ORDER BY number LIMIT ?5"
);
const SUBSCRIPTIONS: &str = "SELECT namespace, topic, workflow, since \
     FROM roundel_subscription WHERE namespace = ?1 ORDER BY topic, workflow";
const PUBLICATIONS: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication \
     INDEXED BY roundel_publication_topic \
     WHERE namespace = ?1 AND topic = ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4";
const PUBLICATION: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context \
     FROM roundel_publication WHERE id = ?1";
/// From topic to topic, whatever was published to each.
const TOPICS: &str = "WITH RECURSIVE topic (name) AS ( \
     SELECT (SELECT topic FROM roundel_publication WHERE namespace = ?1 ORDER BY topic LIMIT 1) \
     UNION ALL SELECT (SELECT topic FROM roundel_publication \
     WHERE namespace = ?1 AND topic > name ORDER BY topic LIMIT 1) \
     FROM topic WHERE name IS NOT NULL) SELECT name FROM topic WHERE name IS NOT NULL";
const TOPIC: &str = "SELECT count(*), coalesce(sum(heard = 0), 0), max(at) FROM ( \
     SELECT heard, at FROM roundel_publication INDEXED BY roundel_publication_topic \
     WHERE namespace = ?1 AND topic = ?2 ORDER BY id DESC LIMIT ?3)";
const OLDER: &str = "SELECT 1 FROM roundel_publication INDEXED BY roundel_publication_topic \
     WHERE namespace = ?1 AND topic = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3";
const LABELS: &str = "SELECT name, value FROM roundel_label WHERE run = ?1 ORDER BY name, value";
const JOURNAL: &str = "SELECT run, execution, first, count, epoch, at, entries \
     FROM roundel_journal WHERE run = ?1 AND execution = ?2 AND first + count > ?3 + 1 \
     AND first >= coalesce((SELECT max(first) FROM roundel_journal \
     WHERE run = ?1 AND execution = ?2 AND first <= ?3), 0) ORDER BY first LIMIT ?4";
const EXISTS: &str = "SELECT 1 FROM roundel_run WHERE id = ?1";
const MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at FROM roundel_mail \
     WHERE run = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
const STATE: &str = "SELECT version, value FROM roundel_state WHERE run = ?1";

/// No number is higher; one less than the highest, so that it can be counted up.
const LAST: u64 = i64::MAX as u64 - 1;
/// Comes after every run.
pub(super) const AFTER_ALL: [u8; 17] = [0xFF; 17];

/// Answers one question, or says that the run it is about does not exist.
pub(super) fn answer(
    connection: &mut Connection,
    query: &Query,
) -> Result<std::result::Result<Answer, Refusal>> {
    let transaction = connection.transaction()?;
    let reader = Reader(&transaction);
    let about = match query {
        Query::Journal { run, .. }
        | Query::Mail(run, ..)
        | Query::State(run)
        | Query::Children(run, ..)
        | Query::Below(run)
        | Query::Scope { run, .. } => Some(*run),
        _ => None,
    };
    if let Some(run) = about
        && reader.all(EXISTS, [run.as_bytes()], |_| Ok(()))?.is_empty()
    {
        return Ok(Err(Refusal::UnknownRun { run }));
    }
    reader.answer(query).map(Ok)
}

/// How many rows a page has.
pub(super) fn page(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, PAGE)).expect("a small number")
}

/// A page of what was found, one more than the limit having been asked for.
pub(super) fn cut<T>(mut items: Vec<T>, limit: i64) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
}

pub(super) struct Reader<'a>(&'a Connection);

impl Reader<'_> {
    /// In the transaction that is open.
    pub(super) fn of(connection: &Connection) -> Reader<'_> {
        Reader(connection)
    }

    pub(super) fn connection(&self) -> &Connection {
        self.0
    }

    pub(super) fn answer(&self, query: &Query) -> Result<Answer> {
        Ok(match query {
            Query::Run(namespace, target) => {
                Answer::Run(self.run(namespace, target)?.map(Box::new))
            }
            Query::Runs(filter) => Answer::Looked(self.look(filter)?),
            Query::Due(filter) => Answer::Runs(self.due(filter)?),
            Query::Journal {
                run,
                execution,
                after,
                limit,
            } => {
                let values = (run.as_bytes(), *execution, number(*after.min(&LAST)));
                Answer::Journal(self.journal(values, *limit)?)
            }
            Query::Mail(run, after, limit) => {
                let values = (run.as_bytes(), number(*after.min(&LAST)), page(*limit));
                Answer::Mail(self.all(MAIL, values, columns::mail)?)
            }
            Query::State(run) => {
                let read = |row: &Row<'_>| columns::own_state(row, 0);
                Answer::State(self.all(STATE, [run.as_bytes()], read)?.pop())
            }
            Query::Children(run, after, limit) => {
                let after = after.map_or_else(Vec::new, |run| run.as_bytes().to_vec());
                let values = (run.as_bytes(), after, page(*limit) + 1);
                Answer::Runs(self.views(CHILDREN, values, page(*limit))?)
            }
            Query::Below(run) => Answer::Below(self.below(*run)?),
            Query::Scope {
                run,
                execution,
                call,
                from,
            } => {
                let limit = page(PAGE);
                let values = (run.as_bytes(), execution, call, from, limit + 1);
                Answer::Runs(self.views(SCOPE, values, limit)?)
            }
            Query::Publication(id) => {
                let items = self.all(PUBLICATION, [id.as_bytes()], columns::publication)?;
                Answer::Publications(Page { items, more: false })
            }
            Query::Queues(namespace) => Answer::Queues(self.queues(namespace)?),
            Query::Topics(namespace, rows) => Answer::Topics(self.topics(namespace, *rows)?),
            Query::Publications {
                namespace,
                topic,
                before,
                limit,
            } => {
                let before = before.map(|id| id.as_bytes().to_vec());
                let before = before.unwrap_or_else(|| AFTER_ALL.to_vec());
                let most = page(*limit);
                let values = (namespace.as_str(), topic.as_str(), before, most + 1);
                let items = self.all(PUBLICATIONS, values, columns::publication)?;
                Answer::Publications(cut(items, most))
            }
            Query::Stats(namespace) => Answer::Stats(self.stats(namespace)?),
            Query::Workers => Answer::Workers(self.workers()?),
            Query::Lanes => Answer::Lanes(self.lanes()?),
            Query::Records(after, limit) => Answer::Records(self.records(*after, *limit)?),
            Query::Offers(after, limit) => Answer::Offers(self.offers(after.as_ref(), *limit)?),
            Query::Parked(filter) => Answer::Parked(self.parked(filter)?),
            Query::Audit(filter) => Answer::Audit(self.audit(filter)?),
            Query::Dump => Answer::Dump(Box::new(self.dump()?)),
            of_facts => self.of_facts(of_facts)?,
        })
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.0
            .prepare_cached(sql)?
            .query_map(values, read)?
            .collect()
    }

    fn run(&self, namespace: &Name, target: &Target) -> Result<Option<RunView>> {
        let run = match target {
            Target::Run(run) => Some(*run.as_bytes()),
            Target::Key(key) => {
                let values = (namespace.as_str(), KeyKind::Run.as_str(), key.as_str());
                let mut statement = self.0.prepare_cached(RUN_OF_KEY)?;
                let found = statement.query_row(values, |row| row.get::<_, Option<[u8; 16]>>(0));
                found.optional()?.flatten()
            }
        };
        let Some(run) = run else {
            return Ok(None);
        };
        Ok(self.views(RUN, (run, namespace.as_str()), 1)?.items.pop())
    }

    fn due(&self, filter: &DueFilter) -> Result<Page<RunView>> {
        let limit = page(filter.limit);
        let (namespace, workflow) = (filter.namespace.as_str(), filter.workflow.as_str());
        let (at, run) = filter.after();
        let values = params![
            namespace,
            workflow,
            filter.now.0,
            at.0,
            run.as_bytes(),
            limit + 1
        ];
        self.views(DUE, values, limit)
    }

    /// Runs with their lanes and labels. The statement asks for one more than the limit.
    pub(super) fn views(
        &self,
        sql: &str,
        values: impl Params,
        limit: i64,
    ) -> Result<Page<RunView>> {
        let found = self.all(sql, values, |row| {
            let lane = columns::lane(row, columns::RUN_COLUMNS)?;
            Ok((columns::run(row)?, lane))
        })?;
        let limit = usize::try_from(limit).expect("a small number");
        let more = found.len() > limit;
        let mut items = Vec::with_capacity(found.len());
        for (row, lane) in found.into_iter().take(limit) {
            let labels = self.labels(row.id)?;
            items.push(RunView { row, lane, labels });
        }
        Ok(Page { items, more })
    }

    fn labels(&self, run: RunId) -> Result<Vec<(Name, String)>> {
        let read = |row: &Row<'_>| Ok((columns::name(row, 0)?, row.get(1)?));
        self.all(LABELS, [run.as_bytes()], read)
    }

    fn journal(&self, key: (impl ToSql, u32, i64), limit: usize) -> Result<JournalPage> {
        let limit = limit.max(1);
        let most = i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1));
        let (run, execution, after) = key;
        let mut items: Vec<JournalRow> =
            self.all(JOURNAL, (run, execution, after, most), columns::journal)?;
        let more = items.len() > limit;
        items.truncate(limit);
        Ok(Page { items, more })
    }

    fn topics(&self, namespace: &Name, rows: usize) -> Result<Vec<TopicView>> {
        let names = self.all(TOPICS, [namespace.as_str()], |row| columns::name(row, 0))?;
        let each = look::share(rows, names.len());
        let most = i64::try_from(each).expect("a small number");
        let mut topics = BTreeMap::new();
        for name in names {
            let values = (namespace.as_str(), name.as_str(), most);
            let topic = topic_of(&mut topics, &name);
            self.all(TOPIC, values, |row| {
                topic.publications = row.get::<_, i64>(0)?.unsigned_abs();
                topic.unheard = row.get::<_, i64>(1)?.unsigned_abs();
                topic.last_at = row.get::<_, Option<i64>>(2)?.map(Timestamp);
                Ok(())
            })?;
            let full = topic.publications >= each as u64;
            topic.more = full && !self.all(OLDER, values, |_| Ok(()))?.is_empty();
        }
        for (id, row) in self.all(SUBSCRIPTIONS, [namespace.as_str()], columns::subscription)? {
            let topic = topic_of(&mut topics, &id.topic);
            topic.subscribers.push((id.workflow, row.since));
        }
        Ok(topics.into_values().collect())
    }

    /// The queues of a tenant that have limits, and how many permits each has given.
    fn queues(&self, namespace: &Name) -> Result<Vec<(QueueView, Permits)>> {
        let queues = self.all(QUEUES, [namespace.as_str()], columns::queue)?;
        let view = |(id, row): QueueView| {
            let values = [id.namespace.as_str(), id.queue.as_str()];
            let held = self.all(PERMITS, values, columns::permits)?;
            Ok(((id, row), held.into_iter().collect()))
        };
        queues.into_iter().map(view).collect()
    }

    /// Every row of every table, in order of its key.
    fn dump(&self) -> Result<Dump> {
        Ok(Dump {
            lanes: self.lanes()?,
            runs: self.all(DUMP_RUNS, [], columns::run)?,
            journal: self.all(DUMP_JOURNAL, [], columns::journal)?,
            labels: self.all(DUMP_LABELS, [], columns::label)?,
            mail: self.all(DUMP_MAIL, [], columns::mail)?,
            waits: self.all(DUMP_WAITS, [], columns::wait)?,
            gates: self.all(DUMP_GATES, [], |row| {
                Ok((gate_id(row)?, columns::gate(row, 2)?))
            })?,
            offers: self.all(DUMP_OFFERS, [], offer)?,
            keys: self.all(DUMP_KEYS, [], |row| {
                Ok((columns::key_id(row)?, columns::key(row, 3)?))
            })?,
            watches: self.all(DUMP_WATCHES, [], columns::watch)?,
            states: self.all(DUMP_STATES, [], |row| {
                Ok((columns::run_id(row, 0)?, columns::own_state(row, 1)?))
            })?,
            workers: self.workers()?,
            subscriptions: self.all(DUMP_SUBSCRIPTIONS, [], columns::subscription)?,
            publications: self.all(DUMP_PUBLICATIONS, [], columns::publication)?,
            latches: self.all(DUMP_LATCHES, [], columns::latch)?,
            queues: self.all(DUMP_QUEUES, [], columns::queue)?,
            audit: self.all(DUMP_AUDIT, [], columns::audit)?,
            facts: self.every_fact()?,
            projections: self.every_projection()?,
            documents: self.every_document()?,
        })
    }
}

const QUEUES: &str = concat!(
    "SELECT ",
    queue_columns!(),
    " FROM roundel_queue WHERE namespace = ?1 ORDER BY queue"
);
const PERMITS: &str = "SELECT flow_key, count(*) FROM roundel_run WHERE flow = 1 AND lane IN ( \
     SELECT id FROM roundel_lane WHERE namespace = ?1 AND workflow = ?2) GROUP BY flow_key";

/// A gate: namespace, name.
pub(super) fn gate_id(row: &Row<'_>) -> Result<GateId> {
    Ok(GateId {
        namespace: columns::name(row, 0)?,
        name: columns::name(row, 1)?,
    })
}

/// An offer: namespace, name, place, payload, taken_by, at.
pub(super) fn offer(row: &Row<'_>) -> Result<(OfferId, OfferRow)> {
    let (place, offer) = columns::offer(row, 2)?;
    let gate = gate_id(row)?;
    Ok((OfferId { gate, place }, offer))
}

const DUMP_SUBSCRIPTIONS: &str = "SELECT namespace, topic, workflow, since \
     FROM roundel_subscription ORDER BY namespace, topic, workflow";
const DUMP_PUBLICATIONS: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, \
     by_call, at, heard, closes_at, deadlines, context FROM roundel_publication ORDER BY id";
const DUMP_LATCHES: &str = "SELECT run, execution, call, part, open, total, failed, closes_at \
     FROM roundel_latch ORDER BY run, execution, call, part";
pub(super) const DUMP_QUEUES: &str = concat!(
    "SELECT ",
    queue_columns!(),
    " FROM roundel_queue ORDER BY namespace, queue"
);
const DUMP_AUDIT: &str = "SELECT namespace, number, at, operator, reason, action, target, run, \
     detail, answer, seal FROM roundel_audit ORDER BY namespace, number";
const DUMP_RUNS: &str = concat!("SELECT ", run_columns!(), " FROM roundel_run ORDER BY id");
const DUMP_JOURNAL: &str = "SELECT run, execution, first, count, epoch, at, entries \
     FROM roundel_journal ORDER BY run, execution, first";
const DUMP_LABELS: &str = "SELECT run, name, value FROM roundel_label ORDER BY run, name, value";
const DUMP_MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at \
     FROM roundel_mail ORDER BY run, name, number";
const DUMP_WAITS: &str = "SELECT run, name, call, place, taken_mail, taken_offer \
     FROM roundel_wait ORDER BY run, name, call";
const DUMP_GATES: &str =
    "SELECT namespace, name, waiters, offers FROM roundel_gate ORDER BY namespace, name";
const DUMP_OFFERS: &str = "SELECT namespace, name, place, payload, taken_by, at \
     FROM roundel_offer ORDER BY namespace, name, place";
const DUMP_KEYS: &str = "SELECT namespace, kind, key, run, digest, sent \
     FROM roundel_key ORDER BY namespace, kind, key";
const DUMP_WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     ORDER BY watched, watcher, execution, call";
const DUMP_STATES: &str = "SELECT run, version, value FROM roundel_state ORDER BY run";
