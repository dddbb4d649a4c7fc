//! Counts that are shown.

use roundel_core::{Name, RunId, RunState};
use sqlx::postgres::PgRow;

use super::link::values;
use super::read::{Read, Reader};
use super::values::Id;
use crate::Stats;
use crate::cells::{self, Cells};

const RUN_COUNTS: &str = "SELECT workflow, version, state, count(*) \
     FROM roundel_run JOIN roundel_lane ON roundel_lane.id = lane WHERE namespace = $1 \
     GROUP BY workflow, version, state";
const OFFER_COUNTS: &str = "SELECT name, count(*) FROM roundel_offer \
     WHERE namespace = $1 AND taken_by IS NULL GROUP BY name ORDER BY name";
const MAIL_COUNT: &str = "SELECT coalesce(sum(mail), 0)::bigint \
     FROM roundel_run JOIN roundel_lane ON roundel_lane.id = lane WHERE namespace = $1";
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
        let count = |row: &PgRow, column| Ok(row.int(column)?.unwrap_or_default().unsigned_abs());
        let mut runs = self
            .all(RUN_COUNTS, values![namespace.as_str()], |row| {
                let version = u32::try_from(row.int(1)?.unwrap_or_default());
                let version = version.map_err(|error| cells::strange(1, error))?;
                Ok((
                    cells::name(row, 0)?,
                    version,
                    cells::state(row, 2)?,
                    count(row, 3)?,
                ))
            })
            .await?;
        runs.sort_by_key(|(name, version, state, _)| (name.clone(), *version, place(*state)));
        let offers = self
            .all(OFFER_COUNTS, values![namespace.as_str()], |row| {
                Ok((cells::name(row, 0)?, count(row, 1)?))
            })
            .await?;
        let mail = self
            .all(MAIL_COUNT, values![namespace.as_str()], |row| count(row, 0))
            .await?;
        let mail = mail.first().copied().unwrap_or_default();
        Ok(Stats { runs, offers, mail })
    }
}
