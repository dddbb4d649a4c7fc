//! Figures for people: a title, and one line for each.

use std::fmt::{self, Display};

use roundel_bench::growth::Point;
use roundel_bench::{Raw, facts, growth, held, idle, limit, retention, w1, w2, w3, w4, w5};

pub(super) struct Table {
    title: String,
    lines: Vec<(String, String)>,
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (name, value) in &self.lines {
            writeln!(f, "  {name:<40} {value:>12}")?;
        }
        Ok(())
    }
}

impl Table {
    fn of(title: impl Into<String>) -> Table {
        Table {
            title: title.into(),
            lines: Vec::new(),
        }
    }

    fn line(mut self, name: impl Into<String>, value: impl Display) -> Table {
        self.lines.push((name.into(), value.to_string()));
        self
    }

    /// A figure with so many digits behind the point.
    fn figure(self, name: impl Into<String>, value: f64, digits: usize) -> Table {
        self.line(name, format!("{value:.digits$}"))
    }

    /// A figure, if it was taken.
    fn if_any(self, name: impl Into<String>, value: Option<f64>, digits: usize) -> Table {
        match value {
            Some(value) => self.figure(name, value, digits),
            None => self,
        }
    }

    fn limit(self, raw: &Raw, ratio: f64) -> Table {
        self.figure("raw limit, rows per second", raw.limit_rows_per_second, 0)
            .figure("ratio", ratio, 3)
    }

    /// A median latency beside the unit to measure it by.
    fn syncs(self, raw: &Raw) -> Table {
        self.if_any("fdatasync, p50 us", raw.fdatasync_p50_us, 0)
            .if_any("p50 in fdatasyncs", raw.p50_fdatasyncs, 1)
            .if_any("round-trip commit, p50 us", raw.round_trip_p50_us, 0)
            .if_any("p50 in round trips", raw.p50_round_trips, 1)
    }
}

/// How many processes, if there are several.
fn by(workers: usize) -> String {
    match workers {
        1 => String::new(),
        _ => format!(", {workers} worker processes"),
    }
}

pub(super) fn w1(figures: &w1::Figures) -> Table {
    let in_flight = figures.in_flight;
    let table = Table::of(format!("W1, runs of five effects{}", by(figures.workers)))
        .figure(
            format!("effects per second, {in_flight} in flight"),
            figures.effects_per_second,
            0,
        )
        .limit(&figures.raw, figures.ratio)
        .figure("one run alone, p50 us", figures.p50_us, 0)
        .figure("one run alone, p99 us", figures.p99_us, 0)
        .syncs(&figures.raw);
    let (Some(before), Some(part), Some(memory)) = (
        figures.effects_per_second_before,
        figures.ratio_to_before,
        figures.added_memory_mb,
    ) else {
        return table;
    };
    table
        .line("stored runs in the database", figures.stored)
        .line("sleeping runs in the database", figures.sleeping)
        .figure("effects per second in an empty one", before, 0)
        .figure("part of that", part, 3)
        .figure("memory added, MB", memory, 1)
}

pub(super) fn w2(figures: &w2::Figures) -> Table {
    let sent = match figures.send_many {
        1 => String::new(),
        many => format!(", {many} sent in a call"),
    };
    Table::of(format!(
        "W2, queues of {} jobs, {} senders{sent}, {} worked on at once{}",
        figures.jobs,
        figures.senders,
        figures.concurrency,
        by(figures.workers)
    ))
    .figure("jobs per second", figures.jobs_per_second, 0)
    .figure("sends per second", figures.sends_per_second, 0)
    .if_any(
        "jobs per second under limits",
        figures.limited_jobs_per_second,
        0,
    )
    .if_any("part of that without", figures.limited_ratio, 3)
    .if_any(
        "jobs per second, many in a call",
        figures.many_jobs_per_second,
        0,
    )
    .if_any("part of the raw limit", figures.many_ratio, 3)
    .limit(&figures.raw, figures.ratio)
    .figure("one job alone, p50 us", figures.p50_us, 0)
    .figure("one job alone, p99 us", figures.p99_us, 0)
    .syncs(&figures.raw)
}

pub(super) fn facts(figures: &facts::Figures) -> Table {
    Table::of(format!("Facts, {} recorders", figures.recorders))
        .figure(
            "facts per second, each folded in",
            figures.facts_per_second,
            0,
        )
        .limit(&figures.raw, figures.ratio)
        .figure("one fact alone, p50 us", figures.p50_us, 0)
        .if_any(
            "the same rows as plain SQL, asked for by a task, p50 us",
            figures.plain_p50_us,
            0,
        )
        .if_any("one fact alone costs more, part", figures.overhead, 3)
        .if_any(
            "plain SQL by a thread that waits, p50 us",
            figures.blocking_p50_us,
            0,
        )
        .figure(
            "facts folded anew per second",
            figures.rebuilt_per_second,
            0,
        )
}

