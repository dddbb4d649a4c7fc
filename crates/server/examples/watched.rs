//! Measures the dashboard: how soon the list of runs is there, over a file with many runs, and what
//! an engine loses when somebody watches it.
//!
//! ```sh
//! cargo run --release -p roundel-server --example watched -- 1000000
//! ```
//!
//! Both in a real browser on this machine, which has to share its processors with the engine.
//! Slices with the dashboard open and closed take turns, and their medians are compared.

use std::error::Error;
use std::time::{Duration, Instant};

use roundel::{Cx, Engine, Failure, Result as RunResult, Workflow};
use roundel_server::Server;
use roundel_testweb::{Browser, Page};
use tokio::task::JoinSet;

const EMPTY: Workflow<(), ()> = Workflow::named("empty");
const FIVE: Workflow<u64, u64> = Workflow::named("five");
/// Started at once while the file is filled, and in flight while it is measured.
const AT_ONCE: usize = 2000;
const IN_FLIGHT: usize = 1000;
/// How often the list is loaded.
const LOADS: usize = 15;
/// Slices of each kind, and how long each is.
const SLICES: usize = 7;
const SLICE: Duration = Duration::from_secs(4);

async fn empty(_: Cx, (): ()) -> RunResult<()> {
    Ok(())
}

async fn five(cx: Cx, number: u64) -> RunResult<u64> {
    let mut total = number;
    for _ in 0..5 {
        total += cx
            .effect("work", |_| async { Ok::<_, Failure>(1_u64) })
            .await?;
    }
    Ok(total)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runs: usize = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 1_000_000,
    };
    let folder = tempfile::tempdir()?;
    let engine = Engine::open(folder.path().join("watched.db"));
    let engine = engine.register(EMPTY, empty).register(FIVE, five);
    let engine = engine.start().await?;
    fill(&engine, runs).await?;
    let server = Server::over(engine.client()).build();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await?;
    let (address, code) = (serving.address(), server.login_code());
    let browser = Browser::open().map_err(|why| why.to_string())?;
    let page = browser.page((1280, 800), "light");
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    let list = format!("http://{address}/ui/#/default/runs");
    loads(&page, &list);
    throughput(&engine, &page, &list).await?;
    serving.stop().await;
    engine.shutdown().await;
    Ok(())
}

async fn fill(engine: &Engine, runs: usize) -> Result<(), Box<dyn Error>> {
    for first in (0..runs).step_by(AT_ONCE) {
        let mut tasks = JoinSet::new();
        for _ in first..runs.min(first + AT_ONCE) {
            let client = engine.client();
            tasks.spawn(async move { client.start(EMPTY, &()).await?.result().await });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        if first % 100_000 == 0 {
            eprintln!("{first} of {runs} runs are in the file");
        }
    }
    Ok(())
}

/// The page anew each time: from when it is asked for until something is painted, and until rows
/// of runs are on it.
fn loads(page: &Page, list: &str) {
    let mut seen = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        page.go("about:blank");
        page.go(list);
        page.until("document.querySelectorAll('#page tbody tr').length > 0");
        // Both by the page's own clock, which begins when it was asked for.
        let rows = page
            .value("new Promise((done) => requestAnimationFrame(() => done(performance.now())))");
        let paint = page
            .value("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null");
        seen.0.extend(paint.as_f64());
        seen.1.extend(rows.as_f64());
    }
    told("first paint, ms", seen.0);
    told("rows of runs are there, ms, at most", seen.1);
}

/// Runs of five effects, many in flight, while the list of runs is open and live, and while it is
/// not.
async fn throughput(engine: &Engine, page: &Page, list: &str) -> Result<(), Box<dyn Error>> {
    let (mut closed, mut open) = (Vec::new(), Vec::new());
    slice(engine).await?;
    for _ in 0..SLICES {
        page.go("about:blank");
        closed.push(slice(engine).await?);
        page.go(list);
        page.until("document.querySelectorAll('#page tbody tr').length > 0");
        open.push(slice(engine).await?);
    }
    let ratio = median(&mut open.clone()) / median(&mut closed.clone());
    told("effects a second, nobody watches", closed);
    told("effects a second, the list is open", open);
    println!("watched by unwatched: {ratio:.3}");
    Ok(())
}

/// Effects per second.
async fn slice(engine: &Engine) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let client = engine.client();
        tasks.spawn(async move {
            let mut ended = 0;
            while begin.elapsed() < SLICE {
                client.start(FIVE, &1).await?.result().await?;
                ended += 1;
            }
            Ok::<u32, roundel::Error>(ended)
        });
    }
    let mut ended = 0;
    while let Some(more) = tasks.join_next().await {
        ended += more??;
    }
    Ok(f64::from(ended * 5) / begin.elapsed().as_secs_f64())
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn told(what: &str, mut numbers: Vec<f64>) {
    let middle = median(&mut numbers);
    let (least, most) = (numbers.first(), numbers.last());
    let (least, most) = (
        least.copied().unwrap_or(f64::NAN),
        most.copied().unwrap_or(f64::NAN),
    );
    println!("{what}: median {middle:.0}, from {least:.0} to {most:.0}");
}
