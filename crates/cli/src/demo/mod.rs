//! `roundel demo`: a small shop over one file, in schemas of its own on a server, or in a folder of
//! objects, whose worker process is killed while it works.
//!
//! The demo is the shop's front: it takes orders, starts the worker, kills it, starts another. The
//! work is done in the worker process (`worker`), by ordinary workflows (`shop`). In the end the
//! shop's own tables must say that everything happened, and once (`audit`).

mod audit;
mod books;
mod counts;
mod dashboard;
mod day;
mod evening;
mod file;
mod folder;
mod outside;
mod place;
mod plan;
mod report;
mod screen;
mod server;
mod shop;
mod worker;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use day::Day;
use outside::Services;
use place::Place;
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
    /// The folder for the file, `roundel-demo.db`; of no use with --db, which names a server.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Without a database: in objects, in the folder `roundel-demo-objects`.
    #[arg(long)]
    objects: bool,
    /// Keep the file, or the schemas, of an earlier demo; those of this one get a number.
    #[arg(long)]
    keep: bool,
    /// The summary alone, as one JSON object in one line.
    #[arg(long)]
    json: bool,
    /// Watch it in a browser: a link is printed; then the shop stays open until you stop it.
    #[arg(long, conflicts_with = "json")]
    serve: bool,
}

#[derive(Subcommand)]
enum Part {
    /// The worker process.
    #[command(hide = true)]
    Worker(worker::Args),
}

/// The demo, on this server if one is named.
pub(crate) async fn run(
    args: Demo,
    server: Option<&str>,
) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(Part::Worker(args)) = args.part {
        return worker::work(args).await;
    }
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let drawn = (args.orders, seed);
    let place = match server {
        Some(url) => Place::Server(server::make(url, args.keep, drawn).await?),
        None if args.objects => {
            Place::Folder(folder::make(&args.dir, args.keep, args.orders).await?)
        }
        None => Place::File(file::make(&args.dir, args.keep, drawn)?),
    };
    let plan = Plan::draw(args.orders, seed);
    let services = Services::open(seed)?;
    let mut screen = Screen::new(args.json);
    let (orders, name) = (args.orders, place.name());
    screen.say(&format!(
        "A shop with {orders} orders, in {name} (seed {seed}).\n\
         This process takes the orders; a worker process does the work, and is killed.\n"
    ));
    let dashboard = dashboard::open(args.serve, &place, &mut screen).await?;
    let engine = place.engine().start().await?;
    let day = Day {
        plan: &plan,
        place: &place,
        engine: &engine,
        services: &services,
        screen: &mut screen,
    };
    let tally = { day }.pass().await;
    let counts = counts::count(&engine).await;
    engine.shutdown().await;
    screen.end();
    let (tally, counts) = (tally?, counts?);

    let book = services.book().clone();
    let arguments = place.arguments();
    let mut books = place.books().await?;
    let checks = audit::audit(&mut books, &plan, (&book, &counts)).await;
    books.close().await;
    let checks = checks?;
    let report = Report::new(Findings {
        place: &name,
        arguments: &arguments,
        seed,
        orders: plan.orders.len(),
        declined: plan.orders.len() - plan.paid().count(),
        refused: plan.paid().count() - plan.shipped().count(),
        tally: &tally,
        book: &book,
        counts,
        checks,
        undone: plan.refused(),
    });
    let text = if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        format!("\n{}", report.text())
    };
    print(&text)?;
    dashboard.stay(&services, args.orders).await?;
    if report.adds_up {
        return Ok(());
    }
    Err(format!("it does not add up; this is a bug, and {name} is the evidence: report it").into())
}

/// Whoever looked may have gone; what does not fit on a disk is an error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
