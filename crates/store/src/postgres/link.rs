//! One connection. All that a transaction needs is said when it begins, so that the connection has
//! no state of its own and may stand behind a proxy that gives each transaction another server
//! process.

use roundel_core::limits::SQL_TIME;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::{Connection, Executor, PgConnection};

use super::trouble::Trouble;
use crate::Query;
use crate::cells::run_columns;

/// What is said when a transaction begins.
pub(super) struct Beginnings {
    /// Of one that writes. Whatever the planner thinks, rows are found by their keys: what it
    /// knows of tables that change this fast is old.
    pub(super) write: String,
    /// The same, once for a connection that has nothing else to do: there a transaction begins
    /// with `BEGIN` alone, and a statement may be one by itself.
    pub(super) session: String,
    /// Of one that reads: all at one moment.
    pub(super) read: String,
    /// Of one that looks through a list: the rows come by the index that has them in order, and
    /// not one more is read than is passed. Which index that is, what is asked for says.
    pub(super) look: String,
    /// Of one that runs an operator's own statement.
    pub(super) sql: String,
    /// Of one that looks at the schema itself.
    pub(super) plain: String,
    /// The end of a step, in the transaction that it has: from here on it is ours.
    pub(super) last: String,
    /// Who has the run of a step.
    pub(super) owner: String,
    /// Makes room where runs were removed; by itself, and not where somebody is at it already.
    pub(super) vacuum: String,
}

/// Tables that have rows for a run.
const OF_RUNS: [&str; 10] = [
    "run",
    "journal",
    "key",
    "label",
    "mail",
    "wait",
    "watch",
    "state",
    "latch",
    "publication",
];

impl Beginnings {
    /// For a schema of this name, which is known to need no quotes but gets them.
    pub(super) fn of(schema: &str) -> Beginnings {
        let path = format!("SET LOCAL search_path = \"{schema}\", pg_catalog, pg_temp");
        // A process that died leaves nothing behind that outlives its leases.
        let limits = "SET LOCAL statement_timeout = '15s'; SET LOCAL lock_timeout = '5s'; \
             SET LOCAL idle_in_transaction_session_timeout = '15s'; \
             SET LOCAL client_min_messages = 'warning'";
        let plans = "SET LOCAL plan_cache_mode = 'force_generic_plan'; \
             SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
             SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; \
             SET LOCAL jit = off";
        let read = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {path}; \
             SET LOCAL statement_timeout = '60s'; \
             SET LOCAL idle_in_transaction_session_timeout = '15s'"
        );
        let tables = OF_RUNS.map(|name| format!("\"{schema}\".roundel_{name}"));
        Beginnings {
            vacuum: [
                "VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) ",
                &tables.join(", "),
            ]
            .concat(),
            session: format!("{path}; {limits}; {plans}").replace("SET LOCAL", "SET"),
            write: format!("BEGIN; {path}; {limits}; {plans}"),
            look: format!(
                "{read}; {plans}; SET LOCAL enable_sort = off; \
                 SET LOCAL plan_cache_mode = 'force_custom_plan'; \
                 SET LOCAL max_parallel_workers_per_gather = 0"
            ),
            read,
            sql: format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SET LOCAL search_path = \"{schema}\", \"$user\", public; \
                 SET LOCAL statement_timeout = '{}'; SET LOCAL lock_timeout = '1s'; \
                 SET LOCAL idle_in_transaction_session_timeout = '15s'",
                SQL_TIME.as_millis()
            ),
            // A migration may take longer, and nobody holds a lease for it.
            plain: format!("BEGIN; {path}; {limits}; SET LOCAL statement_timeout = '30s'"),
            last: format!("{path}; {limits}; {plans}"),
            // The user's own search path is in force: the name stands there whole.
            owner: [
                "SELECT ",
                run_columns!(),
                " FROM \"",
                schema,
                "\".roundel_run WHERE id = $1",
            ]
            .concat(),
        }
    }

    /// What is said first to answer this.
    pub(super) fn of_query(&self, query: &Query) -> &str {
        match query {
            Query::Runs(_)
            | Query::Parked(_)
            | Query::Audit(_)
            | Query::Facts(_)
            | Query::Topics(..)
            | Query::Publications { .. } => &self.look,
            _ => &self.read,
        }
    }
}

/// One connection.
pub(super) struct Link {
    connection: PgConnection,
    /// Statements are kept on the server from one use to the next.
    keeps: bool,
}

impl Link {
    pub(super) async fn connect(
        options: &PgConnectOptions,
        keeps: bool,
    ) -> Result<Link, sqlx::Error> {
        let connection = PgConnection::connect_with(options).await?;
        Ok(Link { connection, keeps })
    }

