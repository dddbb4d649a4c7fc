//! Commands that were sent together.

use roundel::RunId;

use super::{Paged, See, limit, to};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Listing, output};
use crate::view::{Batch, Member};

pub(crate) async fn list(cap: See, ask: Ask<Paged>) -> Result<Json<Listing<Batch>>, Problem> {
    let mut batches = cap.client().batches().limit(limit(&cap, ask.query.limit)?);
    if let Some(word) = &ask.query.cursor {
        batches = batches.after(cursor::read::<RunId>("batches", word)?);
    }
    let page = batches.fetch().await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(Listing {
        next: last.map(|last| cursor::write("batches", &last.run.row.id)),
        items: page.items.iter().map(Batch::from).collect(),
    }))
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
