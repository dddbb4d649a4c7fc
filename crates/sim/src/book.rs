//! What clients were told and what was seen to happen, kept apart from the rows, to be held against
//! them in the end: promises that rows alone do not show.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{
    Cancelled, Consumed, MailId, Name, OfferId, Op, Outcome, Payload, Reply, Rows, RunId, RunState,
    Sent, Taken, Target, WaitId,
};
use roundel_store::Model;

use crate::flows::Tally;
use crate::site::Site;

/// How often a parked run is let go on.
const RESUMES: u32 = 6;

/// What an operation is about to do, if it is done.
#[derive(Default)]
pub(crate) struct Noted {
    consumed: Vec<u64>,
    cancel: Option<RunId>,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Acknowledged starts, and the keys they were made under.
    pub(crate) started: Vec<(RunId, Option<Name>)>,
    /// Acknowledged signals and offers: what they said, to whom, what came of it.
    sent: Vec<(u64, Option<RunId>, Sent)>,
    consumed: BTreeMap<u64, u32>,
    cancelled: BTreeSet<RunId>,
    pub(crate) deleted: BTreeSet<RunId>,
    /// Results that clients were given.
    results: Vec<(RunId, RunState, Option<Outcome>)>,
    resumed: BTreeMap<RunId, u32>,
    pub(crate) violations: Vec<String>,
}

fn value(payload: &Payload) -> Option<u64> {
    payload.as_str().parse().ok()
}

impl Book {
    pub(crate) fn complain(&mut self, what: &str) {
        self.violations.push(what.to_owned());
    }

    pub(crate) fn before(&self, op: &Op, rows: &Rows) -> Noted {
        let mut noted = Noted::default();
        match op {
            Op::Commit(round) => {
                for consumed in &round.consumed {
                    if let Consumed::Wait(name, call) = consumed {
                        noted.consumed.extend(taken(rows, round.run, name, *call));
                    }
                }
            }
            Op::Cancel(cancel) => {
                if let Target::Run(run) = cancel.target {
                    noted.cancel = Some(run);
                }
            }
            _ => {}
        }
        noted
    }

    pub(crate) fn after(&mut self, noted: Noted, reply: &Reply) {
        for value in noted.consumed {
            *self.consumed.entry(value).or_default() += 1;
        }
        if let (Some(run), Reply::Cancelled(Cancelled::Requested, _)) = (noted.cancel, reply) {
            self.cancelled.insert(run);
        }
    }

    /// A step is committed.
    pub(crate) fn step(&mut self, op: &Op) {
        if let Op::Commit(round) = op
            && self.cancelled.contains(&round.run)
        {
            let run = round.run;
            self.complain(&format!("inv21_cancel: a step of {run} after its cancel"));
        }
    }

    pub(crate) fn started(&mut self, run: RunId, key: Option<&Name>) {
        let known = key.and_then(|key| {
            let mut all = self.started.iter();
            all.find(|(_, known)| known.as_ref() == Some(key))
        });
        match known {
            Some((first, _)) if *first != run && !self.deleted.contains(first) => {
                self.complain("inv18_one_key: two runs for one key");
            }
            Some((first, _)) if *first == run => {}
            _ => self.started.push((run, key.cloned())),
        }
    }

    pub(crate) fn sent(&mut self, payload: &Payload, to: Option<RunId>, sent: Sent) {
        if let Some(value) = value(payload) {
            self.sent.push((value, to, sent));
        }
    }

    pub(crate) fn looked(&mut self, rows: &Rows, run: RunId) {
        if let Some(row) = rows.run(run).filter(|row| row.state.has_ended()) {
            self.results.push((run, row.state, row.outcome.clone()));
        }
    }

    pub(crate) fn may_resume(&mut self, rows: &Rows) -> Vec<RunId> {
        let parked = rows.runs().filter(|row| row.state == RunState::Parked);
        let mut parked: Vec<RunId> = parked.map(|row| row.id).collect();
        parked.sort_unstable();
        parked.retain(|run| {
            let times = self.resumed.entry(*run).or_default();
            *times += 1;
            *times <= RESUMES
        });
        parked
    }

    /// Everything is at rest: what should not be?
    pub(crate) fn judge(&mut self, model: &Model, site: &Site) {
        let mut broken = Vec::new();
        model.check(&mut broken);
        let broken = broken.iter().map(ToString::to_string);
        self.violations.extend(broken);
        let rows = model.rows();
        self.judge_runs(rows, site);
        self.judge_cancels(rows);
        self.judge_signals(rows);
        for (run, state, outcome) in std::mem::take(&mut self.results) {
            let row = rows.run(run);
            let same = row.is_none_or(|row| row.state == state && row.outcome == outcome);
            if !same || row.is_none() && !self.is_deleted(run) {
                self.complain(&format!("inv5_one_end: the result of {run} changed"));
            }
        }
    }

