//! `cargo xtask peers`: the same work on other systems and on Roundel, one after the other.
//!
//! The programs of the others are not part of this project: a folder of them is named, copied and
//! built under `target/peers`. What cannot be installed is listed as not measured, with the reason.
//! Each turn measures everything once, so that two turns show how far figures can be trusted.
//! Nothing is measured by this program itself: it reads what the programs print, and how busy the
//! machine was meanwhile.

mod bars;
mod catalogue;
mod machine;
mod options;
mod page;
mod prepare;
mod program;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use page::shown;
pub(crate) use prepare::binaries_of_server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use catalogue::{PEERS, Peer, Place, Run, Workload};
use options::Options;
use prepare::Ground;
use read::{Figure, Limit};

/// The longest that one program may take.
const PATIENCE: Duration = Duration::from_secs(150);
/// Where the figures are written.
const PAGE: &str = "docs/reference/performance.md";

/// Everything that was measured: for each peer and workload a figure a turn, or why there is none.
#[derive(Default)]
struct Results {
    figures: BTreeMap<(&'static str, Workload), Vec<Figure>>,
    missing: BTreeMap<(&'static str, Workload), String>,
    absent: BTreeMap<&'static str, String>,
    limits: BTreeMap<Place, Vec<Limit>>,
}

/// Runs the command; false if Roundel itself could not be measured.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let options = Options::parse(root, arguments)?;
    let ground = Ground::prepare(root, &options)?;
    let mut results = Results::default();
    for turn in 1..=options.turns {
        for peer in PEERS.iter().filter(|peer| options.asks_for(peer.name)) {
            println!("turn {turn} of {}: {}", options.turns, peer.name);
            measure(peer, &ground, &options, &mut results);
        }
    }
    let page = page::page(&results, &ground.machine(), &options);
    println!("\n{page}");
    if options.whole() {
        let file = root.join(PAGE);
        fs::write(&file, page).map_err(|error| format!("error: {PAGE}: {error}"))?;
        println!("written to {PAGE}");
    } else {
        println!("{PAGE} is left as it is: it is written when everything is measured in full");
    }
    Ok(bars::measured(&results))
}

/// What a program said that had to end in this time.
pub(crate) fn output(command: Command, patience: Duration) -> Result<String, String> {
    program::output(command, patience).map(|output| output.text)
}

/// The machine, the date, and what was built with, a line each; the server is this program.
pub(crate) fn described(server: &Path) -> Vec<String> {
    vec![
        format!("Machine: {}.", machine::describe()),
        format!("Date: {}.", machine::said("date", &["-u", "+%Y-%m-%d"])),
        format!(
            "Built with {}; {}.",
            machine::said("rustc", &["--version"]),
            machine::said(&server.to_string_lossy(), &["--version"])
        ),
    ]
}

/// One turn of one peer.
fn measure(peer: &'static Peer, ground: &Ground, options: &Options, results: &mut Results) {
    let ready = match ground.ready(peer) {
        Ok(ready) => ready,
        Err(why) => {
            println!("      not measured: {why}");
            results.absent.insert(peer.name, why);
            return;
        }
    };
    for run in peer.runs {
        let key = (peer.name, run.workload);
        let begun = Instant::now();
        match figure(peer, run, &ready, options) {
            Ok((figure, limit)) => {
                let (name, took) = (run.workload.name(), begun.elapsed().as_secs_f64());
                println!("      {name}: {figure} ({took:.1} s)");
                results.figures.entry(key).or_default().push(figure);
                results.limits.entry(peer.place).or_default().extend(limit);
            }
            Err(why) => {
                println!("      {}: not measured: {why}", run.workload.name());
                results.missing.insert(key, why);
            }
        }
    }
}

/// What one program says, and how busy the machine was meanwhile, if it does not say that itself.
fn figure(
    peer: &Peer,
    run: &Run,
    ready: &prepare::Ready<'_>,
    options: &Options,
) -> Result<(Figure, Option<Limit>), String> {
    let command = ready.command(peer, run, options);
    let output = program::output(command, PATIENCE)?;
    let (mut figure, limit) = read::read(run.workload, &output.text)?;
    if let (None, Some(at), Some(took)) = (figure.cpu, output.figures_at, figure.took) {
        figure.cpu = output.looks.before(at, Duration::from_secs_f64(took));
    }
    Ok((figure, limit))
}
