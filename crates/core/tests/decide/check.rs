//! The checker: sound rows give nothing, and each kind of damage gives the promise that it breaks,
//! and no other.

use roundel_core::check::{self, Invariant, OfferRecord, RunRecord, Violation};
use roundel_core::{
    Call, CancelMark, Caused, Context, Entry, Failure, JournalRow, KeyKind, LaneId, Name, Outcome,
    Payload, Remainder, Remaining, RunId, RunState, ScopeEnd, Start, Taken, Then, Timestamp,
    UndoBy, Why, encode_entries, limits,
};

use crate::world::{
    A, World, child_of, closing, consuming, continuing, ending, opening, recording, suspending,
};

/// Everything of a run, its journal with it.
fn record(world: &World, run: RunId) -> RunRecord {
    let journal = world.journal.iter().filter(|round| round.run == run);
    RunRecord {
        journal: journal.cloned().collect(),
        ..RunRecord::gather(&world.rows, run)
    }
}

fn check_run(run: RunId, record: &RunRecord) -> Vec<Violation> {
    let mut found = Vec::new();
    check::run(run, record, &mut found);
    found
}

/// A run in its second execution, with a key, below another: it has a message and an offer, and
/// waits for one more of each.
fn busy() -> (RunId, RunRecord) {
    let mut world = World::new();
    let parent = world.owned(A);
    let start = Start {
        key: Some(Name::constant("order-7")),
        claimant: Some(crate::world::claimant(A)),
        ..child_of(&mut world, parent, 1)
    };
    let run = start.run;
    let mut round = recording(
        world.round(parent),
        &[Entry::Begun {
            call: 1,
            what: Call::Child {
                workflow: Name::constant("w"),
                run,
            },
        }],
    );
    round.caused.push(Caused::Child(1, Box::new(start)));
    world.commit(suspending(round));
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    world.signal(run, "go", 1);
    let round = consuming(world.round(run), &[(1, "go")]);
    world.commit(round);
    let round = continuing(world.round(run), None);
    world.commit(round);
    let round = opening(
        world.round(run),
        &[(1, "go"), (2, "stop"), (3, "@job"), (4, "@job")],
    );
    world.commit(round);
    world.signal(run, "go", 2);
    world.signal(run, "other", 3);
    world.offer("@job", 4);
    world.check();
    (run, record(&world, run))
}

/// A run that waits for a signal and a time.
fn asleep() -> (RunId, RunRecord) {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = suspending(opening(world.round(run), &[(1, "go")]));
    round.timer_at = Some(Timestamp(i64::MAX));
    world.commit(round);
    (run, record(&world, run))
}

/// A run that has ended, after a wait that it let go.
fn ended() -> (RunId, RunRecord) {
    let mut world = World::new();
    let run = world.owned(A);
    let round = opening(world.round(run), &[(1, "go")]);
    world.commit(round);
    let round = closing(world.round(run), &[(1, "go")]);
    world.commit(recording(round, &[Entry::Dropped { call: 1 }]));
    world.end(run);
    (run, record(&world, run))
}

/// A run that an operator must look at.
fn parked() -> (RunId, RunRecord) {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = world.round(run);
    let failure = roundel_core::Failure::permanent("no");
    round.then = roundel_core::Then::Park(Box::new(failure));
    world.commit(round);
    (run, record(&world, run))
}

#[test]
fn sound_records_break_nothing() {
    for (run, record) in [busy(), asleep(), ended(), parked()] {
        assert_eq!(check_run(run, &record), []);
    }
}

type Damage = (Invariant, fn() -> (RunId, RunRecord), fn(&mut RunRecord));

/// Damages a record and sees exactly the promise that it breaks.
fn each_breaks_one(damages: &[Damage]) {
    for (number, (invariant, make, damage)) in damages.iter().enumerate() {
        let (run, mut record) = make();
        damage(&mut record);
        let found = check_run(run, &record);
        let kinds: Vec<Invariant> = found.iter().map(|violation| violation.invariant).collect();
        assert_eq!(kinds, [*invariant], "damage {number}: {found:#?}");
        assert_eq!(found[0].run, Some(run));
    }
}

fn row(record: &mut RunRecord) -> &mut roundel_core::RunRow {
    record.row.as_mut().expect("a run")
}

