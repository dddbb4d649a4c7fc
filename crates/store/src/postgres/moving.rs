//! One side of a move, on a server.

use std::collections::BTreeSet;

use roundel_core::{Changes, GateId, Rows, RunRow, Timestamp};
use sqlx::ConnectOptions;

use super::link::{Beginnings, Link, values};
use super::read::{BEFORE_ALL, DUMP_QUEUES, Reader, page};
use super::trouble::Trouble;
use super::values::Id;
use super::write::{self, Turn};
use super::{Options, columns, open};
use crate::backup::{FIND_RESTORED, FORGET, RAISE};
use crate::cells::{self, Cells, run_columns};
use crate::moving::{At, FIND_MOVED, HOLDS, Step, moved_message, of_records, put};
use crate::{Answer, Error, Query};

/// Runs in a page, and rows of other kinds.
const PAGE: usize = 500;

/// Nobody writes beside; whoever only looks is let be.
const LOCK: &str = "LOCK TABLE roundel_meta, roundel_lane, roundel_run, roundel_journal, \
     roundel_mail, roundel_wait, roundel_gate, roundel_offer, roundel_key, roundel_watch, \
     roundel_state, roundel_worker, roundel_label, roundel_committer, roundel_subscription, \
     roundel_publication, roundel_latch, roundel_queue, roundel_audit, \
     roundel_fact, roundel_projection, roundel_document IN EXCLUSIVE MODE";
/// It is one transaction, however long that takes; but not for ever, if its client is lost.
const LIMITS: &str = "SET LOCAL statement_timeout = '10min'; \
     SET LOCAL idle_in_transaction_session_timeout = '10min'";
const ANALYZE: &str = "ANALYZE roundel_run, roundel_journal, roundel_mail, roundel_wait, \
     roundel_gate, roundel_offer, roundel_key, roundel_watch, roundel_state, roundel_label, \
     roundel_publication, roundel_latch";
const OWNED: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM roundel_run WHERE owner IS NOT NULL ORDER BY lease_until DESC LIMIT 1000"
);
const COUNT: &str = "SELECT count(*) FROM roundel_run";
const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";
/// Those that count something: the others were made to be locked.
const GATES: &str = "SELECT namespace, name, waiters, offers FROM roundel_gate \
     WHERE (namespace, name) > ($1, $2) AND (waiters > 0 OR offers > 0) \
     ORDER BY namespace, name LIMIT $3";
const KEYS: &str = "SELECT namespace, kind, key, run, digest, sent FROM roundel_key \
     WHERE (namespace, kind, key) > ($1, $2, $3) AND run IS NULL \
     ORDER BY namespace, kind, key LIMIT $4";
const PUBLICATIONS: &str = "SELECT id, namespace, topic, payload, by_run, by_execution, by_call, \
     at, heard, closes_at, deadlines, context FROM roundel_publication \
     WHERE id > $1 ORDER BY id LIMIT $2";
const SUBSCRIPTIONS: &str = "SELECT namespace, topic, workflow, since \
     FROM roundel_subscription ORDER BY namespace, topic, workflow";
const MARK: &str = "INSERT INTO roundel_meta (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
/// Steps commit without that row: a worker whose lease ended, and who does not know, is fenced.
const FENCE: &str = "UPDATE roundel_run SET epoch = epoch + 1 WHERE owner IS NOT NULL";

/// In which words this schema says that it was moved, if it was.
pub(super) async fn moved(link: &mut Link) -> Result<Option<String>, Trouble> {
    let rows = link.all(FIND_MOVED, values![]).await?;
    let mark = rows.first().map(|row| cells::string(row, 0));
    Ok(mark.transpose()?)
}

/// When this schema was last restored.
pub(super) async fn restored(link: &mut Link) -> Result<Option<i64>, Trouble> {
    let rows = link.all(FIND_RESTORED, values![]).await?;
    let at = rows.first().map(|row| row.int(0));
    Ok(at.transpose()?.flatten())
}

/// What is said of a schema that was moved.
pub(super) fn refusal(schema: &str, mark: &str) -> String {
    moved_message(&format!("the schema `{schema}`"), mark)
}

