//! One picture: how fast, and how long one takes that is alone, by size, a line for each store.
//!
//! Sizes and times are drawn by their logarithms, rates from nothing up. What has no size stands
//! one decade before the smallest that has one. The picture is light or dark as its reader is.

use std::fmt::Write;

use super::{Point, STORES, Stores};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 330.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 272.0;
/// Where the two panels begin and end.
const RATES: (f64, f64) = (66.0, 412.0);
const TIMES: (f64, f64) = (500.0, 846.0);

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f } \
.title { font-weight: 600; font-size: 13px } \
.back { fill: #ffffff } .grid { stroke: #d0d7de; stroke-width: 1 } \
.sqlite { stroke: #0969da; fill: none; stroke-width: 2 } .dot-sqlite { fill: #0969da } \
.postgres { stroke: #bc4c00; fill: none; stroke-width: 2 } .dot-postgres { fill: #bc4c00 } \
.slow { stroke-width: 1.2; stroke-dasharray: 4 3 } \
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .back { fill: #0d1117 } \
.grid { stroke: #30363d } .sqlite { stroke: #58a6ff } .dot-sqlite { fill: #58a6ff } \
.postgres { stroke: #f0883e } .dot-postgres { fill: #f0883e } }";

/// What a picture is called, what its sizes are, what is counted by the second, what takes time.
pub(super) fn words(name: &str) -> [&'static str; 4] {
    match name {
        "stored" => [
            "Stored runs",
            "ended runs in the database",
            "effects a second",
            RUN,
        ],
        "waiting" => [
            "Waiting runs",
            "sleeping runs in the database",
            "effects a second",
            RUN,
        ],
        "journal" => [
            "Length of a journal",
            "effects of one run",
            "effects a second",
            "an effect",
        ],
        "replay" => [
            "Replay",
            "effects of one run",
            "entries a second",
            "a replay",
        ],
        "children" => [
            "Fan-out",
            "children of one run",
            "children a second",
            "a fan-out",
        ],
        _ => ["Workers", "worker processes", "effects a second", RUN],
    }
}

const RUN: &str = "a run of five effects, alone";

/// From values to places, on a line.
struct Scale {
    from: (f64, f64),
    to: (f64, f64),
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        let (low, high) = self.from;
        let part = if high > low {
            (value - low) / (high - low)
        } else {
            0.5
        };
        self.to.0 + part * (self.to.1 - self.to.0)
    }
}

pub(super) fn svg(name: &str, stores: &Stores) -> String {
    let [title, sizes, rates, times] = words(name);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"back\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    text(&mut svg, (RATES.0 - 50.0, 20.0), ("title", "start"), title);
    legend(&mut svg, stores);
    text(&mut svg, (RATES.0 - 50.0, 48.0), ("", "start"), rates);
    let what = format!("{times}: p50, dashed p99");
    text(&mut svg, (TIMES.0 - 64.0, 48.0), ("", "start"), &what);
    let points: Vec<&Point> = stores.values().flatten().collect();
    if points.is_empty() {
        return svg + "</svg>\n";
    }
    for panel in [RATES, TIMES] {
        across(&mut svg, (panel, sizes), &points);
    }
    draw_rates(&mut svg, stores, &points);
    draw_times(&mut svg, stores, &points);
    svg + "</svg>\n"
}

fn draw_rates(svg: &mut String, stores: &Stores, points: &[&Point]) {
    let rates = points.iter().map(|point| point.per_second);
    let up = linear(rates.fold(0.0, f64::max));
    let scale = Scale {
        from: (0.0, up.last().copied().unwrap_or(1.0)),
        to: (BOTTOM, TOP),
    };
    for tick in &up {
        grid(svg, RATES, scale.place(*tick), &short(*tick));
    }
    let sizes = along(RATES, points);
    for (store, its) in stores {
        let place = |point: &Point| {
            let size = sizes.place(step(point.size, points));
            (size, scale.place(point.per_second))
        };
        line(svg, (store, ""), &its.iter().map(place).collect::<Vec<_>>());
    }
}

fn draw_times(svg: &mut String, stores: &Stores, points: &[&Point]) {
    let slow = points.iter().map(|point| point.p99_us).fold(0.0, f64::max);
    let fast = points.iter().map(|point| point.p50_us);
    let (low, high) = decades(fast.fold(f64::MAX, f64::min), slow);
    let scale = Scale {
        from: (low, high),
        to: (BOTTOM, TOP),
    };
    let mut power = low;
    while power <= high + 1e-9 {
        let label = duration(10_f64.powf(power));
        grid(svg, TIMES, scale.place(power), &label);
        power += 1.0;
    }
    let sizes = along(TIMES, points);
    let place = |size: u64, us: f64| {
        let height = scale.place(us.max(1e-3).log10());
        (sizes.place(step(size, points)), height)
    };
    for (store, its) in stores {
        let middle = its.iter().map(|point| place(point.size, point.p50_us));
        line(svg, (store, ""), &middle.collect::<Vec<_>>());
        let slow = its.iter().map(|point| place(point.size, point.p99_us));
        line(svg, (store, " slow"), &slow.collect::<Vec<_>>());
    }
}

fn legend(svg: &mut String, stores: &Stores) {
    let mut at = WIDTH - 212.0;
    for store in STORES.iter().filter(|store| stores.contains_key(**store)) {
        let places = [(at, 16.0), (at + 22.0, 16.0)];
        line(svg, (store, ""), &places);
        text(svg, (at + 30.0, 20.0), ("", "start"), called(store));
        at += 95.0;
    }
}

pub(super) fn called(store: &str) -> &'static str {
    match store {
        "sqlite" => "SQLite",
        _ => "PostgreSQL",
    }
}

/// The sizes below a panel.
fn across(svg: &mut String, (panel, sizes): ((f64, f64), &str), points: &[&Point]) {
    let scale = along(panel, points);
    let mut ticks: Vec<(f64, String)> = Vec::new();
    if points.iter().any(|point| point.size == 0) {
        ticks.push((step(0, points), "0".to_owned()));
    }
    let (low, high) = range(points);
    let few = high < 1.5;
    let mut power = if few { 0 } else { low.floor() as i32 };
    let base: f64 = if few { 2.0 } else { 10.0 };
    while base.powi(power).log10() <= high + 1e-9 {
        let value = base.powi(power);
        if value.log10() >= low - 1e-9 {
            ticks.push((value.log10(), short(value)));
        }
        power += 1;
    }
    // The largest, where no power stands close to it.
    if ticks.last().is_some_and(|(last, _)| high - last > 0.4) {
        ticks.push((high, short(10_f64.powf(high))));
    }
    for (value, label) in ticks {
        let x = scale.place(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/>",
            BOTTOM + 5.0
        );
        text(svg, (x, BOTTOM + 20.0), ("", "middle"), &label);
    }
    let middle = f64::midpoint(panel.0, panel.1);
    text(svg, (middle, BOTTOM + 42.0), ("", "middle"), sizes);
}

/// The smallest and the largest size that is one, by their logarithms.
fn range(points: &[&Point]) -> (f64, f64) {
    let sizes = points.iter().filter(|point| point.size > 0);
    let logs = sizes.map(|point| (point.size as f64).log10());
    let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| {
        (low.min(log), high.max(log))
    });
    if low > high { (0.0, 0.0) } else { (low, high) }
}

/// Where a size stands.
fn step(size: u64, points: &[&Point]) -> f64 {
    match size {
        0 => range(points).0 - 1.0,
        size => (size as f64).log10(),
    }
}

fn along(panel: (f64, f64), points: &[&Point]) -> Scale {
    let (low, high) = range(points);
    let none = points.iter().any(|point| point.size == 0);
    let low = if none { low - 1.0 } else { low };
    Scale {
        from: (low, high),
        to: (panel.0 + 14.0, panel.1 - 14.0),
    }
}

fn grid(svg: &mut String, panel: (f64, f64), y: f64, label: &str) {
    let (from, to) = panel;
    let _ = writeln!(
        svg,
        "<line class=\"grid\" x1=\"{from}\" x2=\"{to}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
    );
    text(svg, (from - 8.0, y + 4.0), ("", "end"), label);
}

fn line(svg: &mut String, (store, also): (&str, &str), places: &[(f64, f64)]) {
    let shown: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"{store}{also}\" points=\"{}\"/>",
        shown.join(" ")
    );
    if also.is_empty() {
        for (x, y) in places {
            let _ = writeln!(
                svg,
                "<circle class=\"dot-{store}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
            );
        }
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), (class, anchor): (&str, &str), says: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{says}</text>"
    );
}

/// From nothing, in steps of 1, 2 or 5, past the most.
pub(super) fn linear(most: f64) -> Vec<f64> {
    let power = 10_f64.powf((most.max(1e-9) / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| step * 5.0 >= most * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < most * 0.999) {
        ticks.push(ticks.len() as f64 * step);
    }
    ticks
}

/// The powers of ten around these.
pub(super) fn decades(least: f64, most: f64) -> (f64, f64) {
    let low = least.max(1e-3).log10().floor();
    let high = most.max(1e-3).log10().ceil();
    (low, high.max(low + 1.0))
}

/// A number as it is read on an axis.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e3 => (value / 1e3, " k"),
        value => (value, ""),
    };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// Microseconds, with a unit that suits them.
pub(super) fn duration(us: f64) -> String {
    match us {
        us if us >= 0.999e6 => format!("{} s", short(us / 1e6)),
        us if us >= 0.999e3 => format!("{} ms", short(us / 1e3)),
        us => format!("{} \u{b5}s", short(us)),
    }
}
