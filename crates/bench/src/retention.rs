//! What a database comes to when what has ended goes by itself: W1 in one that keeps runs for a
//! moment only, in turn with one that keeps them for ever.

use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::ground::{Ground, Target};
use crate::w1::{ENTRIES, Place};

/// Sizes that are noted on the way.
const POINTS: u64 = 10;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Journal entries to be written.
    pub entries: u64,
    /// How long runs are kept.
    pub keep: Duration,
    /// Runs in flight.
    pub in_flight: usize,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `retention`.
    pub workload: &'static str,
    /// Journal entries written into the one that keeps runs for a moment.
    pub entries: u64,
    /// Sizes on the way.
    pub sizes: Vec<Size>,
    /// Its largest size after the first tenth, by its size then.
    pub growth: f64,
    /// Effects per second by those in the one that keeps everything.
    pub ratio: f64,
}

/// Sizes at one moment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// Entries written so far.
    pub entries: u64,
    /// Of the one that keeps runs for a moment, with its log if it has one.
    pub megabytes: f64,
    /// Of the other, by then.
    pub megabytes_kept: f64,
}

/// Measures retention as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "retention", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut pruned = Place::open(ground.engine("pruned").keep_ended(plan.keep)).await?;
    let mut kept = Place::open(ground.engine("kept")).await?;
    let mut sizes: Vec<Size> = Vec::new();
    loop {
        pruned.slice(plan.in_flight).await?;
        kept.slice(plan.in_flight).await?;
        let entries = pruned.engine.metrics().runs_completed * ENTRIES;
        if entries < (sizes.len() as u64 + 1) * plan.entries / POINTS {
            continue;
        }
        sizes.push(Size {
            entries,
            megabytes: ground.megabytes("pruned").await?,
            megabytes_kept: ground.megabytes("kept").await?,
        });
        progress(&format!("{entries} entries of {}", plan.entries));
        if entries >= plan.entries {
            break;
        }
    }
    let entries = pruned.engine.metrics().runs_completed * ENTRIES;
    let ratio = pruned.close().await / kept.close().await;
    let largest = sizes.iter().skip(1).map(|size| size.megabytes);
    Ok(Figures {
        workload: "retention",
        entries,
        growth: largest.fold(0.0, f64::max) / sizes[0].megabytes,
        sizes,
        ratio,
    })
}