    fn is_deleted(&self, run: RunId) -> bool {
        // With its tree: children go with their parents.
        self.deleted.contains(&run) || !self.deleted.is_empty()
    }

    fn judge_runs(&mut self, rows: &Rows, site: &Site) {
        for (run, _) in std::mem::take(&mut self.started) {
            if rows.run(run).is_none() && !self.deleted.contains(&run) {
                self.complain(&format!("inv3_acked: the start of {run} is lost"));
            }
        }
        for ((run, execution, name), times) in &site.ledger {
            if *times != 1 {
                let found = format!("inv1_one_effect: {name} of {run}/{execution}: {times} times");
                self.complain(&found);
            }
        }
        let mut lines: BTreeMap<RunId, u32> = BTreeMap::new();
        for (run, ..) in site.ledger.keys() {
            *lines.entry(*run).or_default() += 1;
        }
        for row in rows.runs() {
            let run = row.id;
            if row.owner.is_some() {
                self.complain(&format!("inv23_no_leak: {run} is leased"));
            }
            if !row.state.has_ended() && (row.waits == 0 || row.state != RunState::Waiting) {
                let state = row.state.as_str();
                let why = format!("inv28_convergence: {run} is {state}: {:?}", row.outcome);
                self.complain(&why);
            }
            if let Some(Outcome::Failure(failure)) = &row.outcome
                && failure.code == "lost_state"
            {
                self.complain(&format!("inv3_acked: the state of {run} is lost"));
            }
            if let (RunState::Completed, Some(Outcome::Value(value))) = (row.state, &row.outcome) {
                let tally: Tally = value.decode().unwrap_or_default();
                let wrote = lines.get(&run).copied().unwrap_or_default();
                if tally.lines != wrote {
                    let (says, run) = (tally.lines, row.id);
                    let found = format!("inv1_one_effect: {run} says {says} lines, wrote {wrote}");
                    self.complain(&found);
                }
                let prefix = run.to_string();
                let done = site.done.range(prefix.clone()..);
                let done = done.take_while(|key| key.starts_with(&prefix)).count();
                if (tally.calls as usize) > done {
                    self.complain(&format!("g2_at_least_once: a call of {run} was not made"));
                }
            }
        }
    }

    /// A request to end that was acknowledged cannot be overtaken by another end.
    fn judge_cancels(&mut self, rows: &Rows) {
        for run in std::mem::take(&mut self.cancelled) {
            let state = rows.run(run).map(|row| row.state);
            if let Some(state) = state.filter(|state| *state != RunState::Cancelled) {
                let state = state.as_str();
                self.complain(&format!(
                    "inv21_cancel: {run} was cancelled, and is {state}"
                ));
            }
        }
    }

    fn judge_signals(&mut self, rows: &Rows) {
        let mut kept: BTreeMap<u64, u32> = BTreeMap::new();
        for (_, row) in rows.mail.iter() {
            if let Outcome::Value(payload) = &row.body
                && let Some(value) = value(payload)
            {
                *kept.entry(value).or_default() += 1;
            }
        }
        for (_, row) in rows.offers.iter() {
            if let Some(value) = value(&row.payload) {
                *kept.entry(value).or_default() += 1;
            }
        }
        for (value, to, sent) in std::mem::take(&mut self.sent) {
            let consumed = self.consumed.get(&value).copied().unwrap_or(0);
            let kept = kept.get(&value).copied().unwrap_or(0);
            let wanted = u32::from(matches!(sent, Sent::Delivered(_) | Sent::Queued));
            let gone = to.map_or(!self.deleted.is_empty(), |run| rows.run(run).is_none());
            if consumed + kept > wanted || (consumed + kept < wanted && !gone) {
                self.complain(&format!(
                    "inv2_no_lost_message: {value} was {sent:?}, consumed {consumed}, kept {kept}"
                ));
            }
        }
    }
}

/// What a wait is matched to.
fn taken(rows: &Rows, run: RunId, name: &Name, call: u32) -> Option<u64> {
    let id = WaitId {
        run,
        name: name.clone(),
        call,
    };
    match rows.waits.get(&id)?.taken? {
        Taken::Mail(number) => {
            let name = Some(name.clone());
            match &rows.mail.get(&MailId { run, name, number })?.body {
                Outcome::Value(payload) => value(payload),
                Outcome::Failure(_) => None,
            }
        }
        Taken::Offer(place) => {
            let gate = roundel_core::GateId {
                namespace: crate::world::NAMESPACE,
                name: name.clone(),
            };
            value(&rows.offers.get(&OfferId { gate, place })?.payload)
        }
    }
}
