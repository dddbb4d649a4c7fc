//! Answers questions, each in one read transaction, so that an answer is consistent in itself.

use std::collections::BTreeMap;

use roundel_core::{KeyKind, Name, Refusal, RunId, Target, Timestamp};
use sqlx::postgres::{PgArguments, PgRow};
use tokio::time::timeout;

use super::columns;
use super::link::{Link, values};
use super::pool::Pool;
use super::trouble::Trouble;
use super::values::Id;
use crate::cells::{self, Cells, Strange, number, queue_columns, run_columns};
use crate::query::look;
use crate::{
    Answer, DueFilter, Dump, Error, JournalPage, Page, Permits, Query, QueueView, RunView,
    TopicView, topic_of,
};

/// Rows in one page.
const PAGE: usize = 1_000;

/// A run with its lane.
macro_rules! run_view {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            run_columns!(),
            ", namespace, workflow, version FROM roundel_run \
             JOIN (SELECT id AS lane_id, namespace, workflow, version FROM roundel_lane) AS lanes \
             ON lane_id = lane ",
            $rest
        )
    };
}
pub(super) use run_view;

const RUN: &str = run_view!("WHERE id = $1 AND namespace = $2");
const RUN_OF_KEY: &str =
    "SELECT run FROM roundel_key WHERE namespace = $1 AND kind = $2 AND key = $3";
/// The lane is looked up once, so that the index gives them in order.
const DUE: &str = run_view!(
    "WHERE lane = (SELECT id FROM roundel_lane WHERE namespace = $1 AND workflow = $2 \
     AND version = 1) AND NOT suspect AND priority = 0 AND ready_at IS NOT NULL \
     AND (state = 'ready' OR ready_at <= $3) AND (ready_at, id) > ($4, $5) \
     ORDER BY ready_at, id LIMIT $6"
);
const CHILDREN: &str = run_view!("WHERE parent_run = $1 AND id > $2 ORDER BY id LIMIT $3");
const SCOPE: &str = run_view!(
    "WHERE parent_run = $1 AND parent_execution = $2 AND parent_call = $3 AND number >= $4 \
     AND number IS NOT NULL ORDER BY number LIMIT $5"
);
const SUBSCRIPTIONS: &str = "SELECT namespace, topic, workflow, since \
     FROM roundel_subscription WHERE namespace = $1 ORDER BY topic, workflow";
const PUBLICATIONS: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication \
     WHERE namespace = $1 AND topic = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
const PUBLICATION: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication WHERE id = $1";
/// From topic to topic, whatever was published to each.
const TOPICS: &str = "WITH RECURSIVE topic (name) AS ( \
     SELECT (SELECT topic FROM roundel_publication WHERE namespace = $1 ORDER BY topic LIMIT 1) \
     UNION ALL SELECT (SELECT topic FROM roundel_publication \
     WHERE namespace = $1 AND topic > name ORDER BY topic LIMIT 1) \
     FROM topic WHERE name IS NOT NULL) SELECT name FROM topic WHERE name IS NOT NULL";
const TOPIC: &str = "SELECT count(*), count(*) FILTER (WHERE heard = 0), max(at) FROM ( \
     SELECT heard, at FROM roundel_publication \
     WHERE namespace = $1 AND topic = $2 ORDER BY id DESC LIMIT $3) AS newest";
const OLDER: &str = "SELECT 1 FROM roundel_publication \
     WHERE namespace = $1 AND topic = $2 ORDER BY id DESC LIMIT 1 OFFSET $3";
const LABELS: &str =
    "SELECT run, name, value FROM roundel_label WHERE run = ANY($1) ORDER BY run, name, value";
const JOURNAL: &str = "SELECT run, execution, first, count, epoch, at, entries \
     FROM roundel_journal WHERE run = $1 AND execution = $2 AND first + count > $3 + 1 \
     AND first >= coalesce((SELECT max(first) FROM roundel_journal \
     WHERE run = $1 AND execution = $2 AND first <= $3), 0) ORDER BY first LIMIT $4";
const EXISTS: &str = "SELECT id FROM roundel_run WHERE id = $1";
const MAIL: &str = "SELECT run, name, number, execution, call, body, at, \
     policy, expires_at, parked_at FROM roundel_mail \
     WHERE run = $1 AND number > $2 ORDER BY number LIMIT $3";
const STATE: &str = "SELECT version, value FROM roundel_state WHERE run = $1";

/// No number is higher; one less than the highest, so that it can be counted up.
const LAST: u64 = i64::MAX as u64 - 1;
/// Comes after every id that is ever made, and before.
pub(super) const AFTER_ALL: Id = Id([0xFF; 16]);
pub(super) const BEFORE_ALL: Id = Id([0; 16]);

