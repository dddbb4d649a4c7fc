//! What grows, and what it costs: runs that are stored, runs that wait, the length of a journal,
//! the size of a fan-out, worker processes. Each is measured at several sizes, in turn, and
//! compared with the smallest.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roundel::{Cx, Failure, Result as RunResult, Signal, Workflow};
use serde::Serialize;

use crate::beside::{Beside, TURN};
use crate::ground::{Ground, Target};
use crate::helper;
use crate::others::{Others, at_rest};
use crate::percentile::{Sorted, median};
use crate::w1::Place;
use crate::w3::Family;
use crate::{Error, Raw};

const LONG: Workflow<u32, u64> = Workflow::named("bench-long");
const RESUMED: Workflow<u32, u64> = Workflow::named("bench-resumed");
const GO: Signal<u64> = Signal::named("go");

/// What to measure. What has no sizes is left out.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure.
    pub target: Target,
    /// Numbers of ended runs in the database.
    pub stored: Vec<u64>,
    /// Numbers of sleeping runs in the database.
    pub waiting: Vec<u64>,
    /// Numbers of effects of one run.
    pub journal: Vec<u32>,
    /// Numbers of children of one run.
    pub children: Vec<u32>,
    /// Numbers of worker processes; more than one on a server only.
    pub workers: Vec<usize>,
    /// How often each size has its turn.
    pub turns: usize,
    /// Runs in flight beside those that are stored or wait, and of all processes.
    pub in_flight: usize,
    /// Runs one after the other, at each of these sizes.
    pub latency_runs: usize,
    /// How long one database may take to be filled; it is measured with what is in it by then.
    pub filling: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Always `growth`.
    pub workload: &'static str,
    /// Effects per second, by how many ended runs are stored.
    pub stored: Vec<Point>,
    /// Effects per second, by how many other runs wait.
    pub waiting: Vec<Point>,
    /// Effects per second of one run alone, by how many it has.
    pub journal: Vec<Point>,
    /// Entries replayed per second when a run that has left memory goes on, by their number.
    pub replay: Vec<Point>,
    /// Children per second of one parent alone, by how many it has.
    pub children: Vec<Point>,
    /// Effects per second of all worker processes, by their number.
    pub workers: Vec<Point>,
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// The lowest ratio of any point to the smallest of its kind.
    pub ratio: f64,
}

/// One size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// How large; less than was asked for, if filling took too long.
    pub size: u64,
    /// How fast.
    pub per_second: f64,
    /// How long one takes that is alone, in microseconds: a run of five effects, an effect of a
    /// journal, a replay, a fan-out. The median.
    pub p50_us: f64,
    /// The 99th percentile; of fewer than a hundred, the slowest.
    pub p99_us: f64,
    /// How fast compared with the smallest size, which took turns with it.
    pub ratio: f64,
}

/// When effects began, in order.
#[derive(Clone, Default)]
struct Beginnings(Arc<Mutex<Vec<Instant>>>);

impl Beginnings {
    fn note(&self) {
        self.0.lock().expect("no panic").push(Instant::now());
    }

    /// The time from each to the next, in microseconds; forgotten by this.
    fn take_gaps(&self) -> Vec<f64> {
        let times = std::mem::take(&mut *self.0.lock().expect("no panic"));
        let gap = |pair: &[Instant]| microseconds(pair[1] - pair[0]);
        times.windows(2).map(gap).collect()
    }
}

async fn long(cx: Cx, effects: u32, begun: Beginnings) -> RunResult<u64> {
    let mut total = 0;
    for number in 0..effects {
        let work = |_| {
            begun.note();
            async move { Ok::<_, Failure>(u64::from(number)) }
        };
        total += cx.effect("work", work).await?;
    }
    Ok(total)
}

async fn resumed(cx: Cx, effects: u32) -> RunResult<u64> {
    let total = long(cx.clone(), effects, Beginnings::default()).await?;
    Ok(total + cx.wait(GO).await?)
}

/// Measures growth as planned. `progress` is told what is being done.
///
/// # Errors
/// When the folder or the database cannot be used.
pub async fn measure(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let work = async |ground: &Ground| on(ground, plan, progress).await;
    Ground::with(&plan.target, "growth", work).await
}

