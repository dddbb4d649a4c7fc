//! What an engine costs that has nothing to do: processor time, and what it asks of a server, with
//! runs asleep in its database.

use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::{Connection, PgConnection};

use crate::Error;
use crate::ground::{Ground, Target};
use crate::others::{self, Others};
use crate::process::processor_ms;

/// Longer than a third of a lease.
const SETTLING: Duration = Duration::from_secs(12);

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `idle`.
    pub workload: &'static str,
    /// Runs asleep.
    pub sleeping: u64,
    /// How long.
    pub seconds: f64,
    /// Processor time used, in milliseconds for each second, by all threads.
    pub cpu_ms_per_second: f64,
    /// On a server: transactions in its database per second, by whomever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions_per_second: Option<f64>,
}

const TRANSACTIONS: &str = "SELECT xact_commit + xact_rollback \
     FROM pg_catalog.pg_stat_database WHERE datname = current_database()";

/// Measures an idle engine for so long.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(target: &Target, sleeping: u64, time: Duration) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, sleeping, time).await;
    Ground::with(target, "idle", work).await
}

async fn on(ground: &Ground, sleeping: u64, time: Duration) -> Result<Figures, Error> {
    let engine = others::register(ground.engine("idle")).start().await?;
    let asleep = Others {
        stored: 0,
        sleeping,
    };
    asleep.put_into(&engine, Duration::MAX, &|_| {}).await?;
    // The log is moved into the database a moment after the last commit, and other processes are
    // looked for closely until the next renewal of leases; that is not idling.
    tokio::time::sleep(SETTLING.min(2 * time)).await;
    let transactions = transactions(ground).await?;
    let (begin, before) = (Instant::now(), processor_ms());
    tokio::time::sleep(time).await;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ms_per_second = (processor_ms() - before) / seconds;
    let transactions = match transactions {
        Some(before) => self::transactions(ground).await?.map(|all| all - before),
        None => None,
    };
    engine.shutdown().await;
    Ok(Figures {
        workload: "idle",
        sleeping,
        seconds,
        cpu_ms_per_second,
        transactions_per_second: transactions.map(|count| count / seconds),
    })
}

/// How many there have been, if there is a server. Its counts are a second late.
async fn transactions(ground: &Ground) -> Result<Option<f64>, Error> {
    let Some(url) = ground.url() else {
        return Ok(None);
    };
    let mut connection = PgConnection::connect(url).await?;
    let asked = sqlx::query_scalar(TRANSACTIONS);
    let count: i64 = asked.fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(Some(count as f64))
}