/// Adds a round at the end of the journal, as if it had been committed.
fn append(record: &mut RunRecord, entries: &[Entry]) {
    let last = record.journal.last().expect("a journal").clone();
    let count = u32::try_from(entries.len()).expect("few");
    record.journal.push(JournalRow {
        first: last.first + u64::from(last.count),
        count,
        epoch: last.epoch + 1,
        entries: encode_entries(entries),
        ..last
    });
    row(record).head += u64::from(count);
    row(record).epoch += 1;
}

fn did(call: u32) -> Entry {
    let name = Name::constant("s");
    Entry::Did {
        call,
        what: Call::Step { name, undo: None },
        outcome: Outcome::Value(Payload::null()),
    }
}

fn done(call: u32) -> Entry {
    let outcome = Outcome::Value(Payload::null());
    Entry::Done { call, outcome }
}

#[test]
fn inv11_and_inv13_damage_to_a_journal_is_found() {
    each_breaks_one(&[
        (Invariant::GapFree, busy, |r| drop(r.journal.pop())),
        (Invariant::GapFree, busy, |r| row(r).head += 1),
        (Invariant::GapFree, busy, |r| {
            r.journal.last_mut().unwrap().entries.truncate(4);
        }),
        (Invariant::GapFree, asleep, |r| {
            r.journal[0].entries = encode_entries(&[did(9)]);
        }),
        (Invariant::GapFree, asleep, |r| {
            r.journal[1].count += 1;
            row(r).head += 1;
        }),
        (Invariant::GapFree, asleep, |r| {
            let mut nothing = r.journal[1].clone();
            (nothing.first, nothing.count) = (nothing.first + 1, 0);
            (nothing.epoch, nothing.entries) = (nothing.epoch + 1, b"[]".to_vec());
            r.journal.push(nothing);
            row(r).epoch += 1;
        }),
        (Invariant::GapFree, busy, |r| {
            let mut rounds = r.journal.iter_mut();
            let anew = rounds.find(|round| round.execution == 2).unwrap();
            let round = anew.clone();
            r.journal.retain(|round| round.execution == 1);
            r.journal.push(JournalRow {
                execution: 3,
                ..round
            });
            (row(r).execution, row(r).head) = (3, 1);
        }),
        (Invariant::Fencing, busy, |r| {
            r.journal.last_mut().unwrap().epoch = u64::MAX;
        }),
        (Invariant::Fencing, ended, |r| {
            r.journal[2].epoch = r.journal[1].epoch;
        }),
        (Invariant::Fencing, asleep, |r| row(r).epoch = 1),
    ]);
}

#[test]
fn inv1_inv5_inv6_and_inv21_damage_to_what_a_journal_says_is_found() {
    each_breaks_one(&[
        (Invariant::OneEffect, busy, |r| append(r, &[did(9), did(9)])),
        (Invariant::OneEffect, busy, |r| append(r, &[done(9)])),
        (Invariant::OneEffect, busy, |r| {
            append(r, &[Entry::Dropped { call: 9 }]);
        }),
        (Invariant::OneEffect, asleep, |r| {
            append(r, &[done(1), done(1)]);
        }),
        (Invariant::Cancel, asleep, |r| {
            append(r, &[Entry::CancelSeen, did(9)]);
        }),
        (Invariant::NothingAfterEnd, ended, |r| append(r, &[did(9)])),
        (Invariant::OneEnd, ended, |r| {
            row(r).state = RunState::Failed;
        }),
        (Invariant::OneEnd, ended, |r| row(r).outcome = None),
        (Invariant::OneEnd, asleep, |r| {
            let state = RunState::Completed;
            append(r, &[Entry::Ended { state }]);
        }),
        (Invariant::OneEnd, asleep, |r| {
            append(r, &[Entry::Continued]);
        }),
        (Invariant::OneEnd, busy, |r| {
            let old = r.journal.iter().rposition(|round| round.execution == 1);
            r.journal[old.unwrap()].entries = encode_entries(&[did(9)]);
        }),
        (Invariant::OneEnd, asleep, |r| {
            row(r).outcome = Some(Outcome::Value(Payload::null()));
        }),
        (Invariant::OneEnd, busy, |r| {
            let old = r.journal.iter().rposition(|round| round.execution == 1);
            let state = RunState::Completed;
            r.journal[old.unwrap()].entries = encode_entries(&[Entry::Ended { state }]);
        }),
        (Invariant::OneEnd, parked, |r| {
            row(r).outcome = Some(Outcome::Value(Payload::null()));
        }),
    ]);
}

fn undoable(call: u32) -> Entry {
    let undo = Some(Box::new(UndoBy::Code));
    let name = Name::constant("s");
    Entry::Did {
        call,
        what: Call::Step { name, undo },
        outcome: Outcome::Value(Payload::null()),
    }
}

