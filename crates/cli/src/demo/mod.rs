//! `roundel demo`: a small shop over one file, whose worker process is killed while it works.
//!
//! The demo is the shop's front: it takes orders, starts the worker, kills it, starts another. The
//! work is done in the worker process (`worker`), by ordinary workflows (`shop`). In the end the
//! shop's own tables must say that everything happened, and once (`audit`).

mod audit;
mod counts;
mod day;
mod file;
mod outside;
mod plan;
mod report;
mod screen;
mod shop;
mod worker;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use roundel::Engine;
use rusqlite::{Connection, OpenFlags};

use day::Day;
use outside::Services;
use plan::Plan;
use report::{Findings, Report};
use screen::Screen;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    #[command(subcommand)]
    part: Option<Part>,
    /// So many orders, 1 to 10,000; they come in about 30 to the second.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    orders: u32,
    /// Draws the same shop again; kills fall as the machine allows.
    #[arg(long)]
    seed: Option<u64>,
    /// The folder for the file, `roundel-demo.db`.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Keep the file of an earlier demo; this one's gets a number.
    #[arg(long)]
    keep: bool,
    /// The summary alone, as one JSON object in one line.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Part {
    /// The worker process.
    #[command(hide = true)]
    Worker(worker::Args),
}

pub(crate) async fn run(args: Demo) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(Part::Worker(args)) = args.part {
        return worker::work(args).await;
    }
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let file = file::make(&args.dir, args.keep, (args.orders, seed))?;
    let plan = Plan::draw(args.orders, seed);
    let services = Services::open(seed)?;
    let mut screen = Screen::new(args.json);
    let (orders, name) = (args.orders, file.display());
    screen.say(&format!(
        "A shop with {orders} orders, in {name} (seed {seed}).\n\
         This process takes the orders; a worker process does the work, and is killed.\n"
    ));
    let engine = Engine::open(&file).start().await?;
    let day = Day {
        plan: &plan,
        file: &file,
        engine: &engine,
        services: &services,
        screen: &mut screen,
    };
    let tally = { day }.pass().await;
    engine.shutdown().await;
    screen.end();
    let tally = tally?;

    // The last to close a file that it may write tidies up beside it.
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let book = services.book();
    let report = Report::new(Findings {
        file: &file,
        seed,
        orders: plan.orders.len(),
        declined: plan.orders.len() - plan.paid().count(),
        refused: plan.paid().count() - plan.shipped().count(),
        tally: &tally,
        book: &book,
        counts: counts::count(&db)?,
        checks: audit::audit(&db, &plan, &book)?,
        undone: plan.refused(),
    });
    let text = if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        format!("\n{}", report.text())
    };
    print(&text)?;
    if report.adds_up {
        return Ok(());
    }
    let file = file.display();
    Err(format!("it does not add up; this is a bug, and {file} is the evidence: report it").into())
}

/// Whoever looked may have gone; what does not fit on a disk is an error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
