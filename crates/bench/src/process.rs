//! What this process uses, where the system says it.

use std::time::Duration;

/// How many threads of others want a processor, on average over a tenth of a second. To be asked
/// before anything is measured: a busy machine makes every sync wait for its turn.
#[must_use]
pub fn others_running() -> f64 {
    const LOOKS: u32 = 10;
    let look = |_| {
        std::thread::sleep(Duration::from_millis(10));
        running(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default())
    };
    let seen: u32 = (0..LOOKS).map(look).sum();
    f64::from(seen) / f64::from(LOOKS)
}

/// Threads that run, but for the one that looks: `0.20 0.18 0.12 3/80 11206` says three.
fn running(load: &str) -> u32 {
    let field = load.split_whitespace().nth(3);
    let count = field.and_then(|field| field.split('/').next()?.parse::<u32>().ok());
    count.unwrap_or(1).saturating_sub(1)
}

/// Memory held, in megabytes.
pub(crate) fn memory_mb() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = pages
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    resident.unwrap_or(0.0) * 4096.0 / 1e6
}

/// Processor time of all threads, in milliseconds.
pub(crate) fn processor_ms() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let on_cpu = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.flatten().filter_map(on_cpu).sum::<f64>() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_are_counted_without_the_one_that_looks() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206"), 2);
        assert_eq!(running("0.20 0.18 0.12 1/80 11206"), 0);
        assert_eq!(running(""), 0);
    }
}
