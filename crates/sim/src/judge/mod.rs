//! The judgement: everything is at rest, and what was promised is held against what is there.

mod kin;
mod timetables;

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::check::Reader;
use roundel_core::{
    Deadline, Entry, INCOMING, Outcome, Rows, RunId, RunRow, RunState, SCHEDULE, STATE_CHANGED,
    decode_entries,
};
use roundel_store::Model;

use crate::book::{Book, said, value};
use crate::flows::{LAST, SENT, Tally};
use crate::site::{Site, Way};

impl Book {
    /// Everything is at rest: what should not be?
    pub(crate) fn judge(&mut self, model: &Model, site: &Site, reader: &mut Reader) {
        let mut broken = Vec::new();
        model.check(reader, &mut broken);
        let broken = broken.iter().map(ToString::to_string);
        self.violations.extend(broken);
        let rows = model.rows();
        self.judge_starts(rows);
        self.judge_runs(rows, site);
        self.judge_cancels(rows);
        self.judge_kept(model);
        self.judge_late(model);
        self.judge_messages(rows);
        self.judge_conditions(rows);
        self.judge_sent(rows, site);
        self.judge_batches(model);
        self.judge_facts(model, site);
        self.judge_arrivals(model);
        self.judge_times(model);
        if rows.audit.iter().count() != self.audited {
            self.complain("inv26_audit: what was done in somebody's name is not all there");
        }
        self.violations.extend(site.complaints.iter().cloned());
        self.judge_kin(model, site);
        for (run, state, outcome) in std::mem::take(&mut self.results) {
            let same = |row: &RunRow| row.state == state && row.outcome == outcome;
            let reopened = || was(model, run, outcome.as_ref());
            if !rows.run(run).is_some_and(same) && !reopened() {
                self.complain(&format!("inv5_one_end: the result of {run} changed"));
            }
        }
    }

    fn judge_starts(&mut self, rows: &Rows) {
        for (run, _) in std::mem::take(&mut self.started) {
            if rows.run(run).is_none() && !self.deleted.contains(&run) {
                self.complain(&format!("inv3_acked: the start of {run} is lost"));
            }
        }
    }

    fn judge_runs(&mut self, rows: &Rows, site: &Site) {
        for ((run, execution, name, way), wrote) in &site.ledger {
            let times = wrote.times;
            if times != 1 {
                let name = format!("{name}, {way:?},");
                let found = format!("inv1_one_effect: {name} of {run}/{execution}: {times} times");
                self.complain(&found);
            }
        }
        let mut lines: BTreeMap<RunId, u32> = BTreeMap::new();
        for (run, ..) in site.ledger.keys().filter(|(.., way)| *way == Way::Done) {
            *lines.entry(*run).or_default() += 1;
        }
        // Items of the queue of facts are judged with those.
        let items = |row: &&RunRow| rows.lane(row.lane).workflow == INCOMING;
        for row in rows.runs().filter(|row| !items(row)) {
            let run = row.id;
            if row.owner.is_some() {
                self.complain(&format!("inv23_no_leak: {run} is leased"));
            }
            if !row.state.has_ended() && (row.waits == 0 || row.state != RunState::Waiting) {
                let state = row.state.as_str();
                let why = format!("inv28_convergence: {run} is {state}: {:?}", row.outcome);
                self.complain(&why);
            }
            if let Some(Outcome::Failure(failure)) = &row.outcome
                && failure.code == "lost_state"
            {
                self.complain(&format!("inv3_acked: the state of {run} is lost"));
            }
            if let (RunState::Completed, Some(Outcome::Value(value))) = (row.state, &row.outcome) {
                let tally: Tally = value.decode().unwrap_or_default();
                let wrote = lines.get(&run).copied().unwrap_or_default();
                if tally.lines != wrote {
                    let says = tally.lines;
                    let found = format!("inv1_one_effect: {run} says {says} lines, wrote {wrote}");
                    self.complain(&found);
                }
                if tally.version.max(1) != rows.lane(row.lane).version {
                    self.complain(&format!("ru_versions: {run} was run by another version"));
                }
                if (tally.calls as usize) > site.done_for(run).count() {
                    self.complain(&format!("g2_at_least_once: a call of {run} was not made"));
                }
            }
        }
    }

    /// A request to end that was acknowledged cannot be overtaken by another end.
    fn judge_cancels(&mut self, rows: &Rows) {
        for run in std::mem::take(&mut self.cancelled) {
            let row = rows.run(run);
            let state = row.map(|row| row.state);
            // It may have missed its deadline at the same time.
            if row.is_some_and(is_late) {
                continue;
            }
            // What it did could perhaps not be undone.
            let ends = [RunState::Cancelled, RunState::RollbackFailed];
            if !state.is_some_and(|state| ends.contains(&state)) {
                let state = state.map_or("gone", RunState::as_str);
                let found = format!("inv21_cancel: {run} was cancelled, and is {state}");
                self.complain(&found);
            }
        }
    }

