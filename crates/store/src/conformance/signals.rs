//! Signals, offers, waits, timers, cancel.

use std::time::Duration;

use roundel_core::{
    Cancel, CancelMark, Cancelled, Delivery, Name, Offer, Op, Patch, Patched, Payload, Policy,
    Refusal, Reply, Round, RunState, Sent, Signal, Start, Target,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{
    A, B, NS, claimant, closing, consuming, continuing, ending, offering, opening, signal,
    suspending, value_of,
};

const JOB: (u32, &str) = (1, "@job");

fn values(inbox: &[Delivery]) -> Vec<(u32, u32)> {
    inbox
        .iter()
        .map(|delivery| (delivery.call, value_of(&delivery.body)))
        .collect()
}

pub fn si_01_a_run_wakes_on_whichever_comes_first(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = suspending(opening(desk.round(run), &[(1, "x"), (2, "y")]));
    round.timer_at = Some(desk.now().after(Duration::from_secs(60)));
    desk.commit(round);
    desk.signal(run, "y", 5);
    let claimed = desk.claim(A, 1);
    assert_eq!(values(&claimed[0].inbox), [(2, 5)]);
    let round = closing(consuming(desk.round(run), &[(2, "y")]), &[(1, "x")]);
    assert!(!desk.commit(suspending(round)).kept);
    desk.pass(Duration::from_secs(600));
    assert_eq!(
        desk.claimed_ids(A, 1),
        [],
        "the timer that lost does not fire"
    );
    assert_eq!(
        desk.signal(run, "x", 6),
        Sent::Queued,
        "nobody waits for it any more"
    );
    assert_eq!(desk.mail(run), [("x".into(), 6)]);
}

pub fn si_01_a_timer_fires_to_the_microsecond(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = suspending(desk.round(run));
    round.timer_at = Some(desk.now().after(Duration::from_secs(5)));
    assert!(!desk.commit(round).kept);
    desk.pass(Duration::from_micros(4_999_999));
    assert_eq!(desk.claimed_ids(B, 1), []);
    desk.pass(Duration::from_micros(1));
    assert_eq!(desk.claimed_ids(B, 1), [run]);
}

pub fn si_01_c4_losers_keep_their_place(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "x"), (2, "y")]);
    for (name, value) in [("x", 1), ("y", 2), ("x", 3)] {
        desk.signal(run, name, value);
    }
    assert_eq!(values(&desk.claim(A, 1)[0].inbox), [(1, 1), (2, 2)]);
    desk.commit(closing(
        consuming(desk.round(run), &[(1, "x")]),
        &[(2, "y")],
    ));
    assert_eq!(desk.mail(run), [("y".into(), 2), ("x".into(), 3)]);
    let committed = desk.commit(opening(desk.round(run), &[(3, "x"), (4, "y")]));
    assert_eq!(values(&committed.inbox), [(4, 2), (3, 3)]);
}

pub fn si_02_a_signal_before_the_wait_completes_it_at_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for value in 1..=3 {
        assert_eq!(desk.signal(run, "go", value), Sent::Queued);
    }
    let committed = desk.commit(suspending(opening(
        desk.round(run),
        &[(1, "go"), (2, "go")],
    )));
    assert!(committed.kept);
    assert_eq!(
        values(&committed.inbox),
        [(1, 1), (2, 2)],
        "in order of arrival"
    );
}

pub fn si_02_targeted_before_offered(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.offer("@job", 1);
    desk.signal(run, "@job", 2);
    let committed = desk.commit(opening(desk.round(run), &[(1, "@job"), (2, "@job")]));
    let mut got = values(&committed.inbox);
    got.sort_unstable();
    assert_eq!(got, [(1, 2), (2, 1)]);
}

pub fn si_03_a_signal_answers_what_became_of_it(make: &Make) {
    let mut desk = Desk::new(make);
    let (waiting, idle, ended) = (desk.waiting(A, &[(1, "go")]), desk.start(), desk.owned(A));
    desk.end(ended);
    let unknown = desk.new_id();
    let drop = |run| Signal {
        policy: Policy::Drop,
        expires: None,
        ..signal(run, "go", 1)
    };
    let by_key = Target::Key(Name::constant("none"));
    for (what, sent) in [
        (signal(waiting, "go", 1), Sent::Delivered(waiting)),
        (signal(waiting, "go", 2), Sent::Queued),
        (drop(waiting), Sent::Dropped),
        (signal(idle, "go", 1), Sent::Queued),
        (
            signal(ended, "go", 1),
            Sent::TargetEnded(RunState::Completed),
        ),
        (signal(unknown, "go", 1), Sent::TargetUnknown),
        (
            Signal {
                target: by_key,
                ..signal(idle, "go", 1)
            },
            Sent::TargetUnknown,
        ),
    ] {
        assert_eq!(desk.send(what.clone()), sent, "{what:?}");
    }
    assert_eq!(desk.mail(ended), [], "no row is left behind");
}

