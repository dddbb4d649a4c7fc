//! The dashboard: a few files that are part of the program. They hold no data, ask the API for it
//! as any other client does, and are given to nobody who has not logged in.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use crate::auth::{Cap, Everywhere, actions};
use crate::problem::Problem;
use crate::route::{Ask, Give, respond};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Files of the dashboard, each with its kind.
macro_rules! files {
    ($($name:literal $kind:ident,)*) => {
        &[$(($name, $kind, include_str!(concat!("ui/", $name))),)*]
    };
}

/// Every file: its name, its kind and what is in it.
const FILES: &[(&str, &str, &str)] = files![
    "index.html" HTML,
    "app.css" STYLE,
    "app.js" SCRIPT,
    "api.js" SCRIPT,
    "audit.js" SCRIPT,
    "batches.js" SCRIPT,
    "dom.js" SCRIPT,
    "facts.js" SCRIPT,
    "live.js" SCRIPT,
    "overview.js" SCRIPT,
    "parked.js" SCRIPT,
    "queues.js" SCRIPT,
    "run.js" SCRIPT,
    "runs.js" SCRIPT,
    "schedules.js" SCRIPT,
    "sql.js" SCRIPT,
    "states.js" SCRIPT,
    "timeline.js" SCRIPT,
    "topics.js" SCRIPT,
    "workers.js" SCRIPT,
];

/// A file.
pub(crate) struct Asset(&'static str, &'static str);

impl Give for Asset {
    fn shape() -> (&'static str, Option<Value>) {
        (HTML, None)
    }

    fn give(self) -> Response {
        respond(StatusCode::OK, self.0, self.1)
    }
}

type Mine = Cap<actions::KnowOneself, Everywhere>;

/// The page that leads to the dashboard.
pub(crate) async fn lead(_: Mine, _: Ask) -> Result<Asset, Problem> {
    Ok(Asset(HTML, ENTER))
}

/// One of its files.
pub(crate) async fn show(_: Mine, ask: Ask) -> Result<Asset, Problem> {
    let asked = match ask.name() {
        "" => "index.html",
        name => name,
    };
    let found = FILES.iter().find(|(name, ..)| *name == asked);
    let (_, kind, text) = found.ok_or_else(|| Problem::missing("there is no such file"))?;
    Ok(Asset(kind, text))
}

/// It is a page of its own, not a redirection: a cookie that is meant for this site only is not
/// sent with one that began elsewhere.
pub(crate) const ENTER: &str = include_str!("ui/enter.html");

/// What somebody sees there who has not logged in.
pub(crate) fn stranger(path: &str) -> Option<Response> {
    let text = match path {
        "/" => include_str!("ui/stranger.html"),
        "/ui/" => include_str!("ui/stranger-here.html"),
        _ => return None,
    };
    Some(respond(StatusCode::UNAUTHORIZED, HTML, text))
}
