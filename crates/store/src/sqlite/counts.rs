//! Counts, who works on what, and what was done in somebody's name.

use roundel_core::{AuditId, Lane, Name, RunId, RunState, WorkerRow};
use rusqlite::{Result, Row};

use super::columns;
use super::read::{Reader, cut, page};
use crate::cells::number;
use crate::query::look::Steps;
use crate::{AuditFilter, AuditOrder, AuditView, LOOK, Stats, Stretch};

/// By number first: names would be compared for every single run.
const RUN_COUNTS: &str = "SELECT workflow, version, state, owner, runs, unread FROM \
     (SELECT lane, state, owner, count(*) AS runs, sum(mail) AS unread FROM roundel_run \
     WHERE lane IN (SELECT id FROM roundel_lane WHERE namespace = ?1) \
     GROUP BY lane, state, owner) JOIN roundel_lane ON roundel_lane.id = lane";
const OFFER_COUNTS: &str = "SELECT name, count(*) FROM roundel_offer \
     WHERE namespace = ?1 AND taken_by IS NULL GROUP BY name ORDER BY name";
const BELOW: &str = "SELECT state, count(*) FROM roundel_run INDEXED BY roundel_run_parent \
     WHERE parent_run = ?1 GROUP BY state";
const WORKERS: &str =
    "SELECT id, name, started_at, seen_at, suspect, lanes FROM roundel_worker ORDER BY id";
const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";

/// A part of the audit: where it lies, how it is compared with the place before, in which order.
macro_rules! audit {
    ($from:literal, $compare:literal, $order:literal) => {
        concat!(
            "SELECT namespace, number, at, operator, reason, action, target, run, \
             detail, answer, seal FROM ",
            $from,
            " AND (namespace, number) ",
            $compare,
            " (?4, ?5) AND (?1 IS NULL OR namespace = ?1) \
             AND (?3 IS NULL OR operator = ?3) ORDER BY ",
            $order,
            " LIMIT ?6"
        )
    };
}

const AUDIT: &str = audit!("roundel_audit WHERE ?2 IS NULL", ">", "namespace, number");
const AUDIT_BACK: &str = audit!(
    "roundel_audit WHERE ?2 IS NULL",
    "<",
    "namespace DESC, number DESC"
);
const AUDIT_OF_RUN: &str = audit!(
    "roundel_audit INDEXED BY roundel_audit_run WHERE run = ?2",
    ">",
    "namespace, number"
);
const AUDIT_OF_RUN_BACK: &str = audit!(
    "roundel_audit INDEXED BY roundel_audit_run WHERE run = ?2",
    "<",
    "namespace DESC, number DESC"
);

/// The last of so many rows of a tenant's, and the first after it.
const AUDIT_END: &str = "SELECT number FROM roundel_audit WHERE namespace = ?1 AND number > ?2 \
     ORDER BY number LIMIT 2 OFFSET ?3";
const AUDIT_END_BACK: &str = "SELECT number FROM roundel_audit \
     WHERE namespace = ?1 AND number < ?2 ORDER BY number DESC LIMIT 2 OFFSET ?3";
/// What fits between.
macro_rules! audited {
    ($between:literal, $order:literal) => {
        concat!(
            "SELECT namespace, number, at, operator, reason, action, target, run, \
             detail, answer, seal FROM roundel_audit WHERE namespace = ?1 AND ",
            $between,
            " AND (?4 IS NULL OR operator = ?4) ORDER BY ",
            $order,
            " LIMIT ?5"
        )
    };
}
const AUDITED: &str = audited!("number > ?2 AND number <= ?3", "number");
const AUDITED_BACK: &str = audited!("number < ?2 AND number >= ?3", "number DESC");

/// The place of a state among all.
fn place(state: RunState) -> Option<usize> {
    RunState::ALL.iter().position(|known| *known == state)
}

fn count(row: &Row<'_>, column: usize) -> Result<u64> {
    row.get::<_, i64>(column).map(i64::unsigned_abs)
}

impl Reader<'_> {
    pub(super) fn workers(&self) -> Result<Vec<WorkerRow>> {
        self.all(WORKERS, [], columns::worker)
    }

    pub(super) fn lanes(&self) -> Result<Vec<Lane>> {
        self.all(LANES, [], |row| columns::lane(row, 0))
    }

    pub(super) fn below(&self, run: RunId) -> Result<Vec<(RunState, u64)>> {
        let mut counts = self.all(BELOW, [run.as_bytes()], |row| {
            Ok((columns::state(row, 0)?, count(row, 1)?))
        })?;
        counts.sort_by_key(|(state, _)| place(*state));
        Ok(counts)
    }

    pub(super) fn stats(&self, namespace: &Name) -> Result<Stats> {
        let namespace = [namespace.as_str()];
        let alike = self.all(RUN_COUNTS, namespace, columns::alike)?;
        let offers = self.all(OFFER_COUNTS, namespace, |row| {
            Ok((columns::name(row, 0)?, count(row, 1)?))
        })?;
        Ok(Stats::of(alike, offers))
    }

    pub(super) fn audit(&self, filter: &AuditFilter) -> Result<Stretch<AuditView, AuditId>> {
        if let Some(namespace) = filter.through() {
            let found = self.look_at_audit(filter, namespace)?;
            let namespace = namespace.clone();
            let id = |number| AuditId {
                namespace: namespace.clone(),
                number,
            };
            return Ok(found.map(id));
        }
        let limit = page(filter.limit);
        let (namespace, number) = filter.begin();
        let values = (
            filter.namespace.as_ref().map(Name::as_str),
            filter.run.map(|run| *run.as_bytes()),
            filter.operator.as_ref().map(Name::as_str),
            namespace,
            number,
            limit + 1,
        );
        let sql = match (filter.run, filter.order) {
            (Some(_), AuditOrder::OldestFirst) => AUDIT_OF_RUN,
            (Some(_), AuditOrder::NewestFirst) => AUDIT_OF_RUN_BACK,
            (None, AuditOrder::OldestFirst) => AUDIT,
            (None, AuditOrder::NewestFirst) => AUDIT_BACK,
        };
        let found = cut(self.all(sql, values, columns::audit)?, limit);
        Ok(Stretch::of(found, |(id, _)| id.clone()))
    }

    fn look_at_audit(
        &self,
        filter: &AuditFilter,
        namespace: &Name,
    ) -> Result<Stretch<AuditView, u64>> {
        let (of_end, of_rows, first, last) = match filter.order {
            AuditOrder::OldestFirst => (AUDIT_END, AUDITED, 0, i64::MAX),
            AuditOrder::NewestFirst => (AUDIT_END_BACK, AUDITED_BACK, i64::MAX, 0),
        };
        let namespace = namespace.as_str();
        let operator = filter.operator.as_ref().map(Name::as_str);
        let limit = usize::try_from(page(filter.limit)).expect("a small number");
        let mut steps = Steps::new(filter.number(), limit, filter.look.unwrap_or(LOOK));
        while let Some(step) = steps.step() {
            let begin = step.before.map_or(first, number);
            let skip = i64::try_from(step.rows - 1).expect("a small number");
            let end = self.all(of_end, (namespace, begin, skip), |row| count(row, 0))?;
            let to = match end.as_slice() {
                [to, _] => number(*to),
                _ => last,
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = (namespace, begin, to, operator, limit + 1);
            let fit = cut(self.all(of_rows, values, columns::audit)?, limit);
            steps.took(fit, &end, |(id, _)| id.number);
        }
        Ok(steps.stretch())
    }
}
