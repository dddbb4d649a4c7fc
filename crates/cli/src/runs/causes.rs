//! `runs why`: what a run waits for, and what that waits for in turn, down to what only somebody or
//! something outside can change.

use clap::Args;
use roundel::{Client, Timestamp};
use roundel_server::view::why::Kind;
use roundel_server::view::{self, Cause, Stuck, Waiting};
use serde_json::json;

use super::drawing::fork;
use super::list::workflow;
use super::style;
use crate::exit::{Exit, Result};
use crate::show::{Output, Screen, Style, clean, time};
use crate::which::Which;

#[derive(Args, Debug)]
pub struct Why {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &Why, client: &Client) -> Result<Exit> {
    let run = args.which.find(client).await?;
    let (stuck, sentence) = view::follow(client, run).await?;
    let mut screen = args.output.screen();
    if args.output.json {
        let mut shown = Waiting::from(&stuck);
        shown.sentence = Some(sentence);
        screen.json(&json!(shown));
    } else {
        for line in screen.wrapped(&sentence, 0) {
            screen.line(&line);
        }
        if !stuck.causes.is_empty() {
            screen.line("");
            let fronts = (String::new(), String::new());
            draw(&stuck, &mut screen, fronts, client.now());
        }
    }
    screen.flush()?;
    Ok(Exit::Done)
}

fn draw(stuck: &Stuck, screen: &mut Screen, (front, under): (String, String), now: Timestamp) {
    let row = &stuck.run.row;
    let name = match &row.key {
        Some(key) => format!("{} {key}", workflow(&stuck.run)),
        None => workflow(&stuck.run),
    };
    let head = screen.paint(Style::Head, &clean(&name));
    let state = screen.paint(style(row.state), row.state.as_str());
    let id = screen.paint(Style::Dim, &row.id.to_string());
    let front = screen.paint(Style::Dim, &front);
    screen.line(&format!("{front}{head} {state} {id}"));
    let last = stuck.causes.len();
    for (number, cause) in stuck.causes.iter().enumerate() {
        let (fork, bar) = fork(number + 1 == last);
        let bar = format!("{under}{bar}");
        draw_cause(cause, screen, (format!("{under}{fork}"), bar), now);
    }
}

fn draw_cause(
    cause: &Cause,
    screen: &mut Screen,
    (front, under): (String, String),
    now: Timestamp,
) {
    let reason = &cause.reason;
    let text = match reason.text.contains(", since ") || reason.kind == Kind::Note {
        true => reason.text.clone(),
        false => format!(
            "{}, since {}",
            reason.text,
            time::span(now.since(reason.since))
        ),
    };
    let look = match reason.kind {
        Kind::Operator => Style::Look,
        _ => Style::Plain,
    };
    for (part, line) in screen
        .wrapped(&text, front.chars().count())
        .iter()
        .enumerate()
    {
        let front = if part == 0 { &front } else { &under };
        let front = screen.paint(Style::Dim, front);
        let line = screen.paint(look, line);
        screen.line(&format!("{front}{line}"));
    }
    let last = cause.below.len() + usize::from(cause.hidden > 0);
    for (number, stuck) in cause.below.iter().enumerate() {
        let (fork, bar) = fork(number + 1 == last);
        draw(
            stuck,
            screen,
            (format!("{under}{fork}"), format!("{under}{bar}")),
            now,
        );
    }
    if cause.hidden > 0 {
        let text = format!("{under}└─ … {} more that have not ended", cause.hidden);
        let text = screen.paint(Style::Dim, &text);
        screen.line(&text);
    }
}
