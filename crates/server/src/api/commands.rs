//! Commands: sending them, and what became of them.

use std::collections::BTreeMap;

use roundel::{Name, Payload, RunId, RunState, To};

use super::submit::{Started, begin, or_null};
use super::{See, Submit, label, limit};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Looked, Nothing, input, output};
use crate::view::{self, Attempt, Command, Sent};

input! {
    /// A command.
    pub(crate) struct SendAsked {
        /// What it is given; null unless said.
        payload: Option<Payload>,
        /// Your own id for it in its queue: sending it again gives the first. Also as
        /// Idempotency-Key.
        id: Option<Name>,
        /// For search.
        labels: Option<BTreeMap<String, String>>,
        /// Lower is taken up first.
        priority: Option<i32>,
        /// On whose behalf.
        flow_key: Option<Name>,
        /// Not before so many milliseconds from now.
        delay_ms: Option<u64>,
    }
}

pub(crate) async fn send(
    cap: Submit,
    ask: Ask<Nothing, SendAsked>,
) -> Result<Json<Started>, Problem> {
    let (key, trace) = (ask.key_or(ask.body.id.as_ref())?, ask.trace);
    let queue = Name::new(ask.name().to_owned())?;
    let body = ask.body;
    let send = cap.client().send_named(queue, or_null(body.payload));
    let said = (body.labels, body.priority, body.flow_key, body.delay_ms);
    begin(send, (key, trace), said).await
}

input! {
    /// Which commands.
    pub(crate) struct CommandsAsked {
        /// Only in this state.
        state: Option<RunState>,
        /// Only with this label, as `name=value`.
        label: Option<String>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

pub(crate) async fn list(
    cap: See,
    ask: Ask<CommandsAsked>,
) -> Result<Json<Looked<Command>>, Problem> {
    let (asked, client) = (&ask.query, cap.client());
    let mut runs = client.runs().of(ask.name().to_owned())?;
    runs = runs
        .limit(limit(&cap, asked.limit)?)
        .within(cap.server.limits.look);
    if let Some(state) = asked.state {
        runs = runs.in_state(state);
    }
    if let Some(text) = &asked.label {
        let (name, value) = label(text)?;
        runs = runs.with_label(name, value)?;
    }
    if let Some(word) = &asked.cursor {
        runs = runs.after(cursor::read::<RunId>("commands", word)?);
    }
    let found = runs.look().await?;
    let next = found.next.map(|run| cursor::write("commands", &run));
    let mut items = Vec::new();
    for run in found.items {
        items.push(Sent::read(run, client).await?.0.shown(client.now()));
    }
    Ok(Json(Looked::of(items, next, found.next)))
}

output! {
    /// A command, with what was tried.
    pub(crate) struct CommandPage {
        /// The command.
        command: Command,
        /// Attempts after which there was another.
        attempts: Vec<Attempt>,
        /// What keeps it from going on.
        why: Vec<String>,
    }
}

pub(crate) async fn show(cap: See, ask: Ask) -> Result<Json<CommandPage>, Problem> {
    let client = cap.client();
    let [queue, id] = ask.named.as_slice() else {
        return Err(Problem::missing("a command has a queue and an id"));
    };
    let run = client.run(To::Key(format!("{queue}:{id}"))).await?;
    let (workers, now) = (client.workers().await?, client.now());
    let why = view::reasons(client, &run, &workers, now).await?;
    let (sent, journal) = Sent::read(run, client).await?;
    Ok(Json(CommandPage {
        command: sent.shown(now),
        attempts: view::attempts(&journal),
        why: why.into_iter().map(|reason| reason.text).collect(),
    }))
}
