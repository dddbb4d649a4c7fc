//! What an engine costs that has nothing to do: processor time, with runs asleep in its file.

use std::path::Path;
use std::time::{Duration, Instant};

use roundel::Engine;
use serde::Serialize;

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
}

/// Measures an idle engine for so long.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(dir: &Path, sleeping: u64, time: Duration) -> Result<Figures, crate::Error> {
    let folder = tempfile::Builder::new().prefix("idle-").tempdir_in(dir)?;
    let engine = others::register(Engine::open(folder.path().join("idle.db")))
        .start()
        .await?;
    let asleep = Others {
        stored: 0,
        sleeping,
    };
    asleep.put_into(&engine, &|_| {}).await?;
    // The log is moved into the database a moment after the last commit, and other processes are
    // looked for closely until the next renewal of leases; that is not idling.
    tokio::time::sleep(SETTLING.min(2 * time)).await;
    let (begin, before) = (Instant::now(), processor_ms());
    tokio::time::sleep(time).await;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_ms_per_second = (processor_ms() - before) / seconds;
    engine.shutdown().await;
    Ok(Figures {
        workload: "idle",
        sleeping,
        seconds,
        cpu_ms_per_second,
    })
}
