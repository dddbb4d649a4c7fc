//! Why a run stands where it stands: what it waits for, who has it, what an operator has to do.
//! What that rests on in turn is followed in `causes.rs`.

use std::collections::BTreeMap;

use roundel::{Deadline, Entry, Name, QueueLimits, Remainder, RunId, RunState, RunView, Timestamp};
use roundel_core::{Batch, Call, CancelMark, Flow, Outcome, STATE_CHANGED, UndoMark, WorkerRow};

use super::time;
use super::timeline::Moment;

/// A run that nobody takes up for this long is worth a question.
const LONG: std::time::Duration = std::time::Duration::from_secs(5);
/// Calls that are named of those that a failed rollback left.
const NAMED: usize = 5;

/// What is known of a run.
#[derive(Debug)]
pub struct About<'a> {
    pub run: &'a RunView,
    /// The journal of its current execution.
    pub moments: &'a [Moment],
    /// The topic that set it off.
    pub topic: Option<&'a Name>,
    pub workers: &'a [WorkerRow],
    /// The limits of its queue.
    pub limits: Option<&'a QueueLimits>,
    pub now: Timestamp,
}

/// One thing that keeps a run from going on.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    pub kind: Kind,
    pub text: String,
    pub since: Timestamp,
    pub on: On,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The text says for what.
    Waits,
    /// Somebody works on it.
    Leased,
    /// The text says what is wrong, and what to do.
    Operator,
    /// Something to know beside the others.
    Note,
}

/// On whose end it rests.
#[derive(Clone, Debug, PartialEq)]
pub enum On {
    Nobody,
    Run(RunId),
    /// All that a call set off.
    Scope(u32, u32),
    /// All below it.
    Children,
}

impl Reason {
    fn new(kind: Kind, text: impl Into<String>, since: Timestamp) -> Reason {
        Reason {
            kind,
            text: text.into(),
            since,
            on: On::Nobody,
        }
    }
}

