//! What this process uses, where the system says it.

use std::future::Future;
use std::time::{Duration, Instant};

/// Ticks of the kernel's clock in a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

/// How busy the machine is while something is measured, whoever uses it: databases too.
#[derive(Default)]
pub(crate) struct Busy {
    ticks: u64,
    time: Duration,
}

impl Busy {
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let (begin, before) = (Instant::now(), ticks());
        let done = work.await;
        self.ticks += ticks().saturating_sub(before);
        self.time += begin.elapsed();
        done
    }

    /// Processors in use, on average; none where the system does not say.
    pub(crate) fn processors(&self) -> Option<f64> {
        let busy = self.ticks as f64 / TICKS / self.time.as_secs_f64();
        (self.ticks > 0 && busy.is_finite()).then_some(busy)
    }
}

fn ticks() -> u64 {
    busy_ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The first line is `cpu user nice system idle iowait irq softirq steal`, and more.
fn busy_ticks(stat: &str) -> u64 {
    let fields = stat.lines().next().unwrap_or_default().split_whitespace();
    let numbers: Vec<u64> = fields.skip(1).map_while(|word| word.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6].map(|at| numbers.get(at).copied().unwrap_or(0));
    busy.iter().sum()
}

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
    fn busy_is_neither_idle_nor_waiting_nor_stolen() {
        assert_eq!(busy_ticks("cpu  10 1 5 900 80 2 3 7 0 0\ncpu0 1"), 21);
        assert_eq!(busy_ticks(""), 0);
        assert_eq!(Busy::default().processors(), None);
    }

    #[test]
    fn threads_that_run_are_counted_without_the_one_that_looks() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206"), 2);
        assert_eq!(running("0.20 0.18 0.12 1/80 11206"), 0);
        assert_eq!(running(""), 0);
    }
}
