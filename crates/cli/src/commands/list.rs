//! `commands list`: page by page, newest first.

use clap::Args;
use roundel::{Client, RunId, RunState};
use roundel_server::view::Sent;

use crate::exit::{Exit, Failed, Result};
use crate::many::Paging;
use crate::runs::{looking, state, style};
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Style, as_value, cut, time};
use crate::start::label;

/// Queues that are named to somebody who named none.
const NAMED: usize = 10;

#[derive(Args, Debug)]
pub struct List {
    /// The queue, which is the commands' name.
    queue: Option<String>,
    /// Only in this state, such as `parked`.
    #[arg(long, value_parser = state)]
    state: Option<RunState>,
    /// Only with this label.
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Option<(String, String)>,
    #[command(flatten)]
    paging: Paging<RunId>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl List {
    pub(super) async fn run(&self, client: &Client) -> Result<Exit> {
        let Some(queue) = &self.queue else {
            return Err(which_queue(client).await?);
        };
        let mut runs = client.runs().of(queue.clone())?.limit(self.paging.limit());
        if let Some(state) = self.state {
            runs = runs.in_state(state);
        }
        if let Some((name, value)) = &self.label {
            runs = runs.with_label(name.clone(), value.clone())?;
        }
        if let Some(after) = self.paging.after {
            runs = runs.after(after);
        }
        let page = looking(runs, self.paging.limit()).await?;
        let mut sent = Vec::new();
        for run in page.items {
            sent.push(Sent::read(run, client).await?.0);
        }
        let (mut screen, now) = (self.output.screen(), client.now());
        if self.output.json {
            let show = |sent: &Sent| screen.json(&as_value(&sent.shown(now)));
            sent.iter().for_each(show);
            screen.flush()?;
            return Ok(Exit::Done);
        }
        if sent.is_empty() {
            self.output.note(&self.nothing(queue, client));
            return Ok(Exit::Done);
        }
        let columns = [
            fixed("run"),
            fixed("state"),
            flexible("id"),
            fixed("age"),
            fixed("due"),
            flexible("payload"),
        ];
        let rows = sent.iter().map(|sent| {
            let row = &sent.run.row;
            let due = sent.delayed(now).map(|at| time::from_now(at, now));
            vec![
                plain(row.id.to_string()),
                (style(row.state), row.state.as_str().to_owned()),
                plain(sent.id().unwrap_or_default()),
                (Style::Dim, time::short(now.since(row.created_at))),
                (Style::Dim, due.unwrap_or_default()),
                plain(
                    sent.payload
                        .as_ref()
                        .map_or_else(String::new, |it| cut(it.as_str(), 200)),
                ),
            ]
        });
        table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
        screen.flush()?;
        if let Some(last) = sent.last().filter(|_| page.more) {
            self.output
                .note(&format!("there are more: --after {}", last.run.row.id));
        }
        Ok(Exit::Done)
    }

    fn nothing(&self, queue: &str, client: &Client) -> String {
        let namespace = client.namespace();
        let narrowed = self.state.is_some() || self.label.is_some();
        let what = match (self.paging.after, narrowed) {
            (None, false) => "no commands",
            (None, true) => "no commands like that",
            (Some(_), _) => "no more commands",
        };
        format!("{what} in queue `{queue}` of namespace `{namespace}`")
    }
}

/// No queue was named: which there may be.
async fn which_queue(client: &Client) -> Result<Failed> {
    let stats = client.stats().await?;
    let mut names: Vec<&str> = stats.runs.iter().map(|(name, ..)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > NAMED { ", ..." } else { "" };
    names.truncate(NAMED);
    let known = match names.is_empty() {
        true => "nothing was sent here yet".to_owned(),
        false => format!("there are runs of {}{more}", names.join(", ")),
    };
    let text = format!("say which queue: `commands list QUEUE`; {known}");
    Ok(Failed::usage(text))
}