/// Answers one question on a connection of the pool.
pub(super) async fn answer(pool: &Pool, begin: &str, query: Query) -> Result<Answer, Error> {
    let mut tries = 0;
    loop {
        let mut lent = pool.lend().await?;
        let mut reader = Reader::of(&mut lent.link);
        let within = std::time::Duration::from_secs(90);
        let answered = timeout(within, reader.in_transaction(begin, &query)).await;
        let trouble = match answered {
            Ok(Ok(answer)) => {
                pool.take_back(lent);
                return answer.map_err(Error::from);
            }
            Ok(Err(trouble)) => trouble,
            Err(_) => return Err(Error::Unavailable(format!("no answer within {within:?}"))),
        };
        drop(lent);
        tries += 1;
        match trouble {
            // The connection may have died while it was idle.
            Trouble::Broken(_) | Trouble::Again(_) if tries < 3 => pool.clear(),
            Trouble::Culprit(message) => return Err(Error::Unusable(message)),
            other => return Err(Error::Unavailable(other.message())),
        }
    }
}

/// How many rows a page has.
pub(super) fn page(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, PAGE)).expect("a small number")
}

pub(super) struct Reader<'a> {
    link: &'a mut Link,
}

pub(super) type Read<T> = Result<T, Trouble>;

impl<'a> Reader<'a> {
    pub(super) fn of(link: &'a mut Link) -> Reader<'a> {
        Reader { link }
    }

    async fn in_transaction(
        &mut self,
        begin: &str,
        query: &Query,
    ) -> Read<Result<Answer, Refusal>> {
        self.link.run(begin).await?;
        let about = match query {
            Query::Journal { run, .. }
            | Query::Mail(run, ..)
            | Query::State(run)
            | Query::Children(run, ..)
            | Query::Below(run)
            | Query::Scope { run, .. } => Some(*run),
            _ => None,
        };
        let mut answer = None;
        if let Some(run) = about
            && self.rows(EXISTS, values![Id::from(run)]).await?.is_empty()
        {
            answer = Some(Err(Refusal::UnknownRun { run }));
        }
        let answer = match answer {
            Some(refused) => refused,
            None => Ok(self.answer(query).await?),
        };
        self.link.run("COMMIT").await?;
        Ok(answer)
    }

    /// Answers in the transaction that is open.
    pub(super) async fn answer(&mut self, query: &Query) -> Read<Answer> {
        Ok(match query {
            Query::Run(namespace, target) => {
                Answer::Run(self.run(namespace, target).await?.map(Box::new))
            }
            Query::Runs(filter) => Answer::Looked(self.look(filter).await?),
            Query::Due(filter) => Answer::Runs(self.due(filter).await?),
            Query::Journal {
                run,
                execution,
                after,
                limit,
            } => {
                let key = (*run, *execution, number(*after.min(&LAST)));
                Answer::Journal(self.journal(key, *limit).await?)
            }
            Query::Mail(run, after, limit) => {
                let values = values![Id::from(*run), number(*after.min(&LAST)), page(*limit)];
                Answer::Mail(self.all(MAIL, values, cells::mail).await?)
            }
            Query::State(run) => {
                let read = |row: &PgRow| cells::own_state(row, 0);
                Answer::State(self.all(STATE, values![Id::from(*run)], read).await?.pop())
            }
            Query::Children(run, after, limit) => {
                let after = after.map_or(BEFORE_ALL, Id::from);
                let values = values![Id::from(*run), after, page(*limit) + 1];
                Answer::Runs(self.views(CHILDREN, values, page(*limit)).await?)
            }
            Query::Below(run) => Answer::Below(self.below(*run).await?),
            Query::Scope {
                run,
                execution,
                call,
                from,
            } => Answer::Runs(self.scope((*run, *execution, *call), *from).await?),
            Query::Publication(id) => {
                let found = self.all(PUBLICATION, values![Id::from(*id)], cells::publication);
                Answer::Publications(cut(found.await?, 1))
            }
            Query::Queues(namespace) => Answer::Queues(self.queues(namespace).await?),
            Query::Topics(namespace, rows) => Answer::Topics(self.topics(namespace, *rows).await?),
            Query::Publications {
                namespace,
                topic,
                before,
                limit,
            } => {
                let before = before.map_or(AFTER_ALL, Id::from);
                let most = page(*limit);
                let values = values![namespace.as_str(), topic.as_str(), before, most + 1];
                let items = self.all(PUBLICATIONS, values, cells::publication).await?;
                Answer::Publications(cut(items, most))
            }
            Query::Stats(namespace) => Answer::Stats(self.stats(namespace).await?),
            Query::Workers => Answer::Workers(self.workers().await?),
            Query::Lanes => Answer::Lanes(self.lanes().await?),
            Query::Records(after, limit) => Answer::Records(self.records(*after, *limit).await?),
            Query::Offers(after, limit) => {
                Answer::Offers(self.offers(after.as_ref(), *limit).await?)
            }
            Query::Parked(filter) => Answer::Parked(self.parked(filter).await?),
            Query::Audit(filter) => Answer::Audit(self.audit(filter).await?),
            Query::Dump => Answer::Dump(Box::new(self.dump().await?)),
            of_facts => self.of_facts(of_facts).await?,
        })
    }

    pub(super) async fn rows(&mut self, sql: &str, values: PgArguments) -> Read<Vec<PgRow>> {
        self.link.all(sql, values).await
    }

    pub(super) async fn all<T>(
        &mut self,
        sql: &str,
        values: PgArguments,
        read: impl FnMut(&PgRow) -> Result<T, Strange>,
    ) -> Read<Vec<T>> {
        let rows = self.link.all(sql, values).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    async fn run(&mut self, namespace: &Name, target: &Target) -> Read<Option<RunView>> {
        let run = match target {
            Target::Run(run) => Some(*run),
            Target::Key(key) => {
                let kind = KeyKind::Run.as_str();
                let values = values![namespace.as_str(), kind, key.as_str()];
                let read = |row: &PgRow| match row.bytes(0)? {
                    None => Ok(None),
                    Some(_) => cells::run_id(row, 0).map(Some),
                };
                self.all(RUN_OF_KEY, values, read).await?.pop().flatten()
            }
        };
        let Some(run) = run else {
            return Ok(None);
        };
        let values = values![Id::from(run), namespace.as_str()];
        Ok(self.views(RUN, values, 1).await?.items.pop())
    }

    async fn due(&mut self, filter: &DueFilter) -> Read<Page<RunView>> {
        let limit = page(filter.limit);
        let (namespace, workflow) = (filter.namespace.as_str(), filter.workflow.as_str());
        let (at, run) = filter.after();
        let now = filter.now.0;
        let values = values![namespace, workflow, now, at.0, Id::from(run), limit + 1];
        self.views(DUE, values, limit).await
    }

    /// Runs with their lanes and labels. The statement asks for one more than the limit.
    pub(super) async fn views(
        &mut self,
        sql: &str,
        values: PgArguments,
        limit: i64,
    ) -> Read<Page<RunView>> {
        let read = |row: &PgRow| {
            let lane = cells::lane(row, cells::RUN_COLUMNS)?;
            let (row, labels) = (cells::run(row)?, Vec::new());
            Ok(RunView { row, lane, labels })
        };
        let mut found = cut(self.all(sql, values, read).await?, limit);
        let ids: Vec<Id> = found
            .items
            .iter()
            .map(|view| Id::from(view.row.id))
            .collect();
        let mut labels: BTreeMap<RunId, Vec<(Name, String)>> = BTreeMap::new();
        for (run, name, value) in self.all(LABELS, values![ids], cells::label).await? {
            labels.entry(run).or_default().push((name, value));
        }
        for view in &mut found.items {
            view.labels = labels.remove(&view.row.id).unwrap_or_default();
        }
        Ok(found)
    }

    async fn journal(&mut self, key: (RunId, u32, i64), limit: usize) -> Read<JournalPage> {
        let limit = limit.max(1);
        let most = i64::try_from(limit).map_or(i64::MAX, |limit| limit.saturating_add(1));
        let values = values![Id::from(key.0), i64::from(key.1), key.2, most];
        let items = self.all(JOURNAL, values, cells::journal).await?;
        Ok(cut(items, most.saturating_sub(1)))
    }

    /// The queues of a tenant that have limits, and how many permits each has given.
    async fn queues(&mut self, namespace: &Name) -> Read<Vec<(QueueView, Permits)>> {
        let queues = self.all(QUEUES, values![namespace.as_str()], cells::queue);
        let mut views = Vec::new();
        for (id, row) in queues.await? {
            let values = values![id.namespace.as_str(), id.queue.as_str()];
            let held = self.all(PERMITS, values, cells::permits).await?;
            views.push(((id, row), held.into_iter().collect()));
        }
        Ok(views)
    }

    async fn topics(&mut self, namespace: &Name, rows: usize) -> Read<Vec<TopicView>> {
        let read = |row: &PgRow| cells::name(row, 0);
        let names = self.all(TOPICS, values![namespace.as_str()], read).await?;
        let each = look::share(rows, names.len());
        let most = i64::try_from(each).expect("a small number");
        let mut topics = BTreeMap::new();
        for name in names {
            let values = values![namespace.as_str(), name.as_str(), most];
            let topic = topic_of(&mut topics, &name);
            for row in self.rows(TOPIC, values).await? {
                topic.publications = row.int(0)?.unwrap_or_default().unsigned_abs();
                topic.unheard = row.int(1)?.unwrap_or_default().unsigned_abs();
                topic.last_at = row.int(2)?.map(Timestamp);
            }
            let full = topic.publications >= each as u64;
            let values = values![namespace.as_str(), name.as_str(), most];
            topic.more = full && !self.rows(OLDER, values).await?.is_empty();
        }
        let values = values![namespace.as_str()];
        for (id, row) in self.all(SUBSCRIPTIONS, values, cells::subscription).await? {
            let topic = topic_of(&mut topics, &id.topic);
            topic.subscribers.push((id.workflow, row.since));
        }
        Ok(topics.into_values().collect())
    }

    async fn scope(&mut self, scope: (RunId, u32, u32), from: u32) -> Read<Page<RunView>> {
        let limit = page(PAGE);
        let (run, execution, call) = scope;
        let (execution, call) = (i64::from(execution), i64::from(call));
        let values = values![Id::from(run), execution, call, i64::from(from), limit + 1];
        self.views(SCOPE, values, limit).await
    }

    async fn dump(&mut self) -> Read<Dump> {
        Ok(Dump {
            lanes: self.lanes().await?,
            runs: self.all(DUMP_RUNS, values![], cells::run).await?,
            journal: self.all(DUMP_JOURNAL, values![], cells::journal).await?,
            labels: self.all(DUMP_LABELS, values![], cells::label).await?,
            mail: self.all(DUMP_MAIL, values![], cells::mail).await?,
            waits: self.all(DUMP_WAITS, values![], cells::wait).await?,
            gates: self
                .all(DUMP_GATES, values![], |row| {
                    Ok((columns::gate_id(row)?, cells::gate(row, 2)?))
                })
                .await?,
            offers: self.all(DUMP_OFFERS, values![], columns::offer).await?,
            keys: self
                .all(DUMP_KEYS, values![], |row| {
                    Ok((cells::key_id(row)?, cells::key(row, 3)?))
                })
                .await?,
            watches: self.all(DUMP_WATCHES, values![], cells::watch).await?,
            states: self
                .all(DUMP_STATES, values![], |row| {
                    Ok((cells::run_id(row, 0)?, cells::own_state(row, 1)?))
                })
                .await?,
            workers: self.workers().await?,
            subscriptions: self
                .all(DUMP_SUBSCRIPTIONS, values![], cells::subscription)
                .await?,
            publications: self
                .all(DUMP_PUBLICATIONS, values![], cells::publication)
                .await?,
            latches: self.all(DUMP_LATCHES, values![], cells::latch).await?,
            queues: self.all(DUMP_QUEUES, values![], cells::queue).await?,
            audit: self.all(DUMP_AUDIT, values![], cells::audit).await?,
            facts: self.every_fact().await?,
            projections: self.every_projection().await?,
            documents: self.every_document().await?,
        })
    }
}

/// A page of what was found, one more than the limit having been asked for.
pub(super) fn cut<T>(mut items: Vec<T>, limit: i64) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
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
const QUEUES: &str = concat!(
    "SELECT ",
    queue_columns!(),
    " FROM roundel_queue WHERE namespace = $1 ORDER BY queue"
);
const PERMITS: &str = "SELECT flow_key, count(*) FROM roundel_run WHERE flow = 1 AND lane IN ( \
     SELECT id FROM roundel_lane WHERE namespace = $1 AND workflow = $2) GROUP BY flow_key";
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
/// Those that count something: the others were made to be locked.
const DUMP_GATES: &str = "SELECT namespace, name, waiters, offers FROM roundel_gate \
     WHERE waiters > 0 OR offers > 0 ORDER BY namespace, name";
const DUMP_OFFERS: &str = "SELECT namespace, name, place, payload, taken_by, at \
     FROM roundel_offer ORDER BY namespace, name, place";
const DUMP_KEYS: &str = "SELECT namespace, kind, key, run, digest, sent \
     FROM roundel_key ORDER BY namespace, kind, key";
const DUMP_WATCHES: &str = "SELECT watched, watcher, execution, call FROM roundel_watch \
     ORDER BY watched, watcher, execution, call";
const DUMP_STATES: &str = "SELECT run, version, value FROM roundel_state ORDER BY run";
