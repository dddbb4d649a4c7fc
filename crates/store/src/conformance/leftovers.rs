//! Signals that a run ended without, and what is done about those that are parked.

use std::time::Duration;

use roundel_core::{
    Destination, Name, Op, Policy, Redirect, Refusal, Reply, RunId, RunState, Sent, Signal, Target,
};

use super::Make;
use super::desk::Desk;
use super::words::{A, NS, opening, signal, suspending};
use crate::{Answer, Error, LOOK, Query, SignalFilter};

fn kept(run: RunId, name: &'static str, policy: Policy) -> Signal {
    Signal {
        policy,
        ..signal(run, name, 1)
    }
}

fn redirect(run: RunId, (name, number): (&'static str, u64), to: Destination) -> Op {
    Op::Redirect(Redirect {
        namespace: NS,
        run,
        name: Name::constant(name),
        number,
        to,
        claimant: None,
    })
}

fn sent(reply: Result<Reply, Error>) -> Sent {
    match reply {
        Ok(Reply::Sent(sent, _)) => sent,
        other => panic!("a signal answers as one: {other:?}"),
    }
}

/// A signal's run and number.
type Place = (RunId, u64);

/// A look at what is parked, and where the next begins.
fn look(
    desk: &Desk,
    before: Option<Place>,
    limit: usize,
    rows: usize,
) -> (Vec<Place>, Option<Place>) {
    let filter = SignalFilter {
        namespace: NS,
        workflow: None,
        before,
        limit,
        look: rows,
    };
    let Ok(Answer::Parked(found)) = desk.read(Query::Parked(filter)) else {
        panic!("parked signals were asked for")
    };
    let ids = found.items.iter();
    let ids = ids.map(|found| (found.id.run, found.id.number));
    (ids.collect(), found.next)
}

fn parked(desk: &Desk, before: Option<Place>, limit: usize) -> (Vec<Place>, bool) {
    let (found, next) = look(desk, before, limit, LOOK);
    (found, next.is_some())
}

pub fn si_10_what_a_run_ends_without_is_parked_offered_or_goes(make: &Make) {
    let mut desk = Desk::new(make);
    let waits = desk.waiting(A, &[(1, "@job")]);
    let run = desk.owned(A);
    desk.send(kept(run, "go", Policy::Keep));
    desk.send(kept(run, "loose", Policy::Discard));
    desk.send(kept(run, "@job", Policy::Offer));
    desk.send(Signal {
        expires: Some(Duration::from_secs(1)),
        ..kept(run, "go", Policy::Keep)
    });
    desk.pass(Duration::from_secs(2));
    desk.end(run);
    assert_eq!(parked(&desk, None, 10), (vec![(run, 1)], false));
    assert_eq!(desk.mail(run).len(), 1);
    assert_eq!(desk.run(waits).matched, 1, "the offer reached who waits");
}

pub fn si_10_a_run_that_nobody_has_begun_leaves_its_signals_too(make: &Make) {
    let mut desk = Desk::new(make);
    let waits = desk.waiting(A, &[(1, "@job")]);
    let run = desk.start();
    desk.send(kept(run, "go", Policy::Keep));
    desk.send(kept(run, "@job", Policy::Offer));
    desk.cancel(run);
    assert_eq!(desk.run(run).state, RunState::Cancelled);
    assert_eq!(parked(&desk, None, 10), (vec![(run, 1)], false));
    assert_eq!(desk.run(waits).matched, 1);
}

pub fn si_10_a_parked_signal_is_passed_on_once(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    for _ in 0..3 {
        desk.send(kept(run, "@job", Policy::Keep));
    }
    desk.end(run);
    let taker = desk.owned(A);
    desk.commit(suspending(opening(desk.round(taker), &[(1, "@job")])));
    let to_it = redirect(run, ("@job", 2), Destination::Run(Target::Run(taker)));
    assert_eq!(sent(desk.op(to_it.clone())), Sent::Delivered(taker));
    let again = desk.op(to_it);
    let gone = Refusal::SignalNotParked { run, number: 2 };
    assert_eq!(again, Err(Error::Refused(gone)));
    let to_itself = redirect(run, ("@job", 1), Destination::Run(Target::Run(run)));
    let ended = Sent::TargetEnded(RunState::Completed);
    assert_eq!(sent(desk.op(to_itself)), ended);
    assert_eq!(
        sent(desk.op(redirect(run, ("@job", 3), Destination::Offer))),
        Sent::Queued
    );
    assert_eq!(
        parked(&desk, None, 10),
        (vec![(run, 1)], false),
        "it stays parked"
    );
    assert_eq!(
        sent(desk.op(redirect(run, ("@job", 1), Destination::Out))),
        Sent::Dropped
    );
    assert_eq!(desk.mail(run), []);
}

pub fn si_10_parked_signals_are_read_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let mut all = Vec::new();
    for _ in 0..3 {
        let run = desk.owned(A);
        for number in 1..=2 {
            desk.send(kept(run, "go", Policy::Keep));
            all.push((run, number));
        }
        desk.end(run);
    }
    all.sort_unstable();
    all.reverse();
    for (limit, rows) in (1..=5).flat_map(|limit| (1..=9).map(move |rows| (limit, rows))) {
        let (mut seen, mut last) = (Vec::new(), None);
        loop {
            let (found, next) = look(&desk, last, limit, rows);
            assert!(found.len() <= limit.min(rows));
            seen.extend(found);
            let Some(next) = next else { break };
            last = Some(next);
        }
        assert_eq!(seen, all, "by {limit}, {rows}");
    }
}
