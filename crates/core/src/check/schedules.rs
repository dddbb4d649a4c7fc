//! What a schedule's run guarantees of its state.

use super::{Invariant, Report, RunRecord};
use crate::{Done, Reason, SCHEDULE, ScheduleState, Tick, instant, limits};

pub(super) fn run(record: &RunRecord, report: &mut Report<'_>) {
    let is_schedule = record
        .lane
        .as_ref()
        .is_some_and(|lane| lane.workflow == SCHEDULE);
    let Some(state) = record.state.as_ref().filter(|_| is_schedule) else {
        return;
    };
    // What is sealed is its worker's to look at.
    if state.value.holds_sealed() {
        return;
    }
    match state.value.decode::<ScheduleState>() {
        Ok(state) => done(&state.done, report),
        Err(error) => {
            let found = format!("a state that is none of a schedule: {error}");
            report.add(Invariant::Schedules, found, "a schedule's");
        }
    }
}

fn done(done: &Done, report: &mut Report<'_>) {
    let until = done.until;
    if let Some(next) = done.next.filter(|next| *next <= until) {
        let found = format!("a next time, {}, that is settled", instant(next));
        report.add(
            Invariant::Schedules,
            found,
            format!("one after {}", instant(until)),
        );
    }
    let unsettled = |tick: &&Tick| tick.cause != Reason::Asked && tick.at > until;
    if let Some(tick) = done.waiting.iter().find(unsettled) {
        let found = format!(
            "a time that waits, {}, but is not settled",
            instant(tick.at)
        );
        report.add(
            Invariant::Schedules,
            found,
            format!("none after {}", instant(until)),
        );
    }
    let (most, waiting) = (limits::TICKS_WAITING + limits::MADE_UP, done.waiting.len());
    if waiting > most {
        let found = format!("{waiting} times that wait");
        report.add(Invariant::Limits, found, format!("at most {most}"));
    }
}

#[cfg(test)]
mod tests {
    use crate::check::{Invariant, RunRecord, Violation};
    use crate::{Lane, Name, Payload, RunId, SCHEDULE, StateRow};

    fn found(workflow: Name, state: &str) -> Vec<Invariant> {
        let lane = Lane {
            namespace: Name::constant("default"),
            workflow,
            version: 1,
        };
        let value = Payload::parse(state).unwrap();
        let record = RunRecord {
            lane: Some(lane),
            state: Some(StateRow { version: 1, value }),
            ..RunRecord::default()
        };
        let mut out: Vec<Violation> = Vec::new();
        let run = Some(RunId::from_bytes([1; 16]));
        let mut report = super::Report { run, out: &mut out };
        super::run(&record, &mut report);
        out.iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn fa_20_a_schedule_whose_times_contradict_each_other_is_found() {
        let broken = Invariant::Schedules;
        for (state, expected) in [
            (r#"{"done":{"until":5,"next":6}}"#, vec![]),
            (r#"{"paused":true}"#, vec![]),
            (r#"{"done":{"until":5,"next":5}}"#, vec![broken]),
            (
                r#"{"done":{"until":5,"waiting":[{"at":6,"cause":"asked"}]}}"#,
                vec![],
            ),
            (
                r#"{"done":{"until":5,"waiting":[{"at":6,"cause":"due"}]}}"#,
                vec![broken],
            ),
            (r#"{"done":7}"#, vec![broken]),
            (r#"{"done":"roundel:sealed:1:k:aQ"}"#, vec![]),
        ] {
            assert_eq!(found(SCHEDULE, state), expected, "{state}");
            assert_eq!(found(Name::constant("other"), state), []);
        }
    }
}
