//! Routes: what is asked for where, by whom, in what shape. A route is made of a handler whose
//! first argument is a [`Cap`]; its action, its place and its shapes are read off its type.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use roundel::{Name, Trace, masked};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::auth::cap::{Cap, Place};
use crate::auth::{Action, Who};
use crate::limits::Limits;
use crate::problem::{Code, Problem};
use crate::server::{Shared, cookie};
use crate::shape::{Nothing, Shape};

/// What a request asks with, once it is known that it may.
pub(crate) struct Ask<Q = Nothing, B = Nothing> {
    /// What the path names, in order, after the namespace.
    pub(crate) named: Vec<String>,
    pub(crate) query: Q,
    pub(crate) body: B,
    /// `Idempotency-Key`.
    pub(crate) key: Option<Name>,
    /// `traceparent`, if it is one: nobody is refused for the traces of others.
    pub(crate) trace: Option<Trace>,
    /// What is in the cookie.
    pub(crate) session: Option<String>,
}

impl<Q, B> Ask<Q, B> {
    /// The thing that the path names.
    pub(crate) fn name(&self) -> &str {
        self.named.first().map_or("", String::as_str)
    }

    /// The key under which this is done once: in the header, or as the body says.
    pub(crate) fn key_or(&self, said: Option<&Name>) -> Result<Option<Name>, Problem> {
        match (&self.key, said) {
            (Some(one), Some(other)) if one != other => Err(Problem::bad(
                "the header Idempotency-Key and the key in the body differ; leave one of them out",
            )),
            (Some(key), _) | (None, Some(key)) => Ok(Some(key.clone())),
            (None, None) => Ok(None),
        }
    }
}

/// What a handler gives.
pub(crate) trait Give {
    /// Its content type, and its schema if it is JSON.
    fn shape() -> (&'static str, Option<Value>);
    fn give(self) -> Response;
}

/// As JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Shape + Serialize> Give for Json<T> {
    fn shape() -> (&'static str, Option<Value>) {
        ("application/json", Some(T::schema()))
    }

    fn give(self) -> Response {
        match serde_json::to_string(&self.0) {
            // What could not be opened here is told to be sealed, wherever it stands.
            Ok(text) => {
                let text = masked(&text).into_owned();
                respond(StatusCode::OK, "application/json", text)
            }
            Err(error) => {
                tracing::error!(%error, "an answer has no JSON form");
                let text = "the answer cannot be written; the server's log says why";
                axum::response::IntoResponse::into_response(Problem::new(Code::Broken, text))
            }
        }
    }
}

