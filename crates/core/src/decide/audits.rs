//! Operations in somebody's name: decided as they are, and written down in the same commit.

use super::target_run;
use crate::audit::UNSEALED;
use crate::mutant::{self, Mutant};
use crate::{
    AuditId, AuditRow, Audited, BadName, Cancelled, Destination, Joined, Op, Patched, Payload,
    QueueId, Refusal, Reply, Rows, RunId, RunState, Sent, Target, Timestamp, Undone, limits,
};

/// Decides what was asked for, and notes who asked, why, and what came of it.
pub(super) fn audited(
    audited: &Audited,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Reply, Refusal> {
    let reason = &audited.reason;
    Refusal::over(
        "a reason's size in bytes",
        limits::REASON_BYTES,
        reason.len(),
    )?;
    if let Some(at) = reason.find(|c: char| c.is_control() && c != '\n') {
        return Err(BadName::Control(at).into());
    }
    let Some(about) = audited.op.about() else {
        return Err(Refusal::NotAudited);
    };
    let namespace = about.namespace.clone();
    let target = about.target.as_ref();
    let run = target.and_then(|target| target_run(rows, &namespace, target));
    let reply = super::decide(&audited.op, rows, now)?;
    let (number, before) = match rows.last_audit(&namespace) {
        Some((id, row)) => (id.number + 1, row.seal),
        None => (1, UNSEALED),
    };
    let id = AuditId { namespace, number };
    let mut row = AuditRow {
        at: now,
        operator: audited.operator.clone(),
        reason: reason.clone(),
        action: about.action.to_owned(),
        target: about.named(),
        run: run.or_else(|| started(&reply)),
        detail: about.detail.cloned(),
        answer: answer(&reply),
        seal: UNSEALED,
    };
    row.seal = row.sealed(&id, &before);
    if !mutant::on(Mutant::AuditLost) {
        rows.audit.put(id, row);
    }
    Ok(reply)
}

fn started(reply: &Reply) -> Option<RunId> {
    match reply {
        Reply::Started(started) => Some(started.run),
        Reply::Joined(Joined::New(run) | Joined::Already(run)) => Some(*run),
        _ => None,
    }
}

/// What came of it, in a few words.
fn answer(reply: &Reply) -> String {
    let ended = |state: &RunState| format!("had ended: {}", state.as_str());
    match reply {
        Reply::Started(started) if started.new => "started".into(),
        Reply::Started(_) => "was there".into(),
        Reply::Sent(Sent::Delivered(run), _) => format!("delivered to {run}"),
        Reply::Sent(Sent::Queued, _) => "kept".into(),
        Reply::Sent(Sent::Dropped, _) => "dropped".into(),
        Reply::Sent(Sent::TargetEnded(state), _)
        | Reply::Cancelled(Cancelled::AlreadyEnded(state), _)
        | Reply::Patched(Patched::TargetEnded(state)) => ended(state),
        Reply::Sent(Sent::TargetUnknown, _)
        | Reply::Cancelled(Cancelled::TargetUnknown, _)
        | Reply::Patched(Patched::TargetUnknown) => "unknown".into(),
        Reply::Cancelled(Cancelled::Requested, _) => "requested".into(),
        Reply::Cancelled(Cancelled::RollingBack, _) => "rolls back already".into(),
        Reply::Patched(Patched::Changed(state)) => format!("version {}", state.version),
        Reply::Patched(Patched::VersionIs(version)) => format!("refused: version is {version}"),
        Reply::Published(published) => format!("heard by {}", published.heard),
        Reply::Subscribed(changed) => if *changed { "done" } else { "was so" }.into(),
        Reply::Joined(Joined::Late | Joined::Unknown) => "too late".into(),
        Reply::Undone(Undone::Begun { .. }) => "begun".into(),
        Reply::Undone(Undone::Already(state)) => format!("was {}", state.as_str()),
        Reply::Deleted { runs, more } => match more {
            true => format!("{runs} runs, and more to come"),
            false => format!("{runs} runs"),
        },
        Reply::Limited(row) => row.to_string(),
        Reply::Forgotten(gone) => if *gone { "done" } else { "in use" }.into(),
        _ => "done".into(),
    }
}

/// What an operation in somebody's name is about.
pub(crate) struct About<'o> {
    pub(crate) namespace: &'o crate::Name,
    pub(crate) action: &'static str,
    pub(crate) target: Option<Target>,
    /// What it is about where that is no run, or only part of one.
    name: String,
    pub(crate) detail: Option<&'o Payload>,
}

