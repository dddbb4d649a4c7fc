//! Why a run stands where it stands: what it waits for, who has it, what an operator has to do.
//! What that rests on in turn is followed in [`super::causes`].

use std::collections::BTreeMap;

use roundel::{Entry, Name, RunId, RunState, RunView, Timestamp};
use roundel_core::{Call, CancelMark, Outcome, UndoMark, WorkerRow};

use super::timeline::Moment;
use crate::show::time;

/// A run that nobody takes up for this long is worth a question.
const LONG: std::time::Duration = std::time::Duration::from_secs(5);

/// What is known of a run.
pub(super) struct About<'a> {
    pub(super) run: &'a RunView,
    /// The journal of its current execution.
    pub(super) moments: &'a [Moment],
    /// The topic that set it off.
    pub(super) topic: Option<&'a Name>,
    pub(super) workers: &'a [WorkerRow],
    pub(super) now: Timestamp,
}

/// One thing that keeps a run from going on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reason {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) since: Timestamp,
    pub(super) on: On,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
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
pub(super) enum On {
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
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let row = &self.run.row;
        let due = row.ready_at.is_some_and(|at| at <= self.now);
        let mut reasons = match row.state {
            _ if row.owner.is_some() => vec![self.leased()],
            RunState::Ready => self.ready(),
            RunState::RollingBack if due => self.ready(),
            RunState::Waiting | RunState::RollingBack => self.waits(),
            RunState::Parked => vec![self.parked()],
            RunState::RollbackFailed if row.undo == UndoMark::Possible => vec![self.stuck()],
            _ => Vec::new(),
        };
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
        let (row, lane, now) = (&self.run.row, &self.run.lane, self.now);
        let at = row.ready_at.unwrap_or(now);
        if at > now {
            let text = format!("not before {}", time::both(at, now));
            return vec![Reason::new(Kind::Waits, text, row.created_at)];
        }
        let waits = now.since(at);
        let mut text = format!("for a worker, since {}", time::span(waits));
        if waits > LONG {
            let (workflow, version) = (&lane.workflow, lane.version);
            let topic = self
                .topic
                .map(|topic| format!(", which subscribes to `{topic}`,"));
            let none = match self.workers.is_empty() {
                true => ", and none of any kind is registered",
                false => "",
            };
            text = format!(
                "{text}{none}: is a worker for `{workflow}` version {version}{} running?",
                topic.unwrap_or_default()
            );
        }
        let mut reasons = vec![Reason::new(Kind::Waits, text, at)];
        if row.suspect {
            let text = "a worker stopped while it had this run: it is tried alone";
            reasons.push(Reason::new(Kind::Note, text, at));
        }
        reasons
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
        let text = format!(
            "{why}; `runs resume {id}` tries that again, with --skip leaves it out, \
             `runs accept {id}` accepts what remains"
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
            format!("for signal `{signal}`{}", until.unwrap_or_default())
        }
        Call::Sleep { until } => format!("until {}", time::both(*until, now)),
        Call::Child { workflow, run } => format!("for child `{workflow}`, run {run}"),
        Call::Watch { run } => format!("for the end of run {run}"),
        Call::Publish { topic, window } => {
            let closes = window.map(|window| begun.after(window));
            let closes = closes.filter(|closes| *closes > now);
            let closes = closes.map(|at| format!(", and who joins until {}", time::both(at, now)));
            format!(
                "for all that subscribe to `{topic}`{}",
                closes.unwrap_or_default()
            )
        }
        Call::Children { workflow } => format!("for all children `{workflow}`"),
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
        ]);
        let expected = [
            "for signal `signed`".to_owned(),
            "for signal `signed`, until 2001-09-09 01:47:40 UTC (in 1 min)".into(),
            "until 2001-09-09 01:46:45 UTC (in 5.0 s)".into(),
            format!("for child `signed`, run {run}"),
            "to try effect `signed` again after attempt 2: 2001-09-09 01:47:10 UTC (in 30 s)"
                .into(),
            format!("for the end of run {run}"),
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
