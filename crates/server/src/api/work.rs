//! Working on commands from elsewhere: a program in any language claims them, keeps them while it
//! works, and answers each once.
//!
//! Who claims is given a word that names the worker, and each command comes with one that names
//! run and fence. Both are sealed: they are good for the token that they were given to, in this
//! namespace, and what they name is checked again by the commit that they lead to.

use std::time::Duration;

use roundel::{Answered, Failure, Handed, Held, Name, Payload, RemoteWorker, Retry};
use roundel::{RunId, RunState, Timestamp, Wanted, WorkerId, limits};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Work;
use crate::problem::{Code, Problem};
use crate::route::{Ask, Json};
use crate::shape::{Nothing, Shape, input, output};

/// Queues that one claim may name.
const QUEUES: usize = 64;
/// Bytes of the name that a worker gives itself.
const NAME: usize = 100;
/// A lease unless another is asked for.
const LEASE: Duration = Duration::from_secs(30);
/// The shortest lease.
const SHORTEST: Duration = Duration::from_millis(100);
/// Attempts unless others are asked for.
const ATTEMPTS: u32 = 5;
/// The kinds of words that are handed out.
const WORKER: &str = "worker";
const TOKEN: &str = "lease";

input! {
    /// What is wanted.
    pub(crate) struct ClaimAsked {
        /// The commands of these queues.
        queues: Vec<Name>,
        /// Who claims, as the first claim said; that one has none.
        worker: Option<String>,
        /// What the worker is called, for people.
        name: Option<String>,
        /// So many at most; 1 unless said.
        limit: Option<usize>,
        /// How long each is the worker's, unless it is extended; 30,000 unless said.
        lease_ms: Option<u64>,
        /// How long to wait if there are none; not at all unless said.
        wait_ms: Option<u64>,
    }
}

output! {
    /// What was claimed.
    pub(crate) struct ClaimAnswer {
        /// Say this with the next claim.
        worker: String,
        /// Commands, which have begun. Each is to be answered, or released.
        items: Vec<Command>,
    }
}

output! {
    /// A command that a worker has.
    pub(crate) struct Command {
        /// What it is answered with.
        token: String,
        /// Its run.
        run: RunId,
        /// The queue that it was sent to.
        queue: Name,
        /// The id that it was sent under.
        id: Option<String>,
        /// What it was sent with.
        payload: Payload,
        /// Which attempt this is, from 1.
        attempt: u32,
        /// The same for every attempt, and for no other command: for services that are called.
        idempotency_key: String,
        /// For services that are called, if the command is part of a trace.
        traceparent: Option<String>,
    }
}

pub(crate) async fn claim(
    cap: Work,
    ask: Ask<Nothing, ClaimAsked>,
) -> Result<Json<ClaimAnswer>, Problem> {
    let body = ask.body;
    let most = cap.server.limits.claim;
    let wanted = Wanted {
        limit: body.limit.unwrap_or(1),
        lease: lease(body.lease_ms)?,
        queues: queues(body.queues)?,
    };
    if !(1..=most).contains(&wanted.limit) {
        return Err(Problem::bad(format!("a claim brings 1 to {most} commands")));
    }
    let id = match &body.worker {
        Some(word) => worker_of(&cap, word)?,
        None => WorkerId(uuid::Uuid::new_v4()),
    };
    let wait = Duration::from_millis(body.wait_ms.unwrap_or(0)).min(cap.server.limits.poll_time);
    let name = body.name.unwrap_or_else(|| "worker".to_owned());
    if name.is_empty() || name.len() > NAME || name.contains('\0') {
        return Err(Problem::bad(format!(
            "a worker's name has 1 to {NAME} bytes"
        )));
    }
    let worker = cap
        .client()
        .remote_worker(id, format!("{name} ({})", cap.who.name));
    let items = claimed(&cap, worker, wanted, wait).await?;
    let place = (TOKEN, cap.client().namespace().as_str());
    let shown = |handed: Handed| {
        let token = cap.who.seal.close(place, &token(id, handed.held));
        Command {
            token,
            run: handed.held.run,
            queue: handed.queue,
            id: handed.id,
            payload: handed.payload,
            attempt: handed.attempt,
            idempotency_key: handed.key,
            traceparent: handed.traceparent,
        }
    };
    let worker = (WORKER, cap.client().namespace().as_str());
    let worker = cap.who.seal.close(worker, id.as_bytes());
    let items = items.into_iter().map(shown).collect();
    Ok(Json(ClaimAnswer { worker, items }))
}

