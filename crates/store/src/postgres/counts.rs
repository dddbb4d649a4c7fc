//! Counts, who works on what, and what was done in somebody's name.

use roundel_core::{AuditId, Lane, Name, RunId, RunState, WorkerRow};
use sqlx::postgres::PgRow;

use super::link::values;
use super::read::{Read, Reader, cut, page};
use super::values::Id;
use crate::cells::{self, Cells, number};
use crate::query::look::Steps;
use crate::{AuditFilter, AuditOrder, AuditView, LOOK, Stats, Stretch};

/// By number first: names would be compared for every single run.
const RUN_COUNTS: &str = "SELECT workflow, version, state, owner, runs, unread FROM \
     (SELECT lane, state, owner, count(*) AS runs, sum(mail)::bigint AS unread FROM roundel_run \
     WHERE lane IN (SELECT id FROM roundel_lane WHERE namespace = $1) \
     GROUP BY lane, state, owner) AS alike JOIN roundel_lane ON roundel_lane.id = lane";
const OFFER_COUNTS: &str = "SELECT name, count(*) FROM roundel_offer \
     WHERE namespace = $1 AND taken_by IS NULL GROUP BY name ORDER BY name";
const WORKERS: &str =
    "SELECT id, name, started_at, seen_at, suspect, lanes FROM roundel_worker ORDER BY id";
const LANES: &str = "SELECT namespace, workflow, version FROM roundel_lane ORDER BY id";

/// A part of the audit: which, how it is compared with the place before, and in which order.
macro_rules! audit {
    ($which:literal, $compare:literal, $order:literal) => {
        concat!(
            "SELECT namespace, number, at, operator, reason, action, target, run, \
             detail, answer, seal FROM roundel_audit WHERE ",
            $which,
            " AND (namespace, number) ",
            $compare,
            " ($3::text COLLATE \"C\", $4) \
             AND ($1::text IS NULL OR namespace = $1) \
             AND ($2::text IS NULL OR operator = $2) ORDER BY ",
            $order,
            " LIMIT $5"
        )
    };
}

const AUDIT: &str = audit!("true", ">", "namespace, number");
const AUDIT_BACK: &str = audit!("true", "<", "namespace DESC, number DESC");
/// A run is of one tenant: its rows stand by number in an index of their own.
const AUDIT_OF_RUN: &str = audit!("run = $6", ">", "run, number");
const AUDIT_OF_RUN_BACK: &str = audit!("run = $6", "<", "run DESC, number DESC");
/// The last of so many rows of a tenant's, and the first after it.
const AUDIT_END: &str = "SELECT number FROM roundel_audit WHERE namespace = $1 AND number > $2 \
     ORDER BY number LIMIT 2 OFFSET $3";
const AUDIT_END_BACK: &str = "SELECT number FROM roundel_audit \
     WHERE namespace = $1 AND number < $2 ORDER BY number DESC LIMIT 2 OFFSET $3";
/// What fits between.
macro_rules! audited {
    ($between:literal, $order:literal) => {
        concat!(
            "SELECT namespace, number, at, operator, reason, action, target, run, \
             detail, answer, seal FROM roundel_audit WHERE namespace = $1 AND ",
            $between,
            " AND ($4::text IS NULL OR operator = $4) ORDER BY ",
            $order,
            " LIMIT $5"
        )
    };
}
const AUDITED: &str = audited!("number > $2 AND number <= $3", "number");
const AUDITED_BACK: &str = audited!("number < $2 AND number >= $3", "number DESC");
const BELOW: &str = "SELECT state, count(*) FROM roundel_run WHERE parent_run = $1 GROUP BY state";

/// The place of a state among all.
fn place(state: RunState) -> Option<usize> {
    RunState::ALL.iter().position(|known| *known == state)
}

impl Reader<'_> {
    pub(super) async fn below(&mut self, run: RunId) -> Read<Vec<(RunState, u64)>> {
        let counts = self.all(BELOW, values![Id::from(run)], |row| {
            let count = row.int(1)?.unwrap_or_default().unsigned_abs();
            Ok((cells::state(row, 0)?, count))
        });
        let mut counts = counts.await?;
        counts.sort_by_key(|(state, _)| place(*state));
        Ok(counts)
    }

    pub(super) async fn stats(&mut self, namespace: &Name) -> Read<Stats> {
        let values = values![namespace.as_str()];
        let alike = self.all(RUN_COUNTS, values, cells::alike).await?;
        let offers = self.all(OFFER_COUNTS, values![namespace.as_str()], |row| {
            let count = row.int(1)?.unwrap_or_default().unsigned_abs();
            Ok((cells::name(row, 0)?, count))
        });
        Ok(Stats::of(alike, offers.await?))
    }

    pub(super) async fn workers(&mut self) -> Read<Vec<WorkerRow>> {
        self.all(WORKERS, values![], cells::worker).await
    }

    pub(super) async fn lanes(&mut self) -> Read<Vec<Lane>> {
        let read = |row: &PgRow| cells::lane(row, 0);
        self.all(LANES, values![], read).await
    }

    pub(super) async fn audit(
        &mut self,
        filter: &AuditFilter,
    ) -> Read<Stretch<AuditView, AuditId>> {
        if let Some(namespace) = filter.through() {
            let found = self.look_at_audit(filter, namespace).await?;
            let namespace = namespace.clone();
            let id = |number| AuditId {
                namespace: namespace.clone(),
                number,
            };
            return Ok(found.map(id));
        }
        let limit = page(filter.limit);
        let (after, number) = filter.begin();
        let namespace = filter.namespace.as_ref().map(Name::as_str);
        let operator = filter.operator.as_ref().map(Name::as_str);
        let found = match filter.run {
            Some(run) => {
                let sql = match filter.order {
                    AuditOrder::OldestFirst => AUDIT_OF_RUN,
                    AuditOrder::NewestFirst => AUDIT_OF_RUN_BACK,
                };
                let run = Id::from(run);
                let values = values![namespace, operator, after, number, limit + 1, run];
                self.all(sql, values, cells::audit).await?
            }
            None => {
                let sql = match filter.order {
                    AuditOrder::OldestFirst => AUDIT,
                    AuditOrder::NewestFirst => AUDIT_BACK,
                };
                let values = values![namespace, operator, after, number, limit + 1];
                self.all(sql, values, cells::audit).await?
            }
        };
        Ok(Stretch::of(cut(found, limit), |(id, _)| id.clone()))
    }

    async fn look_at_audit(
        &mut self,
        filter: &AuditFilter,
        namespace: &Name,
    ) -> Read<Stretch<AuditView, u64>> {
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
            let read = |row: &PgRow| Ok(row.int(0)?.unwrap_or_default().unsigned_abs());
            let end = self
                .all(of_end, values![namespace, begin, skip], read)
                .await?;
            let to = match end.as_slice() {
                [to, _] => number(*to),
                _ => last,
            };
            let limit = i64::try_from(step.limit).expect("a small number");
            let values = values![namespace, begin, to, operator, limit + 1];
            let fit = cut(self.all(of_rows, values, cells::audit).await?, limit);
            steps.took(fit, &end, |(id, _)| id.number);
        }
        Ok(steps.stretch())
    }
}