impl About<'_> {
    /// The reasons, in the order in which they came.
    pub fn reasons(&self) -> Vec<Reason> {
        let row = &self.run.row;
        let due = row.ready_at.is_some_and(|at| at <= self.now);
        let mut reasons = match row.state {
            _ if row.owner.is_some() => vec![self.leased()],
            RunState::Ready | RunState::Waiting if self.held_by().is_some() => self.held(),
            RunState::Ready => self.ready(),
            RunState::RollingBack if due => self.ready(),
            RunState::Waiting | RunState::RollingBack => self.waits(),
            RunState::Parked => vec![self.parked()],
            RunState::RollbackFailed if row.undo == UndoMark::Possible => vec![self.stuck()],
            _ => Vec::new(),
        };
        reasons.extend(self.deadline());
        let note = |text: &str| Reason::new(Kind::Note, text, row.changed_at);
        match row.cancel {
            CancelMark::Requested if !row.state.has_ended() => {
                reasons.push(note("asked to end; it has not taken that up"));
            }
            CancelMark::Seen if !row.state.has_ended() => reasons.push(Reason {
                on: On::Children,
                ..note("ending: it waits for what is below it")
            }),
            _ => {}
        }
        reasons
    }

    fn leased(&self) -> Reason {
        let (row, now) = (&self.run.row, self.now);
        let known = self
            .workers
            .iter()
            .find(|worker| Some(worker.id) == row.owner);
        let who = known.map_or("a worker that has left", |worker| worker.name.as_str());
        let until = row.lease_until.unwrap_or(now);
        let text = if until > now {
            format!("leased to {who}, {} more", time::span(until.since(now)))
        } else {
            let since = time::span(now.since(until));
            format!("its lease to {who} ended {since} ago; the next worker takes it over")
        };
        Reason::new(Kind::Leased, text, row.changed_at)
    }

    fn ready(&self) -> Vec<Reason> {
        let (row, now) = (&self.run.row, self.now);
        let at = row.ready_at.unwrap_or(now);
        if at > now {
            let text = format!("not before {}", time::both(at, now));
            return vec![Reason::new(Kind::Waits, text, row.created_at)];
        }
        if let Some(text) = self.held_back() {
            return vec![Reason::new(Kind::Waits, text, at)];
        }
        let waits = now.since(at);
        let mut text = format!("for a worker, since {}", time::span(waits));
        if waits > LONG {
            text.push_str(&self.who_could());
        }
        let mut reasons = vec![Reason::new(Kind::Waits, text, at)];
        if row.suspect {
            let text = "a worker stopped while it had this run: it is tried alone";
            reasons.push(Reason::new(Kind::Note, text, at));
        }
        reasons
    }

    /// The batch that it follows and that has not ended, as far as is known: nobody has begun it,
    /// and nothing will before that.
    fn held_by(&self) -> Option<RunId> {
        let row = &self.run.row;
        let held = row.head == 1 && row.execution == 1 && row.ready_at.is_none();
        let mut labels = self.run.labels.iter().filter(|_| held);
        let (_, batch) = labels.find(|(name, _)| *name == Batch::FOLLOWS)?;
        batch.parse().ok()
    }

    fn held(&self) -> Vec<Reason> {
        let held = self.held_by().map(|batch| {
            let text = format!("for the end of batch {batch}, which it follows");
            Reason {
                on: On::Run(batch),
                ..Reason::new(Kind::Waits, text, self.run.row.created_at)
            }
        });
        held.into_iter().collect()
    }

    /// Which limit of its queue holds it back.
    fn held_back(&self) -> Option<String> {
        let QueueLimits {
            queue,
            limits,
            permits,
            by_key,
        } = self.limits.filter(|_| self.run.row.flow == Flow::Free)?;
        if limits.paused {
            let how = format!("`roundel queues resume {queue}`");
            return Some(format!("for its queue `{queue}`, which is paused: {how}"));
        }
        let most = limits.concurrency.filter(|most| permits >= most);
        if let Some(most) = most {
            let full = format!("{permits} are in hand, and {most} may be at once");
            return Some(format!("for its queue `{queue}`: {full}"));
        }
        let key = self.run.row.flow_key.as_ref();
        if let Some((key, most)) = key.zip(limits.per_key) {
            let held = by_key.get(&Some(key.clone())).copied().unwrap_or_default();
            if held >= most {
                let full = format!("{held} are in hand, and {most} may be at once");
                return Some(format!("for its flow key `{key}` in `{queue}`: {full}"));
            }
        }
        let (opens, rate) = (limits.opens_at(self.now)?, limits.rate?);
        let per = time::span(rate.per);
        let used = format!("{} in {per} are used up, the next", rate.count);
        let next = time::from_now(opens, self.now);
        Some(format!("for its queue `{queue}`: {used} {next}"))
    }

    /// Which workers have its version, as far as they say.
    fn who_could(&self) -> String {
        let (row, lane, now) = (&self.run.row, &self.run.lane, self.now);
        let topic = self
            .topic
            .map(|topic| format!(", which subscribes to `{topic}`"));
        let topic = topic.unwrap_or_default();
        let version = format!("version {} of `{}`{topic}", lane.version, lane.workflow);
        let able = |worker: &&WorkerRow| worker.lanes.contains(&row.lane);
        let able = self.workers.iter().filter(able);
        if let Some(worker) = able.max_by_key(|worker| worker.seen_at) {
            let seen = time::span(now.since(worker.seen_at));
            let name = &worker.name;
            return format!(": {name} has {version}, and was last seen {seen} ago");
        }
        match self.workers.len() {
            0 => format!(", and none of any kind is registered: start one that has {version}"),
            _ if self.workers.iter().any(|worker| worker.lanes.is_empty()) => {
                format!(": is one running that has {version}?")
            }
            1 => format!(": the one that is registered does not have {version}"),
            count => format!(": none of the {count} that are registered has {version}"),
        }
    }

    /// The deadline that counts for it now.
    fn deadline(&self) -> Option<Reason> {
        let (row, now) = (&self.run.row, self.now);
        let (which, due) = match (row.undo, row.cancel) {
            _ if row.state.has_ended() => return None,
            (UndoMark::Underway, _) => ("to be undone", row.deadlines.rollback),
            (_, CancelMark::None) => ("to end", row.deadlines.forward),
            _ => return None,
        };
        let Deadline { at, set_by } = due?;
        let by = match set_by == row.id {
            true => "it was started with that".to_owned(),
            false => format!("run {set_by} set that"),
        };
        let text = match at > now {
            true => format!("it has until {} {which}; {by}", time::both(at, now)),
            false => format!("it had until {} {which}; {by}", time::both(at, now)),
        };
        Some(Reason::new(Kind::Note, text, row.changed_at))
    }

    fn parked(&self) -> Reason {
        let row = &self.run.row;
        let why = failure(self.run).unwrap_or_else(|| "nobody said why".into());
        let text = format!("{why}; once that is mended: `runs resume {}`", row.id);
        Reason::new(Kind::Operator, text, row.changed_at)
    }

    fn stuck(&self) -> Reason {
        let (row, id) = (&self.run.row, self.run.row.id);
        let why = failure(self.run).unwrap_or_else(|| "its rollback failed".into());
        let left = left(self.run);
        let text = format!(
            "{why}; `runs resume {id}` tries that again, with --skip leaves it out, \
             `runs accept {id}` accepts what remains{left}"
        );
        Reason::new(Kind::Operator, text, row.changed_at)
    }

    /// The calls that have begun and not ended.
    fn waits(&self) -> Vec<Reason> {
        let (execution, now) = (self.run.row.execution, self.now);
        let open = open_calls(self.moments, execution, now);
        let undoing = self.run.row.state == RunState::RollingBack;
        if open.is_empty() && undoing {
            let since = self.run.row.changed_at;
            return vec![Reason {
                on: On::Children,
                ..Reason::new(Kind::Waits, "for all that it set off to end first", since)
            }];
        }
        open
    }
}

