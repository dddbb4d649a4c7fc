//! `check`: would runs in flight go on with this program? For programs that have workflows of their
//! own and mount these commands.

use clap::{Args, ValueEnum};
use roundel::{Client, Judged, Tally, Verdict, Verdicts};
use serde_json::{Value, json};

use crate::exit::{Exit, Failed, Result};
use crate::many::counted;
use crate::show::table::{Cell, fixed, flexible, plain, show};
use crate::show::{Output, Progress, Screen, Style, clean};
use crate::signed::Signed;

/// Runs that are listed; all are counted.
const MOST: usize = 1000;

/// Replay every run in flight by this program, before it takes work: does each go on?
#[derive(Args, Debug)]
pub struct Check {
    /// What becomes of runs that do not: `refuse` ends with code 1 and changes nothing, `park`
    /// parks them, `go` only tells.
    #[arg(long, value_enum, default_value = "refuse", value_name = "WHAT")]
    unfit: What,
    /// List the runs that go on, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    signed: Signed,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq)]
enum What {
    Refuse,
    Park,
    Go,
}

pub(crate) async fn run(args: &Check, client: &Client) -> Result<Exit> {
    let mut listed = Vec::new();
    let mut hidden = 0_u64;
    let mut progress = Progress::new();
    let told = |verdicts: &Verdicts, judged: &Judged| {
        let Tally { runs, .. } = verdicts.total();
        progress.say(&format!("{} replayed", runs_of(runs)));
        if !args.all && judged.verdict == Verdict::Compatible {
            return;
        }
        match listed.len() < MOST {
            true => listed.push(judged.clone()),
            false => hidden += 1,
        }
    };
    let verdicts = match args.unfit {
        What::Park => {
            let client = args.signed.client(client)?;
            client.check_and_park(told).await
        }
        What::Refuse | What::Go => client.check(told).await,
    };
    drop(progress);
    let verdicts = verdicts.map_err(without_workflows)?;
    let mut screen = args.output.screen();
    match args.output.json {
        true => screen.json(&as_json(&verdicts, (&listed, hidden))),
        false => tell(&mut screen, &verdicts, (&listed, hidden)),
    }
    screen.flush()?;
    Ok(match args.unfit {
        What::Refuse if verdicts.total().unfit() > 0 => Exit::No,
        _ => Exit::Done,
    })
}

fn runs_of(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "run")
}

/// The stock command has none: it says where they are.
fn without_workflows(error: roundel::Error) -> Failed {
    let failed = Failed::from(error);
    match failed.exit {
        Exit::Usage => Failed::usage(format!(
            "{}: `roundel` itself knows no workflows; mount these commands in the program that \
             has them, and say `check` there (crates/cli/examples/mounted.rs)",
            failed.message
        )),
        _ => failed,
    }
}

fn as_json(verdicts: &Verdicts, (listed, hidden): (&[Judged], u64)) -> Value {
    let counts = |tally: &Tally| {
        json!({
            "runs": tally.runs,
            "compatible": tally.compatible,
            "up_to": tally.up_to,
            "pin": tally.pinned,
            "diverges": tally.diverging,
            "stuck": tally.stuck,
            "unfit": tally.unfit(),
        })
    };
    let lanes = verdicts.lanes.iter().map(|((workflow, version), tally)| {
        let mut lane = counts(tally);
        (lane["workflow"], lane["version"]) = (json!(workflow), json!(version));
        lane
    });
    let mut whole = counts(&verdicts.total());
    whole["workflows"] = lanes.collect();
    whole["parked"] = json!(verdicts.parked);
    whole["verdicts"] = listed.iter().map(judged_as_json).collect();
    whole["more"] = json!(hidden);
    whole
}

fn judged_as_json(judged: &Judged) -> Value {
    let mut value = json!({
        "run": judged.run,
        "key": judged.key,
        "workflow": judged.workflow,
        "version": judged.version,
        "state": judged.state.as_str(),
        "verdict": judged.verdict.as_str(),
        "reason": judged.sentence(),
    });
    match &judged.verdict {
        Verdict::Diverges(at) => {
            value["entry"] = json!(at.entry);
            value["recorded"] = json!(at.recorded);
            value["asked"] = json!(at.asked);
        }
        Verdict::UpTo(entry) => value["entry"] = json!(entry),
        Verdict::Stuck(failure) => value["code"] = json!(failure.code),
        Verdict::Compatible | Verdict::Pinned => {}
    }
    value
}

fn tell(screen: &mut Screen, verdicts: &Verdicts, (listed, hidden): (&[Judged], u64)) {
    for judged in listed {
        let style = match judged.verdict {
            Verdict::Compatible => Style::Good,
            Verdict::UpTo(_) | Verdict::Pinned => Style::Look,
            Verdict::Diverges(_) | Verdict::Stuck(_) => Style::Bad,
        };
        let verdict = screen.paint(style, judged.verdict.as_str());
        let key = judged.key.as_ref();
        let key = key.map_or_else(String::new, |key| format!(" ({})", clean(key.as_str())));
        let (run, state) = (judged.run, judged.state.as_str());
        screen.line(&format!("{verdict}  run {run}{key}, {state}"));
        screen.line(&format!("  {}", clean(&judged.sentence())));
    }
    if hidden > 0 {
        screen.line(&format!("… and {hidden} more"));
    }
    let heads = [
        flexible("workflow"),
        fixed("version"),
        fixed("runs"),
        fixed("compatible"),
        fixed("up to"),
        fixed("pin"),
        fixed("diverges"),
        fixed("stuck"),
    ];
    let row = |((workflow, version), tally): (&(roundel::Name, u32), &Tally)| {
        let some = |count: u64, style| (style, Some(count).filter(|count| *count > 0));
        let cell = |(style, count): (Style, Option<u64>)| -> Cell {
            (
                style,
                count.map_or_else(String::new, |count| count.to_string()),
            )
        };
        vec![
            plain(workflow.as_str()),
            plain(version.to_string()),
            plain(tally.runs.to_string()),
            cell(some(tally.compatible, Style::Good)),
            cell(some(tally.up_to, Style::Look)),
            cell(some(tally.pinned, Style::Look)),
            cell(some(tally.diverging, Style::Bad)),
            cell(some(tally.stuck, Style::Bad)),
        ]
    };
    let rows: Vec<Vec<Cell>> = verdicts.lanes.iter().map(row).collect();
    if !rows.is_empty() {
        show(screen, &heads, &rows);
    }
    let total = verdicts.total();
    let looked_at = runs_of(total.runs);
    let verdict = match (total.unfit(), verdicts.parked) {
        (0, _) => (
            Style::Good,
            format!("{looked_at} in flight: none is in the way"),
        ),
        (unfit, 0) => (
            Style::Bad,
            format!("{looked_at} in flight, of which {unfit} do not go on with this program"),
        ),
        (unfit, parked) => (
            Style::Look,
            format!("{looked_at} in flight, of which {unfit} do not go on; {parked} are parked"),
        ),
    };
    screen.line(&screen.paint(verdict.0, &verdict.1));
}