pub fn si_03_an_offer_goes_to_the_one_who_waits_longest(make: &Make) {
    let mut desk = Desk::new(make);
    assert_eq!(desk.offer("@job", 1), Sent::Queued);
    let first = desk.waiting(A, &[JOB]);
    let (second, third) = (desk.waiting(B, &[JOB]), desk.waiting(A, &[JOB]));
    assert_eq!(
        desk.run(first).matched,
        1,
        "the kept offer went to the first who waited"
    );
    assert_eq!(desk.offer("@job", 2), Sent::Delivered(second));
    assert_eq!(desk.offer("@job", 3), Sent::Delivered(third));
    assert_eq!(desk.offer("@job", 4), Sent::Queued);
    let claimed = desk.claim(B, 1);
    assert_eq!(
        (claimed[0].run, values(&claimed[0].inbox)),
        (second, vec![(1, 2)])
    );
    desk.commit(consuming(desk.round(second), &[JOB]));
    assert_eq!(desk.dump().offers.len(), 3, "consumed is gone");
}

pub fn si_03_an_offer_that_is_let_go_goes_to_the_next_in_line(make: &Make) {
    for how in ["closed", "ended", "continued", "deleted"] {
        let mut desk = Desk::new(make);
        let (one, two) = (desk.waiting(A, &[JOB]), desk.waiting(A, &[JOB]));
        let three = desk.waiting(A, &[JOB]);
        assert_eq!(desk.offer("@job", 5), Sent::Delivered(one));
        desk.claim(A, 1);
        match how {
            "closed" => drop(desk.commit(closing(desk.round(one), &[JOB]))),
            "ended" => drop(desk.commit(ending(desk.round(one), RunState::Failed))),
            "continued" => drop(desk.commit(continuing(desk.round(one), None))),
            _ => drop(desk.must(deleting(one, true))),
        }
        assert_eq!(
            (desk.run(two).matched, desk.run(three).matched),
            (1, 0),
            "{how}"
        );
    }
}

pub fn si_03_offers_given_back_together_reach_as_many(make: &Make) {
    let mut desk = Desk::new(make);
    let many = desk.waiting(A, &[(1, "@job"), (2, "@job"), (3, "@job")]);
    let others = [desk.waiting(B, &[JOB]), desk.waiting(B, &[JOB])];
    desk.offer("@job", 1);
    desk.offer("@job", 2);
    desk.claim(A, 1);
    desk.commit(ending(desk.round(many), RunState::Failed));
    assert!(others.iter().all(|run| desk.run(*run).matched == 1));
}

pub fn si_03_several_offers_of_one_batch_reach_several_waiters(make: &Make) {
    let mut desk = Desk::new(make);
    let runs = [desk.waiting(A, &[JOB]), desk.waiting(B, &[JOB])];
    let offers = (1..=3)
        .map(|value| Op::Offer(offering("@job", value)))
        .collect();
    let sent: Vec<_> = desk.batch(offers).into_iter().map(Result::unwrap).collect();
    let expected = [
        Sent::Delivered(runs[0]),
        Sent::Delivered(runs[1]),
        Sent::Queued,
    ];
    assert_eq!(sent, expected.map(|sent| Reply::Sent(sent, vec![])));
}

pub fn si_04_send_and_suspend_never_pass_each_other(make: &Make) {
    for (signal_first, fused) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut desk = Desk::new(make);
        let run = desk.owned(A);
        let suspend = Op::Commit(suspending(opening(desk.round(run), &[(1, "go")])));
        let send = Op::Signal(signal(run, "go", 1));
        let ops = if signal_first {
            vec![send, suspend]
        } else {
            vec![suspend, send]
        };
        if fused {
            desk.batch(ops);
        } else {
            ops.into_iter().for_each(|op| drop(desk.must(op)));
        }
        let row = desk.run(run);
        assert_eq!(row.matched, 1);
        assert!(row.ready_at.is_some());
        desk.release(A, &[run]);
        assert_eq!(
            values(&desk.claim(A, 1)[0].inbox),
            [(1, 1)],
            "delivered once"
        );
    }
}