/// A schema in one transaction.
pub(crate) struct Side {
    link: Link,
}

impl Side {
    pub(crate) fn address(url: &str, schema: &str) -> Result<String, Error> {
        let options = open::address(url)?;
        let (host, port) = (options.get_host(), options.get_port());
        let database = options.get_database().unwrap_or(options.get_username());
        Ok(format!(
            "postgres://{host}:{port}/{database} (schema {schema})"
        ))
    }

    /// Opens it, makes it if that is wanted, and begins.
    pub(crate) async fn open(url: &str, schema: &str, create: bool) -> Result<Side, Error> {
        open::check_schema(schema)?;
        let options = Options {
            schema: schema.to_owned(),
            create,
            ..Options::default()
        };
        let connect = open::address(url)?.disable_statement_logging();
        let mut link = open::connect(&connect, true).await?;
        let begin = Beginnings::of(schema);
        open::make_ready(&mut link, &options, &begin).await?;
        let mut side = Side { link };
        side.begin(&begin).await.map_err(|trouble| {
            let why = trouble.message();
            Error::Unavailable(format!(
                "the schema `{schema}` cannot be had alone: {why}; stop those who work on it"
            ))
        })?;
        if create && let Some(mark) = side.moved().await? {
            return Err(Error::Unusable(refusal(schema, &mark)));
        }
        Ok(side)
    }

    async fn begin(&mut self, begin: &Beginnings) -> Result<(), Trouble> {
        self.link.run(&begin.write).await?;
        self.link.run(LOCK).await?;
        self.link.run(LIMITS).await?;
        Ok(())
    }

