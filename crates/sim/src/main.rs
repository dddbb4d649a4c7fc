//! Plays schedules on all cores and says what came of them. Exit code 0: every promise was kept;
//! 1: one was broken, or a situation was met too rarely; 2: the command line was not understood.

mod pool;

use std::process::ExitCode;

use roundel_sim::{
    Cut, Hunt, Mark, Mutant, Player, Reach, Report, SCENARIOS, exhaust, hunt, play_all, scripted,
    short_scenarios,
};

/// Schedules make and drop many small things.
#[global_allocator]
static ALLOCATOR: pool::Pools = pool::Pools;

const HELP: &str = "\
usage: roundel-sim [--schedules N] [--seed S] [--json] [--trace] [--pairs] [--bare]

  --schedules N  how many schedules are played; 20,000 unless said
  --seed S       the seed of the first; 1 unless said
  --json         the outcome as one object in one line
  --pairs        scenarios with every pair of crash points too, not only with each alone
  --bare         schedules only, without crash points and planted bugs: to be profiled
  --trace        what happens in the schedule of the seed, line by line";

struct Asked {
    schedules: u64,
    seed: u64,
    json: bool,
    trace: bool,
    pairs: bool,
    bare: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked {
        schedules: 20_000,
        seed: 1,
        json: false,
        trace: false,
        pairs: false,
        bare: false,
    };
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().unwrap_or_default();
            let parsed = text.replace('_', "").parse();
            parsed.map_err(|_| format!("error: `{arg}` wants a number, and got `{text}`"))
        };
        match arg.as_str() {
            "--schedules" => asked.schedules = number()?,
            "--seed" => asked.seed = number()?,
            "--json" => asked.json = true,
            "--trace" => asked.trace = true,
            "--pairs" => asked.pairs = true,
            "--bare" => asked.bare = true,
            _ => return Err(format!("error: there is no option `{arg}`")),
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("{message}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if asked.trace {
        let played = Player::default().tell(asked.seed, Cut::default());
        for line in played.trace.iter().chain(&played.violations) {
            println!("{line}");
        }
        return code(played.violations.is_empty());
    }
    let report = play_all(asked.seed, asked.schedules);
    if asked.bare {
        show(&report, asked.seed);
        return code(report.violations == 0);
    }
    let scenarios: Vec<u64> = (0..SCENARIOS).chain(scripted()).collect();
    let points = exhaust(&scenarios, Reach::Alone);
    let pairs = match asked.pairs {
        true => exhaust(&short_scenarios(), Reach::Pairs),
        false => Report::default(),
    };
    let canary = hunt(&[Mutant::Canary], asked.seed).caught() == 1;
    let hunt = hunt(&Mutant::ALL, asked.seed);
    if asked.json {
        println!("{}", json(&report, [&points, &pairs], &hunt, asked.seed));
    } else {
        show(&report, asked.seed);
        for (what, report) in [("points", &points), ("pairs", &pairs)] {
            let (count, seconds) = (report.schedules, report.seconds);
            println!("{count} crash {what} of scenarios, in {seconds:.1} s");
        }
        show_hunt(&hunt);
    }
    if !canary {
        eprintln!("the canary lives: the checks see nothing");
    }
    for (mutant, _) in hunt.mutants.iter().filter(|(_, at)| at.is_none()) {
        eprintln!("not found: {mutant:?}");
    }
    for (mark, wanted) in report.rare() {
        let (word, met) = (mark.as_str(), report.marks.of(mark));
        eprintln!("too rare: {word}, met {met} times where {wanted} are wanted");
    }
    for (seed, violations) in &report.failed {
        eprintln!("seed {seed}: {}", violations.join("; "));
    }
    if let Some((seed, _)) = report.failed.first() {
        tell_short(*seed);
    }
    for (seed, violations) in points.failed.iter().chain(&pairs.failed) {
        eprintln!("scenario {seed}: {}", violations.join("; "));
    }
    let broken = report.violations + points.violations + pairs.violations;
    code(broken == 0 && report.rare().is_empty() && canary && hunt.caught() == hunt.mutants.len())
}

fn code(kept: bool) -> ExitCode {
    if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate(report: &Report) -> f64 {
    (report.schedules as f64 / report.seconds.max(1e-9)).round()
}

fn json(
    report: &Report,
    [points, pairs]: [&Report; 2],
    hunt: &Hunt,
    seed: u64,
) -> serde_json::Value {
    serde_json::json!({
        "schedules": report.schedules,
        "violations": report.violations + points.violations + pairs.violations,
        "schedules_per_second": rate(report),
        "mutants": { "total": hunt.mutants.len(), "caught": hunt.caught() },
        "rare": report.rare().iter().map(|(mark, _)| mark.as_str()).collect::<Vec<_>>(),
        "ops": report.ops,
        "median_ops": report.median_ops,
        "crashes": report.crashes,
        "crash_points": points.schedules,
        "crash_pairs": pairs.schedules,
        "marks": Mark::ALL.len(),
        "rarest_mark": report.rarest(),
        "seed": seed,
    })
}

fn show(report: &Report, seed: u64) {
    let Report {
        schedules,
        violations,
        ops,
        crashes,
        ..
    } = report;
    let (median_ops, median_crashes) = (report.median_ops, report.median_crashes);
    println!("{schedules} schedules from seed {seed}, {violations} broke a promise");
    println!(
        "{ops} operations, {crashes} crashes; {median_ops} and {median_crashes} in the middle"
    );
    println!("{} schedules a second", rate(report));
    for mark in Mark::ALL {
        println!("{:>12}  {}", report.marks.of(*mark), mark.as_str());
    }
}

fn show_hunt(hunt: &Hunt) {
    let (caught, all, seconds) = (hunt.caught(), hunt.mutants.len(), hunt.seconds);
    println!("{caught} of {all} planted bugs found, in {seconds:.1} s");
    for (mutant, at) in &hunt.mutants {
        let at = at.map_or("not found".into(), |at| at.to_string());
        println!("{at:>12}  {mutant:?}");
    }
}

/// A failed schedule, as short as it was possible to make it.
fn tell_short(seed: u64) {
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(played) = Player::default().shrink(seed) {
        eprintln!("seed {seed}, made short:");
        for line in played.trace.iter().chain(&played.violations) {
            eprintln!("  {line}");
        }
    }
}
