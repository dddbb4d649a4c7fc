//! Facts and documents: to be looked at. They are recorded by programs that have their projections.

use roundel::{Name, Position};
use serde_json::Value;

use super::{See, limit, to};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Listing, Looked, input};
use crate::view::{Document, Fact};

input! {
    /// Which facts.
    pub(crate) struct FactsAsked {
        /// Of this kind.
        kind: Option<String>,
        /// Of this stream, in its order.
        stream: Option<String>,
        /// Recorded by this run, by its id or key.
        run: Option<String>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

pub(crate) async fn list(cap: See, ask: Ask<FactsAsked>) -> Result<Json<Looked<Fact>>, Problem> {
    let asked = &ask.query;
    if asked.stream.is_some() && asked.run.is_some() {
        return Err(Problem::bad("say one of `stream` and `run`"));
    }
    let mut facts = cap.client().facts().limit(limit(&cap, asked.limit)?);
    let word = asked.cursor.as_deref();
    if let Some(stream) = &asked.stream {
        let after = word
            .map(|word| cursor::read::<u64>("stream", word))
            .transpose()?;
        facts = facts.stream(stream.clone(), after.unwrap_or(0));
    } else if let Some(word) = word {
        facts = facts.after(cursor::read::<Position>("facts", word)?);
    }
    if let Some(kind) = &asked.kind {
        facts = facts.kind(kind.clone());
    }
    if let Some(run) = &asked.run {
        facts = facts.of_run(to(run)).await?;
    }
    let found = facts.within(cap.server.limits.look).look().await?;
    let number = |fact: &roundel::FactView| fact.row.stream.as_ref().map(|(_, number)| *number);
    let last = found.items.last().and_then(number);
    let next = found
        .next
        .map(|next| match last.filter(|_| asked.stream.is_some()) {
            Some(number) => cursor::write("stream", &number),
            None => cursor::write("facts", &next),
        });
    let items = found.items.iter().map(Fact::from).collect();
    Ok(Json(Looked::of(items, next, None)))
}

pub(crate) async fn show(cap: See, ask: Ask) -> Result<Json<Fact>, Problem> {
    let fact = cap.client().fact(ask.name().to_owned()).await?;
    let fact = fact.ok_or_else(|| Problem::missing("there is no such fact in this namespace"))?;
    Ok(Json(Fact::from(&fact)))
}

input! {
    /// Which documents.
    pub(crate) struct DocumentsAsked {
        /// Whose path begins like this.
        prefix: Option<String>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

pub(crate) async fn documents(
    cap: See,
    ask: Ask<DocumentsAsked>,
) -> Result<Json<Listing<Document>>, Problem> {
    let (asked, limit) = (&ask.query, limit(&cap, ask.query.limit)?);
    let after = match &asked.cursor {
        Some(word) => Some(Name::new(cursor::read::<String>("documents", word)?)?),
        None => None,
    };
    let prefix = asked.prefix.clone().unwrap_or_default();
    let page = cap.client().documents(prefix, after, limit).await?;
    let last = page.items.last().filter(|_| page.more);
    Ok(Json(Listing {
        next: last.map(|(id, _)| cursor::write("documents", &id.path)),
        items: page.items.iter().map(Document::from).collect(),
    }))
}

pub(crate) async fn document(cap: See, ask: Ask) -> Result<Json<Document>, Problem> {
    let path = Name::new(ask.name().to_owned())?;
    let found = cap.client().document::<Value>(path.to_string()).await?;
    let found = found.ok_or_else(|| Problem::missing("there is no document at this path"))?;
    let value = roundel::Payload::encode(&found.value);
    let value = value.map_err(|error| Problem::bad(error.to_string()))?;
    Ok(Json(Document {
        path,
        version: found.version,
        at: found.at,
        value: Some(value),
    }))
}