pub(super) fn w3(figures: &w3::Figures) -> Table {
    Table::of(format!(
        "W3, a parent and {} children{}",
        figures.children,
        by(figures.workers)
    ))
    .figure("one parent alone, p50 ms", figures.p50_ms, 2)
    .figure("one parent alone, slowest, ms", figures.max_ms, 2)
    .syncs(&figures.raw)
    .figure(
        format!("children per second, {} parents", figures.in_flight),
        figures.children_per_second,
        0,
    )
    .limit(&figures.raw, figures.ratio)
}

pub(super) fn w4(figures: &w4::Figures) -> Table {
    Table::of(format!(
        "W4, from a signal to the end of the run{}",
        by(figures.workers)
    ))
    .figure("one signal alone, p50 us", figures.p50_us, 0)
    .figure("one signal alone, p99 us", figures.p99_us, 0)
    .syncs(&figures.raw)
    .figure(
        format!("signals per second, {} waiting", figures.in_flight),
        figures.signals_per_second,
        0,
    )
    .limit(&figures.raw, figures.ratio)
}

pub(super) fn w5(figures: &w5::Figures) -> Table {
    Table::of(format!("W5, cooperation{}", by(figures.workers)))
        .figure(
            "parents of three children per second",
            figures.children_per_second,
            0,
        )
        .figure(
            "publications to three per second",
            figures.publishes_per_second,
            0,
        )
        .figure("a publication, in such parents", figures.publish_cost, 2)
        .figure("trees per second", figures.trees_per_second, 0)
        .figure("rollbacks per second", figures.rollbacks_per_second, 0)
        .figure("a rollback, in trees", figures.rollback_cost, 2)
        .figure(
            format!("{} children of one call, seconds", figures.fan_in),
            figures.fan_in_seconds,
            2,
        )
        .figure("a parent alone, p50 us", figures.alone_p50_us, 0)
        .figure(
            format!("among {} that wait, p50 us", figures.waiting),
            figures.among_waiting_p50_us,
            0,
        )
        .figure("the second by the first", figures.waiting_cost, 2)
        .limit(&figures.raw, figures.ratio)
}

pub(super) fn growth(figures: &growth::Figures) -> Table {
    let kinds: [(&str, &str, &[Point]); 6] = [
        ("stored runs", "effects/s", &figures.stored),
        ("waiting runs", "effects/s", &figures.waiting),
        ("effects of one run", "effects/s", &figures.journal),
        ("entries replayed", "entries/s", &figures.replay),
        ("children of one run", "children/s", &figures.children),
        ("worker processes", "effects/s", &figures.workers),
    ];
    let mut table = Table::of("growth: each size beside the smallest of its kind");
    for (kind, unit, points) in kinds {
        for point in points {
            let value = format!(
                "{:.0} {unit} {:>7.3}, alone p50 {:.0} us, p99 {:.0} us",
                point.per_second, point.ratio, point.p50_us, point.p99_us
            );
            table = table.line(format!("{kind}: {}", point.size), value);
        }
    }
    table
        .figure("the lowest of these ratios", figures.ratio, 3)
        .figure(
            "raw limit, rows per second",
            figures.raw.limit_rows_per_second,
            0,
        )
        .syncs(&figures.raw)
}

pub(super) fn retention(figures: &retention::Figures) -> Table {
    let mut table = Table::of("Retention, W1 where runs are kept for a moment");
    for size in &figures.sizes {
        let (entries, kept) = (size.entries, size.megabytes_kept);
        let name = format!("MB at {entries} entries (kept: {kept:.0})");
        table = table.figure(name, size.megabytes, 1);
    }
    table
        .figure("growth after the first tenth", figures.growth, 3)
        .figure("speed by that with everything kept", figures.ratio, 3)
}

pub(super) fn held(figures: &held::Figures) -> Table {
    let open = format!("W1, a transaction open for {:.0} s", figures.seconds);
    Table::of(open)
        .figure(
            "effects per second before",
            figures.effects_per_second_before,
            0,
        )
        .figure(
            "effects per second in its last third",
            figures.effects_per_second,
            0,
        )
        .figure("these by those", figures.ratio, 3)
}

pub(super) fn idle(figures: &idle::Figures) -> Table {
    Table::of(format!("an engine with {} runs asleep", figures.sleeping))
        .figure(
            "processor time, ms per second",
            figures.cpu_ms_per_second,
            2,
        )
        .if_any(
            "transactions in its database per second",
            figures.transactions_per_second,
            2,
        )
}

pub(super) fn limit(limit: &limit::Limit) -> Table {
    Table::of("raw limit of this machine")
        .figure("rows per second, batches of 100", limit.rows_per_second, 0)
        .figure("commit of a batch, p50 us", limit.commit_p50_us, 0)
        .if_any("fdatasync, p50 us", limit.fdatasync_p50_us, 0)
        .if_any("fdatasync, p99 us", limit.fdatasync_p99_us, 0)
        .if_any("round-trip commit, p50 us", limit.round_trip_p50_us, 0)
        .if_any("round-trip commit, p99 us", limit.round_trip_p99_us, 0)
}