pub(crate) fn respond(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A request that passed the guards.
pub(crate) struct Raw {
    pub(crate) params: Vec<(String, String)>,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;
type Handler = Arc<dyn Fn(Arc<Shared>, Arc<Who>, Raw) -> Answering + Send + Sync>;

/// What can be known of a route without asking it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// How.
    pub method: Method,
    /// Where.
    pub path: &'static str,
    /// What for, in a few words.
    pub about: &'static str,
    /// The action that a role must allow.
    pub action: &'static str,
    /// Is it in a namespace?
    pub in_namespace: bool,
    /// Is it in all of them at once?
    pub in_all: bool,
    /// The schema of what stands after the question mark.
    pub query: Value,
    /// The schema of the body, if it takes one.
    pub body: Value,
    /// The content type of the answer, and its schema.
    pub gives: (&'static str, Option<Value>),
}

/// A route.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) listed: Listed,
    pub(crate) handler: Handler,
}

/// The path of a route, how it is asked and what for.
pub(crate) type At = (Method, &'static str, &'static str);

impl Route {
    pub(crate) fn new<A, P, Q, B, R, F, Fut>((method, path, about): At, handler: F) -> Route
    where
        A: Action,
        P: Place,
        Q: Shape + DeserializeOwned + Send + 'static,
        B: Shape + DeserializeOwned + Send + 'static,
        R: Give,
        F: Fn(Cap<A, P>, Ask<Q, B>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Problem>> + Send + 'static,
    {
        let listed = Listed {
            method,
            path,
            about,
            action: A::WORD,
            in_namespace: P::NAMED,
            in_all: P::ALL,
            query: Q::schema(),
            body: B::schema(),
            gives: R::shape(),
        };
        let query_schema = Arc::new(Q::schema());
        let handler = move |server: Arc<Shared>, who: Arc<Who>, mut raw: Raw| -> Answering {
            let (handler, schema) = (handler.clone(), query_schema.clone());
            Box::pin(async move {
                let first = P::NAMED.then(|| raw.params.remove(0).1);
                let cap = Cap::<A, P>::check(&server, who, first.as_deref())?;
                let ask = Ask {
                    named: raw.params.into_iter().map(|(_, value)| value).collect(),
                    query: read_query(&raw.query, &schema)?,
                    key: key(&raw.headers)?,
                    trace: trace(&raw.headers),
                    session: cookie(&raw.headers).map(str::to_owned),
                    body: read_body(raw.body, &raw.headers, &server.limits).await?,
                };
                Ok(handler(cap, ask).await?.give())
            })
        };
        Route {
            listed,
            handler: Arc::new(handler),
        }
    }
}

fn key(headers: &HeaderMap) -> Result<Option<Name>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = key.to_str().map_err(|_| {
        Problem::bad("the header Idempotency-Key has characters that are not plain text")
    })?;
    Ok(Some(Name::new(text.to_owned())?))
}

fn trace(headers: &HeaderMap) -> Option<Trace> {
    let mut said = headers.get_all("traceparent").iter();
    let one = said.next().filter(|_| said.next().is_none())?;
    Trace::parse(one.to_str().ok()?)
}

/// What stands after the question mark, as an object of this schema: texts become numbers and truth
/// values where it says so.
fn read_query<Q: DeserializeOwned>(query: &str, schema: &Value) -> Result<Q, Problem> {
    let mut found = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        let kind = &schema["properties"][&name]["type"];
        let is = |word: &str| match kind {
            Value::Array(words) => words.iter().any(|kind| kind == word),
            kind => kind == word,
        };
        let value = match value.as_str() {
            "true" if is("boolean") => Value::Bool(true),
            "false" if is("boolean") => Value::Bool(false),
            text if is("integer") => text.parse::<i64>().map_or(value.into(), Value::from),
            _ => Value::String(value),
        };
        if found.insert(name.clone(), value).is_some() {
            return Err(Problem::bad(format!("`{name}` is said twice")));
        }
    }
    let query = serde_json::from_value(Value::Object(found));
    query.map_err(|error| Problem::bad(format!("what follows the question mark: {error}")))
}

/// `%20` and `+` as what they stand for.
pub(crate) fn decoded(text: &str) -> Result<String, Problem> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                let value = digit().and_then(|high| Some(high * 16 + digit()?));
                let value = value.and_then(|value| u8::try_from(value).ok());
                value.ok_or_else(|| Problem::bad("a `%` is not followed by two hex digits"))?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Problem::bad("the address is not UTF-8"))
}

async fn read_body<B: DeserializeOwned>(
    body: Body,
    headers: &HeaderMap,
    limits: &Limits,
) -> Result<B, Problem> {
    let bytes = collect(body, headers, limits).await?;
    if bytes.is_empty() {
        let error = |error| Problem::bad(format!("a body is missing: {error}"));
        return serde_json::from_str("{}").map_err(error);
    }
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let text = "the body must be sent as application/json";
        return Err(Problem::new(Code::NotJson, text));
    }
    let bad = |error: serde_json::Error| Problem::bad(format!("the body: {error}"));
    // Numbers that are none, and depths that nobody can read, are refused wherever they stand.
    serde_json::from_slice::<Value>(&bytes).map_err(bad)?;
    serde_json::from_slice(&bytes).map_err(bad)
}

/// The bytes of a body: no more than are allowed, in the time that is allowed.
pub(crate) async fn collect(
    body: Body,
    headers: &HeaderMap,
    limits: &Limits,
) -> Result<Bytes, Problem> {
    let too_large = || {
        let text = format!("the body has more than {} bytes", limits.body_bytes);
        Problem::new(Code::TooLarge, text)
    };
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limits.body_bytes) {
        return Err(too_large());
    }
    let all = async {
        let (mut stream, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(part) = stream.next().await {
            let part = part.map_err(|_| Problem::bad("the body ended before its end"))?;
            if bytes.len() + part.len() > limits.body_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&part);
        }
        Ok(Bytes::from(bytes))
    };
    match tokio::time::timeout(limits.body_time, all).await {
        Ok(bytes) => bytes,
        Err(_) => {
            let text = format!("the body took more than {:?}", limits.body_time);
            Err(Problem::new(Code::TooSlow, text))
        }
    }
}
