//! Reads the signals that wait for an operator.

use roundel_core::{Name, RunId};
use rusqlite::{Result, params};

use super::columns;
use super::read::{AFTER_ALL, Reader, cut, page};
use crate::cells::number;
use crate::query::look::Steps;
use crate::{SignalFilter, SignalView, Stretch};

/// The last of so many rows, and the first after it.
const END: &str = "SELECT run, number FROM roundel_mail INDEXED BY roundel_mail_parked \
     WHERE parked_at IS NOT NULL AND (run, number) < (?1, ?2) \
     ORDER BY run DESC, number DESC LIMIT 2 OFFSET ?3";
const PARKED: &str = "SELECT mail.run, mail.name, mail.number, mail.execution, call, body, at, \
     policy, expires_at, parked_at, namespace, workflow, version, state \
     FROM roundel_mail AS mail INDEXED BY roundel_mail_parked \
     CROSS JOIN roundel_run AS run ON run.id = mail.run \
     CROSS JOIN roundel_lane AS lane ON lane.id = run.lane \
     WHERE parked_at IS NOT NULL AND run.lane IN (SELECT id FROM roundel_lane \
     WHERE namespace = ?1 AND (?2 IS NULL OR workflow = ?2)) \
     AND (mail.run, mail.number) < (?3, ?4) AND (mail.run, mail.number) >= (?5, ?6) \
     ORDER BY mail.run DESC, mail.number DESC LIMIT ?7";

impl Reader<'_> {
    pub(super) fn parked(
        &self,
        filter: &SignalFilter,
    ) -> Result<Stretch<SignalView, (RunId, u64)>> {
        let workflow = filter.workflow.as_ref().map(Name::as_str);
        let namespace = filter.namespace.as_str();
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.before, limit, filter.look);
        while let Some(step) = steps.step() {
            let before = step.before;
            let run = before.map_or(AFTER_ALL.to_vec(), |(run, _)| run.as_bytes().to_vec());
            let below = before.map_or(0, |(_, below)| number(below));
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let end = self.all(END, params![run, below, skip], |row| {
                Ok((
                    columns::run_id(row, 0)?,
                    row.get::<_, i64>(1)?.unsigned_abs(),
                ))
            })?;
            let (from, least) = match end.as_slice() {
                [(run, last), _] => (run.as_bytes().to_vec(), number(*last)),
                _ => (Vec::new(), 0),
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = params![namespace, workflow, run, below, from, least, limit + 1];
            let fit = cut(self.all(PARKED, values, columns::signal)?, limit);
            steps.took(fit, &end, |signal| (signal.id.run, signal.id.number));
        }
        Ok(steps.stretch())
    }
}
