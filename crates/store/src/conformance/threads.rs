//! Many at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;

use roundel_core::{Claim, Op, Register, Reply, RunId, RunState, Sent, Start, WorkerId};

use super::Make;
use super::desk::{Desk, submit};
use super::words::{
    A, LEASE, NS, claimant, consuming, lane, offering, opening, signal, suspending,
};
use crate::Store;

/// Runs this on so many threads at the same time.
pub(super) fn together<T: Send + 'static>(
    store: &Arc<dyn Store>,
    count: u8,
    work: impl Fn(&dyn Store, u8) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let (work, barrier) = (Arc::new(work), Arc::new(Barrier::new(usize::from(count))));
    let spawn = |number: u8| {
        let (store, work, barrier) = (Arc::clone(store), Arc::clone(&work), Arc::clone(&barrier));
        thread::spawn(move || {
            barrier.wait();
            work(&*store, number)
        })
    };
    let threads: Vec<_> = (0..count).map(spawn).collect();
    threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}

fn ask(store: &dyn Store, op: Op) -> Reply {
    submit(store, vec![op]).remove(0).expect("it is answered")
}

pub fn b8_as_many_claimers_as_runs_each_get_one(make: &Make) {
    let mut desk = Desk::new(make);
    let runs: BTreeSet<RunId> = (0..64).map(|_| desk.start()).collect();
    let lane_id = desk.lane;
    let got = together(&desk.store, 8, move |store, number| {
        let worker = WorkerId::from_bytes([number + 1; 16]);
        let lanes = vec![lane(&NS, "w", 1)];
        ask(
            store,
            Op::Register(Register {
                worker,
                name: String::new(),
                lanes,
            }),
        );
        let mut got = Vec::new();
        for _ in 0..8 {
            let (lanes, limit, lease) = (vec![lane_id], 1, LEASE);
            match ask(
                store,
                Op::Claim(Claim {
                    worker,
                    lanes,
                    limit,
                    lease,
                }),
            ) {
                Reply::Claimed { runs, .. } => got.extend(runs.iter().map(|run| run.run)),
                other => panic!("{other:?}"),
            }
        }
        got
    });
    assert!(
        got.iter().all(|got| got.len() == 8),
        "somebody got nothing: {got:?}"
    );
    assert_eq!(got.into_iter().flatten().collect::<BTreeSet<_>>(), runs);
}

