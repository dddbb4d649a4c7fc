//! Looks through runs, stretch by stretch: where a step ends is found in an index, and what fits is
//! found between there and its beginning.

use roundel_core::{RunId, RunState};

use super::link::values;
use super::read::{AFTER_ALL, BEFORE_ALL, Read, Reader, page, run_view};
use super::values::Id;
use crate::cells::{self, run_columns};
use crate::query::Way;
use crate::query::look::Steps;
use crate::{RunFilter, RunView, Stretch};

/// Is there anything at all that could fit?
const LANE: &str = "SELECT 1 FROM roundel_lane WHERE namespace = $1 \
     AND ($2::text IS NULL OR workflow = $2) LIMIT 1";

/// The last of so many rows, and the first after it.
macro_rules! end {
    ($id:literal, $from:literal) => {
        concat!(
            "SELECT ",
            $id,
            " FROM ",
            $from,
            $id,
            " < $1 ORDER BY ",
            $id,
            " DESC LIMIT 2 OFFSET $2"
        )
    };
}

/// Runs from there to here.
macro_rules! between {
    ($and:literal) => {
        concat!(
            run_view!(""),
            "WHERE namespace = $1 AND ($2::text IS NULL OR workflow = $2) \
             AND ($3::text IS NULL OR state = $3) AND id < $4 AND id >= $5 ",
            $and,
            "ORDER BY id DESC LIMIT $6"
        )
    };
}

const ALL_END: &str = end!("id", "roundel_run WHERE ");
const ALL: &str = between!("");
const PARKED_END: &str = end!("id", "roundel_run WHERE state = 'parked' AND ");
const PARKED: &str = between!("AND state = 'parked' ");
const ROLLBACK_FAILED_END: &str = end!("id", "roundel_run WHERE state = 'rollback_failed' AND ");
const ROLLBACK_FAILED: &str = between!("AND state = 'rollback_failed' ");
const LABEL_END: &str = end!("run", "roundel_label WHERE name = $3 AND value = $4 AND ");
/// Each run by its own: what the planner thinks of labels is of no use where one is on all runs.
const LABEL: &str = concat!(
    "SELECT ",
    run_columns!(),
    ", namespace, workflow, version FROM roundel_label \
     CROSS JOIN LATERAL (SELECT * FROM roundel_run WHERE id = roundel_label.run OFFSET 0) AS runs \
     JOIN (SELECT id AS lane_id, namespace, workflow, version FROM roundel_lane) AS lanes \
     ON lane_id = lane \
     WHERE namespace = $1 AND ($2::text IS NULL OR workflow = $2) \
     AND ($3::text IS NULL OR state = $3) AND roundel_label.run < $4 AND roundel_label.run >= $5 \
     AND roundel_label.name = $7 AND roundel_label.value = $8 \
     ORDER BY roundel_label.run DESC LIMIT $6"
);

impl Reader<'_> {
    pub(super) async fn look(&mut self, filter: &RunFilter) -> Read<Stretch<RunView, RunId>> {
        let namespace = filter.namespace.as_str();
        let workflow = filter.workflow.as_ref().map(|name| name.as_str());
        let state = filter.state.map(RunState::as_str);
        let label = filter.label.as_ref();
        let (name, value) = label.map_or(("", ""), |(name, value)| (name.as_str(), value));
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.before, limit, filter.rows());
        // No label has a zero, and the server would not even be asked.
        let any = !value.contains('\0');
        if !any
            || self
                .rows(LANE, values![namespace, workflow])
                .await?
                .is_empty()
        {
            return Ok(Stretch {
                items: Vec::new(),
                next: None,
            });
        }
        let (of_end, of_runs) = match filter.way() {
            Way::All => (ALL_END, ALL),
            Way::Parked => (PARKED_END, PARKED),
            Way::RollbackFailed => (ROLLBACK_FAILED_END, ROLLBACK_FAILED),
            Way::Label => (LABEL_END, LABEL),
        };
        let by_label = filter.way() == Way::Label;
        while let Some(step) = steps.step() {
            let before = step.before.map_or(AFTER_ALL, Id::from);
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let values = match by_label {
                true => values![before, skip, name, value],
                false => values![before, skip],
            };
            let run = |row: &sqlx::postgres::PgRow| cells::run_id(row, 0);
            let end = self.all(of_end, values, run).await?;
            let from = match end.as_slice() {
                [last, _] => Id::from(*last),
                _ => BEFORE_ALL,
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let most = limit + 1;
            let values = match by_label {
                true => values![namespace, workflow, state, before, from, most, name, value],
                false => values![namespace, workflow, state, before, from, most],
            };
            let fit = self.views(of_runs, values, limit).await?;
            steps.took(fit, &end, |run| run.row.id);
        }
        Ok(steps.stretch())
    }
}
