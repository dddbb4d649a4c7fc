//! What must be true of every database after every test: journals without gaps, one terminal for
//! each run, no completion without its beginning, nothing left of what has ended.

use std::collections::{BTreeMap, BTreeSet};

use roundel::{Entry, RunId, RunState};
use roundel_core::decode_entries;
use roundel_store::Dump;

use crate::support::Db;

/// Every row of the database, checked.
pub async fn assert_sound(db: &Db) -> Dump {
    let dump = db.dump().await;
    check(&dump);
    dump
}

/// Checks every row.
pub fn check(dump: &Dump) {
    let mut journals: BTreeMap<(RunId, u32), Vec<Entry>> = BTreeMap::new();
    for row in &dump.journal {
        let journal = journals.entry((row.run, row.execution)).or_default();
        assert_eq!(row.first, journal.len() as u64 + 1, "a gap in {}", row.run);
        let entries = decode_entries(&row.entries).expect("entries");
        assert_eq!(entries.len(), row.count as usize, "a wrong count");
        journal.extend(entries);
    }
    for row in &dump.runs {
        for execution in 1..=row.execution {
            let journal = &journals[&(row.id, execution)];
            let last = execution == row.execution;
            check_journal(row.id, journal, last.then_some(row.state));
            if last {
                assert_eq!(journal.len() as u64, row.head, "the head of {}", row.id);
            }
        }
        if row.state.has_ended() {
            assert!(row.outcome.is_some(), "{} ended without an outcome", row.id);
            assert_eq!((row.owner, row.ready_at), (None, None), "{} is due", row.id);
            assert_eq!((row.waits, row.matched), (0, 0), "{} waits", row.id);
        }
        let waits = dump.waits.iter().filter(|(wait, _)| wait.run == row.id);
        assert_eq!(waits.count(), row.waits as usize, "the waits of {}", row.id);
        let mail = dump.mail.iter().filter(|(mail, _)| mail.run == row.id);
        assert_eq!(mail.count(), row.mail as usize, "the mail of {}", row.id);
    }
    let known: BTreeSet<RunId> = dump.runs.iter().map(|row| row.id).collect();
    let mut of = dump.journal.iter().map(|row| row.run);
    assert!(of.all(|run| known.contains(&run)), "a journal of no run");
    for row in &dump.runs {
        let parent = row.parent.map_or(row.id, |parent| parent.run);
        assert!(known.contains(&parent), "{} has no parent", row.id);
    }
}

/// Checks one execution; the state is known if it is the last.
fn check_journal(run: RunId, journal: &[Entry], state: Option<RunState>) {
    assert!(
        matches!(journal.first(), Some(Entry::Started { .. })),
        "{run}: {journal:?}"
    );
    let (mut begun, mut over) = (BTreeSet::new(), BTreeSet::new());
    for entry in &journal[1..] {
        match entry {
            Entry::Begun { call, .. } => {
                assert!(begun.insert(*call), "{run}: call {call} began twice");
            }
            Entry::Done { call, .. } => {
                assert!(begun.contains(call), "{run}: call {call} never began");
                assert!(over.insert(*call), "{run}: call {call} ended twice");
            }
            Entry::Did { call, .. } => {
                assert!(!begun.contains(call), "{run}: call {call} had begun");
                assert!(over.insert(*call), "{run}: call {call} ended twice");
            }
            Entry::Attempted { call, .. } => {
                assert!(!over.contains(call), "{run}: call {call} had ended");
            }
            _ => {}
        }
    }
    let terminal = |entry: &&Entry| matches!(entry, Entry::Ended { .. } | Entry::Continued);
    let terminals: Vec<&Entry> = journal.iter().filter(terminal).collect();
    match state {
        None => assert_eq!(terminals, [&Entry::Continued], "{run}"),
        Some(state) if state.has_ended() => {
            assert_eq!(terminals, [&Entry::Ended { state }], "{run}");
        }
        Some(_) => assert!(terminals.is_empty(), "{run}: {terminals:?}"),
    }
    if let Some(last) = terminals.first() {
        assert_eq!(journal.last(), Some(*last), "{run} went on after its end");
    }
}
