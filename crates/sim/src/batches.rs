//! Batches of commands, some with a command that follows; and what must be true of them in the end.

use roundel_core::{
    BATCH, Batch, BatchEnd, Entry, Hint, Name, Op, Outcome, Payload, RunId, RunRow, RunState,
    Start, decode_entries,
};
use roundel_store::Model;
use serde_json::json;

use crate::book::Book;
use crate::client::Stage;
use crate::flows::Tally;
use crate::marks::Mark;
use crate::world::{NAMESPACE, World};

impl World<'_> {
    /// Sends a batch: of a few commands, or of more than one part of a latch counts.
    pub(crate) fn send_batch(&mut self, index: usize) {
        let run = RunId(self.random.id());
        let most = if self.random.once_in(12) { 40 } else { 4 };
        let many = 2 + self.random.below(most);
        let members = (0..many).map(|_| Start {
            parent: Some(Batch::parent(run)),
            key: self.random.once_in(2).then(|| self.order_key()),
            ..self.order(&Tally::default())
        });
        let members: Vec<Start> = members.collect();
        let then = self.random.once_in(2).then(|| {
            let rounds = MARKED + u32::try_from(self.book.batches.len()).unwrap_or(0);
            self.book.batches.insert(run, rounds);
            let tally = Tally::default();
            self.order(&Tally { rounds, ..tally })
        });
        let input = json!({"commands": many, "fingerprint": ""});
        let start = Start {
            run,
            workflow: BATCH,
            key: self.random.once_in(2).then(|| self.fresh_key()),
            input: Payload::encode(&input).expect("JSON"),
            batch: Some(Box::new(Batch { members, then })),
            ..self.order(&Tally::default())
        };
        self.clients[index].last = Some(Box::new(start.clone()));
        self.clients[index].stage = Stage::Asks(Box::new(Op::Start(start)), self.now);
    }

    /// What became of a batch, if this was about one.
    pub(crate) fn mark_batches(&mut self, hints: &[Hint]) {
        let rows = self.model.rows();
        let is_batch = |row: &RunRow| rows.lane(row.lane).workflow == BATCH;
        for hint in hints {
            let Hint::AtRest(run, state, _) = hint else {
                continue;
            };
            let Some(row) = rows.run(*run) else { continue };
            let parent = row.parent.and_then(|parent| rows.run(parent.run));
            match state {
                RunState::Parked if parent.is_some_and(is_batch) => {
                    self.marks.hit(Mark::BatchAwaitsOperator);
                }
                RunState::Completed if is_batch(row) => {
                    self.marks.hit(Mark::BatchFinished);
                    if self.book.batches.contains_key(run) {
                        self.marks.hit(Mark::BatchFollowed);
                    }
                }
                RunState::Cancelled if is_batch(row) => self.marks.hit(Mark::BatchCancelled),
                _ => {}
            }
        }
    }

    /// One that no step sends.
    fn order_key(&mut self) -> Name {
        Name::new(format!("order:b{}", self.random.below(200))).expect("a name")
    }

    fn order(&mut self, tally: &Tally) -> Start {
        Start {
            version: Some(1),
            ..Start::new(
                NAMESPACE,
                RunId(self.random.id()),
                Name::constant("order"),
                World::payload(tally),
            )
        }
    }
}

/// What follows a batch is known by what it was given.
const MARKED: u32 = 1_000_000;

impl Book {
    /// A batch has ended with its last command, counted all of them, and was followed once.
    pub(crate) fn judge_batches(&mut self, model: &Model) {
        let rows = model.rows();
        let batches = rows
            .runs()
            .filter(|row| rows.lane(row.lane).workflow == BATCH);
        for batch in batches {
            let below = |row: &&RunRow| row.parent.is_some_and(|parent| parent.run == batch.id);
            let members: Vec<&RunRow> = rows.runs().filter(below).collect();
            self.judge_counts(batch, &members, model);
            if let Some(marked) = self.batches.get(&batch.id).copied() {
                self.judge_follower(batch, marked, model);
            }
        }
    }

    fn judge_counts(&mut self, batch: &RunRow, members: &[&RunRow], model: &Model) {
        let run = batch.id;
        let end = match &batch.outcome {
            Some(Outcome::Value(value)) => value.decode::<BatchEnd>().ok(),
            _ => None,
        };
        let Some(end) = end.filter(|_| batch.state == RunState::Completed) else {
            return;
        };
        let commands = end.commands as usize;
        let gone = self.ever_deleted.len();
        let failed = |row: &&&RunRow| !had_completed(row, model);
        let failed = members.iter().filter(failed).count();
        let deleted = commands.saturating_sub(members.len());
        if members.len() > commands || deleted > gone {
            let found = members.len();
            self.complain(&format!("co_11: {run} counted {commands}, and has {found}"));
        }
        if deleted == 0 && failed != end.failed as usize {
            let says = end.failed;
            self.complain(&format!(
                "co_11: {run} says {says} failed, and {failed} did"
            ));
        }
    }

    fn judge_follower(&mut self, batch: &RunRow, marked: u32, model: &Model) {
        let is_it = |row: &&RunRow| {
            let first = model.journal(row.id, 1).first();
            let first = first.and_then(|first| decode_entries(&first.entries).ok());
            let first = first.and_then(|entries| entries.into_iter().next());
            let Some(Entry::Started { input, .. }) = first else {
                return false;
            };
            let tally: Tally = input.decode().unwrap_or_default();
            tally.rounds == marked
        };
        let rows = model.rows();
        let found: Vec<&RunRow> = rows.runs().filter(is_it).collect();
        let run = batch.id;
        if found.len() > 1 || (found.is_empty() && self.ever_deleted.is_empty()) {
            let times = found.len();
            self.complain(&format!("co_11: {run} was followed {times} times"));
        }
    }
}

/// Has it completed, even if it was undone since? One that was undone instead has failed.
fn had_completed(row: &RunRow, model: &Model) -> bool {
    let completed =
        |entry: Entry| matches!(entry, Entry::Ended { state } if state == RunState::Completed);
    let journal = || model.journal(row.id, row.execution).iter();
    match row.state {
        RunState::Completed => true,
        RunState::RolledBack => journal().any(|written| {
            let entries = decode_entries(&written.entries).unwrap_or_default();
            entries.into_iter().any(completed)
        }),
        _ => false,
    }
}
