//! What one operation changes: the only place where state changes are decided.
//!
//! Invariants: a refused operation changes nothing. Fences are checked before anything else. What
//! one round causes and the round itself are decided together. `now` comes in and never goes back.

mod audits;
mod batches;
mod checks;
mod conditions;
mod ends;
mod facts;
mod incoming;
mod leases;
mod leftovers;
mod operators;
mod projections;
mod queues;
mod rounds;
mod scopes;
mod signals;
mod starts;
mod states;
mod undos;
mod wakes;

pub(crate) use batches::is_batch;
pub use checks::may_step;
pub(crate) use ends::latch_of;
pub use undos::undone;

use crate::message::KeyId;
use crate::{GateId, KeyKind, Name, Op, Refusal, Reply, Rows, RunId, Signal, Target, Timestamp};

/// What one operation changes. Same rows, operation and time in, same changes out.
///
/// # Errors
/// When the operation is refused; then nothing has changed.
pub fn decide(op: &Op, rows: &mut Rows, now: Timestamp) -> Result<Reply, Refusal> {
    rows.claimed.clear();
    match op {
        Op::Start(start) => starts::start(start, rows, now).map(|mut started| {
            started.claimed = taken(rows);
            Reply::Started(started)
        }),
        Op::Commit(round) => rounds::commit(round, rows, now).map(|mut committed| {
            committed.claimed = taken(rows);
            Reply::Committed(committed)
        }),
        Op::Signal(signal) => {
            signals::send(signal, rows, now).map(|sent| Reply::Sent(sent, taken(rows)))
        }
        Op::Offer(offer) => {
            signals::offer(offer, rows, now).map(|sent| Reply::Sent(sent, taken(rows)))
        }
        Op::Redirect(redirect) => {
            leftovers::redirect(redirect, rows, now).map(|sent| Reply::Sent(sent, taken(rows)))
        }
        Op::Cancel(cancel) => {
            let answer = operators::cancel(cancel, rows, now);
            Ok(Reply::Cancelled(answer, taken(rows)))
        }
        Op::Patch(patch) => operators::patch(patch, rows, now).map(Reply::Patched),
        Op::Claim(claim) => leases::claim(claim, rows, now),
        Op::Renew(renew) => Ok(Reply::Renewed(leases::renew(renew, rows, now))),
        Op::Release(release) => Ok(Reply::Released(leases::release(release, rows, now))),
        Op::Register(register) => leases::register(register, rows, now),
        Op::Publish(publish) => scopes::publish(publish, None, rows, now).map(Reply::Published),
        Op::Subscribe(subscribe) => scopes::subscribe(subscribe, rows, now).map(Reply::Subscribed),
        Op::Join(join) => scopes::join(join, rows, now).map(Reply::Joined),
        Op::Complete(complete) => operators::complete(complete, rows, now),
        Op::Undo(undo) => undos::undo(undo, rows, now).map(Reply::Undone),
        Op::Accept(accept) => undos::accept(accept, rows, now),
        Op::Park(park) => operators::park(park, rows, now),
        Op::Resume(resume) => operators::resume(resume, rows, now),
        Op::Delete(delete) => operators::delete(delete, rows, now),
        Op::IfParked(parked) => operators::if_parked(parked, rows, now),
        Op::Limit(limit) => queues::limit(limit, rows, now).map(Reply::Limited),
        Op::Record(record) => facts::record(record, rows, now).map(Reply::Recorded),
        Op::Receive(receive) => incoming::receive(receive, rows, now).map(Reply::Received),
        Op::Declare(declare) => projections::declare(declare, rows).map(Reply::Projected),
        Op::Rebuild(rebuild) => projections::rebuild(rebuild, rows).map(Reply::Projected),
        Op::SkipFact(skip) => projections::skip(skip, rows).map(Reply::Projected),
        Op::Follow(follow) => projections::follow(follow, rows, now).map(Reply::Followed),
        Op::Audited(audited) => audits::audited(audited, rows, now),
        Op::Forget(forget) => Ok(Reply::Forgotten(operators::forget(forget, rows, now))),
    }
}

fn taken(rows: &mut Rows) -> Vec<crate::Claimed> {
    std::mem::take(&mut rows.claimed)
}

/// The run that is meant, if it exists in that namespace.
pub(crate) fn target_run(rows: &Rows, namespace: &Name, target: &Target) -> Option<RunId> {
    let id = match target {
        Target::Run(run) => *run,
        Target::Key(key) => rows.keys.get(&run_key(namespace, key))?.run?,
    };
    let row = rows.run(id)?;
    (rows.lane(row.lane).namespace == *namespace).then_some(id)
}

/// The run that is meant, or why not.
fn require_run(rows: &Rows, namespace: &Name, target: &Target) -> Result<RunId, Refusal> {
    target_run(rows, namespace, target).ok_or_else(|| match target {
        Target::Run(run) => Refusal::UnknownRun { run: *run },
        Target::Key(key) => Refusal::UnknownKey { key: key.clone() },
    })
}

/// The key under which a run is found by the user's own id.
pub(crate) fn run_key(namespace: &Name, key: &Name) -> KeyId {
    KeyId {
        namespace: namespace.clone(),
        kind: KeyKind::Run,
        key: key.as_str().to_owned(),
    }
}

/// The key under which a sender's repeated signal is recognised.
pub(crate) fn sender_key(signal: &Signal, key: &Name) -> KeyId {
    let target = match &signal.target {
        Target::Run(run) => {
            let mut text = uuid::Uuid::encode_buffer();
            let run = run.0.as_hyphenated().encode_lower(&mut text);
            ["run/", run, "/", key.as_str()].concat()
        }
        Target::Key(name) => format!("key/{}/{name}/{key}", name.as_str().len()),
    };
    KeyId {
        namespace: signal.namespace.clone(),
        kind: KeyKind::Sender,
        key: target,
    }
}

/// The key under which a sender's repeated offer is recognised.
pub(crate) fn offer_key(gate: &GateId, key: &Name) -> KeyId {
    let key = format!("offer/{}/{}/{key}", gate.name.as_str().len(), gate.name);
    KeyId {
        namespace: gate.namespace.clone(),
        kind: KeyKind::Sender,
        key,
    }
}
