//! `runs show`: where people look.

use clap::Args;
use roundel::{Client, Error, RunView, Timestamp};
use roundel_core::Outcome;
use roundel_server::view::timeline::{self, Calls, Moment};
use roundel_server::view::{self, RunPage, Seen};

use super::list::{labels, workflow};
use super::{follow, style};
use crate::exit::{Exit, Failed, Result};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Screen, Style, as_value, clean, cut, time};
use crate::which::Which;

/// Entries, messages and children shown unless all are asked for.
const MOST: usize = 100;
/// Characters of a value shown unless all are asked for, where there is no terminal to fit.
const VALUE: usize = 200;

#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    /// An earlier execution, before it continued as new.
    #[arg(long, value_name = "NUMBER")]
    execution: Option<u32>,
    /// Everything: whole values, and every entry, message and child.
    #[arg(long)]
    full: bool,
    /// Go on with what happens in it from now on, until it has ended.
    #[arg(long, short, conflicts_with = "execution")]
    follow: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Show, client: &Client) -> Result<Exit> {
    let run = args.which.find(client).await?;
    let most = if args.full || args.output.json {
        1000
    } else {
        MOST
    };
    let (id, last) = (run.row.id, run.row.execution);
    let seen = view::look(client, run, args.execution, most).await;
    let seen = seen.map_err(|error| match (error, args.execution) {
        (Error::NoSuchRun(_), Some(execution)) => {
            let message = format!("run {id} has executions 1 to {last}, not {execution}");
            Failed::new(Exit::NotFound, message)
        }
        (error, _) => error.into(),
    })?;
    let mut screen = args.output.screen();
    if args.follow {
        return follow::run(&mut screen, (args.full, args.output.json), client, seen).await;
    }
    if args.output.json {
        screen.json(&as_value(&RunPage::from(&seen)));
    } else {
        let mut view = View {
            screen: &mut screen,
            full: args.full,
        };
        view.header(&seen);
        view.journal(&seen);
        view.children(&seen);
        view.mailbox(&seen);
    }
    screen.flush()?;
    Ok(Exit::Done)
}

/// Where it is shown, and how much of it.
pub(super) struct View<'a> {
    pub(super) screen: &'a mut Screen,
    pub(super) full: bool,
}

