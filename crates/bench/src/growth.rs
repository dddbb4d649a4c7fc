//! What grows, and what it costs: runs that are stored, runs that wait, the length of a journal,
//! the size of a fan-out. Each is measured at several sizes, in turn, and compared with the
//! smallest.

use std::time::Instant;

use roundel::{Cx, Failure, Result as RunResult, Signal, Workflow};
use serde::Serialize;

use crate::beside::{Beside, TURN};
use crate::ground::{Ground, Target};
use crate::others::{Others, at_rest};
use crate::percentile::median;
use crate::w1::Place;
use crate::w3::Family;
use crate::{Error, Raw};

const LONG: Workflow<u32, u64> = Workflow::named("bench-long");
const RESUMED: Workflow<u32, u64> = Workflow::named("bench-resumed");
const GO: Signal<u64> = Signal::named("go");

/// What to measure.
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
    /// How often each size has its turn.
    pub turns: usize,
    /// Runs in flight beside those that are stored or wait.
    pub in_flight: usize,
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
    /// The raw limit.
    #[serde(flatten)]
    pub raw: Raw,
    /// The lowest ratio of any point to the smallest of its kind.
    pub ratio: f64,
}

/// One size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// How large.
    pub size: u64,
    /// How fast.
    pub per_second: f64,
    /// How fast compared with the smallest size, which took turns with it.
    pub ratio: f64,
}

async fn long(cx: Cx, effects: u32) -> RunResult<u64> {
    let mut total = 0;
    for number in 0..effects {
        let work = |_| async move { Ok::<_, Failure>(u64::from(number)) };
        total += cx.effect("work", work).await?;
    }
    Ok(total)
}

async fn resumed(cx: Cx, effects: u32) -> RunResult<u64> {
    let total = long(cx.clone(), effects).await?;
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
    let stored = beside_others(plan, others, &mut beside, (ground, "stored", progress)).await?;
    progress("waiting runs");
    let others = plan.waiting.iter().copied().map(waiting).collect();
    let waiting = beside_others(plan, others, &mut beside, (ground, "waiting", progress)).await?;
    progress("long journals");
    let journal = journals(plan, ground, &mut beside).await?;
    let replay = replays(plan, ground, &mut beside).await?;
    progress("large fan-outs");
    let children = fan_outs(plan, ground, &mut beside).await?;
    let all = [&stored, &waiting, &journal, &replay, &children];
    let lowest = all.into_iter().flatten().map(|point| point.ratio);
    Ok(Figures {
        workload: "growth",
        ratio: lowest.fold(1.0, f64::min),
        stored,
        waiting,
        journal,
        replay,
        children,
        raw: beside.raw(None),
    })
}

/// What is told what is being done.
type Progress<'a> = &'a dyn Fn(&str);

/// W1 in databases that hold so many other runs.
async fn beside_others(
    plan: &Plan,
    sizes: Vec<Others>,
    beside: &mut Beside,
    (ground, kind, progress): (&Ground, &str, Progress<'_>),
) -> Result<Vec<Point>, Error> {
    let mut places = Vec::new();
    for (number, others) in sizes.iter().enumerate() {
        let mut place = Place::open(ground.engine(&format!("{kind}{number}"))).await?;
        others.put_into(&place.engine, progress).await?;
        place.slice(plan.in_flight).await?;
        place.rates.clear();
        places.push(place);
    }
    for _ in 0..plan.turns {
        beside.rows().await?;
        for place in &mut places {
            place.slice(plan.in_flight).await?;
        }
    }
    let mut rates = Vec::new();
    for (place, others) in places.into_iter().zip(&sizes) {
        rates.push((others.stored + others.sleeping, place.close().await));
    }
    Ok(points(&rates))
}

/// One run alone, of so many effects. Short ones are repeated, so that each turn is as long.
async fn journals(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let engine = ground.engine("journal").register(LONG, long);
    let engine = engine.start().await?;
    let longest = plan.journal.iter().copied().max().unwrap_or(1);
    let mut rates = vec![Vec::new(); plan.journal.len()];
    for _ in 0..plan.turns {
        beside.syncs(TURN).await?;
        for (effects, rates) in plan.journal.iter().zip(&mut rates) {
            let runs = (longest / effects.max(&1)).clamp(1, 10);
            let begin = Instant::now();
            for _ in 0..runs {
                engine.start(LONG, effects).await?.result().await?;
            }
            rates.push(f64::from(effects * runs) / begin.elapsed().as_secs_f64());
        }
    }
    engine.shutdown().await;
    Ok(medians(&plan.journal, &rates))
}

/// A run of so many effects that has left memory and gets the signal it waits for.
async fn replays(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let engine = ground
        .engine("replay")
        .register(RESUMED, resumed)
        .keep_in_memory(0, std::time::Duration::ZERO)
        .start()
        .await?;
    let mut rates = vec![Vec::new(); plan.journal.len()];
    for _ in 0..plan.turns {
        beside.syncs(TURN).await?;
        for (effects, rates) in plan.journal.iter().zip(&mut rates) {
            let mut run = engine.start(RESUMED, effects).await?;
            at_rest(&engine).await;
            let begin = Instant::now();
            engine.signal(run.id(), GO, &1).await?;
            run.result().await?;
            // Its beginning and its result: two entries for each effect.
            rates.push(f64::from(2 * effects) / begin.elapsed().as_secs_f64());
        }
    }
    engine.shutdown().await;
    Ok(medians(&plan.journal, &rates))
}

async fn fan_outs(plan: &Plan, ground: &Ground, beside: &mut Beside) -> Result<Vec<Point>, Error> {
    let family = Family::open(ground.engine("children")).await?;
    let mut rates = vec![Vec::new(); plan.children.len()];
    for _ in 0..plan.turns {
        beside.syncs(TURN).await?;
        for (children, rates) in plan.children.iter().zip(&mut rates) {
            let milliseconds = family.one(*children).await?;
            rates.push(f64::from(*children) / milliseconds * 1e3);
        }
    }
    family.engine.shutdown().await;
    Ok(medians(&plan.children, &rates))
}

fn medians(sizes: &[u32], rates: &[Vec<f64>]) -> Vec<Point> {
    let pairs = sizes.iter().zip(rates);
    let rates: Vec<_> = pairs
        .map(|(size, rates)| (u64::from(*size), median(rates)))
        .collect();
    points(&rates)
}

fn points(rates: &[(u64, f64)]) -> Vec<Point> {
    let smallest = rates.first().map_or(1.0, |(_, rate)| *rate);
    let point = |&(size, per_second): &(u64, f64)| Point {
        size,
        per_second,
        ratio: per_second / smallest,
    };
    rates.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_compared_with_the_first() {
        let points = points(&[(0, 200.0), (10, 100.0), (20, 300.0)]);
        let ratios: Vec<f64> = points.iter().map(|point| point.ratio).collect();
        assert_eq!(ratios, [1.0, 0.5, 1.5]);
    }
}
