//! `runs show --follow` on a server: its events say that something happened in the run, its page
//! says what. A stream that ends, as all do after a while, is asked for again.

use std::time::Duration;

use roundel::RunState;
use serde_json::Value;

use super::http::{Events, Request, Server};
use super::show;
use crate::exit::{Exit, Result};
use crate::show::{Output, Screen};
use crate::stop::Stop;

/// Between two looks where there is no stream to be had.
const LOOK: Duration = Duration::from_secs(1);

/// Follows the run of this path until it has ended.
pub(super) async fn run(server: &Server, path: String, output: &Output) -> Result<Exit> {
    let mut told = Told {
        server,
        path,
        output,
        screen: output.screen(),
        execution: 0,
        last: 0,
        begin: 0,
        state: String::new(),
    };
    let mut stop = Stop::listen()?;
    tokio::select! {
        ended = told.follow() => ended,
        () = stop.asked() => Ok(Exit::Done),
    }
}

struct Told<'a> {
    server: &'a Server,
    path: String,
    output: &'a Output,
    screen: Screen,
    /// What was told last: an entry of an execution, and the state.
    execution: u64,
    last: u64,
    /// When this execution began.
    begin: i64,
    state: String,
}

impl Told<'_> {
    async fn follow(&mut self) -> Result<Exit> {
        let mut events: Option<Events> = None;
        loop {
            if events.is_none() {
                // There are so many streams and no more; without one it is looked now and then.
                events = self
                    .server
                    .events(format!("{}/events", self.path))
                    .await
                    .ok();
            }
            let page = self.page(None).await?;
            if let Some(exit) = self.say(&page).await? {
                return Ok(exit);
            }
            if self.screen.left {
                return Ok(Exit::Done);
            }
            let event = match &mut events {
                Some(stream) => stream.next().await,
                None => None,
            };
            if event.is_none() {
                events = None;
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    async fn page(&self, execution: Option<u64>) -> Result<Value> {
        let path = match execution {
            Some(number) => format!("{}?execution={number}", self.path),
            None => self.path.clone(),
        };
        let request = Request {
            method: "GET",
            path,
            body: None,
        };
        self.server.ask(request).await
    }

    /// What is new in it; how it ended, if it has.
    async fn say(&mut self, page: &Value) -> Result<Option<Exit>> {
        let now = page["execution"].as_u64().unwrap_or(1);
        if self.execution == 0 {
            self.execution = now;
            if !self.output.json {
                show::head(&mut self.screen, page);
            }
        }
        while self.execution < now {
            let before = self.page(Some(self.execution)).await?;
            self.entries(&before);
            (self.execution, self.last, self.begin) = (self.execution + 1, 0, 0);
            if !self.output.json {
                self.screen.line("");
                self.screen.line(&format!("execution {}", self.execution));
            }
        }
        self.entries(page);
        let state = page["state"].as_str().unwrap_or_default().to_owned();
        let changed = state != std::mem::replace(&mut self.state, state.clone());
        let known = serde_json::from_value::<RunState>(page["state"].clone());
        let ended = known.ok().filter(|state| state.has_ended());
        let ended = ended.map(|state| match state {
            RunState::Completed => Exit::Done,
            _ => Exit::No,
        });
        if ended.is_some() || (changed && state == "parked") {
            match self.output.json {
                true => self.screen.json(&short(page)),
                false => show::state(&mut self.screen, page),
            }
        }
        self.screen.flush()?;
        Ok(ended)
    }

    fn entries(&mut self, page: &Value) {
        for moment in page["journal"].as_array().into_iter().flatten() {
            let number = moment["number"].as_u64().unwrap_or_default();
            if self.begin == 0 {
                self.begin = moment["at"].as_i64().unwrap_or_default();
            }
            if number <= self.last {
                continue;
            }
            self.last = number;
            if self.output.json {
                let mut shown = moment.clone();
                shown["execution"] = self.execution.into();
                self.screen.json(&shown);
            } else {
                show::moment(&mut self.screen, moment, self.begin);
            }
        }
    }
}

/// The run without what its page has beside it, as a list shows it.
fn short(page: &Value) -> Value {
    let mut run = page.clone();
    if let Some(fields) = run.as_object_mut() {
        for beside in [
            "journal",
            "timeline",
            "journal_of_execution",
            "why",
            "ready_at",
            "lease_until",
            "state_version",
            "state_value",
            "children",
            "mailbox",
        ] {
            fields.remove(beside);
        }
    }
    run
}
