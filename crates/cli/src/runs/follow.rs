//! `runs show --follow`: what happens in a run, as it happens, until it has ended.

use roundel::{Client, Growth, RunState};
use roundel_server::view::timeline::{self, Calls};
use roundel_server::view::{self, Seen};

use super::show::View;
use super::{reasons, style};
use crate::exit::{Exit, Result};
use crate::show::{Screen, Style, as_value, clean};
use crate::stop::Stop;

/// Follows on from what was seen, whole values or not, as JSON or not.
pub(super) async fn run(
    screen: &mut Screen,
    (full, json): (bool, bool),
    client: &Client,
    seen: Seen,
) -> Result<Exit> {
    let mut following = client.follow(seen.run.row.id).await?;
    let last = seen.moments.last().map_or(0, |moment| moment.number);
    following = following.after(seen.execution, last, seen.run.row.state);
    let mut told = Told {
        screen,
        full,
        json,
        calls: Calls::new(),
        begin: seen.moments.first().map(|moment| moment.at),
        execution: seen.execution,
        state: seen.run.row.state,
    };
    let mut stop = Stop::listen()?;
    told.first(&seen)?;
    while !told.screen.left {
        let next = tokio::select! {
            next = following.next() => next?,
            () = stop.asked() => return Ok(Exit::Done),
        };
        match next {
            Some(growth) => told.say(client, &growth).await?,
            None => return told.end(client, seen.run.row.id).await,
        }
    }
    Ok(Exit::Done)
}

struct Told<'a> {
    screen: &'a mut Screen,
    full: bool,
    json: bool,
    /// What was called so far, in this execution.
    calls: Calls,
    begin: Option<roundel::Timestamp>,
    execution: u32,
    state: RunState,
}

impl Told<'_> {
    fn view(&mut self) -> View<'_> {
        View {
            screen: self.screen,
            full: self.full,
        }
    }

    fn first(&mut self, seen: &Seen) -> Result<()> {
        self.calls = timeline::calls(&seen.moments);
        if self.json {
            self.entries(&seen.moments);
        } else {
            let mut view = self.view();
            view.header(seen);
            view.journal(seen);
        }
        self.screen.flush()
    }

    /// New entries, and what keeps it if it has come to a halt.
    async fn say(&mut self, client: &Client, growth: &Growth) -> Result<()> {
        if self.execution != growth.execution {
            self.execution = growth.execution;
            self.calls = Calls::new();
            self.begin = None;
            if !self.json {
                let title = format!("execution {}", growth.execution);
                self.view().title(&title);
            }
        }
        let moments = timeline::moments(&growth.rounds)?;
        self.calls.extend(timeline::calls(&moments));
        self.entries(&moments);
        let state = growth.run.row.state;
        if std::mem::replace(&mut self.state, state) != state && state == RunState::Parked {
            self.parked(client, growth).await?;
        }
        self.screen.flush()
    }

    fn entries(&mut self, moments: &[timeline::Moment]) {
        let (calls, execution) = (std::mem::take(&mut self.calls), self.execution);
        for moment in moments {
            let begin = *self.begin.get_or_insert(moment.at);
            if self.json {
                let mut shown = as_value(&view::Moment::of(moment, &calls));
                shown["execution"] = execution.into();
                self.screen.json(&shown);
            } else {
                self.view().moment(moment, &calls, begin);
            }
        }
        self.calls = calls;
    }

    /// It waits for an operator, who may be the one who looks.
    async fn parked(&mut self, client: &Client, growth: &Growth) -> Result<()> {
        if self.json {
            self.screen.json(&as_value(&view::Run::from(&growth.run)));
            return Ok(());
        }
        let word = self.screen.paint(style(RunState::Parked), "parked");
        self.screen.line(&format!("       {word}"));
        for reason in reasons(client, &growth.run).await? {
            let line = self.screen.paint(Style::Dim, &clean(&reason));
            self.screen.line(&format!("       {line}"));
        }
        Ok(())
    }

    /// It has ended: how is the answer.
    async fn end(&mut self, client: &Client, id: roundel::RunId) -> Result<Exit> {
        let run = client.run(id).await?;
        if self.json {
            self.screen.json(&as_value(&view::Run::from(&run)));
        } else {
            self.screen.line("");
            let state = run.row.state;
            self.view().field("state", style(state), state.as_str());
            self.view().ending(&run);
        }
        self.screen.flush()?;
        Ok(match run.row.state {
            RunState::Completed => Exit::Done,
            _ => Exit::No,
        })
    }
}
