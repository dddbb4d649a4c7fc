//! Counts, who works on what, and what was done in somebody's name.

use roundel_core::{Lane, Name, RunId, RunState, WorkerRow};
use sqlx::postgres::PgRow;

use super::link::values;
use super::read::{Read, Reader, cut, page};
use super::values::Id;
use crate::cells::{self, Cells};
use crate::{AuditFilter, AuditOrder, AuditView, Page, Stats};

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

/// A part of the audit: how it is compared with the place before, and in which order.
macro_rules! audit {
    ($compare:literal, $order:literal) => {
        concat!(
            "SELECT namespace, number, at, operator, reason, action, target, run, \
             detail, answer, seal FROM roundel_audit WHERE (namespace, number) ",
            $compare,
            " ($4::text COLLATE \"C\", $5) \
             AND ($1::text IS NULL OR namespace = $1) AND ($2::uuid IS NULL OR run = $2) \
             AND ($3::text IS NULL OR operator = $3) ORDER BY ",
            $order,
            " LIMIT $6"
        )
    };
}

const AUDIT: &str = audit!(">", "namespace, number");
const AUDIT_BACK: &str = audit!("<", "namespace DESC, number DESC");
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

    pub(super) async fn audit(&mut self, filter: &AuditFilter) -> Read<Page<AuditView>> {
        let limit = page(filter.limit);
        let (namespace, number) = filter.begin();
        let values = values![
            filter.namespace.as_ref().map(Name::as_str),
            filter.run.map(Id::from),
            filter.operator.as_ref().map(Name::as_str),
            namespace,
            number,
            limit + 1,
        ];
        let sql = match filter.order {
            AuditOrder::OldestFirst => AUDIT,
            AuditOrder::NewestFirst => AUDIT_BACK,
        };
        Ok(cut(self.all(sql, values, cells::audit).await?, limit))
    }
}
