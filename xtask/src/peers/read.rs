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
    pub(super) cpu: f64,
}

/// Rows a second that one durable writer does where nothing decides.
pub(super) type Limit = f64;

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
        write!(f, "{:.2} processors", self.cpu)
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
        Workload::Sequence | Workload::Queue | Workload::Batches => Figure {
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
        Workload::Queue => number("jobs_per_second"),
        Workload::Batches => number("many_jobs_per_second"),
        Workload::Alone | Workload::FanOut | Workload::Signal => None,
    };
    let figure = Figure {
        per_second: rate,
        p50_ms: number("p50_ms").or_else(|| milliseconds("p50_us")),
        p99_ms: number("max_ms").or_else(|| milliseconds("p99_us")),
        cpu: 0.0,
    };
    Ok((figure, number("limit_rows_per_second")))
}

/// Of others: the last line that has figures.
fn line(said: &str) -> Result<Figure, String> {
    let found = said.lines().rev().find(|line| line.contains(": n="));
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
    Ok(Figure {
        per_second: before("jobs/s").or_else(|| before("steps/s")),
        p50_ms: after("p50"),
        p99_ms: after("p99").or_else(|| after("max")),
        cpu: 0.0,
    })
}
