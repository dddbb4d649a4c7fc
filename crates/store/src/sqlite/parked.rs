//! Reads the signals that wait for an operator.

use roundel_core::Name;
use rusqlite::Result;

use super::columns;
use super::read::{AFTER_ALL, Reader, cut, page};
use crate::cells::number;
use crate::{Page, SignalFilter, SignalView};

const PARKED: &str = "SELECT mail.run, mail.name, mail.number, mail.execution, call, body, at, \
     policy, expires_at, parked_at, namespace, workflow, version, state \
     FROM roundel_mail AS mail JOIN roundel_run AS run ON run.id = mail.run \
     JOIN roundel_lane AS lane ON lane.id = run.lane \
     WHERE parked_at IS NOT NULL AND namespace = ?1 AND (?2 IS NULL OR workflow = ?2) \
     AND (mail.run, mail.number) < (?3, ?4) \
     ORDER BY mail.run DESC, mail.number DESC LIMIT ?5";

impl Reader<'_> {
    pub(super) fn parked(&self, filter: &SignalFilter) -> Result<Page<SignalView>> {
        let last = filter.before;
        let run = last.map_or(AFTER_ALL.to_vec(), |(run, _)| run.as_bytes().to_vec());
        let workflow = filter.workflow.as_ref().map(Name::as_str);
        let most = page(filter.limit);
        let values = (
            filter.namespace.as_str(),
            workflow,
            run,
            last.map_or(0, |(_, below)| number(below)),
            most + 1,
        );
        Ok(cut(self.all(PARKED, values, columns::signal)?, most))
    }
}