async fn on(ground: &Ground, plan: &Plan, progress: &dyn Fn(&str)) -> Result<Figures, Error> {
    let mut beside = ground.beside().await?;
    beside.rows().await?;
    beside.syncs(TURN).await?;
    let stored = |stored| Others {
        stored,
        sleeping: 0,
    };
    let waiting = |sleeping| Others {
        stored: 0,
        sleeping,
    };
    progress("stored runs");
    let others = plan.stored.iter().copied().map(stored).collect();
    let places = full(plan, others, (ground, "stored", progress)).await?;
    let stored = take_turns(plan, places, &mut beside).await?;
    progress("waiting runs");
    let others = plan.waiting.iter().copied().map(waiting).collect();
    let places = full(plan, others, (ground, "waiting", progress)).await?;
    let waiting = take_turns(plan, places, &mut beside).await?;
    progress("long journals");
    let journal = journals(plan, ground, &mut beside).await?;
    let replay = replays(plan, ground, &mut beside).await?;
    progress("large fan-outs");
    let children = fan_outs(plan, ground, &mut beside).await?;
    progress("worker processes");
    let workers = take_turns(plan, shared(plan, ground).await?, &mut beside).await?;
    let all = [&stored, &waiting, &journal, &replay, &children, &workers];
    let lowest = all.into_iter().flatten().map(|point| point.ratio);
    Ok(Figures {
        workload: "growth",
        ratio: lowest.fold(1.0, f64::min),
        stored,
        waiting,
        journal,
        replay,
        children,
        workers,
        raw: beside.raw(None),
    })
}

/// What is told what is being done.
type Progress<'a> = &'a dyn Fn(&str);

/// What was seen of one size.
struct Seen {
    size: u64,
    rates: Vec<f64>,
    times_us: Vec<f64>,
}

impl Seen {
    fn nothing(size: u64) -> Seen {
        Seen {
            size,
            rates: Vec::new(),
            times_us: Vec::new(),
        }
    }
}