fn undo(call: u32, of: u32) -> Entry {
    let (name, execution) = (Name::constant("s"), None);
    Entry::Did {
        call,
        what: Call::Undo {
            of,
            name,
            execution,
        },
        outcome: Outcome::Value(Payload::null()),
    }
}

fn rolling_back(why: Why) -> Entry {
    Entry::RollingBack {
        why,
        was: None,
        context: Context::default(),
    }
}

fn settled(call: u32, state: RunState) -> Entry {
    let end = ScopeEnd {
        run: RunId::from_bytes([7; 16]),
        workflow: Name::constant("w"),
        state,
        outcome: Outcome::Value(Payload::null()),
    };
    Entry::Settled {
        call,
        ends: vec![end],
        failure: None,
    }
}

fn worked(call: u32) -> Entry {
    let undo = Some(Box::new(UndoBy::Code));
    let name = Name::constant("s");
    Entry::Worked {
        call,
        what: Call::Step { name, undo },
        value: Payload::null(),
        window: None,
        emitted: Vec::new(),
    }
}

fn rolled_back(call: u32, of: u32) -> [Entry; 2] {
    let execution = None;
    let what = Call::RollBack { of, execution };
    [Entry::Begun { call, what }, done(call)]
}

/// A run that was rolled back, if its journal says this.
fn undone(entries: &[Entry]) -> (RunId, RunRecord) {
    let mut world = World::new();
    let run = world.owned(A);
    let round = recording(world.round(run), entries);
    world.commit(round);
    let state = RunState::RolledBack;
    let round = ending(world.round(run), state);
    world.commit(round);
    (run, record(&world, run))
}

#[test]
fn inv7_inv8_and_inv9_damage_to_a_rollback_is_found() {
    let asked = || rolling_back(Why::Asked);
    let ended = |state| Entry::Ended { state };
    let [begun, over] = rolled_back(3, 1);
    let completed = || settled(1, RunState::Completed);
    let complete = Invariant::RollbackComplete;
    let cases: Vec<(Option<Invariant>, Vec<Entry>)> = vec![
        (
            None,
            vec![undoable(1), undoable(2), asked(), undo(3, 2), undo(4, 1)],
        ),
        (
            Some(Invariant::RollbackOrder),
            vec![undoable(1), undoable(2), asked(), undo(3, 1), undo(4, 2)],
        ),
        (
            Some(complete),
            vec![undoable(1), undoable(2), asked(), undo(3, 2)],
        ),
        (None, vec![undoable(1), asked(), rolling_back(Why::Skipped)]),
        // Nothing but undoing comes after it began, and no undoing before.
        (Some(Invariant::RollbackOrder), vec![asked(), did(1)]),
        // What a call set off is undone before it.
        (
            None,
            vec![worked(1), completed(), asked(), begun, over, undo(4, 1)],
        ),
        (
            Some(Invariant::RollbackOrder),
            vec![worked(1), completed(), asked(), undo(3, 1)],
        ),
        (
            None,
            vec![worked(1), settled(1, RunState::Failed), asked(), undo(3, 1)],
        ),
        // What is waited for has ended.
        (
            Some(Invariant::ParentAfterChildren),
            vec![
                worked(1),
                settled(1, RunState::Running),
                asked(),
                undo(3, 1),
            ],
        ),
        // Once.
        (
            Some(complete),
            vec![
                undoable(1),
                asked(),
                undo(2, 1),
                ended(RunState::RolledBack),
                asked(),
            ],
        ),
        (
            None,
            vec![undoable(1), ended(RunState::Completed), asked(), undo(2, 1)],
        ),
    ];
    for (expected, entries) in cases {
        let (run, record) = undone(&entries);
        let found = check_run(run, &record);
        let kinds: Vec<_> = found.iter().map(|violation| violation.invariant).collect();
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(kinds, expected, "{entries:?}: {found:?}");
    }
}

