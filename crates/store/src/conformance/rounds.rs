//! Rounds and journals.

use roundel_core::{
    Call, Caused, Consumed, Entry, Failure, Name, Op, Outcome, Payload, Refusal, Reply, Round,
    RunId, RunState, Start, StateChange, Then, decode_entries, limits,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{
    A, B, LEASE, claimant, consuming, ending, offering, opening, recording, signal, suspending,
    value, working,
};
use crate::{Answer, JournalPage, Query};

fn journal(desk: &Desk, run: RunId, execution: u32) -> JournalPage {
    let (after, limit) = (0, usize::MAX);
    match desk.read(Query::Journal {
        run,
        execution,
        after,
        limit,
    }) {
        Ok(Answer::Journal(page)) => page,
        other => panic!("{other:?}"),
    }
}

/// All entries of an execution; their rows must follow each other without a gap.
fn entries(desk: &Desk, run: RunId, execution: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    for row in journal(desk, run, execution).items {
        assert_eq!(row.first, entries.len() as u64 + 1, "gap-free");
        entries.extend(decode_entries(&row.entries).expect("entries"));
        assert_eq!(entries.len() as u64, row.first + u64::from(row.count) - 1);
    }
    entries
}

pub fn ro_01_a_round_that_is_sent_again_leaves_one_set_of_everything(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let spawned = desk.starting();
    let child = spawned.run;
    let mut round = working(desk.round(run));
    round.caused.push(Caused::Spawn(2, Box::new(spawned)));
    round
        .caused
        .push(Caused::Offer(3, Box::new(offering("@job", 1))));
    let before = desk.dump();
    desk.commit(round.clone());
    assert!(matches!(
        desk.refused(Op::Commit(round)),
        Refusal::Fenced { .. }
    ));
    let after = desk.dump();
    assert_eq!(after.runs.len(), before.runs.len() + 1);
    assert_eq!((after.offers.len(), after.mail.len()), (1, 2));
    assert_eq!(entries(&desk, run, 1).len(), 2);
    assert_eq!(entries(&desk, child, 1).len(), 1);
}

pub fn ro_02_a_message_taken_and_not_committed_is_taken_again(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    desk.signal(run, "go", 4);
    let first = desk.claim(A, 1);
    let lost = consuming(desk.round(run), &[(1, "go")]);
    desk.pass(LEASE);
    let second = desk.claim(B, 1);
    assert_eq!(first[0].inbox, second[0].inbox);
    desk.commit(consuming(desk.round(run), &[(1, "go")]));
    assert!(matches!(
        desk.refused(Op::Commit(lost)),
        Refusal::Fenced { .. }
    ));
    let done = entries(&desk, run, 1);
    let done = done
        .iter()
        .filter(|entry| matches!(entry, Entry::Done { .. }));
    assert_eq!(done.count(), 1);
    assert_eq!(desk.mail(run), []);
}

pub fn ro_04_a_message_is_consumed_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    desk.signal(run, "go", 1);
    desk.claim(A, 1);
    desk.commit(consuming(desk.round(run), &[(1, "go")]));
    let row = desk.run(run);
    assert_eq!((row.mail, row.matched, row.waits), (0, 0, 0));
    let again = Op::Commit(consuming(desk.round(run), &[(1, "go")]));
    assert!(matches!(desk.refused(again), Refusal::Inconsistent { .. }));
}

pub fn ro_05_a_run_ends_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let failed = ending(desk.round(run), RunState::Failed);
    desk.end(run);
    assert!(matches!(
        desk.refused(Op::Commit(failed)),
        Refusal::Fenced { .. }
    ));
    let row = desk.run(run);
    assert_eq!(row.state, RunState::Completed);
    assert_eq!(row.outcome, Some(Outcome::Value(value(7))));
    assert_eq!(
        (row.owner, row.ready_at, row.lease_until),
        (None, None, None)
    );
    desk.pass(LEASE * 9);
    assert_eq!(desk.claimed_ids(B, 9), []);
}

