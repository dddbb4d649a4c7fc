//! Looks through runs, stretch by stretch: where a step ends is found in an index, and what fits is
//! found between there and its beginning.

use roundel_core::{RunId, RunState};
use rusqlite::{Result, params};

use super::columns::{self, run_columns};
use super::read::{AFTER_ALL, Reader, page, run_view};
use crate::query::Way;
use crate::query::look::Steps;
use crate::{RunFilter, RunView, Stretch};

/// Is there anything at all that could fit?
const LANE: &str = "SELECT 1 FROM roundel_lane WHERE namespace = ?1 \
     AND (?2 IS NULL OR workflow = ?2) LIMIT 1";

/// The last of so many rows, and the first after it.
macro_rules! end {
    ($id:literal, $from:literal) => {
        concat!(
            "SELECT ",
            $id,
            " FROM ",
            $from,
            " AND ",
            $id,
            " < ?1 ORDER BY ",
            $id,
            " DESC LIMIT 2 OFFSET ?2"
        )
    };
}

/// Runs from there to here. Lanes are compared by number: names would be compared for every run.
macro_rules! between {
    ($from:literal, $id:literal, $and:literal) => {
        concat!(
            run_view!($from),
            "WHERE lane IN (SELECT id FROM roundel_lane WHERE namespace = ?1 \
             AND (?2 IS NULL OR workflow = ?2)) AND (?3 IS NULL OR state = ?3) AND ",
            $id,
            " < ?4 AND ",
            $id,
            " >= ?5",
            $and,
            " ORDER BY ",
            $id,
            " DESC LIMIT ?6"
        )
    };
}

const ALL_END: &str = end!("id", "roundel_run WHERE true");
const ALL: &str = between!("roundel_run", "id", "");
const PARKED_END: &str = end!(
    "id",
    "roundel_run INDEXED BY roundel_run_parked WHERE state = 'parked'"
);
const PARKED: &str = between!(
    "roundel_run INDEXED BY roundel_run_parked",
    "id",
    " AND state = 'parked'"
);
const ROLLBACK_FAILED_END: &str = end!(
    "id",
    "roundel_run INDEXED BY roundel_run_rollback_failed WHERE state = 'rollback_failed'"
);
const ROLLBACK_FAILED: &str = between!(
    "roundel_run INDEXED BY roundel_run_rollback_failed",
    "id",
    " AND state = 'rollback_failed'"
);
const LABEL_END: &str = end!("run", "roundel_label WHERE name = ?3 AND value = ?4");
const LABEL: &str = between!(
    "roundel_label AS found CROSS JOIN roundel_run ON id = found.run",
    "found.run",
    " AND found.name = ?7 AND found.value = ?8"
);

impl Reader<'_> {
    pub(super) fn look(&self, filter: &RunFilter) -> Result<Stretch<RunView, RunId>> {
        let namespace = filter.namespace.as_str();
        let workflow = filter.workflow.as_ref().map(|name| name.as_str());
        let state = filter.state.map(RunState::as_str);
        let label = filter.label.as_ref();
        let (name, value) = label.map_or(("", ""), |(name, value)| (name.as_str(), value));
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.before, limit, filter.rows());
        if self
            .all(LANE, (namespace, workflow), |_| Ok(()))?
            .is_empty()
        {
            return Ok(Stretch {
                items: Vec::new(),
                next: None,
            });
        }
        while let Some(step) = steps.step() {
            let before = step.before.map(|run| run.as_bytes().to_vec());
            let before = before.unwrap_or_else(|| AFTER_ALL.to_vec());
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let run = |row: &rusqlite::Row<'_>| columns::run_id(row, 0);
            let end = match filter.way() {
                Way::All => self.all(ALL_END, params![before, skip], run)?,
                Way::Parked => self.all(PARKED_END, params![before, skip], run)?,
                Way::RollbackFailed => self.all(ROLLBACK_FAILED_END, params![before, skip], run)?,
                Way::Label => self.all(LABEL_END, params![before, skip, name, value], run)?,
            };
            let from = match end.as_slice() {
                [last, _] => last.as_bytes().to_vec(),
                _ => Vec::new(),
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = params![namespace, workflow, state, before, from, limit + 1];
            let fit = match filter.way() {
                Way::All => self.views(ALL, values, limit)?,
                Way::Parked => self.views(PARKED, values, limit)?,
                Way::RollbackFailed => self.views(ROLLBACK_FAILED, values, limit)?,
                Way::Label => {
                    let (begin, most) = (before, limit + 1);
                    let values =
                        params![namespace, workflow, state, begin, from, most, name, value];
                    self.views(LABEL, values, limit)?
                }
            };
            steps.took(fit, &end, |run| run.row.id);
        }
        Ok(steps.stretch())
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::migrate;

    #[test]
    fn ro_50_no_look_sorts_or_passes_what_is_not_between() {
        let connection = Connection::open_in_memory().unwrap();
        migrate::apply(&connection).unwrap();
        for (sql, index) in [
            (ALL_END, "PRIMARY KEY (id<?)"),
            (ALL, "PRIMARY KEY (id>? AND id<?)"),
            (PARKED_END, "INDEX roundel_run_parked (id<?)"),
            (PARKED, "INDEX roundel_run_parked (id>? AND id<?)"),
            (ROLLBACK_FAILED_END, "roundel_run_rollback_failed (id<?)"),
            (
                ROLLBACK_FAILED,
                "roundel_run_rollback_failed (id>? AND id<?)",
            ),
            (
                LABEL_END,
                "roundel_label_value (name=? AND value=? AND run<?)",
            ),
            (
                LABEL,
                "roundel_label_value (name=? AND value=? AND run>? AND run<?)",
            ),
        ] {
            let explained = ["EXPLAIN QUERY PLAN ", sql].concat();
            let mut statement = connection.prepare(&explained).unwrap();
            let nothing = vec![rusqlite::types::Null; statement.parameter_count()];
            let nothing = rusqlite::params_from_iter(nothing);
            let steps = statement.query_map(nothing, |row| row.get::<_, String>(3));
            let steps: Vec<String> = steps.unwrap().map(|step| step.unwrap()).collect();
            assert!(steps[0].contains(index), "{sql}: {steps:?}");
            let walks = |step: &String| step.contains("SCAN") || step.contains("TEMP B-TREE");
            assert!(!steps.iter().any(walks), "{sql}: {steps:?}");
        }
    }
}