    /// What was cancelled without undo is left as it is.
    fn judge_kept(&mut self, model: &Model) {
        for run in std::mem::take(&mut self.kept) {
            let execution = model.rows().run(run).map_or(0, |row| row.execution);
            let rounds = model.journal(run, execution).iter();
            let mut entries = rounds.flat_map(|round| decode_entries(&round.entries));
            let undoes = |entry: &Entry| matches!(entry, Entry::RollingBack { .. });
            if entries.any(|entries| entries.iter().any(undoes)) {
                self.complain(&format!("co_25: {run} was to be kept, and is undone"));
            }
        }
    }

    /// Whose workflow says so is parked when it is late, and not undone.
    fn judge_late(&mut self, model: &Model) {
        let rows = model.rows();
        let parks = |row: &&RunRow| rows.lane(row.lane).workflow.as_str() == "twig";
        for row in rows.runs().filter(parks) {
            let rounds = model.journal(row.id, row.execution).iter();
            let mut entries = rounds.flat_map(|round| decode_entries(&round.entries));
            let missed = |entry: &Entry| matches!(entry, Entry::DeadlineMissed { .. });
            if entries.any(|entries| entries.iter().any(missed)) {
                let found = format!("co_24: {} ends for being late, and is to be parked", row.id);
                self.complain(&found);
            }
        }
    }

    /// Nobody waits for a state that is there.
    fn judge_conditions(&mut self, rows: &Rows) {
        let waits = rows.waits.iter().map(|(wait, _)| wait);
        // A schedule waits for what it is asked.
        let asks = |run| {
            rows.run(run)
                .is_some_and(|row| rows.lane(row.lane).workflow == SCHEDULE)
        };
        let waits = waits.filter(|wait| !asks(wait.run));
        for wait in waits.filter(|wait| wait.name == STATE_CHANGED) {
            let state = rows.states.get(&wait.run);
            let state = state.and_then(|row| row.value.decode::<serde_json::Value>().ok());
            if state.is_some_and(|state| state.get(LAST).is_some()) {
                let found = format!("co_22: {} waits for a state that it has", wait.run);
                self.complain(&found);
            }
        }
    }

    /// A command is there if the line is that was written with it, and the other way round.
    fn judge_sent(&mut self, rows: &Rows, site: &Site) {
        let sent = |row: &RunRow| {
            row.key
                .as_ref()?
                .as_str()
                .strip_prefix("order:")?
                .parse()
                .ok()
        };
        let commands: BTreeSet<RunId> = rows.runs().filter_map(sent).collect();
        let lines = site.ledger.keys().filter(|line| line.2 == SENT);
        let lines: BTreeSet<RunId> = lines.map(|line| line.0).collect();
        let gone = |run: &&RunId| !self.ever_deleted.contains(run);
        let lost: Vec<&RunId> = lines.difference(&commands).filter(gone).collect();
        let stray: Vec<&RunId> = commands.difference(&lines).filter(gone).collect();
        for (runs, what) in [(lost, "was lost"), (stray, "was sent without its line")] {
            for run in runs {
                let found = format!("co_01: the command that {run} sent {what}");
                self.violations.push(found);
            }
        }
    }

    /// Each message that was taken in was consumed, is kept, or went with its run; once.
    fn judge_messages(&mut self, rows: &Rows) {
        let mut kept: BTreeMap<u64, u32> = BTreeMap::new();
        let mail = rows.mail.iter().filter_map(|(_, row)| said(row));
        let offers = rows.offers.iter();
        let offers = offers.filter_map(|(_, row)| value(&row.payload));
        for value in mail.chain(offers) {
            *kept.entry(value).or_default() += 1;
        }
        for (value, message) in std::mem::take(&mut self.messages) {
            let kept = kept.remove(&value).unwrap_or(0);
            let wanted = u32::from(message.accepted && !message.deleted);
            if message.consumed + kept != wanted {
                let found = format!("inv2_no_lost_message: {value} is kept {kept}, {message:?}");
                self.complain(&found);
            }
        }
        for value in kept.keys() {
            self.complain(&format!("inv2_no_lost_message: nobody sent {value}"));
        }
    }
}

/// Did it miss its deadline?
fn is_late(row: &RunRow) -> bool {
    matches!(&row.outcome, Some(Outcome::Failure(why)) if why.code == Deadline::CODE)
}

/// Had the run ended so before it was undone?
fn was(model: &Model, run: RunId, outcome: Option<&Outcome>) -> bool {
    let Some(row) = model.rows().run(run) else {
        return false;
    };
    let rounds = model.journal(run, row.execution).iter();
    let entries = rounds.filter_map(|round| decode_entries(&round.entries).ok());
    let before =
        |entry: &Entry| matches!(entry, Entry::RollingBack { was, .. } if was.as_ref() == outcome);
    entries.flatten().any(|entry| before(&entry))
}