pub fn ro_05_inv6_nothing_comes_after_the_end(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.end(run);
    let before = desk.dump();
    desk.cancel(run);
    desk.signal(run, "go", 1);
    desk.release(A, &[run]);
    desk.renew(A, run);
    let mut after = desk.dump();
    after.workers.clone_from(&before.workers);
    assert_eq!(after, before);
    let all = entries(&desk, run, 1);
    assert!(matches!(
        all.last(),
        Some(Entry::Ended {
            state: RunState::Completed
        })
    ));
}

pub fn ro_15_a_round_of_a_deleted_run_recreates_nothing(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let late = working(desk.round(run));
    desk.must(deleting(run, true));
    assert_eq!(desk.refused(Op::Commit(late)), Refusal::UnknownRun { run });
    assert!(desk.view(run).is_none());
    assert!(desk.dump().journal.is_empty());
}

pub fn ro_20_entries_are_gap_free_from_one(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for _ in 0..3 {
        desk.commit(working(working(desk.round(run))));
        desk.commit(desk.round(run));
    }
    desk.end(run);
    let all = entries(&desk, run, 1);
    assert_eq!(all.len(), 8);
    assert!(matches!(all[0], Entry::Started { .. }));
    let ends = all
        .iter()
        .filter(|entry| matches!(entry, Entry::Ended { .. }));
    assert_eq!(ends.count(), 1);
    assert_eq!(desk.run(run).head, 8);
}

pub fn ro_20_a_start_and_its_first_round_are_one_row(make: &Make) {
    let mut desk = Desk::new(make);
    let start = desk.starting();
    let first = Some(Box::new(suspending(working(Round::new(start.run, A, 1)))));
    let start = Start {
        claimant: Some(claimant(A)),
        first,
        ..start
    };
    let started = desk.started(start);
    assert!(matches!(started.first.as_deref(), Some(Ok(_))));
    assert_eq!(journal(&desk, started.run, 1).items.len(), 1);
    assert_eq!(entries(&desk, started.run, 1).len(), 2);
    let apart = desk.starting();
    let run = apart.run;
    let round = working(Round::new(run, A, 1));
    let apart = Start {
        claimant: Some(claimant(A)),
        ..apart
    };
    let replies = desk.batch(vec![Op::Start(apart), Op::Commit(round)]);
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(
        journal(&desk, run, 1).items.len(),
        2,
        "two operations, although fused"
    );
}

pub fn ro_20_entries_come_back_to_the_byte(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let texts = [
        r#""\u0000 ß ✓ \ud83d\ude00""#,
        "12345678901234567890123",
        "1e400",
        r#"{"b":1, "a":2}"#,
    ];
    for (call, text) in (1..).zip(texts) {
        let what = Call::Effect {
            name: Name::constant("e"),
            undo: None,
        };
        let outcome = Outcome::Value(Payload::parse(text).expect("JSON"));
        desk.commit(recording(
            desk.round(run),
            &[Entry::Did {
                call,
                what,
                outcome,
            }],
        ));
    }
    let all = entries(&desk, run, 1);
    for (entry, text) in all[1..].iter().zip(texts) {
        let Entry::Did {
            outcome: Outcome::Value(value),
            ..
        } = entry
        else {
            panic!("{entry:?}")
        };
        assert_eq!(value.as_str(), text);
    }
}

pub fn ro_20_a_journal_is_read_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for _ in 0..4 {
        desk.commit(working(working(desk.round(run))));
    }
    let page = |after: u64, limit: usize| {
        let execution = 1;
        let Ok(Answer::Journal(page)) = desk.read(Query::Journal {
            run,
            execution,
            after,
            limit,
        }) else {
            panic!("a journal")
        };
        let first: Vec<u64> = page.items.iter().map(|row| row.first).collect();
        (first, page.more)
    };
    assert_eq!(page(0, 2), (vec![1, 2], true));
    assert_eq!(page(3, 2), (vec![4, 6], true));
    assert_eq!(
        page(4, 9),
        (vec![4, 6, 8], false),
        "a row with an entry after that one"
    );
    assert_eq!(page(9, 9), (vec![], false));
    assert_eq!(page(0, 5), (vec![1, 2, 4, 6, 8], false));
}

