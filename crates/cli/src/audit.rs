//! `audit`: what was done in somebody's name, and whether it is all there, as it was written.

use clap::{Args, Subcommand};
use roundel::{AuditRow, AuditView, Client, Timestamp};
use roundel_server::view;
use serde_json::{Value, json};

use crate::exit::{Exit, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, clean, cut, time};

/// What operators did: who, why, what and when.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Audit {
    #[command(subcommand)]
    part: Option<Part>,
    /// About this run, by its id or key.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// By this operator.
    #[arg(long = "by", value_name = "WHO")]
    by: Option<String>,
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this number: that of the last of the page before.
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    after: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Subcommand, Debug)]
enum Part {
    /// Check that no row was changed, taken out or put in. Prints the last seal: kept elsewhere, it
    /// shows later whether the last rows are still there.
    Verify(Verify),
}

#[derive(Args, Debug)]
struct Verify {
    /// A seal that was printed before: it must still be there.
    #[arg(long, value_name = "SEAL")]
    seal: Option<String>,
    #[command(flatten)]
    output: Output,
}

impl Audit {
    pub(crate) fn output(&self) -> &Output {
        match &self.part {
            None => &self.output,
            Some(Part::Verify(args)) => &args.output,
        }
    }

    pub(crate) async fn run(self, client: &Client) -> Result<Exit> {
        match &self.part {
            None => self.list(client).await,
            Some(Part::Verify(args)) => verify(args, client).await,
        }
    }

    async fn list(&self, client: &Client) -> Result<Exit> {
        let mut asked = client.audit().limit(self.limit.into()).after(self.after);
        if let Some(run) = &self.run {
            // A run may be gone: its id still says what was done to it.
            asked = asked.of(match run.parse() {
                Ok(id) => id,
                Err(_) => client.run(run.clone()).await?.row.id,
            });
        }
        if let Some(operator) = &self.by {
            asked = asked.by(operator.clone())?;
        }
        let page = asked.fetch().await?;
        let mut screen = self.output.screen();
        if self.output.json {
            let shown = page.items.iter().map(|row| as_json(&client.opened(row)));
            shown.for_each(|row| screen.json(&row));
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if page.items.is_empty() {
            let namespace = client.namespace();
            self.output
                .note(&format!("nothing audited in namespace `{namespace}`"));
            return Ok(Exit::Done);
        }
        let columns = [
            fixed("number"),
            fixed("age"),
            flexible("operator"),
            fixed("action"),
            flexible("target"),
            flexible("answer"),
            flexible("reason"),
        ];
        let now = client.now();
        let rows = page.items.iter().map(|item| row(item, now));
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        if let Some((last, _)) = page.items.last().filter(|_| page.more) {
            let last = last.number;
            self.output.note(&format!("there are more: --after {last}"));
        }
        Ok(Exit::Done)
    }
}

fn row((id, row): &AuditView, now: Timestamp) -> Vec<table::Cell> {
    vec![
        plain(id.number.to_string()),
        (Style::Dim, time::short(now.since(row.at))),
        plain(row.operator.as_str()),
        plain(row.action.as_str()),
        plain(clean(&row.target)),
        plain(clean(&row.answer)),
        (Style::Dim, cut(&row.reason, 200)),
    ]
}

fn as_json(row: &AuditView) -> Value {
    as_value(&view::Audited::from(row))
}

fn hex(row: &AuditRow) -> String {
    row.seal.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn verify(args: &Verify, client: &Client) -> Result<Exit> {
    let mut reader = roundel::AuditReader::default();
    let (mut found, mut rows, mut seen) = (Vec::new(), 0_u64, args.seal.is_none());
    let mut last = None;
    loop {
        let after = last.as_ref().map_or(0, |(number, _)| *number);
        let page = client.audit().limit(1000).after(after).fetch().await?;
        for (id, row) in &page.items {
            reader.read(id, row, &mut found);
            let seal = hex(row);
            seen = seen || args.seal.as_ref() == Some(&seal);
            last = Some((id.number, seal));
            rows += 1;
        }
        if !page.more {
            break;
        }
    }
    let sound = found.is_empty() && seen;
    let mut screen = args.output.screen();
    if args.output.json {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let seal = last.map(|(_, seal)| seal);
        screen.json(&json!({
            "sound": sound, "rows": rows, "seal": seal, "seal_found": seen, "violations": found,
        }));
    } else {
        for violation in &found {
            let text = screen.paint(Style::Bad, &clean(&violation.to_string()));
            screen.line(&text);
        }
        if !seen {
            let text = "the seal that was kept is not there: rows are missing, or were replaced";
            let text = screen.paint(Style::Bad, text);
            screen.line(&text);
        }
        let text = format!("{rows} rows checked");
        screen.line(&text);
        if let Some((number, seal)) = last.filter(|_| sound) {
            screen.line(&format!("sound; the seal of row {number} is {seal}"));
        }
    }
    screen.flush()?;
    Ok(if sound { Exit::Done } else { Exit::No })
}