impl View<'_> {
    /// A value, as much as there is room for after so many columns.
    fn value(&self, text: &str, taken: usize) -> String {
        let text = clean(text);
        match (self.full, self.screen.width) {
            (true, _) => text,
            (false, Some(_)) => self.screen.fit(&text, taken),
            (false, None) => cut(&text, VALUE),
        }
    }

    pub(super) fn field(&mut self, name: &str, style: Style, text: &str) {
        let text = self.value(text, 10);
        let name = self.screen.paint(Style::Dim, &format!("{name:<10}"));
        let text = self.screen.paint(style, &text);
        self.screen.line(&format!("{name}{text}"));
    }

    pub(super) fn header(&mut self, seen: &Seen) {
        let (run, now) = (&seen.run, seen.now);
        let row = &run.row;
        self.field("run", Style::Head, &row.id.to_string());
        self.field("workflow", Style::Plain, &workflow(run));
        if let Some(key) = &row.key {
            self.field("key", Style::Plain, key.as_str());
        }
        self.field("state", style(row.state), row.state.as_str());
        for (number, reason) in seen.reasons.iter().enumerate().take(MOST) {
            let name = if number == 0 { "why" } else { "" };
            for (part, line) in self
                .screen
                .wrapped(&reason.text, 10)
                .into_iter()
                .enumerate()
            {
                self.field(if part == 0 { name } else { "" }, Style::Plain, &line);
            }
        }
        if !run.labels.is_empty() {
            self.field("labels", Style::Plain, &labels(run));
        }
        self.field("started", Style::Plain, &time::both(row.created_at, now));
        self.field("changed", Style::Plain, &time::both(row.changed_at, now));
        if let Some(parent) = row.parent {
            self.field("parent", Style::Plain, &parent.run.to_string());
        }
        if let Some(state) = &seen.state {
            let text = format!("version {}: {}", state.version, state.value.as_str());
            self.field("own state", Style::Plain, &text);
        }
        self.ending(run);
    }

    /// What it came to, if it has ended.
    pub(super) fn ending(&mut self, run: &RunView) {
        let row = &run.row;
        match row.outcome.as_ref().filter(|_| row.state.has_ended()) {
            Some(Outcome::Value(value)) => self.field("result", Style::Plain, value.as_str()),
            Some(Outcome::Failure(failure)) => {
                for (part, line) in self
                    .screen
                    .wrapped(&failure.to_string(), 10)
                    .into_iter()
                    .enumerate()
                {
                    self.field(if part == 0 { "failure" } else { "" }, Style::Bad, &line);
                }
            }
            None => {}
        }
    }

    pub(super) fn title(&mut self, text: &str) {
        let text = self.screen.paint(Style::Head, text);
        self.screen.line("");
        self.screen.line(&text);
    }

    pub(super) fn journal(&mut self, seen: &Seen) {
        let (moments, last) = (&seen.moments, seen.run.row.execution);
        let executions = match last {
            1 => String::new(),
            _ => format!(", execution {} of {last}", seen.execution),
        };
        self.title(&format!(
            "journal, {}{executions}",
            counted(moments.len(), "entry", "entries")
        ));
        let calls = timeline::calls(moments);
        let begin = moments.first().map_or(seen.now, |moment| moment.at);
        let hidden = match self.full {
            true => 0,
            false => moments.len().saturating_sub(MOST),
        };
        // The first says with what it was started.
        for moment in moments.iter().take(usize::from(hidden > 0)) {
            self.moment(moment, &calls, begin);
        }
        if hidden > 0 {
            let note = format!("      … {} entries; --full shows them", hidden - 1);
            let note = self.screen.paint(Style::Dim, &note);
            self.screen.line(&note);
        }
        for moment in &moments[hidden..] {
            self.moment(moment, &calls, begin);
        }
    }

    pub(super) fn moment(&mut self, moment: &Moment, calls: &Calls, begin: Timestamp) {
        let said = timeline::say(moment, calls);
        let when = format!("+{}", time::span(moment.at.since(begin)));
        let (number, text) = (moment.number, clean(&said.text));
        let front = format!("{number:>5}  {when:>12}  ");
        let taken = front.chars().count();
        let text = self.value(&text, taken);
        let used = taken + text.chars().count() + 2;
        let room = self.screen.width.is_none_or(|width| used + 8 <= width);
        let value = said.value.filter(|_| room || self.full);
        let value = value.map(|value| format!("  {}", self.value(&value, used)));
        let front = self.screen.paint(Style::Dim, &front);
        let text = self.screen.paint(said.style, &text);
        let value = self.screen.paint(Style::Dim, &value.unwrap_or_default());
        self.screen.line(&format!("{front}{text}{value}"));
    }

    fn children(&mut self, seen: &Seen) {
        let children = &seen.children;
        if children.items.is_empty() {
            return;
        }
        let more = if children.more { " and more" } else { "" };
        let count = children.items.len();
        self.title(&format!("{}{more}", counted(count, "child", "children")));
        let rows = children.items.iter().map(|child| {
            let state = child.row.state;
            vec![
                plain(child.row.id.to_string()),
                (style(state), state.as_str().to_owned()),
                plain(workflow(child)),
                (
                    Style::Dim,
                    time::short(seen.now.since(child.row.created_at)),
                ),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let columns = [
            fixed("run"),
            fixed("state"),
            flexible("workflow"),
            fixed("age"),
        ];
        table::show(self.screen, &columns, &rows);
    }

    fn mailbox(&mut self, seen: &Seen) {
        if seen.mail.is_empty() {
            return;
        }
        let count = usize::try_from(seen.run.row.mail).unwrap_or(usize::MAX);
        self.title(&format!(
            "{} in its mailbox",
            counted(count, "message", "messages")
        ));
        let rows = seen.mail.iter().map(|(id, mail)| {
            let name = id.name.as_ref().map_or("(engine)", |name| name.as_str());
            let body = match &mail.body {
                Outcome::Value(value) => value.as_str().to_owned(),
                Outcome::Failure(failure) => failure.to_string(),
            };
            let body = if self.full { body } else { cut(&body, VALUE) };
            vec![
                plain(id.number.to_string()),
                plain(name),
                (Style::Dim, time::short(seen.now.since(mail.at))),
                plain(body),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let columns = [
            fixed("#"),
            flexible("signal"),
            fixed("age"),
            flexible("says"),
        ];
        table::show(self.screen, &columns, &rows);
        let left = count.saturating_sub(seen.mail.len());
        if left > 0 {
            let note = format!("… {left} more; --full shows up to 1,000");
            let note = self.screen.paint(Style::Dim, &note);
            self.screen.line(&note);
        }
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
