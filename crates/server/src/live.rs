//! Live views: streams of server-sent events. There are so many and no more, they end after a while
//! (whoever reads on is checked again), and what many look at is read from the database once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use roundel::{Client, Name, Stats, Timestamp, masked};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Mutex, OwnedSemaphorePermit};

use crate::api::{See, to};
use crate::problem::{Code, Problem};
use crate::route::{Ask, Give, respond};
use crate::server::Shared;
use crate::view::{Counts, Run};

const KIND: &str = "text/event-stream";
/// How often it is looked, at most.
const LOOK: Duration = Duration::from_secs(1);
/// The database spends at most this part of its time on counts: one in so many.
const PART: u32 = 20;
/// A reader is told that the stream is alive.
const QUIET: Duration = Duration::from_secs(15);
/// How long a stream lasts.
const LASTS: Duration = Duration::from_secs(600);

/// A stream of events.
pub(crate) struct Live(Body);

impl Give for Live {
    fn shape() -> (&'static str, Option<Value>) {
        (KIND, None)
    }

    fn give(self) -> Response {
        respond(StatusCode::OK, KIND, self.0)
    }
}

/// Counts of namespaces that were asked for lately.
#[derive(Default)]
pub(crate) struct Lately(Mutex<HashMap<Name, Known>>);

struct Known {
    stats: Arc<Stats>,
    at: Timestamp,
    until: Instant,
}

impl Lately {
    /// The counts of this client's namespace, not older than a second or so.
    pub(crate) async fn counts(&self, client: &Client) -> Result<Counts, Problem> {
        let (stats, at) = self.known(client).await?;
        Ok(Counts::of(&stats, at))
    }

    /// The same, as the engine tells them.
    pub(crate) async fn stats(&self, client: &Client) -> Result<Arc<Stats>, Problem> {
        Ok(self.known(client).await?.0)
    }

    async fn known(&self, client: &Client) -> Result<(Arc<Stats>, Timestamp), Problem> {
        let mut known = self.0.lock().await;
        let begin = Instant::now();
        known.retain(|_, known| begin < known.until);
        if let Some(known) = known.get(client.namespace()) {
            return Ok((known.stats.clone(), known.at));
        }
        let (stats, at) = (Arc::new(client.stats().await?), client.now());
        let took = begin.elapsed();
        let until = Instant::now() + LOOK.max(took * PART);
        let new = Known {
            stats: stats.clone(),
            at,
            until,
        };
        known.insert(client.namespace().clone(), new);
        Ok((stats, at))
    }
}

/// What is looked at.
enum About {
    Counts,
    Run(roundel::RunId),
}

struct Watch {
    server: Arc<Shared>,
    client: Client,
    about: About,
    /// What was last told.
    told: Option<String>,
    spoke: Instant,
    ends: Instant,
    _place: OwnedSemaphorePermit,
}

fn watch(cap: &See, about: About) -> Result<Live, Problem> {
    let server = cap.server.clone();
    let place = server.streams.clone().try_acquire_owned().map_err(|_| {
        let text = "there are as many live streams as there can be; ask from time to time instead";
        Problem::new(Code::Unavailable, text)
    })?;
    let watch = Watch {
        server,
        client: cap.client().clone(),
        about,
        told: None,
        spoke: Instant::now(),
        ends: Instant::now() + LASTS,
        _place: place,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((Ok::<String, std::convert::Infallible>(event), watch))
    });
    Ok(Live(Body::from_stream(events)))
}

impl Watch {
    /// The next event; none if it is over.
    async fn next(&mut self) -> Option<String> {
        let mut stopping = self.server.stopping.subscribe();
        loop {
            let look = self.look();
            let seen = tokio::select! {
                seen = look => seen,
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => return None,
            };
            let (kind, text) = seen?;
            if self.told.as_ref() != Some(&text) {
                let event = format!("event: {kind}\ndata: {text}\n\n");
                self.told = Some(text);
                self.spoke = Instant::now();
                return Some(event);
            }
            if Instant::now() >= self.ends {
                return None;
            }
            if self.spoke.elapsed() >= QUIET {
                self.spoke = Instant::now();
                return Some(": still here\n\n".to_owned());
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => return None,
            }
        }
    }

    /// What there is to see; none if it is gone.
    async fn look(&self) -> Option<(&'static str, String)> {
        match self.about {
            About::Counts => {
                let counts = self.server.lately.counts(&self.client).await.ok()?;
                // The time alone is no news.
                let counts = Counts {
                    now: Timestamp(0),
                    ..counts
                };
                Some(("counts", json(&counts)?))
            }
            About::Run(run) => {
                let run = self.client.run(run).await.ok()?;
                Some(("run", json(&Run::from(&run))?))
            }
        }
    }
}

fn json(of: &impl Serialize) -> Option<String> {
    let text = serde_json::to_string(of).ok()?;
    Some(masked(&text).into_owned())
}

pub(crate) async fn counts(cap: See, _: Ask) -> Result<Live, Problem> {
    watch(&cap, About::Counts)
}

pub(crate) async fn run(cap: See, ask: Ask) -> Result<Live, Problem> {
    // It is looked up in the namespace first: nobody watches a run of another.
    let run = cap.client().run(to(ask.name())).await?.row.id;
    watch(&cap, About::Run(run))
}