/// Databases that hold so many other runs.
async fn full(
    plan: &Plan,
    sizes: Vec<Others>,
    (ground, kind, progress): (&Ground, &str, Progress<'_>),
) -> Result<Vec<(u64, Place)>, Error> {
    let mut places = Vec::new();
    for (number, others) in sizes.into_iter().enumerate() {
        let place = Place::open(ground.engine(&format!("{kind}{number}"))).await?;
        let there = others.put_into(&place.engine, plan.filling, progress);
        places.push((there.await?, place));
    }
    Ok(places)
}

/// Databases that so many processes work on.
async fn shared(plan: &Plan, ground: &Ground) -> Result<Vec<(u64, Place)>, Error> {
    let mut places = Vec::new();
    for (number, workers) in plan.workers.iter().enumerate() {
        let name = format!("workers{number}");
        let mut place = Place::open(ground.engine(&name)).await?;
        place.helpers = helper::start(ground, *workers, (&name, None))?;
        places.push((*workers as u64, place));
    }
    Ok(places)
}

/// W1 in each of these databases: many in flight, then one at a time. The first turn only warms up.
async fn take_turns(
    plan: &Plan,
    mut places: Vec<(u64, Place)>,
    beside: &mut Beside,
) -> Result<Vec<Point>, Error> {
    let sizes = places.iter().map(|(size, _)| *size);
    let mut seen: Vec<Seen> = sizes.map(Seen::nothing).collect();
    let alone = plan.latency_runs.div_ceil(plan.turns.max(1));
    for turn in 0..=plan.turns {
        if places.is_empty() {
            break;
        }
        beside.rows().await?;
        for ((_, place), seen) in places.iter_mut().zip(&mut seen) {
            place.slice(plan.in_flight).await?;
            let times_us = place.alone(alone).await?;
            if turn > 0 {
                seen.rates.extend(place.rates.last());
                seen.times_us.extend(times_us);
            }
        }
    }
    for (_, place) in places {
        place.close().await;
    }
    Ok(points(seen))
}

/// How often a small size has its turn while the largest has one.
fn repeated(size: u32, sizes: &[u32]) -> u32 {
    let largest = sizes.iter().copied().max().unwrap_or(1);
    (largest / size.max(1)).clamp(1, 10)
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// One run alone, of so many effects.
async fn journals(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let begun = Beginnings::default();
    let noted = begun.clone();
    let workflow = move |cx, effects| long(cx, effects, noted.clone());
    let engine = ground.engine("journal").register(LONG, workflow);
    let engine = engine.start().await?;
    let points = in_turn(plan, &plan.journal, beside, async |effects| {
        let begin = Instant::now();
        engine.start(LONG, &effects).await?.result().await?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok((f64::from(effects) / seconds, begun.take_gaps()))
    });
    let points = points.await?;
    engine.shutdown().await;
    Ok(points)
}

/// A run of so many effects that has left memory and gets the signal it waits for.
async fn replays(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let engine = ground
        .engine("replay")
        .register(RESUMED, resumed)
        .keep_in_memory(0, Duration::ZERO)
        .start()
        .await?;
    let points = in_turn(plan, &plan.journal, beside, async |effects| {
        let mut run = engine.start(RESUMED, &effects).await?;
        at_rest(&engine).await;
        let begin = Instant::now();
        engine.signal(run.id(), GO, &1).await?;
        run.result().await?;
        let took = begin.elapsed();
        // Its beginning and its result: two entries for each effect.
        let rate = f64::from(2 * effects) / took.as_secs_f64();
        Ok((rate, vec![microseconds(took)]))
    });
    let points = points.await?;
    engine.shutdown().await;
    Ok(points)
}

async fn fan_outs(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let family = Family::open(ground.engine("children")).await?;
    let points = in_turn(plan, &plan.children, beside, async |children| {
        let milliseconds = family.one(children).await?;
        let rate = f64::from(children) / milliseconds * 1e3;
        Ok((rate, vec![milliseconds * 1e3]))
    });
    let points = points.await?;
    family.engine.shutdown().await;
    Ok(points)
}

/// Each size in turn, the small ones more often: `one` says its rate, and what took how long.
async fn in_turn(
    plan: &Plan,
    sizes: &[u32],
    beside: &mut Beside,
    one: impl AsyncFn(u32) -> Result<(f64, Vec<f64>), Error>,
) -> Result<Vec<Point>, Error> {
    let mut seen: Vec<Seen> = sizes.iter().map(|s| Seen::nothing(u64::from(*s))).collect();
    for _ in 0..plan.turns {
        if sizes.is_empty() {
            break;
        }
        beside.syncs(TURN).await?;
        for (size, seen) in sizes.iter().zip(&mut seen) {
            for _ in 0..repeated(*size, sizes) {
                let (rate, times_us) = one(*size).await?;
                seen.rates.push(rate);
                seen.times_us.extend(times_us);
            }
        }
    }
    Ok(points(seen))
}

fn points(seen: Vec<Seen>) -> Vec<Point> {
    let smallest = seen.first().map_or(1.0, |seen| median(&seen.rates));
    let point = |seen: Seen| {
        let per_second = median(&seen.rates);
        let times = Sorted::new(seen.times_us);
        Point {
            size: seen.size,
            per_second,
            p50_us: times.percentile(50.0).unwrap_or(0.0),
            p99_us: times.percentile(99.0).unwrap_or(0.0),
            ratio: per_second / smallest,
        }
    };
    seen.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_compared_with_the_first() {
        let seen = |(size, rates, times_us): (u64, &[f64], &[f64])| Seen {
            size,
            rates: rates.to_vec(),
            times_us: times_us.to_vec(),
        };
        let cases = [
            (0, &[200.0][..], &[3.0, 1.0, 2.0][..]),
            (10, &[100.0, 90.0, 300.0], &[5.0]),
            (20, &[300.0], &[]),
        ];
        let points = points(cases.map(seen).into());
        let ratios: Vec<f64> = points.iter().map(|point| point.ratio).collect();
        assert_eq!(ratios, [1.0, 0.5, 1.5]);
        let times: Vec<_> = points.iter().map(|p| (p.p50_us, p.p99_us)).collect();
        assert_eq!(times, [(2.0, 3.0), (5.0, 5.0), (0.0, 0.0)]);
    }

    #[test]
    fn a_small_size_has_its_turn_up_to_ten_times_as_often() {
        let sizes = [0, 100, 500, 1_000];
        let times = sizes.map(|size| repeated(size, &sizes));
        assert_eq!(times, [10, 10, 2, 1]);
    }

    #[test]
    fn gaps_are_those_between_beginnings_and_are_told_once() {
        let begun = Beginnings::default();
        for _ in 0..3 {
            begun.note();
        }
        assert_eq!(begun.take_gaps().len(), 2);
        assert_eq!(begun.take_gaps().len(), 0);
    }
}
