//! `runs list`: page by page, newest first.

use clap::Args;
use roundel::{Client, RunId, RunState, RunView, Runs, Trouble, TroubleId};
use roundel_server::view;
use roundel_store::{Page, Stretch};

use super::filter::Filter;
use super::style;
use crate::exit::{Exit, Result};
use crate::many::Paging;
use crate::show::table::{self, fixed, flexible, plain};
use crate::show::{Output, Progress, Style, as_value, time};

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    paging: Paging<RunId>,
    #[command(flatten)]
    pub(crate) output: Output,
}

pub(crate) async fn run(args: &List, client: &Client) -> Result<Exit> {
    let page = match args.filter.state {
        Some(RunState::Parked) => {
            let queue = args.filter.parked(client)?.limit(args.paging.limit());
            let queue = match args.paging.after {
                Some(after) => queue.after(TroubleId::Run(after)),
                None => queue,
            };
            only_runs(queue.only_runs().fetch().await?)
        }
        _ => looking(args.runs(client)?, args.paging.limit()).await?,
    };
    let mut screen = args.output.screen();
    if args.output.json {
        let show = |run: &RunView| screen.json(&as_value(&view::Run::from(run)));
        page.items.iter().for_each(show);
        screen.flush()?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        let what = match (args.paging.after, args.filter.is_empty()) {
            (None, true) => "no runs",
            (None, false) => "no runs like that",
            (Some(_), _) => "no more runs",
        };
        args.output
            .note(&format!("{what} in namespace `{}`", client.namespace()));
        return Ok(Exit::Done);
    }
    let now = client.now();
    let columns = [
        fixed("run"),
        fixed("state"),
        flexible("workflow"),
        fixed("age"),
        flexible("key"),
        flexible("labels"),
    ];
    let rows = page.items.iter().map(|run| {
        let row = &run.row;
        let key = row.key.as_ref().map_or("", |key| key.as_str());
        vec![
            plain(row.id.to_string()),
            (style(row.state), row.state.as_str().to_owned()),
            plain(workflow(run)),
            (Style::Dim, time::short(now.since(row.created_at))),
            plain(key),
            (Style::Dim, labels(run)),
        ]
    });
    table::show(&mut screen, &columns, &rows.collect::<Vec<_>>());
    screen.flush()?;
    if let Some(last) = page.items.last().filter(|_| page.more) {
        args.output
            .note(&format!("there are more: --after {}", last.row.id));
    }
    Ok(Exit::Done)
}

/// A page of runs. Where few fit among many, whoever sits there sees how far it is.
pub(crate) async fn looking(runs: Runs, limit: usize) -> Result<Page<RunView>> {
    let (mut runs, mut items, mut progress) = (runs, Vec::new(), Progress::new());
    loop {
        let found = runs.limit(limit - items.len());
        let Stretch { items: more, next } = found.look().await?;
        items.extend(more);
        match next {
            Some(next) if items.len() < limit => runs = found.after(next),
            next => {
                let more = next.is_some();
                return Ok(Page { items, more });
            }
        }
        progress.say(&format!(
            "{} found so far, looking further back ...",
            items.len()
        ));
    }
}

fn only_runs(page: Page<Trouble>) -> Page<RunView> {
    let runs = page.items.into_iter().filter_map(|trouble| match trouble {
        Trouble::Run(run) => Some(*run),
        Trouble::Signal(_) => None,
    });
    Page {
        items: runs.collect(),
        more: page.more,
    }
}

impl List {
    fn runs(&self, client: &Client) -> Result<Runs> {
        let runs = self.filter.runs(client)?.limit(self.paging.limit());
        Ok(match self.paging.after {
            Some(after) => runs.after(after),
            None => runs,
        })
    }
}

/// The workflow, with its version if that is not the first.
pub(crate) fn workflow(run: &RunView) -> String {
    match run.lane.version {
        1 => run.lane.workflow.to_string(),
        version => format!("{} v{version}", run.lane.workflow),
    }
}

pub(super) fn labels(run: &RunView) -> String {
    let labels = run.labels.iter();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    labels.join(" ")
}
