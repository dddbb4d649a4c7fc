//! Reads the signals that wait for an operator.

use roundel_core::{Name, RunId};
use sqlx::postgres::PgRow;

use super::link::values;
use super::read::{AFTER_ALL, BEFORE_ALL, Read, Reader, cut, page};
use super::values::Id;
use crate::cells::{self, Cells, number};
use crate::query::look::Steps;
use crate::{SignalFilter, SignalView, Stretch};

/// The last of so many rows, and the first after it.
const END: &str = "SELECT run, number FROM roundel_mail \
     WHERE parked_at IS NOT NULL AND (run, number) < ($1, $2) \
     ORDER BY run DESC, number DESC LIMIT 2 OFFSET $3";
const PARKED: &str = "SELECT mail.run, mail.name, mail.number, mail.execution, call, body, at, \
     policy, expires_at, parked_at, namespace, workflow, version, state \
     FROM roundel_mail AS mail JOIN roundel_run AS run ON run.id = mail.run \
     JOIN roundel_lane AS lane ON lane.id = run.lane \
     WHERE parked_at IS NOT NULL AND namespace = $1 AND ($2::text IS NULL OR workflow = $2) \
     AND (mail.run, mail.number) < ($3, $4) AND (mail.run, mail.number) >= ($5, $6) \
     ORDER BY mail.run DESC, mail.number DESC LIMIT $7";

impl Reader<'_> {
    pub(super) async fn parked(
        &mut self,
        filter: &SignalFilter,
    ) -> Read<Stretch<SignalView, (RunId, u64)>> {
        let workflow = filter.workflow.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_str();
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.before, limit, filter.look);
        while let Some(step) = steps.step() {
            let run = step.before.map_or(AFTER_ALL, |(run, _)| Id::from(run));
            let below = step.before.map_or(0, |(_, below)| number(below));
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let place = |row: &PgRow| {
                let number = row.int(1)?.unwrap_or_default().unsigned_abs();
                Ok((cells::run_id(row, 0)?, number))
            };
            let end = self.all(END, values![run, below, skip], place).await?;
            let (from, least) = match end.as_slice() {
                [(run, last), _] => (Id::from(*run), number(*last)),
                _ => (BEFORE_ALL, 0),
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = values![namespace, workflow, run, below, from, least, limit + 1];
            let found = self.all(PARKED, values, SignalView::of).await?;
            let place = |signal: &SignalView| (signal.id.run, signal.id.number);
            steps.took(cut(found, limit), &end, place);
        }
        Ok(steps.stretch())
    }
}