pub fn ro_04_one_key_started_by_many_is_one_run(make: &Make) {
    let mut desk = Desk::new(make);
    let ids: Vec<RunId> = (0..8).map(|_| desk.new_id()).collect();
    let started = together(&desk.store, 8, move |store, number| {
        let key = Some(roundel_core::Name::constant("k"));
        let start = Start {
            key,
            ..super::words::start(ids[usize::from(number)])
        };
        match ask(store, Op::Start(start)) {
            Reply::Started(started) => (started.run, started.new),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(started.iter().filter(|(_, new)| *new).count(), 1);
    assert!(started.iter().all(|(run, _)| *run == started[0].0));
}

pub fn c5_signals_of_many_are_all_kept_and_one_is_delivered(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.waiting(A, &[(1, "go")]);
    let sent = together(&desk.store, 8, move |store, number| {
        let mut sent = Vec::new();
        for at in 0..20 {
            match ask(
                store,
                Op::Signal(signal(run, "go", u32::from(number) * 100 + at)),
            ) {
                Reply::Sent(answer, _) => sent.push(answer),
                other => panic!("{other:?}"),
            }
        }
        sent
    });
    let delivered = sent
        .iter()
        .flatten()
        .filter(|sent| **sent == Sent::Delivered(run))
        .count();
    assert_eq!(delivered, 1);
    let mail = desk.mail(run);
    assert_eq!(mail.len(), 160);
    for number in 0..8 {
        let own = mail
            .iter()
            .map(|(_, value)| *value)
            .filter(|value| value / 100 == number);
        let own: Vec<u32> = own.collect();
        assert!(own.is_sorted(), "the order of one sender is kept: {own:?}");
    }
}

pub fn inv16_offers_of_many_reach_each_waiter_once(make: &Make) {
    let mut desk = Desk::new(make);
    let waiting: BTreeSet<RunId> = (0..16).map(|_| desk.waiting(A, &[(1, "@job")])).collect();
    let sent = together(&desk.store, 4, |store, _| {
        let offers = (0..8)
            .map(|value| Op::Offer(offering("@job", value)))
            .collect();
        submit(store, offers)
    });
    let mut delivered = Vec::new();
    for reply in sent.into_iter().flatten() {
        match reply {
            Ok(Reply::Sent(Sent::Delivered(run), _)) => delivered.push(run),
            Ok(Reply::Sent(Sent::Queued, _)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(delivered.len(), 16);
    assert_eq!(delivered.into_iter().collect::<BTreeSet<_>>(), waiting);
}

pub fn b4_a_takeover_and_a_commit_have_one_winner(make: &Make) {
    for _ in 0..20 {
        let mut desk = Desk::new(make);
        let run = desk.owned(A);
        let round = suspending(desk.round(run));
        let lane_id = desk.lane;
        desk.pass(LEASE);
        let won = together(&desk.store, 2, move |store, number| {
            if number == 0 {
                return submit(store, vec![Op::Commit(round.clone())])
                    .remove(0)
                    .is_ok();
            }
            let (worker, lanes, lease) = (super::words::B, vec![lane_id], LEASE);
            match ask(
                store,
                Op::Claim(Claim {
                    worker,
                    lanes,
                    limit: 1,
                    lease,
                }),
            ) {
                Reply::Claimed { runs, .. } => !runs.is_empty(),
                other => panic!("{other:?}"),
            }
        });
        assert_ne!(
            won[0], won[1],
            "the commit or the claim, not both, not none"
        );
    }
}

pub fn si_04_many_rounds_and_signals_lose_nothing(make: &Make) {
    const EACH: u32 = 30;
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let got = together(&desk.store, 3, move |store, number| match number {
        0 => Some(consume(store, run, 2 * EACH)),
        _ => {
            for at in 0..EACH {
                ask(
                    store,
                    Op::Signal(signal(run, "go", u32::from(number) * 1000 + at)),
                );
            }
            None
        }
    });
    let got: Vec<u32> = got.into_iter().flatten().flatten().collect();
    assert_eq!(
        got.iter().collect::<BTreeSet<_>>().len(),
        2 * EACH as usize,
        "{got:?}"
    );
    assert_eq!(desk.mail(run), []);
    assert_eq!(desk.state(run), RunState::Running);
}

/// Waits for so many signals, one call after the other, keeping the lease.
fn consume(store: &dyn Store, run: RunId, count: u32) -> Vec<u32> {
    let (mut epoch, mut got, mut waits) = (1, Vec::new(), false);
    for call in 1..=count {
        let mut round = opening(roundel_core::Round::new(run, A, epoch), &[(call, "go")]);
        if waits {
            round = consuming(round, &[(call - 1, "go")]);
        }
        waits = true;
        let mut inbox = commit(store, round, &mut epoch);
        while inbox.is_empty() {
            inbox = commit(store, roundel_core::Round::new(run, A, epoch), &mut epoch);
        }
        got.push(super::words::value_of(&inbox[0].body));
    }
    let last = consuming(roundel_core::Round::new(run, A, epoch), &[(count, "go")]);
    commit(store, last, &mut epoch);
    got
}

fn commit(
    store: &dyn Store,
    round: roundel_core::Round,
    epoch: &mut u64,
) -> Vec<roundel_core::Delivery> {
    match ask(store, Op::Commit(round)) {
        Reply::Committed(committed) => {
            *epoch = committed.epoch;
            committed.inbox
        }
        other => panic!("{other:?}"),
    }
}

pub fn a_claimant_that_takes_what_it_wakes_is_the_only_one(make: &Make) {
    for _ in 0..20 {
        let mut desk = Desk::new(make);
        let run = desk.waiting(A, &[(1, "go")]);
        let taken = together(&desk.store, 3, move |store, number| {
            let mut go = signal(run, "go", u32::from(number));
            go.claimant = Some(claimant(A));
            match ask(store, Op::Signal(go)) {
                Reply::Sent(_, claimed) => claimed.len(),
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(taken.iter().sum::<usize>(), 1);
    }
}