fn failure(run: &RunView) -> Option<String> {
    match &run.row.outcome {
        Some(Outcome::Failure(failure)) => Some(failure.to_string()),
        _ => None,
    }
}

/// What a rollback that failed has left, by name.
fn left(run: &RunView) -> String {
    let Some(Outcome::Failure(failure)) = &run.row.outcome else {
        return String::new();
    };
    let Some(told) = Remainder::told_by(failure) else {
        return String::new();
    };
    let named = told.calls.iter().take(NAMED).map(|call| match call.own {
        true => format!("`{}`", call.name),
        false => format!("what `{}` set off", call.name),
    });
    let named: Vec<String> = named.collect();
    let others = told.count - named.len().min(told.count);
    let more = match others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    format!(": {}{more}", named.join(", "))
}

fn open_calls(moments: &[Moment], execution: u32, now: Timestamp) -> Vec<Reason> {
    let mut open: BTreeMap<u32, Reason> = BTreeMap::new();
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    for moment in moments {
        match &moment.entry {
            Entry::Begun { call, what } | Entry::Worked { call, what, .. } => {
                let on = match what {
                    // What an earlier execution set off is among all that is below.
                    Call::RollBack {
                        execution: Some(_), ..
                    } => On::Children,
                    Call::RollBack { of, .. } => rests_on((*of, calls.get(of)), execution),
                    what => rests_on((*call, Some(what)), execution),
                };
                let text = waited_for((what, &calls), moment.at, now);
                let since = moment.at;
                let reason = Reason::new(Kind::Waits, text, since);
                open.insert(*call, Reason { on, ..reason });
                calls.insert(*call, what.clone());
            }
            Entry::Attempted {
                call,
                what,
                attempt,
                retry_at,
                at,
                ..
            } => {
                let again = time::both(*retry_at, now);
                let text = format!("to try {what} again after attempt {attempt}: {again}");
                open.insert(*call, Reason::new(Kind::Waits, text, *at));
            }
            Entry::Done { call, .. }
            | Entry::Did { call, .. }
            | Entry::Settled { call, .. }
            | Entry::Dropped { call } => {
                open.remove(call);
            }
            // What the function still waited for, nobody waits for any more.
            Entry::RollingBack { .. } => open.clear(),
            _ => {}
        }
    }
    open.into_values().collect()
}

/// On whose end a call rests that set off what this one did.
fn rests_on((call, what): (u32, Option<&Call>), execution: u32) -> On {
    match what {
        Some(Call::Child { run, .. } | Call::Watch { run }) => On::Run(*run),
        Some(Call::Wait { .. } | Call::Sleep { .. } | Call::Effect { .. } | Call::Undo { .. }) => {
            On::Nobody
        }
        _ => On::Scope(execution, call),
    }
}