    /// Statements without values and answers, in one flight.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.connection.execute(sqlx::raw_sql(sql)).await?;
        Ok(())
    }

    pub(super) async fn all(
        &mut self,
        sql: &str,
        values: PgArguments,
    ) -> Result<Vec<PgRow>, Trouble> {
        let query = sqlx::query_with(sql, values).persistent(self.keeps);
        Ok(query.fetch_all(&mut self.connection).await?)
    }

    /// A statement that is a transaction by itself, over rows that were not locked.
    pub(super) async fn guess(
        &mut self,
        sql: &str,
        values: PgArguments,
    ) -> Result<Vec<PgRow>, Trouble> {
        let query = sqlx::query_with(sql, values).persistent(self.keeps);
        let written = query.fetch_all(&mut self.connection).await;
        written.map_err(Trouble::of_guess)
    }

    pub(super) async fn execute(&mut self, sql: &str, values: PgArguments) -> Result<u64, Trouble> {
        let query = sqlx::query_with(sql, values).persistent(self.keeps);
        Ok(query.execute(&mut self.connection).await?.rows_affected())
    }

    /// The connection itself, for a step.
    pub(super) fn into_inner(self) -> PgConnection {
        self.connection
    }

    /// A connection that a step gives back.
    pub(super) fn of(connection: PgConnection, keeps: bool) -> Link {
        Link { connection, keeps }
    }

    pub(super) fn inner(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Says goodbye, so that the server need not find out.
    pub(super) async fn close(self) {
        let _ = self.connection.close().await;
    }
}

/// The values of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut values = sqlx::postgres::PgArguments::default();
        $(
            sqlx::Arguments::add(&mut values, $value)
                .map_err(|error| $crate::postgres::trouble::Trouble::Culprit(error.to_string()))?;
        )*
        values
    }};
}
pub(super) use values;

/// One array for each column, over all rows.
macro_rules! arrays {
    ($rows:expr; $row:pat => $($value:expr),* $(,)?) => {{
        let mut values = sqlx::postgres::PgArguments::default();
        $crate::postgres::link::add_arrays!(&mut values; $rows; $row => $($value),*);
        values
    }};
}
pub(super) use arrays;

/// The same, behind the values that are there already.
macro_rules! add_arrays {
    ($values:expr; $rows:expr; $row:pat => $($value:expr),* $(,)?) => {
        $(
            #[allow(unused_variables)]
            let column = $rows.iter().map(|$row| $value).collect::<Vec<_>>();
            sqlx::Arguments::add(&mut *$values, column)
                .map_err(|error| $crate::postgres::trouble::Trouble::Culprit(error.to_string()))?;
        )*
    };
}
pub(super) use add_arrays;

/// The same; but of a column that is not the rows' own, the value that the first has.
macro_rules! add_columns {
    ($values:expr, $own:expr; $rows:expr; $row:pat => $($value:expr),* $(,)?) => {{
        #[allow(unused_mut, unused_assignments)]
        let mut own: $crate::postgres::write::text::Own = $own;
        $(
            if own.has_first() {
                $crate::postgres::link::add_arrays!($values; $rows; $row => $value);
            } else if let Some($row) = $rows.iter().next() {
                sqlx::Arguments::add(&mut *$values, $value).map_err(|error| {
                    $crate::postgres::trouble::Trouble::Culprit(error.to_string())
                })?;
            }
            #[allow(unused_assignments)]
            {
                own = own.behind(1);
            }
        )*
    }};
}
pub(super) use add_columns;

#[cfg(test)]
mod tests {
    use roundel_core::limits::USUAL_LEASE;

    use super::*;

    #[test]
    fn co_05_no_statement_of_the_engine_takes_as_long_as_a_lease() {
        let Some(schema) = roundel_testpg::schema() else {
            return;
        };
        let begin = Beginnings::of("public");
        let session = ["BEGIN; ", &begin.session].concat();
        let last = ["BEGIN; ", &begin.last].concat();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        for text in [&begin.write, &session, &last] {
            let most: i64 = runtime.block_on(async {
                let address = schema.address();
                let mut link = PgConnection::connect(&address).await.expect("a connection");
                let begun = link.execute(sqlx::raw_sql(text)).await;
                begun.expect("it begins");
                let asked = "SELECT setting::bigint FROM pg_settings \
                     WHERE name = 'statement_timeout'";
                let most = sqlx::query_scalar(asked).fetch_one(&mut link).await;
                most.expect("a setting")
            });
            let lease = i64::try_from(USUAL_LEASE.as_millis()).expect("a small number");
            assert!(most > 0 && most < lease, "{most} ms: {text}");
        }
    }
}