    fn reader(&mut self) -> Reader<'_> {
        Reader::of(&mut self.link)
    }

    pub(crate) async fn moved(&mut self) -> Result<Option<String>, Error> {
        done(moved(&mut self.link).await)
    }

    pub(crate) async fn holds(&mut self) -> Result<Vec<String>, Error> {
        let read = |row: &sqlx::postgres::PgRow| cells::string(row, 0);
        done(self.reader().all(HOLDS, no_values(), read).await)
    }

    pub(crate) async fn now(&mut self) -> Result<Timestamp, Error> {
        open::now(&mut self.link).await
    }

    pub(crate) async fn count(&mut self) -> Result<u64, Error> {
        let read = |row: &sqlx::postgres::PgRow| Ok(row.int(0)?.unwrap_or_default());
        let counted = done(self.reader().all(COUNT, no_values(), read).await)?;
        Ok(counted.first().map_or(0, |count| count.unsigned_abs()))
    }

    pub(crate) async fn owned(&mut self) -> Result<Vec<RunRow>, Error> {
        done(self.reader().all(OWNED, no_values(), cells::run).await)
    }

    pub(crate) async fn read(&mut self, query: &Query) -> Result<Answer, Error> {
        done(self.reader().answer(query).await)
    }

    pub(crate) async fn page(&mut self, at: &At) -> Result<Step, Error> {
        done(self.next_page(at).await)
    }

    async fn next_page(&mut self, at: &At) -> Result<Step, Trouble> {
        let (mut reader, mut changes, most) = (self.reader(), Changes::default(), page(PAGE));
        let found = match at {
            At::Lanes => {
                changes.first_lane = 1;
                let read = |row: &sqlx::postgres::PgRow| cells::lane(row, 0);
                changes.lanes = reader.all(LANES, values![], read).await?;
                0
            }
            At::Runs(after) => return Ok(of_records(reader.bare_records(*after, PAGE).await?)),
            At::Gates(after) => {
                let (namespace, name) = gate_names(after.as_ref());
                let values = values![namespace, name, most];
                let gates = reader.all(GATES, values, |row| {
                    Ok((columns::gate_id(row)?, cells::gate(row, 2)?))
                });
                changes.gates = put(gates.await?).collect();
                changes.gates.len()
            }
            At::Offers(after) => {
                let offers = reader.bare_offers(after.as_ref(), most).await?;
                changes.offers = put(offers).collect();
                changes.offers.len()
            }
            At::Keys(after) => {
                let after = after.as_ref();
                let (namespace, kind, key) = after.map_or(("", "", ""), |id| {
                    (id.namespace.as_str(), id.kind.as_str(), id.key.as_str())
                });
                let values = values![namespace, kind, key, most];
                let keys = reader.all(KEYS, values, |row| {
                    Ok((cells::key_id(row)?, cells::key(row, 3)?))
                });
                changes.keys = put(keys.await?).collect();
                changes.keys.len()
            }
            At::Publications(after) => {
                let values = values![after.map_or(BEFORE_ALL, Id::from), most];
                let found = reader.all(PUBLICATIONS, values, cells::publication);
                changes.publications = put(found.await?).collect();
                changes.publications.len()
            }
            At::Subscriptions => {
                let found = reader.all(SUBSCRIPTIONS, values![], cells::subscription);
                changes.subscriptions = put(found.await?).collect();
                let queues = reader.all(DUMP_QUEUES, values![], cells::queue);
                changes.queues = put(queues.await?).collect();
                0
            }
            At::Workers => {
                let workers = reader.workers().await?;
                let workers = workers.into_iter().map(|row| (row.id, row));
                changes.workers = put(workers).collect();
                0
            }
            At::Audit(_) | At::Facts(_) | At::Documents(_) | At::Projections => {
                unreachable!("it is asked for as everywhere")
            }
        };
        let next = at.next(&changes, found == PAGE);
        Ok((changes, next))
    }

    pub(crate) async fn write(&mut self, changes: &Changes, rows: &Rows) -> Result<(), Error> {
        let mut none = BTreeSet::new();
        let written = write::all(&mut self.link, changes, (rows, Turn::Between), &mut none);
        done(written.await).map(drop)
    }

    /// What the planner knows of empty tables is of no use.
    pub(crate) async fn settle(&mut self) -> Result<(), Error> {
        done(self.link.run(ANALYZE).await.map_err(Trouble::from))
    }

    pub(crate) async fn mark(&mut self, mark: &str) -> Result<(), Error> {
        let at = self.now().await?.0;
        let link = &mut self.link;
        let marked = async {
            link.execute(MARK, values![mark, at]).await?;
            link.execute(FORGET, values![]).await?;
            link.execute(FENCE, values![]).await?;
            Ok(())
        };
        done(marked.await)
    }

    /// Says that it was restored: whoever worked on it before is fenced.
    pub(crate) async fn fence(url: &str, schema: &str) -> Result<(), Error> {
        let mut side = Side::open(url, schema, false).await?;
        if let Some(mark) = side.moved().await? {
            return Err(Error::Unusable(refusal(schema, &mark)));
        }
        let at = side.now().await?.0;
        let link = &mut side.link;
        let fenced = async {
            link.execute(FORGET, values![]).await?;
            link.execute(RAISE, values![]).await?;
            link.execute(MARK, values!["restored", at]).await?;
            Ok(())
        };
        done(fenced.await)?;
        side.commit().await
    }

    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        let committed = self.link.run("COMMIT").await;
        self.link.close().await;
        match committed.map_err(Trouble::of_commit) {
            Ok(()) => Ok(()),
            Err(Trouble::Doubt(message)) => Err(Error::Unknown(message)),
            Err(trouble) => Err(Error::Unavailable(trouble.message())),
        }
    }
}

fn no_values() -> sqlx::postgres::PgArguments {
    sqlx::postgres::PgArguments::default()
}

fn done<T>(done: Result<T, Trouble>) -> Result<T, Error> {
    done.map_err(|trouble| match trouble {
        Trouble::Culprit(message) => Error::Unusable(message),
        other => Error::Unavailable(other.message()),
    })
}

fn gate_names(gate: Option<&GateId>) -> (&str, &str) {
    gate.map_or(("", ""), |gate| {
        (gate.namespace.as_str(), gate.name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_locked() {
        let made = crate::postgres::migrate::all_sql();
        let tables = made.split("CREATE TABLE ").skip(1);
        for table in tables.filter_map(|text| text.split_whitespace().next()) {
            assert!(LOCK.contains(&format!(" {table}")), "{table}");
        }
    }
}