pub fn si_04_offer_and_wait_never_pass_each_other(make: &Make) {
    for (offer_first, fused) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut desk = Desk::new(make);
        let run = desk.owned(A);
        let wait = Op::Commit(suspending(opening(desk.round(run), &[JOB])));
        let offer = Op::Offer(offering("@job", 3));
        let ops = if offer_first {
            vec![offer, wait]
        } else {
            vec![wait, offer]
        };
        if fused {
            desk.batch(ops);
        } else {
            ops.into_iter().for_each(|op| drop(desk.must(op)));
        }
        assert_eq!(desk.run(run).matched, 1);
        assert_eq!(desk.dump().offers[0].1.taken_by, Some(run));
    }
}

pub fn si_06_the_winner_stays_the_winner_for_another_worker(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "x"), (2, "y")]);
    desk.signal(run, "x", 1);
    let first = desk.claim(A, 1);
    desk.signal(run, "y", 2);
    desk.release(A, &[run]);
    let second = desk.claim(B, 1);
    assert_eq!(values(&first[0].inbox), [(1, 1)]);
    assert_eq!(
        values(&second[0].inbox),
        [(1, 1), (2, 2)],
        "in order of arrival"
    );
}

pub fn si_07_a_timer_for_a_run_that_moved_on_does_nothing(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let mut round = suspending(opening(desk.round(run), &[(1, "go")]));
    round.timer_at = Some(desk.now().after(Duration::from_secs(5)));
    desk.commit(round);
    desk.signal(run, "go", 1);
    desk.claim(A, 1);
    desk.commit(suspending(consuming(desk.round(run), &[(1, "go")])));
    desk.pass(Duration::from_secs(50));
    assert_eq!(desk.claimed_ids(B, 9), []);
}

pub fn si_12_a_senders_key_gives_the_first_answer(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    let keyed = |value| Signal {
        key: Some(Name::constant("k")),
        ..signal(run, "go", value)
    };
    assert_eq!(desk.send(keyed(1)), Sent::Delivered(run));
    assert_eq!(desk.send(keyed(1)), Sent::Delivered(run));
    assert_eq!(desk.mail(run).len(), 1);
    let conflict = Refusal::Conflict {
        key: Name::constant("k"),
    };
    assert_eq!(desk.refused(Op::Signal(keyed(2))), conflict);
    let offer = |value| Offer {
        key: Some(Name::constant("k")),
        ..offering("@job", value)
    };
    let ops = vec![
        Op::Offer(offer(1)),
        Op::Offer(offer(1)),
        Op::Offer(offer(2)),
    ];
    let replies = desk.batch(ops);
    assert_eq!(replies[0], replies[1]);
    assert_eq!(replies[2], Err(conflict.into()));
    assert_eq!(desk.dump().offers.len(), 1);
}

pub fn si_13_signals_of_one_batch_are_delivered_and_queued_in_order(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    let signals = (1..=3)
        .map(|value| Op::Signal(signal(run, "go", value)))
        .collect();
    let sent: Vec<_> = desk
        .batch(signals)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let expected = [Sent::Delivered(run), Sent::Queued, Sent::Queued];
    assert_eq!(sent, expected.map(|sent| Reply::Sent(sent, vec![])));
    let order: Vec<u32> = desk.mail(run).iter().map(|(_, value)| *value).collect();
    assert_eq!(order, [1, 2, 3]);
}

pub fn si_17_signal_with_start_starts_and_delivers_in_one_commit(make: &Make) {
    let mut desk = Desk::new(make);
    let mut with_signal = |number| {
        let start = Start {
            key: Some(Name::constant("k")),
            ..desk.starting()
        };
        let signal = Some(Box::new(signal(start.run, "go", number)));
        desk.started(Start { signal, ..start })
    };
    let (first, second) = (with_signal(1), with_signal(2));
    assert_eq!((first.new, first.sent), (true, Some(Sent::Queued)));
    assert_eq!((second.new, second.run), (false, first.run));
    assert_eq!(second.sent, Some(Sent::Queued));
    assert_eq!(desk.mail(first.run), [("go".into(), 1), ("go".into(), 2)]);
}

pub fn si_17_a_first_round_finds_what_was_sent_and_offered_before(make: &Make) {
    let mut desk = Desk::new(make);
    desk.offer("@job", 4);
    let start = desk.starting();
    let first = suspending(opening(Round::new(start.run, A, 1), &[JOB, (2, "go")]));
    let started = desk.started(Start {
        claimant: Some(claimant(A)),
        signal: Some(Box::new(signal(start.run, "go", 5))),
        first: Some(Box::new(first)),
        ..start
    });
    let committed = started.first.expect("a round").expect("committed");
    assert!(committed.kept);
    let mut got = values(&committed.inbox);
    got.sort_unstable();
    assert_eq!(got, [(1, 4), (2, 5)]);
}