fn waited_for(
    (what, calls): (&Call, &BTreeMap<u32, Call>),
    begun: Timestamp,
    now: Timestamp,
) -> String {
    match what {
        Call::Wait { signal, until } => {
            let until = until.map(|until| format!(", until {}", time::both(until, now)));
            let signal = match *signal == STATE_CHANGED {
                true => "for its state to be as a condition says".to_owned(),
                false => format!("for signal `{signal}`"),
            };
            format!("{signal}{}", until.unwrap_or_default())
        }
        Call::Sleep { until } => format!("until {}", time::both(*until, now)),
        Call::Child { workflow, run } => format!("for child `{workflow}`, run {run}"),
        Call::Watch { run } => format!("for the end of run {run}"),
        Call::Publish { topic, window, .. } => {
            let closes = window.map(|window| begun.after(window));
            let closes = closes.filter(|closes| *closes > now);
            let closes = closes.map(|at| format!(", and who joins until {}", time::both(at, now)));
            format!(
                "for all that subscribe to `{topic}`{}",
                closes.unwrap_or_default()
            )
        }
        Call::Children { workflow } => format!("for all children `{workflow}`"),
        Call::Batch { .. } => "for all commands of the batch".to_owned(),
        Call::RollBack { of, execution } => match calls.get(of) {
            Some(what) if execution.is_none() => format!("for what {what} set off to be undone"),
            _ => format!("for what call {of} set off to be undone"),
        },
        Call::Step { name, .. } => format!("for all that step `{name}` set off"),
        other => format!("for {other}"),
    }
}

#[cfg(test)]
mod tests {
    use roundel::{Failure, Name};

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.after(std::time::Duration::from_secs(seconds))
    }

    fn reasons(entries: Vec<Entry>) -> Vec<String> {
        let moment = |(number, entry)| Moment {
            number,
            at: NOW,
            epoch: number,
            entry,
        };
        let moments: Vec<Moment> = (1..).zip(entries).map(moment).collect();
        let open = open_calls(&moments, 1, NOW);
        open.into_iter().map(|reason| reason.text).collect()
    }

    fn begun(call: u32, what: Call) -> Entry {
        Entry::Begun { call, what }
    }

    #[test]
    fn a_waiting_run_says_for_what() {
        let (name, run) = (Name::constant("signed"), RunId::from_bytes([1; 16]));
        let signal = |until| Call::Wait {
            signal: name.clone(),
            until,
        };
        let failed = Entry::Attempted {
            call: 5,
            what: Call::Effect {
                name: name.clone(),
                undo: None,
            },
            attempt: 2,
            failure: Box::new(Failure::transient("busy")),
            at: NOW,
            retry_at: after(30),
        };
        let workflow = name.clone();
        let found = reasons(vec![
            begun(1, signal(None)),
            begun(2, signal(Some(after(60)))),
            begun(3, Call::Sleep { until: after(5) }),
            begun(4, Call::Child { workflow, run }),
            begun(
                5,
                Call::Effect {
                    name: name.clone(),
                    undo: None,
                },
            ),
            failed,
            begun(6, Call::Watch { run }),
            begun(
                7,
                Call::Wait {
                    signal: STATE_CHANGED,
                    until: None,
                },
            ),
        ]);
        let expected = [
            "for signal `signed`".to_owned(),
            "for signal `signed`, until 2001-09-09 01:47:40 UTC (in 1 min)".into(),
            "until 2001-09-09 01:46:45 UTC (in 5.0 s)".into(),
            format!("for child `signed`, run {run}"),
            "to try effect `signed` again after attempt 2: 2001-09-09 01:47:10 UTC (in 30 s)"
                .into(),
            format!("for the end of run {run}"),
            "for its state to be as a condition says".into(),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_done_or_let_go_is_not_waited_for() {
        let outcome = Outcome::Value(roundel::Payload::null());
        let sleep = || Call::Sleep { until: after(5) };
        let found = reasons(vec![
            begun(1, sleep()),
            begun(2, sleep()),
            Entry::Done { call: 1, outcome },
            Entry::Dropped { call: 2 },
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