impl About<'_> {
    fn named(&self) -> String {
        match &self.target {
            _ if !self.name.is_empty() => self.name.clone(),
            Some(Target::Run(run)) => run.to_string(),
            Some(Target::Key(key)) => key.to_string(),
            None => String::new(),
        }
    }
}

impl Op {
    /// What it is about, if somebody can ask for it: what workers do is not audited.
    pub(crate) fn about(&self) -> Option<About<'_>> {
        let (namespace, action, target, detail) = match self {
            Op::Start(op) => {
                let target = op.key.clone().map_or(Target::Run(op.run), Target::Key);
                (&op.namespace, "start", target, None)
            }
            Op::Signal(op) => {
                let detail = Some(&op.payload);
                (&op.namespace, "signal", op.target.clone(), detail)
            }
            Op::Cancel(op) => {
                let action = match op.keep {
                    true => "cancel without undo",
                    false => "cancel",
                };
                (&op.namespace, action, op.target.clone(), None)
            }
            Op::Patch(op) => (&op.namespace, "patch", op.target.clone(), Some(&op.patch)),
            Op::Complete(op) => {
                let detail = Some(&op.value);
                (&op.namespace, "complete", op.target.clone(), detail)
            }
            Op::Undo(op) => (&op.namespace, "undo", op.target.clone(), None),
            Op::Park(op) => (&op.namespace, "park", op.target.clone(), None),
            Op::Resume(op) => {
                let action = match (op.skip, &op.anew) {
                    (true, _) => "skip",
                    (_, Some(_)) => "retry edited",
                    _ => "retry",
                };
                (&op.namespace, action, op.target.clone(), None)
            }
            Op::Accept(op) => (&op.namespace, "accept", op.target.clone(), None),
            Op::Delete(op) => (&op.namespace, "delete", op.target.clone(), None),
            Op::IfParked(parked) => return parked.op.about(),
            _ => return self.about_no_run(),
        };
        Some(About {
            namespace,
            action,
            target: Some(target),
            name: String::new(),
            detail,
        })
    }

    /// What it is about that is no run, or only part of one.
    fn about_no_run(&self) -> Option<About<'_>> {
        let mut target = None;
        let (namespace, action, name, detail) = match self {
            Op::Offer(op) => {
                let detail = Some(&op.payload);
                (&op.namespace, "offer", op.name.to_string(), detail)
            }
            Op::Redirect(op) => {
                let action = match &op.to {
                    Destination::Out => "discard",
                    Destination::Offer => "offer parked",
                    Destination::Run(_) => "replay",
                };
                target = Some(Target::Run(op.run));
                (
                    &op.namespace,
                    action,
                    format!("{}/{}", op.run, op.number),
                    None,
                )
            }
            Op::Publish(op) => {
                let detail = Some(&op.payload);
                (&op.namespace, "publish", op.topic.to_string(), detail)
            }
            Op::Subscribe(op) => {
                let action = if op.on { "subscribe" } else { "unsubscribe" };
                let name = format!("{}: {}", op.topic, op.workflow);
                (&op.namespace, action, name, None)
            }
            Op::Join(op) => {
                let name = format!("{}: {}", op.publication, op.workflow);
                (&op.namespace, "join", name, None)
            }
            Op::Forget(op) => (&op.namespace, "forget", op.publication.to_string(), None),
            Op::Rebuild(op) => (
                &op.projection.namespace,
                "rebuild",
                op.projection.name.to_string(),
                None,
            ),
            Op::SkipFact(op) => {
                let name = format!("{}: {}", op.projection.name, op.fact);
                (&op.projection.namespace, "skip fact", name, None)
            }
            Op::Limit(op) => {
                let QueueId { namespace, queue } = &op.queue;
                (namespace, op.action(), queue.to_string(), None)
            }
            _ => return None,
        };
        Some(About {
            namespace,
            action,
            target,
            name,
            detail,
        })
    }
}
