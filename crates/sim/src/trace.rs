//! What happened, in order: a number always, text when somebody reads it.

use roundel_core::{Op, Refusal, Reply, RunId, Timestamp};

/// A fingerprint of a schedule, and its lines if they are wanted.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn silent() -> Trace {
        Trace {
            hash: 0xCBF2_9CE4_8422_2325,
            lines: None,
        }
    }

    pub(crate) fn told() -> Trace {
        Trace {
            lines: Some(Vec::new()),
            ..Trace::silent()
        }
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value)
            .wrapping_mul(0x0100_0000_01B3)
            .rotate_left(29);
    }

    /// An operation, and what the store said.
    pub(crate) fn op(&mut self, now: Timestamp, op: &Op, answer: &Result<Reply, Refusal>) {
        let (kind, run) = kind(op);
        self.mix(now.0.unsigned_abs());
        self.mix(kind.len() as u64 ^ u64::from(kind.as_bytes()[0]) << 8);
        self.mix(run.map_or(0, |run| run.0.as_u64_pair().1));
        self.mix(u64::from(answer.is_ok()));
        if matches!(answer, Ok(Reply::Claimed { runs, .. }) if runs.is_empty()) {
            return;
        }
        self.say(now, || {
            let of = run.map(|run| format!(" {run}")).unwrap_or_default();
            let detail = detail(op);
            match answer {
                Ok(reply) => format!("{kind}{of}{detail}: {}", shown(reply)),
                Err(refusal) => format!("{kind}{of}{detail}: refused: {refusal}"),
            }
        });
    }

    pub(crate) fn say(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now}  {}", line()));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

fn detail(op: &Op) -> String {
    match op {
        Op::Commit(round) => format!(
            " epoch {} of {}, {} entries, then {}",
            round.epoch,
            round.worker,
            round.count,
            format!("{:?}", round.then)
                .chars()
                .take(60)
                .collect::<String>()
        ),
        Op::Claim(claim) => format!(" for {}", claim.worker),
        Op::Renew(renew) => format!(" for {}, {} runs", renew.worker, renew.runs.len()),
        Op::Start(start) => format!(" of {}", start.workflow),
        _ => String::new(),
    }
}

fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Claimed { runs, .. } => format!("{} runs", runs.len()),
        Reply::Committed(committed) => {
            format!("epoch {}, kept {}", committed.epoch, committed.kept)
        }
        Reply::Started(started) => format!("new {}", started.new),
        other => format!("{other:?}"),
    }
}

fn kind(op: &Op) -> (&'static str, Option<RunId>) {
    let of = |target: &roundel_core::Target| match target {
        roundel_core::Target::Run(run) => Some(*run),
        roundel_core::Target::Key(_) => None,
    };
    match op.asked() {
        Op::Start(start) => ("start", Some(start.run)),
        Op::Commit(round) => ("commit", Some(round.run)),
        Op::Signal(signal) => ("signal", of(&signal.target)),
        Op::Offer(_) => ("offer", None),
        Op::Cancel(cancel) => ("cancel", of(&cancel.target)),
        Op::Patch(patch) => ("patch", of(&patch.target)),
        Op::Claim(_) => ("claim", None),
        Op::Renew(_) => ("renew", None),
        Op::Release(release) => ("release", release.runs.first().copied()),
        Op::Register(_) => ("register", None),
        Op::Publish(_) => ("publish", None),
        Op::Subscribe(_) => ("subscribe", None),
        Op::Join(_) => ("join", None),
        Op::Complete(complete) => ("complete", of(&complete.target)),
        Op::Undo(undo) => ("undo", of(&undo.target)),
        Op::Accept(accept) => ("accept", of(&accept.target)),
        Op::Park(park) => ("park", of(&park.target)),
        Op::Resume(resume) => ("resume", of(&resume.target)),
        Op::Delete(delete) => ("delete", of(&delete.target)),
        Op::Forget(_) => ("forget", None),
        Op::Redirect(redirect) => ("redirect", Some(redirect.run)),
        Op::IfParked(_) => ("if parked", None),
        Op::Record(_) => ("record", None),
        Op::Receive(_) => ("receive", None),
        Op::Declare(_) => ("declare", None),
        Op::Rebuild(_) => ("rebuild", None),
        Op::SkipFact(_) => ("skip fact", None),
        Op::Follow(_) => ("follow", None),
        Op::Limit(_) => ("limit", None),
        Op::Audited(_) => ("audited", None),
    }
}
