//! What programs print, read as figures.
//!
//! Roundel's benchmark prints one JSON object. The others print lines such as
//! `name w2: n=500 done=500 enqueue 0.1s total 2.0s -> 250 jobs/s cpu 0.71`.

use std::fmt;

use serde_json::Value;

use super::catalogue::Workload;

/// What was measured once.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Figure {
    pub(super) per_second: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    /// Of fan-outs, which are few, the longest.
    pub(super) p99_ms: Option<f64>,
    /// Processors in use, by everybody on the machine.
    pub(super) cpu: Option<f64>,
    /// How long that took, in seconds, as far as the program says; all of it at its end.
    pub(super) took: Option<f64>,
}

/// What the database does where nothing decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    /// Rows a second of one durable writer.
    pub(super) rows: f64,
    /// One small sync, or one row there and back, in milliseconds.
    pub(super) sync_ms: f64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.per_second {
            write!(f, "{rate:.0}/s, ")?;
        }
        if let Some(p50) = self.p50_ms {
            write!(f, "p50 {p50:.2} ms, ")?;
        }
        if let Some(p99) = self.p99_ms {
            write!(f, "p99 or longest {p99:.2} ms, ")?;
        }
        match self.cpu {
            Some(cpu) => write!(f, "{cpu:.2} processors"),
            None => write!(f, "processors unknown"),
        }
    }
}

/// The figure of a workload in what a program said, with the raw limit if it measured that too.
pub(super) fn read(workload: Workload, said: &str) -> Result<(Figure, Option<Limit>), String> {
    let json = said.lines().find(|line| line.starts_with('{'));
    let (figure, limit) = match json {
        Some(line) => object(workload, line)?,
        None => (line(said)?, None),
    };
    let figure = match workload {
        Workload::Sequence | Workload::Queue | Workload::Bulk | Workload::Batches => Figure {
            per_second: Some(figure.per_second.ok_or("no rate was printed")?),
            p50_ms: None,
            p99_ms: None,
            ..figure
        },
        Workload::Alone | Workload::FanOut | Workload::Signal => Figure {
            per_second: None,
            p50_ms: Some(figure.p50_ms.ok_or("no median was printed")?),
            ..figure
        },
    };
    Ok((figure, limit))
}

/// Of Roundel's own.
fn object(workload: Workload, line: &str) -> Result<(Figure, Option<Limit>), String> {
    let object: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let number = |name: &str| object.get(name).and_then(Value::as_f64);
    let milliseconds = |name: &str| number(name).map(|us| us / 1_000.0);
    let rate = match workload {
        Workload::Sequence => number("effects_per_second"),
        Workload::Queue | Workload::Bulk => number("jobs_per_second"),
        Workload::Batches => number("many_jobs_per_second"),
        Workload::Alone | Workload::FanOut | Workload::Signal => None,
    };
    let processors = match workload {
        Workload::Sequence | Workload::Queue | Workload::Bulk => "processors",
        Workload::Batches => "many_processors",
        Workload::Alone | Workload::FanOut | Workload::Signal => "alone_processors",
    };
    let figure = Figure {
        per_second: rate,
        p50_ms: number("p50_ms").or_else(|| milliseconds("p50_us")),
        p99_ms: number("max_ms").or_else(|| milliseconds("p99_us")),
        cpu: number(processors),
        took: None,
    };
    let sync = milliseconds("fdatasync_p50_us").or_else(|| milliseconds("round_trip_p50_us"));
    let limit = number("limit_rows_per_second").zip(sync);
    Ok((figure, limit.map(|(rows, sync_ms)| Limit { rows, sync_ms })))
}

/// Is this a line of figures of another's program?
pub(super) fn has_figures(line: &str) -> bool {
    line.contains(": n=")
}

/// Of others: the last line that has figures.
fn line(said: &str) -> Result<Figure, String> {
    let found = said.lines().rev().find(|line| has_figures(line));
    let Some(line) = found else {
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        return Err(format!(
            "it printed no figures: {}",
            last.unwrap_or("nothing")
        ));
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let count = |name: &str| {
        let found = words.iter().find_map(|word| word.strip_prefix(name));
        found.and_then(|value| value.parse::<u64>().ok())
    };
    if let (Some(asked), Some(done)) = (count("n="), count("done="))
        && done < asked
    {
        return Err(format!("only {done} of {asked} were done in the time"));
    }
    let before = |unit: &str| {
        let at = words.iter().position(|word| *word == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.strip_suffix("ms")?.parse().ok()
    };
    let seconds = |word: &&str| word.strip_suffix('s')?.parse::<f64>().ok();
    let total = words.iter().position(|word| *word == "total");
    let total = total.map(|at| at + 1);
    let told = total.or_else(|| words.iter().position(|word| *word == "->")?.checked_sub(1));
    let told = told.and_then(|at| words.get(at)).and_then(seconds);
    // Those that take one after the other take at least so long.
    let middle = after("p50").zip(count("n="));
    let middle = middle.map(|(p50, many): (f64, u64)| p50 / 1e3 * many as f64);
    Ok(Figure {
        took: told.or(middle),
        per_second: before("jobs/s").or_else(|| before("steps/s")),
        p50_ms: after("p50"),
        p99_ms: after("p99").or_else(|| after("max")),
        cpu: None,
    })
}
