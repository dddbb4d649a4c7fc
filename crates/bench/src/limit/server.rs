//! The same rows on a PostgreSQL server: arrays of a hundred, two statements, one commit.

use std::time::{Duration, Instant};

use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::{Connection, Executor, PgConnection, Postgres, Type};

use super::{BATCH, PAYLOAD, Round, Written, microseconds, milliseconds_since_1970, run_id};
use crate::percentile::Sorted;

const NAME_IT: &str = "SELECT set_config('roundel.bench', $1, false)";
const MAKE: &str = "\
DO $$ BEGIN
    EXECUTE format('CREATE SCHEMA %I', current_setting('roundel.bench'));
    EXECUTE format('SET search_path = %I', current_setting('roundel.bench'));
END $$;
CREATE TABLE journal (run uuid NOT NULL, seq bigint NOT NULL, payload bytea NOT NULL,
    PRIMARY KEY (run, seq));
CREATE TABLE run (id uuid NOT NULL PRIMARY KEY, state bigint NOT NULL, head bigint NOT NULL,
    changed bigint NOT NULL) WITH (fillfactor = 60);
CREATE TABLE single (number bigint NOT NULL PRIMARY KEY, payload bytea NOT NULL);
-- What the planner knows of tables that grow this fast is old: rows are found by their keys.
SET plan_cache_mode = 'force_generic_plan';
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off";
const APPEND: &str = "INSERT INTO journal (run, seq, payload) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])";
const START: &str = "INSERT INTO run (id, state, head, changed) \
     SELECT id, 0, head, changed FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) \
     AS new (id, head, changed)";
const ADVANCE: &str = "UPDATE run SET state = 1, head = new.head, changed = new.changed \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS new (id, head, changed) \
     WHERE run.id = new.id";
const SINGLE: &str = "INSERT INTO single (number, payload) VALUES ($1, $2)";

/// The durable writer of rows on a server, which can be stopped and go on.
pub(crate) struct Server {
    connection: PgConnection,
    turn: u64,
    singles: i64,
    /// Milliseconds since 1970 when the measurement began; the ids count on from here.
    epoch: u64,
}

impl Server {
    /// With tables in a new schema of this name.
    pub(crate) async fn open(url: &str, schema: &str) -> Result<Server, sqlx::Error> {
        let mut connection = PgConnection::connect(url).await?;
        let name = sqlx::query(NAME_IT).bind(schema);
        name.execute(&mut connection).await?;
        connection.execute(sqlx::raw_sql(MAKE)).await?;
        Ok(Server {
            connection,
            turn: 0,
            singles: 0,
            epoch: milliseconds_since_1970(),
        })
    }

    /// Writes batches for so long, one at least.
    pub(crate) async fn write_for(&mut self, time: Duration) -> Result<Written, sqlx::Error> {
        let mut commits = Vec::new();
        let start = Instant::now();
        loop {
            self.batch(&mut commits).await?;
            let elapsed = start.elapsed();
            if elapsed >= time {
                let rows = (commits.len() * BATCH) as f64;
                return Ok(Written {
                    rows_per_second: rows / elapsed.as_secs_f64(),
                    commits_us: Sorted::new(commits),
                });
            }
        }
    }

    /// A batch is either all of first rounds, or of none: waves are whole batches.
    async fn batch(&mut self, commits: &mut Vec<f64>) -> Result<(), sqlx::Error> {
        let rounds: Vec<Round> = (self.turn..).take(BATCH).map(Round::nth).collect();
        self.turn += BATCH as u64;
        let ids = rounds.iter().map(|round| Id(run_id(self.epoch, round.run)));
        let ids: Vec<Id> = ids.collect();
        let heads: Vec<i64> = rounds.iter().map(|round| round.seq as i64).collect();
        let changed: Vec<i64> = heads.iter().map(|head| self.epoch as i64 + head).collect();
        let payloads = vec![PAYLOAD.as_slice(); BATCH];
        let run = match rounds[0].seq {
            1 => START,
            _ => ADVANCE,
        };
        let connection = &mut self.connection;
        connection.execute("BEGIN").await?;
        let append = sqlx::query(APPEND).bind(&ids).bind(&heads).bind(&payloads);
        append.execute(&mut *connection).await?;
        let run = sqlx::query(run).bind(&ids).bind(&heads).bind(&changed);
        run.execute(&mut *connection).await?;
        let began = Instant::now();
        connection.execute("COMMIT").await?;
        commits.push(microseconds(began.elapsed()));
        Ok(())
    }

    /// One row, inserted and committed: there and back, in microseconds.
    pub(crate) async fn round_trip(&mut self) -> Result<f64, sqlx::Error> {
        self.singles += 1;
        let began = Instant::now();
        let row = sqlx::query(SINGLE)
            .bind(self.singles)
            .bind(PAYLOAD.as_slice());
        row.execute(&mut self.connection).await?;
        Ok(microseconds(began.elapsed()))
    }
}

/// The id of a run, as the database has it.
#[derive(Clone, Copy)]
struct Id([u8; 16]);

impl Type<Postgres> for Id {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2950))
    }
}

impl PgHasArrayType for Id {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(2951))
    }
}

impl Encode<'_, Postgres> for Id {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}
