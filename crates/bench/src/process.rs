//! What this process uses, where the system says it.

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
