//! What is guaranteed of the run whose state says how long things are kept.

use super::{Invariant, Report, RunRecord};
use crate::{RETENTION, Retention};

pub(super) fn run(record: &RunRecord, report: &mut Report<'_>) {
    let lane = record.lane.as_ref();
    let is_retention = lane.is_some_and(|lane| lane.workflow == RETENTION);
    let Some(state) = record.state.as_ref().filter(|_| is_retention) else {
        return;
    };
    if let Err(error) = state.value.decode::<Retention>() {
        let found = format!("a state that does not say how long anything is kept: {error}");
        report.add(Invariant::Retention, found, "one that does");
    }
}

#[cfg(test)]
mod tests {
    use crate::check::{Invariant, RunRecord, Violation};
    use crate::{Lane, Name, Payload, RETENTION, RunId, StateRow};

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
        super::run(&record, &mut super::Report { run, out: &mut out });
        out.iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn ro_51_a_state_that_says_nothing_of_the_kind_is_found() {
        for (state, expected) in [
            ("{}", vec![]),
            (
                r#"{"ended":"ever","workflows":{"mail":{"millis":5}}}"#,
                vec![],
            ),
            (r#"{"ended":5}"#, vec![Invariant::Retention]),
            (r#"{"workflow":{}}"#, vec![Invariant::Retention]),
        ] {
            assert_eq!(found(RETENTION, state), expected, "{state}");
            assert_eq!(found(Name::constant("other"), state), []);
        }
    }
}