/// Claims, and waits for as long as somebody is there to be told. What is claimed for somebody who
/// has gone is given back at once.
async fn claimed(
    cap: &Work,
    worker: RemoteWorker,
    wanted: Wanted,
    wait: Duration,
) -> Result<Vec<Handed>, Problem> {
    let place = match wait.is_zero() {
        true => None,
        false => Some(cap.server.polls.clone().try_acquire_owned().map_err(|_| {
            let text = "as many workers wait as there can be; ask again without waiting";
            Problem::new(Code::Unavailable, text)
        })?),
    };
    let (mut sender, receiver) = oneshot::channel();
    let mut stopping = cap.server.stopping.subscribe();
    drop(tokio::spawn(async move {
        let enough = async {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = sender.closed() => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        };
        let got = worker.claim(&wanted, enough).await;
        drop(place);
        if let Err(Ok(unheard)) = sender.send(got) {
            for one in unheard {
                let _ = worker.release(one.held).await;
            }
        }
    }));
    let gone = |_| Problem::new(Code::Unavailable, "the server stops; nothing was claimed");
    Ok(receiver.await.map_err(gone)??)
}

input! {
    /// Which command, and for how long.
    pub(crate) struct ExtendAsked {
        /// As the claim gave it.
        token: String,
        /// For so long from now; 30,000 unless said.
        lease_ms: Option<u64>,
    }
}

output! {
    /// It is still the worker's.
    pub(crate) struct Extended {
        /// It was asked to end: release it, and it does.
        cancel: bool,
    }
}

pub(crate) async fn extend(
    cap: Work,
    ask: Ask<Nothing, ExtendAsked>,
) -> Result<Json<Extended>, Problem> {
    let (worker, held) = opened(&cap, &ask.body.token)?;
    let kept = worker.extend(held, lease(ask.body.lease_ms)?).await?;
    let cancel = kept.ok_or_else(lost)?;
    Ok(Json(Extended { cancel }))
}

input! {
    /// A reply.
    pub(crate) struct CompleteAsked {
        /// As the claim gave it.
        token: String,
        /// The reply; null unless said.
        result: Option<Payload>,
    }
}

output! {
    /// The answer was taken. The same again says so again.
    pub(crate) struct AnswerTaken {
        /// What the command is now.
        state: RunState,
        /// When it is tried again, if it is.
        retry_at: Option<Timestamp>,
    }
}

pub(crate) async fn complete(
    cap: Work,
    ask: Ask<Nothing, CompleteAsked>,
) -> Result<Json<AnswerTaken>, Problem> {
    let (worker, held) = opened(&cap, &ask.body.token)?;
    let result = super::submit::or_null(ask.body.result);
    taken(worker.complete(held, result).await?)
}

/// What a failure means.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Meaning {
    Business,
    Transient,
    Permanent,
}

impl Shape for Meaning {
    fn schema() -> Value {
        json!({"type": "string", "enum": ["business", "transient", "permanent"]})
    }
}

input! {
    /// A failure.
    pub(crate) struct FailAsked {
        /// As the claim gave it.
        token: String,
        /// `business` is the reply; `transient` is tried again, and then parks the command;
        /// `permanent` parks it at once.
        class: Meaning,
        /// For people.
        message: String,
        /// A word for programs.
        code: Option<String>,
        /// Whatever else there is to say.
        data: Option<Payload>,
        /// How many attempts there are in all; 5 unless said.
        attempts: Option<u32>,
        /// The pause before the next attempt, the same each time; growing from 100 unless said.
        pause_ms: Option<u64>,
    }
}

pub(crate) async fn fail(
    cap: Work,
    ask: Ask<Nothing, FailAsked>,
) -> Result<Json<AnswerTaken>, Problem> {
    let body = ask.body;
    let (worker, held) = opened(&cap, &body.token)?;
    let mut failure = match body.class {
        Meaning::Business => Failure::business(body.message),
        Meaning::Transient => Failure::transient(body.message),
        Meaning::Permanent => Failure::permanent(body.message),
    };
    failure.code = body.code.unwrap_or_default();
    failure.data = body.data.map(Payload::unlike_sealed);
    let attempts = body.attempts.unwrap_or(ATTEMPTS);
    let retry = match body.pause_ms {
        Some(pause) => Retry::fixed(attempts, Duration::from_millis(pause)),
        None => Retry::exponential(attempts),
    };
    taken(worker.fail(held, failure, retry).await?)
}

