//! Commands that were sent together.

use std::time::Duration;

use roundel::{Member as Part, Name, Payload, RunId};

use super::submit::{Started, or_null};
use super::{Paged, See, Submit, limit, to};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Looked, Nothing, input, output};
use crate::view::{Batch, Member};

pub(crate) async fn list(cap: See, ask: Ask<Paged>) -> Result<Json<Looked<Batch>>, Problem> {
    let mut batches = cap.client().batches().limit(limit(&cap, ask.query.limit)?);
    batches = batches.within(cap.server.limits.look);
    if let Some(word) = &ask.query.cursor {
        batches = batches.after(cursor::read::<RunId>("batches", word)?);
    }
    let found = batches.look().await?;
    let next = found.next.map(|run| cursor::write("batches", &run));
    let items = found.items.iter().map(Batch::from).collect();
    Ok(Json(Looked::of(items, next, found.next)))
}

output! {
    /// A batch, with a page of its commands.
    pub(crate) struct BatchPage {
        /// The batch.
        batch: Batch,
        /// Some of its commands.
        members: Vec<Member>,
        /// What to ask with for those after them.
        next: Option<String>,
    }
}

pub(crate) async fn show(cap: See, ask: Ask<Paged>) -> Result<Json<BatchPage>, Problem> {
    let (client, limit) = (cap.client(), limit(&cap, ask.query.limit)?);
    let batch = client.batch_view(to(ask.name())).await?;
    let after = match &ask.query.cursor {
        Some(word) => Some(cursor::read::<RunId>("members", word)?),
        None => None,
    };
    let page = client.children(batch.run.row.id, after, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(BatchPage {
        batch: Batch::from(&batch),
        next: last.map(|last| cursor::write("members", &last.row.id)),
        members: page.items.iter().map(Member::from).collect(),
    }))
}

input! {
    /// A command of a batch.
    pub(crate) struct MemberAsked {
        /// Its queue.
        queue: Name,
        /// What it is given; null unless said.
        payload: Option<Payload>,
        /// Your own id for it in its queue. One that is in use refuses the whole batch.
        id: Option<Name>,
        /// Lower is taken up first.
        priority: Option<i32>,
        /// Not before so many milliseconds from now.
        delay_ms: Option<u64>,
    }
}

input! {
    /// Commands to be sent together: all of them, or none.
    pub(crate) struct BatchAsked {
        /// The commands.
        commands: Vec<MemberAsked>,
        /// A command that is sent once all of them have ended.
        then: Option<MemberAsked>,
        /// Your own id for the batch: sending it again gives the first. Also as Idempotency-Key.
        key: Option<Name>,
    }
}

fn part(asked: MemberAsked) -> Part {
    let mut part = Part::command(asked.queue, or_null(asked.payload));
    if let Some(id) = asked.id {
        part = part.key(id.to_string());
    }
    if let Some(ms) = asked.delay_ms {
        part = part.delay(Duration::from_millis(ms));
    }
    part.priority(asked.priority.unwrap_or(0))
}

pub(crate) async fn send(
    cap: Submit,
    ask: Ask<Nothing, BatchAsked>,
) -> Result<Json<Started>, Problem> {
    let key = ask.key_or(ask.body.key.as_ref())?;
    let mut batch: roundel::Batch = ask.body.commands.into_iter().map(part).collect();
    if let Some(then) = ask.body.then {
        batch = batch.then(part(then));
    }
    if let Some(key) = key {
        batch = batch.key(key.to_string());
    }
    let sent = cap.client().batch(batch).await?;
    Ok(Json(Started {
        run: sent.id(),
        new: sent.is_new(),
    }))
}