#[test]
fn inv9_a_failed_rollback_that_says_another_remainder_is_found() {
    let entries = [
        undoable(1),
        undoable(2),
        rolling_back(Why::Asked),
        undo(3, 2),
    ];
    let says = |calls: &[u32]| {
        let remaining = |call: &u32| Remaining {
            execution: 1,
            call: *call,
            name: Name::constant("s"),
            own: true,
            set_off: false,
        };
        let told = Remainder {
            because: Failure::business("no"),
            count: calls.len(),
            calls: calls.iter().map(remaining).collect(),
        };
        let mut world = World::new();
        let run = world.owned(A);
        let round = recording(world.round(run), &entries);
        world.commit(round);
        let mut round = ending(world.round(run), RunState::RollbackFailed);
        let failure = Failure::business("stuck").with_code(Remainder::CODE);
        let outcome = Outcome::Failure(Box::new(failure.with_data(&told)));
        round.then = Then::End(RunState::RollbackFailed, outcome);
        world.commit(round);
        check_run(run, &record(&world, run))
    };
    assert_eq!(says(&[1]), []);
    for wrong in [&[][..], &[2], &[2, 1]] {
        let found = says(wrong);
        let kinds: Vec<_> = found.iter().map(|violation| violation.invariant).collect();
        assert_eq!(kinds, [Invariant::RollbackComplete], "{wrong:?}: {found:?}");
    }
}

#[test]
fn sc_20_the_undo_of_what_did_not_happen_is_found() {
    let mut failed = undoable(1);
    if let Entry::Did { outcome, .. } = &mut failed {
        *outcome = Outcome::Failure(Box::new(Failure::business("no")));
    }
    let (run, record) = undone(&[failed, rolling_back(Why::Asked), undo(2, 1)]);
    let found = check_run(run, &record);
    let did_nothing = |violation: &Violation| violation.found.contains("did nothing");
    assert!(found.iter().any(did_nothing), "{found:?}");
}

#[test]
fn inv10_inv7_and_inv25_damage_to_a_tree_is_found() {
    each_breaks_one(&[
        (Invariant::NoOrphan, busy, |r| r.parent = None),
        (Invariant::NoOrphan, busy, |r| row(r).depth = 2),
        (Invariant::NoOrphan, busy, |r| {
            row(r).root = r.row.as_ref().unwrap().id;
        }),
        (Invariant::NoOrphan, busy, |r| {
            row(r).parent.as_mut().unwrap().execution = 2;
        }),
        (Invariant::NoOrphan, asleep, |r| row(r).depth = 1),
        (Invariant::NoOrphan, asleep, |r| {
            row(r).lane = LaneId(77);
            r.lane = None;
        }),
        (Invariant::NoOrphan, ended, |r| {
            r.row = None;
            r.lane = None;
        }),
        (Invariant::ParentAfterChildren, busy, |r| {
            r.parent.as_mut().unwrap().0.state = RunState::Completed;
        }),
        (Invariant::ParentAfterChildren, busy, |r| {
            r.parent.as_mut().unwrap().0.execution += 1;
        }),
        (Invariant::Isolation, busy, |r| {
            r.parent.as_mut().unwrap().1 = Some(Name::constant("other"));
        }),
        (Invariant::Isolation, busy, |r| {
            r.keys[0].0.namespace = Name::constant("other");
        }),
    ]);
}

#[test]
fn inv2_inv16_inv17_and_inv18_damage_to_messages_and_keys_is_found() {
    each_breaks_one(&[
        (Invariant::NoLostMessage, busy, |r| row(r).mail -= 1),
        (Invariant::NoLostMessage, busy, |r| row(r).waits += 1),
        (Invariant::NoLostMessage, busy, |r| row(r).matched += 1),
        (Invariant::NoLostMessage, busy, |r| row(r).watchers += 1),
        (Invariant::Order, busy, |r| row(r).mail_last = 2),
        (Invariant::Order, busy, |r| {
            let other = r
                .mail
                .iter()
                .position(|(id, _)| id.name == Some(Name::constant("other")));
            r.mail[other.unwrap()].0.number = 2;
        }),
        (Invariant::Order, busy, |r| {
            r.gates[0].row.as_mut().unwrap().waiters = 1;
        }),
        (Invariant::Delivery, busy, |r| {
            let go = r
                .waits
                .iter_mut()
                .find(|(id, _)| id.name == Name::constant("go"));
            go.unwrap().1.taken = None;
            row(r).matched -= 1;
        }),
        (Invariant::Delivery, busy, |r| {
            let stop = r
                .waits
                .iter_mut()
                .find(|(id, _)| id.name == Name::constant("stop"));
            stop.unwrap().1.taken = Some(Taken::Mail(1));
            row(r).matched += 1;
        }),
        (Invariant::Delivery, busy, |r| r.offers[0].1.taken_by = None),
        (Invariant::Delivery, busy, |r| r.gates[0].free = Some(2)),
        (Invariant::Delivery, busy, |r| {
            let open = r
                .waits
                .iter_mut()
                .find(|(id, row)| id.name == Name::constant("@job") && row.taken.is_none());
            open.unwrap().1.taken = Some(Taken::Offer(1));
            row(r).matched += 1;
        }),
        (Invariant::Delivery, busy, |r| {
            r.mail[0].1.answers = Some((1, 1));
        }),
        (Invariant::OneKey, busy, |r| r.keys.clear()),
        (Invariant::OneKey, busy, |r| {
            let (mut id, key) = r.keys[0].clone();
            id.key = "order-8".into();
            assert_eq!(id.kind, KeyKind::Run);
            r.keys.push((id, key));
        }),
    ]);
}