input! {
    /// Which command.
    pub(crate) struct ReleaseAsked {
        /// As the claim gave it.
        token: String,
    }
}

pub(crate) async fn release(
    cap: Work,
    ask: Ask<Nothing, ReleaseAsked>,
) -> Result<Json<Nothing>, Problem> {
    let (worker, held) = opened(&cap, &ask.body.token)?;
    match worker.release(held).await? {
        true => Ok(Json(Nothing {})),
        false => Err(lost()),
    }
}

input! {
    /// Who goes.
    pub(crate) struct LeaveAsked {
        /// As the claim gave it.
        worker: String,
    }
}

pub(crate) async fn leave(
    cap: Work,
    ask: Ask<Nothing, LeaveAsked>,
) -> Result<Json<Nothing>, Problem> {
    let id = worker_of(&cap, &ask.body.worker)?;
    cap.client().remote_worker(id, "").leave().await?;
    Ok(Json(Nothing {}))
}

fn taken(answered: Answered) -> Result<Json<AnswerTaken>, Problem> {
    match answered {
        Answered::Taken(state, at) => {
            let retry_at = at.filter(|_| !state.has_ended() && state != RunState::Parked);
            Ok(Json(AnswerTaken { state, retry_at }))
        }
        Answered::Lost => Err(lost()),
    }
}

fn lost() -> Problem {
    let text = "the command is not this worker's any more: its lease ended, or it was answered \
                otherwise; drop it, and claim again";
    Problem::new(Code::LeaseLost, text)
}

fn lease(asked: Option<u64>) -> Result<Duration, Problem> {
    let lease = asked.map_or(LEASE, Duration::from_millis);
    match (SHORTEST..=limits::LEASE).contains(&lease) {
        true => Ok(lease),
        false => {
            let text = format!("a lease lasts {SHORTEST:?} to {:?}", limits::LEASE);
            Err(Problem::bad(text))
        }
    }
}

fn queues(asked: Vec<Name>) -> Result<Vec<Name>, Problem> {
    if asked.is_empty() || asked.len() > QUEUES {
        return Err(Problem::bad(format!("a claim names 1 to {QUEUES} queues")));
    }
    if let Some(own) = asked
        .iter()
        .find(|name| name.as_str().starts_with("roundel."))
    {
        return Err(Problem::bad(format!("`{own}` is the engine's own")));
    }
    Ok(asked)
}

fn worker_of(cap: &Work, word: &str) -> Result<WorkerId, Problem> {
    let place = (WORKER, cap.client().namespace().as_str());
    let id = cap.who.seal.open::<16>(place, word);
    let text = "the worker is none that a claim of this token named; claim without one";
    let id = id.ok_or_else(|| Problem::bad(text))?;
    Ok(WorkerId::from_bytes(id))
}

/// Worker, run, when it was sent, fence.
fn token(worker: WorkerId, held: Held) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..16].copy_from_slice(worker.as_bytes());
    bytes[16..32].copy_from_slice(held.run.as_bytes());
    bytes[32..40].copy_from_slice(&held.created_at.0.to_be_bytes());
    bytes[40..].copy_from_slice(&held.epoch.to_be_bytes());
    bytes
}

/// Who holds what, as the token says.
fn opened(cap: &Work, word: &str) -> Result<(RemoteWorker, Held), Problem> {
    let place = (TOKEN, cap.client().namespace().as_str());
    let text = "the token is none that a claim gave, here and to whoever asks now";
    let bytes = cap.who.seal.open::<48>(place, word);
    let bytes = bytes.ok_or_else(|| Problem::new(Code::LeaseLost, text))?;
    let part = |at: usize| bytes[at..at + 16].try_into().expect("16 bytes");
    let number = |at: usize| bytes[at..at + 8].try_into().expect("8 bytes");
    let worker = WorkerId::from_bytes(part(0));
    let held = Held {
        run: RunId::from_bytes(part(16)),
        created_at: Timestamp(i64::from_be_bytes(number(32))),
        epoch: u64::from_be_bytes(number(40)),
    };
    let name = cap.who.name.to_string();
    Ok((cap.client().remote_worker(worker, name), held))
}
