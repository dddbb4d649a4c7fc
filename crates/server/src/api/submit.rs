//! Starting runs and sending messages.

use std::collections::BTreeMap;
use std::time::Duration;

use roundel::{Name, Payload, PublicationId, RunId, RunState, StartRun, TRACEPARENT, Trace};

use super::{Submit, to};
use crate::problem::{Code, Problem};
use crate::route::{Ask, Json};
use crate::shape::{Nothing, input, output};

input! {
    /// A start.
    pub(crate) struct StartAsked {
        /// The workflow.
        workflow: Name,
        /// With what; null unless said.
        input: Option<Payload>,
        /// Your own id for the run: starting it again gives the first. Also as Idempotency-Key.
        key: Option<Name>,
        /// For search.
        labels: Option<BTreeMap<String, String>>,
        /// Exactly this version.
        version: Option<u32>,
        /// Lower is taken up first.
        priority: Option<i32>,
        /// On whose behalf.
        flow_key: Option<Name>,
        /// Not before so many milliseconds from now.
        delay_ms: Option<u64>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct Started {
        /// The run.
        run: RunId,
        /// It was not there before.
        new: bool,
    }
}

pub(crate) async fn start(
    cap: Submit,
    ask: Ask<Nothing, StartAsked>,
) -> Result<Json<Started>, Problem> {
    let (key, trace) = (ask.key_or(ask.body.key.as_ref())?, ask.trace);
    let body = ask.body;
    let mut start = cap.client().start_named(body.workflow, or_null(body.input));
    if let Some(version) = body.version {
        start = start.version(version);
    }
    let said = (body.labels, body.priority, body.flow_key, body.delay_ms);
    begin(start, (key, trace), said).await
}

pub(super) fn or_null(payload: Option<Payload>) -> Payload {
    payload.unwrap_or_else(Payload::null)
}

/// Labels, priority, flow key and delay.
pub(super) type Said = (
    Option<BTreeMap<String, String>>,
    Option<i32>,
    Option<Name>,
    Option<u64>,
);

pub(super) async fn begin(
    mut start: StartRun<Payload>,
    (key, trace): (Option<Name>, Option<Trace>),
    (labels, priority, flow_key, delay): Said,
) -> Result<Json<Started>, Problem> {
    if let Some(key) = key {
        start = start.key(key.to_string());
    }
    if let Some(trace) = trace {
        start = start.context(TRACEPARENT, &trace.to_string());
    }
    for (name, value) in labels.into_iter().flatten() {
        start = start.label(name, value);
    }
    if let Some(priority) = priority {
        start = start.priority(priority);
    }
    if let Some(key) = flow_key {
        start = start.flow_key(key.to_string());
    }
    if let Some(delay) = delay {
        start = start.delay(Duration::from_millis(delay));
    }
    let run = start.await?;
    Ok(Json(Started {
        run: run.id(),
        new: run.is_new(),
    }))
}

input! {
    /// A signal.
    pub(crate) struct SignalAsked {
        /// Its name.
        signal: Name,
        /// What it says; null unless said.
        payload: Option<Payload>,
        /// Sending it again under this key does nothing. Also as Idempotency-Key.
        key: Option<Name>,
    }
}

output! {
    /// What became of it.
    pub(crate) struct SentAnswer {
        /// `delivered`, `queued`, `dropped` or `target_ended`.
        sent: &'static str,
        /// The run that got it.
        run: Option<RunId>,
        /// How the run had ended.
        state: Option<RunState>,
    }
}

fn answered(sent: roundel::Sent) -> Result<Json<SentAnswer>, Problem> {
    use roundel::Sent;
    let (sent, run, state) = match sent {
        Sent::Delivered(run) => ("delivered", Some(run), None),
        Sent::Queued => ("queued", None, None),
        Sent::Dropped => ("dropped", None, None),
        Sent::TargetEnded(state) => ("target_ended", None, Some(state)),
        Sent::TargetUnknown => {
            let text = "there is no such run in this namespace; it may have been deleted";
            return Err(Problem::new(Code::NotFound, text));
        }
    };
    Ok(Json(SentAnswer { sent, run, state }))
}

pub(crate) async fn signal(
    cap: Submit,
    ask: Ask<Nothing, SignalAsked>,
) -> Result<Json<SentAnswer>, Problem> {
    let (key, run) = (ask.key_or(ask.body.key.as_ref())?, to(ask.name()));
    let SignalAsked {
        signal, payload, ..
    } = ask.body;
    let mut send = cap.client().signal_named(run, signal, or_null(payload));
    if let Some(key) = key {
        send = send.key(key.to_string());
    }
    answered(send.await?)
}

pub(crate) async fn offer(
    cap: Submit,
    ask: Ask<Nothing, SignalAsked>,
) -> Result<Json<SentAnswer>, Problem> {
    let key = ask.key_or(ask.body.key.as_ref())?;
    let SignalAsked {
        signal, payload, ..
    } = ask.body;
    let mut send = cap.client().offer_named(signal, or_null(payload));
    if let Some(key) = key {
        send = send.key(key.to_string());
    }
    answered(send.await?)
}

input! {
    /// Something to publish.
    pub(crate) struct PublishAsked {
        /// What it says; null unless said.
        payload: Option<Payload>,
    }
}

output! {
    /// What came of it.
    pub(crate) struct PublishAnswer {
        /// Its id.
        publication: PublicationId,
        /// How many runs it started.
        heard: u32,
    }
}

pub(crate) async fn publish(
    cap: Submit,
    ask: Ask<Nothing, PublishAsked>,
) -> Result<Json<PublishAnswer>, Problem> {
    if ask.key.is_some() {
        let text = "what is published has no idempotency key: repeating it publishes it again; \
                    leave the key out if that is meant";
        return Err(Problem::bad(text));
    }
    let topic = Name::new(ask.name().to_owned())?;
    let published = cap
        .client()
        .publish_named(topic, or_null(ask.body.payload))
        .await?;
    Ok(Json(PublishAnswer {
        publication: published.id,
        heard: published.heard,
    }))
}
