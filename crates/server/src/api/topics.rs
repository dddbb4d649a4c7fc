//! Topics: who listens, and what was published.

use roundel::{Name, PublicationId};

use super::{Because, Operate, Paged, See, limit};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Listing, Nothing, output};
use crate::view::{Publication, Topic};

pub(crate) async fn list(cap: See, _: Ask) -> Result<Json<Listing<Topic>>, Problem> {
    let topics = cap.client().topics().await?;
    Ok(Json(Listing {
        items: topics.iter().map(Topic::from).collect(),
        next: None,
    }))
}

pub(crate) async fn publications(
    cap: See,
    ask: Ask<Paged>,
) -> Result<Json<Listing<Publication>>, Problem> {
    let (topic, limit) = (
        Name::new(ask.name().to_owned())?,
        limit(&cap, ask.query.limit)?,
    );
    let before = match &ask.query.cursor {
        Some(word) => Some(cursor::read::<PublicationId>("publications", word)?),
        None => None,
    };
    let page = cap.client().publications(topic, before, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(Listing {
        next: last.map(|(id, _)| cursor::write("publications", id)),
        items: page.items.iter().map(Publication::from).collect(),
    }))
}

output! {
    /// What came of it.
    pub(crate) struct Subscribed {
        /// It was otherwise before.
        changed: bool,
    }
}

fn both<Q, B>(ask: &Ask<Q, B>) -> Result<(&str, &str), Problem> {
    match ask.named.as_slice() {
        [topic, workflow] => Ok((topic, workflow)),
        _ => Err(Problem::missing("say which topic and which workflow")),
    }
}

pub(crate) async fn subscribe(
    cap: Operate,
    ask: Ask<Nothing, Because>,
) -> Result<Json<Subscribed>, Problem> {
    let (topic, workflow) = both(&ask)?;
    let client = cap.because(ask.body.reason.as_deref());
    let changed = client.subscribe(topic, workflow).await?;
    Ok(Json(Subscribed { changed }))
}

pub(crate) async fn unsubscribe(
    cap: Operate,
    ask: Ask<Because>,
) -> Result<Json<Subscribed>, Problem> {
    let (topic, workflow) = both(&ask)?;
    let client = cap.because(ask.query.reason.as_deref());
    let changed = client.unsubscribe(topic, workflow).await?;
    Ok(Json(Subscribed { changed }))
}
