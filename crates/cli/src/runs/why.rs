//! Why a run stands where it stands: what it waits for, who has it, what an operator has to do.

use std::collections::BTreeMap;

use roundel::{Entry, RunState, RunView, Timestamp};
use roundel_core::{Call, CancelMark, Outcome, WorkerRow};

use super::timeline::Moment;
use crate::show::time;

/// A run that nobody takes up for this long is worth a question.
const LONG: std::time::Duration = std::time::Duration::from_secs(5);

/// The reasons, one a line.
pub(super) fn why(
    run: &RunView,
    moments: &[Moment],
    workers: &[WorkerRow],
    now: Timestamp,
) -> Vec<String> {
    let row = &run.row;
    let mut reasons = match row.state {
        RunState::Running => vec![leased(run, workers, now)],
        RunState::Ready => ready(run, now),
        RunState::Waiting | RunState::RollingBack => waits(moments, now),
        RunState::Parked => {
            let reason = match &row.outcome {
                Some(Outcome::Failure(failure)) => failure.to_string(),
                _ => "nobody said why".into(),
            };
            let next = format!("once that is mended: `runs resume {}`", row.id);
            vec![reason, next]
        }
        _ => Vec::new(),
    };
    match row.cancel {
        CancelMark::Requested if !row.state.has_ended() => {
            reasons.push("asked to end; it has not taken that up".into());
        }
        CancelMark::Seen if !row.state.has_ended() => {
            reasons.push("ending: it waits for what is below it".into());
        }
        _ => {}
    }
    reasons
}

fn leased(run: &RunView, workers: &[WorkerRow], now: Timestamp) -> String {
    let owner = run.row.owner;
    let known = workers.iter().find(|worker| Some(worker.id) == owner);
    let who = known.map_or_else(
        || "a worker that has left".into(),
        |worker| worker.name.clone(),
    );
    let until = run.row.lease_until.unwrap_or(now);
    if until > now {
        format!("leased to {who}, {} more", time::span(until.since(now)))
    } else {
        let since = time::span(now.since(until));
        format!("its lease to {who} ended {since} ago; the next worker takes it over")
    }
}

fn ready(run: &RunView, now: Timestamp) -> Vec<String> {
    let at = run.row.ready_at.unwrap_or(now);
    if at > now {
        return vec![format!("not before {}", time::both(at, now))];
    }
    let waits = now.since(at);
    let mut reasons = vec![format!("for a worker, since {}", time::span(waits))];
    if waits > LONG {
        let (workflow, version) = (&run.lane.workflow, run.lane.version);
        reasons.push(format!(
            "is a worker for `{workflow}` version {version} running?"
        ));
    }
    if run.row.suspect {
        reasons.push("a worker stopped while it had this run: it is tried alone".into());
    }
    reasons
}

/// The calls that have begun and not ended.
fn waits(moments: &[Moment], now: Timestamp) -> Vec<String> {
    let mut open: BTreeMap<u32, String> = BTreeMap::new();
    for moment in moments {
        match &moment.entry {
            Entry::Begun { call, what } | Entry::Worked { call, what, .. } => {
                open.insert(*call, waited_for(what, now));
            }
            Entry::Attempted {
                call,
                what,
                attempt,
                retry_at,
                ..
            } => {
                let again = time::both(*retry_at, now);
                let text = format!("to try {what} again after attempt {attempt}: {again}");
                open.insert(*call, text);
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

fn waited_for(what: &Call, now: Timestamp) -> String {
    match what {
        Call::Wait { signal, until } => {
            let until = until.map(|until| format!(", until {}", time::both(until, now)));
            format!("for signal `{signal}`{}", until.unwrap_or_default())
        }
        Call::Sleep { until } => format!("until {}", time::both(*until, now)),
        Call::Child { workflow, run } => format!("for child `{workflow}`, run {run}"),
        Call::Watch { run } => format!("for the end of run {run}"),
        Call::Publish { topic, .. } => format!("for all that subscribe to `{topic}`"),
        Call::Children { workflow } => format!("for all children `{workflow}`"),
        Call::RollBack { of, .. } => format!("for what call {of} set off to be undone"),
        Call::Step { name, .. } => format!("for all that step `{name}` set off"),
        other => format!("for {other}"),
    }
}

#[cfg(test)]
mod tests {
    use roundel::{Failure, Name, RunId};

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
        waits(&moments, NOW)
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
