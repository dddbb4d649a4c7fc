//! W1 on a server on which somebody leaves a transaction open: the server may remove no old version
//! of any row meanwhile. Slices before it, and while it is open; the last third of those is what it
//! has come to.

use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::{Connection, PgConnection};

use crate::Error;
use crate::beside::slices;
use crate::ground::{Ground, Target};
use crate::percentile::median;
use crate::w1::Place;

/// How long it is measured before, at most.
const BEFORE: Duration = Duration::from_secs(6);

/// It has a number and a snapshot, as one has that wrote something, reads, and is forgotten.
const OPEN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()";

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `held`.
    pub workload: &'static str,
    /// Runs in flight.
    pub in_flight: usize,
    /// How long the transaction was open.
    pub seconds: f64,
    /// Effects per second before it was.
    pub effects_per_second_before: f64,
    /// Effects per second in the last third of that time.
    pub effects_per_second: f64,
    /// These by those.
    pub ratio: f64,
}

/// Measures W1 while a transaction is open for so long. `progress` is told what is being done.
///
/// # Errors
/// When there is no server, or it cannot be used.
pub async fn measure(
    target: &Target,
    (in_flight, time): (usize, Duration),
    progress: &dyn Fn(&str),
) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, in_flight, time, progress).await;
    Ground::with(target, "held", work).await
}

async fn on(
    ground: &Ground,
    in_flight: usize,
    time: Duration,
    progress: &dyn Fn(&str),
) -> Result<Figures, Error> {
    let url = ground.url().ok_or(Error::NoServer)?;
    let mut place = Place::open(ground.engine("held")).await?;
    progress("before");
    place.slice(in_flight).await?;
    place.rates.clear();
    for _ in 0..slices(BEFORE.min(time)) {
        place.slice(in_flight).await?;
    }
    let before = median(&std::mem::take(&mut place.rates));
    let mut forgotten = PgConnection::connect(url).await?;
    sqlx::raw_sql(OPEN).execute(&mut forgotten).await?;
    progress("a transaction is open");
    let begin = Instant::now();
    while begin.elapsed() < time || place.rates.len() < 3 {
        place.slice(in_flight).await?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    forgotten.close().await?;
    let late = place.rates.len() * 2 / 3;
    let effects_per_second = median(&place.rates[late..]);
    place.close().await;
    Ok(Figures {
        workload: "held",
        in_flight,
        seconds,
        effects_per_second_before: before,
        effects_per_second,
        ratio: effects_per_second / before,
    })
}