pub fn si_18_continue_as_new_keeps_unread_signals_in_order(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.commit(opening(desk.round(run), &[(1, "x"), (2, "y")]));
    for (name, value) in [("x", 1), ("y", 2), ("z", 3), ("x", 4)] {
        desk.signal(run, name, value);
    }
    for _ in 0..2 {
        assert_eq!(desk.commit(continuing(desk.round(run), None)).inbox, []);
    }
    let order: Vec<u32> = desk.mail(run).iter().map(|(_, value)| *value).collect();
    assert_eq!(order, [1, 2, 3, 4]);
    let round = opening(desk.round(run), &[(1, "x"), (2, "z"), (3, "x")]);
    assert_eq!(values(&desk.commit(round).inbox), [(1, 1), (2, 3), (3, 4)]);
}

pub fn si_23_cancel_answers_what_it_found(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    let unknown = desk.new_id();
    assert_eq!(desk.cancel(unknown), Cancelled::TargetUnknown);
    assert_eq!(desk.cancel(run), Cancelled::Requested);
    assert_eq!(desk.cancel(run), Cancelled::Requested, "twice is fine");
    let claimed = desk.claim(A, 1);
    assert_eq!(claimed[0].cancel, CancelMark::Requested);
    desk.commit(ending(desk.round(run), RunState::Cancelled));
    assert_eq!(
        desk.cancel(run),
        Cancelled::AlreadyEnded(RunState::Cancelled)
    );
    let (namespace, target) = (NS, Target::Key(Name::constant("none")));
    let by_key = Op::Cancel(Cancel {
        namespace,
        target,
        keep: false,
        claimant: None,
    });
    assert_eq!(
        desk.must(by_key),
        Reply::Cancelled(Cancelled::TargetUnknown, vec![])
    );
}

pub fn si_24_a_dropped_signal_is_gone_and_the_next_arrives_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let drop = |value| Signal {
        policy: Policy::Drop,
        expires: None,
        ..signal(run, "go", value)
    };
    assert_eq!(desk.send(drop(1)), Sent::Dropped);
    desk.commit(suspending(opening(desk.round(run), &[(1, "go")])));
    assert_eq!(desk.send(drop(2)), Sent::Delivered(run));
    assert_eq!(desk.send(drop(3)), Sent::Dropped);
    assert_eq!(values(&desk.claim(A, 1)[0].inbox), [(1, 2)]);
}

pub fn a_sender_takes_the_run_that_it_holds(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[JOB, (2, "x"), (3, "y")]);
    desk.signal(run, "x", 1);
    desk.signal(run, "y", 2);
    let offer = Offer {
        claimant: Some(claimant(A)),
        ..offering("@job", 3)
    };
    let Reply::Sent(_, claimed) = desk.must(Op::Offer(offer)) else {
        panic!("sent")
    };
    let mut got = values(&claimed[0].inbox);
    got.sort_unstable();
    assert_eq!(got, [(1, 3), (2, 1), (3, 2)]);
    assert_eq!(desk.run(run).owner, Some(A));
}

pub fn a_patch_merges_and_can_demand_a_version(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.start();
    let patch = |text: &str, expected| {
        let (target, patch) = (Target::Run(run), Payload::parse(text).expect("JSON"));
        match desk.must(Op::Patch(Patch {
            namespace: NS,
            target,
            patch,
            expected,
        })) {
            Reply::Patched(Patched::Changed(state)) => Ok((state.version, state.value)),
            Reply::Patched(other) => Err(other),
            other => panic!("{other:?}"),
        }
    };
    let json = |text: &str| Payload::parse(text).expect("JSON");
    assert_eq!(patch(r#"{"a":1}"#, Some(0)), Ok((1, json(r#"{"a":1}"#))));
    assert_eq!(patch(r#"{"a":2}"#, Some(0)), Err(Patched::VersionIs(1)));
    assert_eq!(
        patch(r#"{"b":2,"a":null}"#, None),
        Ok((2, json(r#"{"b":2}"#)))
    );
    desk.claim(A, 1);
    desk.end(run);
    assert_eq!(
        patch("{}", None),
        Err(Patched::TargetEnded(RunState::Completed))
    );
}