#[test]
fn inv14_inv20_inv22_and_inv23_damage_to_what_is_due_is_found() {
    each_breaks_one(&[
        (Invariant::Liveness, asleep, |r| row(r).ready_at = None),
        (Invariant::Liveness, asleep, |r| {
            row(r).state = RunState::Ready;
        }),
        (Invariant::Liveness, asleep, |r| {
            row(r).cancel = CancelMark::Requested;
        }),
        (Invariant::Liveness, asleep, |r| {
            row(r).lease_until = Some(Timestamp(1));
        }),
        (Invariant::NoLeak, ended, |r| {
            row(r).timer_at = Some(Timestamp(1));
        }),
        (Invariant::NoLeak, parked, |r| {
            row(r).ready_at = Some(Timestamp(1));
        }),
        (Invariant::NoLeak, ended, |r| {
            row(r).owner = Some(A);
            row(r).lease_until = Some(Timestamp(1));
        }),
        (Invariant::Attempts, asleep, |r| {
            row(r).crashes = limits::CRASHES;
        }),
        (Invariant::Limits, busy, |r| {
            let depth = limits::DEPTH + 1;
            row(r).depth = depth;
            r.parent.as_mut().unwrap().0.depth = depth - 1;
        }),
        (Invariant::Limits, asleep, |r| {
            let label = (Name::constant("l"), String::new());
            r.labels = vec![label; limits::LABELS + 1];
        }),
    ]);
}

#[test]
fn inv16_and_inv17_damage_to_an_offer_is_found() {
    let mut world = World::new();
    world.waiting(A, &[(1, "@job")]);
    world.offer("@job", 1);
    world.offer("@job", 2);
    type Damage = (Option<Invariant>, fn(&mut OfferRecord));
    let damages: [Damage; 4] = [
        (None, |_| ()),
        (Some(Invariant::Order), |offer| offer.gate = None),
        (Some(Invariant::Delivery), |offer| offer.waits += 1),
        (Some(Invariant::Delivery), |offer| {
            offer.row.taken_by = match offer.row.taken_by {
                None => Some(RunId::from_bytes([1; 16])),
                Some(_) => None,
            };
        }),
    ];
    for (id, row) in world.rows.offers.iter() {
        for (expected, damage) in &damages {
            let mut record = OfferRecord::gather(&world.rows, id, row);
            damage(&mut record);
            let mut found = Vec::new();
            check::offer(&record, &mut found);
            let kinds: Vec<_> = found.iter().map(|violation| violation.invariant).collect();
            assert_eq!(
                kinds,
                expected.iter().copied().collect::<Vec<_>>(),
                "{found:?}"
            );
        }
    }
}

#[test]
fn every_invariant_has_a_word_of_its_own() {
    let mut words: Vec<_> = Invariant::ALL.iter().map(|one| one.as_str()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Invariant::ALL.len());
}

#[test]
fn a_violation_reads_as_a_sentence() {
    let (run, mut damaged) = ended();
    row(&mut damaged).outcome = None;
    let found = check_run(run, &damaged);
    let text = format!(
        "inv5_one_end: run {run}: found completed without an outcome, \
         expected an outcome exactly at rest"
    );
    assert_eq!(found[0].to_string(), text);
}

#[test]
fn si_10_a_signal_that_its_run_ended_without_is_parked_or_gone() {
    let mut world = World::new();
    let run = world.owned(A);
    world.signal(run, "go", 1);
    let round = ending(world.round(run), RunState::Completed);
    world.commit(round);
    let mut left = record(&world, run);
    let found = check_run(run, &left);
    assert!(
        found
            .iter()
            .all(|it| it.invariant != Invariant::NoLostMessage),
        "{found:?}"
    );
    left.mail[0].1.parked_at = None;
    let found = check_run(run, &left);
    assert!(
        found.iter().any(|it| it.found.contains("has ended")),
        "{found:?}"
    );
}
