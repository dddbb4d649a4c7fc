//! Schedules, judged: every time has come, and all that was asked for was done.

use roundel_core::{Asked, CatchUp, RunState, ScheduleState, Tick, Timestamp};
use roundel_store::Model;

use crate::book::Book;
use crate::timetables::{Known, LONG, Timetables, state_of, time_of};

/// No schedule has so many times in a play.
const MANY: usize = 10_000;

impl Book {
    /// Every time has come, and all that was asked for was done.
    pub(crate) fn judge_times(&mut self, model: &Model) {
        let rows = model.rows();
        let mut found = Vec::new();
        for (run, known) in &self.times.known {
            let Some(row) = rows.run(*run) else { continue };
            if row.state != RunState::Waiting {
                continue;
            }
            let state = state_of(*run, rows);
            let (says, did) = (state.done.started, known.runs.len() as u64);
            if says != did {
                found.push(format!("fa_20: {run} says {says} started, and {did} were"));
            }
            if !known.changed {
                self.times.judge(known, &state, &mut found);
            }
        }
        self.violations.extend(found);
    }
}

impl Timetables {
    fn judge(&self, known: &Known, state: &ScheduleState, found: &mut Vec<String>) {
        let (name, done, table) = (&known.name, &state.done, &known.table);
        let Ok(times) = table.times() else { return };
        let came = |at: Timestamp| {
            let waits = done.waiting.iter().any(|tick| tick.at == at);
            waits
                || self
                    .started
                    .contains_key(&time_of(name, &table.workflow, at))
        };
        for (id, asked) in &known.asked {
            let lost = match *asked {
                Asked::Now(_) => {
                    let waits = |tick: &Tick| tick.id.as_ref() == Some(id);
                    !self.started.contains_key(id) && !done.waiting.iter().any(waits)
                }
                Asked::Range(first, last) => {
                    let range = times.following(Timestamp(first.0 - 1));
                    let mut range = range.take_while(|at| *at <= last).take(MANY);
                    range.any(|at| !came(at))
                }
            };
            if lost {
                found.push(format!(
                    "fa_20: {name} was asked for {asked:?}, and did not"
                ));
            }
        }
        let past = times.following(table.since);
        let past = past.take_while(|at| *at <= done.until).take(MANY);
        let past: Vec<Timestamp> = past.filter(|at| !known.is_excused(*at)).collect();
        let all = table.catch_up == CatchUp::All || table.grace >= LONG;
        let owed = match (all, table.catch_up) {
            (true, _) => &past[..],
            (false, CatchUp::One) => &past[past.len().saturating_sub(1)..],
            (false, _) => &[],
        };
        let missing = owed.iter().filter(|at| !came(**at)).count() as u64;
        if missing > done.skipped {
            let all = owed.len();
            found.push(format!(
                "fa_20: {missing} of {all} times of {name} did not come"
            ));
        }
    }
}