pub fn inv21_after_a_cancel_no_forward_round_commits(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.cancel(run);
    let mut caused = desk.round(run);
    caused
        .caused
        .push(Caused::Signal(1, Box::new(signal(run, "go", 1))));
    for round in [
        opening(desk.round(run), &[(1, "go")]),
        ending(desk.round(run), RunState::Completed),
        caused,
    ] {
        assert_eq!(
            desk.refused(Op::Commit(round)),
            Refusal::CancelRequested { run }
        );
    }
    let mut seen = recording(desk.round(run), &[Entry::CancelSeen]);
    seen.cancel_seen = true;
    desk.commit(seen);
    desk.commit(ending(desk.round(run), RunState::Cancelled));
    assert_eq!(desk.state(run), RunState::Cancelled);
}

pub fn a_parked_run_keeps_its_reason_and_its_messages(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = opening(desk.round(run), &[(1, "go")]);
    let failure = Failure::permanent("diverged")
        .with_code("diverged")
        .with_data(&[1, 2])
        .caused_by(Failure::transient("slow"));
    round.then = Then::Park(Box::new(failure.clone()));
    assert!(!desk.commit(round).kept);
    desk.signal(run, "go", 3);
    let row = desk.run(run);
    assert_eq!(
        (row.state, row.ready_at, row.matched),
        (RunState::Parked, None, 1)
    );
    assert_eq!(row.outcome, Some(Outcome::Failure(Box::new(failure))));
    desk.pass(LEASE * 9);
    assert_eq!(desk.claimed_ids(A, 9), []);
    desk.cancel(run);
    let claimed = desk.claim(A, 9);
    assert_eq!(claimed[0].inbox.len(), 1);
}

pub fn a_run_keeps_its_own_state(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let merge = |text| StateChange::Merge(Payload::parse(text).expect("JSON"));
    let mut round = desk.round(run);
    round.state = vec![
        merge(r#"{"big":12345678901234567890123}"#),
        merge(r#"{"a":{"b":1}}"#),
    ];
    desk.commit(round);
    let mut round = desk.round(run);
    round.state = vec![merge(r#"{"a":{"b":null,"c":2}}"#)];
    desk.commit(round);
    let Ok(Answer::State(Some(state))) = desk.read(Query::State(run)) else {
        panic!("a state")
    };
    assert_eq!(state.version, 3);
    assert_eq!(
        state.value.as_str(),
        r#"{"a":{"c":2},"big":12345678901234567890123}"#
    );
}

pub fn ro_41_limits_hold_at_the_boundary(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let text = |bytes: usize| Payload::encode(&"x".repeat(bytes - 2)).expect("text");
    let send = |bytes| {
        let mut signal = signal(run, "go", 1);
        signal.payload = text(bytes);
        Op::Signal(signal)
    };
    assert!(desk.op(send(limits::PAYLOAD_BYTES)).is_ok());
    let over = desk.refused(send(limits::PAYLOAD_BYTES + 1));
    assert!(matches!(over, Refusal::Limit { .. }));
    let mut round = desk.round(run);
    round.consumed.push(Consumed::Mail(99));
    assert!(matches!(
        desk.refused(Op::Commit(round)),
        Refusal::Inconsistent { .. }
    ));
    let Ok(Answer::Mail(mail)) = desk.read(Query::Mail(run, 0, 9)) else {
        panic!("mail")
    };
    let Outcome::Value(kept) = &mail[0].1.body else {
        panic!("a value")
    };
    assert_eq!(kept.size(), limits::PAYLOAD_BYTES);
}

pub fn si_14_a_refused_operation_in_a_batch_refuses_alone(make: &Make) {
    let mut desk = Desk::new(make);
    let (run, other) = (desk.owned(A), desk.owned(A));
    let mut fenced = working(desk.round(run));
    fenced.epoch += 5;
    let ops = vec![
        Op::Commit(working(desk.round(other))),
        Op::Commit(fenced),
        Op::Signal(signal(run, "go", 1)),
        deleting(run, false),
        Op::Commit(working(desk.round(run))),
    ];
    let replies = desk.batch(ops);
    let ok: Vec<bool> = replies.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, false, true]);
    assert!(matches!(replies[2], Ok(Reply::Sent(..))));
    assert_eq!(
        (entries(&desk, run, 1).len(), entries(&desk, other, 1).len()),
        (2, 2)
    );
}
