//! What a request asks for, in words: so that a failure says which commit it was.

use std::collections::BTreeMap;

use roundel_core::{Caused, Entry, Op, Outcome, Round, RunId, Start, Then, decode_entries};
use roundel_store::Ask;

/// Parts of one commit that are told.
const PARTS: usize = 4;

/// Names of runs and calls, learnt from what passes by.
#[derive(Default)]
pub(super) struct Words {
    runs: BTreeMap<RunId, String>,
    /// How many runs of a workflow there were.
    counts: BTreeMap<String, u32>,
    calls: BTreeMap<(RunId, u32), String>,
}

impl Words {
    /// What is asked for.
    pub(super) fn ask(&mut self, ask: &Ask) -> String {
        match ask {
            Ask::Op(op) => self.op(op),
            Ask::Work(work) => {
                let (run, ..) = work.lease();
                format!("the commit that runs a step of {}", self.run(run))
            }
        }
    }

    fn op(&mut self, op: &Op) -> String {
        match op {
            Op::Start(start) => {
                let run = self.start(start);
                match &start.first {
                    None => format!("the start of {run}"),
                    Some(round) => {
                        let parts = self.parts(round);
                        format!("the commit that started {run}, {parts}")
                    }
                }
            }
            Op::Commit(round) => self.round(round),
            Op::Signal(signal) => format!("the signal `{}`", signal.name),
            Op::Offer(offer) => format!("the offer `{}`", offer.name),
            Op::Redirect(_) => "what is done about a parked signal".into(),
            Op::IfParked(parked) => self.op(&parked.op),
            Op::Cancel(_) => "a request to end a run".into(),
            Op::Patch(_) => "a patch of a run's state".into(),
            Op::Claim(_) => "a claim".into(),
            Op::Renew(_) => "a renewal of leases".into(),
            Op::Release(_) => "a release of leases".into(),
            Op::Register(_) => "the registration of a worker".into(),
            Op::Publish(publish) => format!("the publication to `{}`", publish.topic),
            Op::Subscribe(subscribe) => format!("the subscription to `{}`", subscribe.topic),
            Op::Join(_) => "a request to join a publication".into(),
            Op::Complete(_) => "the completion of a run by hand".into(),
            Op::Undo(_) => "a request to undo a run".into(),
            Op::Accept(_) => "the acceptance of a failed rollback".into(),
            Op::Park(_) => "a request to park a run".into(),
            Op::Resume(_) => "a request to resume a run".into(),
            Op::Delete(_) => "a request to delete a run".into(),
            Op::Forget(_) => "a request to forget a publication".into(),
            Op::Record(_) => "facts that are recorded".into(),
            Op::Receive(_) => "facts that come in".into(),
            Op::Declare(op) => format!("the projection `{}`, declared", op.projection.name),
            Op::Rebuild(op) => format!("the projection `{}`, built anew", op.projection.name),
            Op::SkipFact(op) => format!("the projection `{}`, past a fact", op.projection.name),
            Op::Follow(op) => format!("the projection `{}`, further", op.projection.name),
            Op::Limit(limit) => format!("the limits of the queue `{}`", limit.queue.queue),
            Op::Audited(audited) => format!("{}, audited", self.op(&audited.op)),
        }
    }

    pub(super) fn round(&mut self, round: &Round) -> String {
        let parts = self.parts(round);
        format!("the commit that {parts} in {}", self.run(round.run))
    }

    fn parts(&mut self, round: &Round) -> String {
        for caused in &round.caused {
            if let Caused::Child(_, start) | Caused::Spawn(_, start) = caused {
                self.start(start);
            }
        }
        let entries = decode_entries(&round.entries).unwrap_or_default();
        let mut parts: Vec<String> = Vec::new();
        for entry in &entries {
            parts.extend(self.entry(round.run, entry));
        }
        match &round.then {
            Then::Park(_) => parts.push("parked the run".into()),
            Then::Suspend if parts.is_empty() => parts.push("let the run wait".into()),
            Then::Continue if parts.is_empty() => parts.push("brought nothing new".into()),
            _ => {}
        }
        let more = parts.len().saturating_sub(PARTS);
        parts.truncate(PARTS);
        let parts = parts.join(", ");
        match more {
            0 => parts,
            more => format!("{parts} and {more} more"),
        }
    }

    fn entry(&mut self, run: RunId, entry: &Entry) -> Option<String> {
        let call = |call: u32| self.calls.get(&(run, call)).cloned().unwrap_or_default();
        Some(match entry {
            Entry::Started { .. } => return None,
            Entry::Begun { call, what } => {
                self.calls.insert((run, *call), what.to_string());
                format!("began {what}")
            }
            Entry::Done {
                call: number,
                outcome,
            } => recorded(&call(*number), outcome),
            Entry::Did { what, outcome, .. } => recorded(&what.to_string(), outcome),
            Entry::Attempted { what, attempt, .. } => {
                format!("recorded that attempt {attempt} of {what} failed")
            }
            Entry::Dropped { call: number } => format!("let go of {}", call(*number)),
            Entry::Worked { call, what, .. } => {
                self.calls.insert((run, *call), what.to_string());
                format!("recorded {what} and what it set off")
            }
            Entry::Settled { call: number, .. } => {
                format!("recorded the end of what {} set off", call(*number))
            }
            Entry::RollingBack { .. } => "began to undo the run".into(),
            Entry::ContextSet { .. } => "recorded what it set of the context".into(),
            Entry::DeadlineMissed { .. } => "took up that the deadline was missed".into(),
            Entry::CancelSeen => "took up the request to end".into(),
            Entry::Kept => "ended the run without undo".into(),
            Entry::Continued => "began the run anew".into(),
            Entry::Ended { state } => format!("ended the run as {}", state.as_str()),
        })
    }

    fn start(&mut self, start: &Start) -> String {
        if let Some(known) = self.runs.get(&start.run) {
            return known.clone();
        }
        let workflow = start.workflow.to_string();
        let count = self.counts.entry(workflow.clone()).or_default();
        *count += 1;
        let name = format!("`{workflow}` {count}");
        self.runs.insert(start.run, name.clone());
        name
    }

    /// The run's name: its workflow, and which run of it.
    pub(super) fn run(&self, run: RunId) -> String {
        let known = self.runs.get(&run).cloned();
        known.unwrap_or_else(|| "a run".into())
    }
}

fn recorded(what: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Value(_) => format!("recorded {what}"),
        Outcome::Failure(_) => format!("recorded the failure of {what}"),
    }
}
