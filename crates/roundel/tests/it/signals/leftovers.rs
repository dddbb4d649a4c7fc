//! Signals that a run ended without: discarded, offered or parked; and signals that expire (SI-10,
//! SI-11).

use std::time::Duration;

use roundel::{
    Cx, Error, Refusal, Remedy, Result, RunId, RunState, Sent, Signal, Trouble, TroubleId, Workflow,
};

use super::{GO, HOUR, JOB, NEWS, Received, until_waits};
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon};

all![
    si_10_a_run_that_ends_or_is_cancelled_leaves_its_signals_as_their_policies_say,
    si_10_a_parked_signal_is_replayed_and_wakes_whoever_waits,
    si_10_a_parked_signal_is_offered_or_removed,
    si_10_what_cannot_take_a_parked_signal_leaves_it_parked,
    si_10_parked_signals_are_counted_grouped_paged_and_acted_upon_together,
    si_11_a_signal_expires_unless_it_is_read_in_time,
];

const IDLE: Workflow<(), ()> = Workflow::named("idle");
const TAKE: Received = Received::named("take");
const TAKE_LATE: Received = Received::named("take late");
const TAKE_JOBS: Received = Received::named("take jobs");
const LOOSE: Signal<u32> = Signal::named("loose").discarded_unless_read();
const PASSED_ON: Signal<u32> = JOB.offered_unless_read();
const BRIEF: Signal<u32> = NEWS.expires_after(Duration::from_secs(60));

async fn idle(cx: Cx, (): ()) -> Result<()> {
    cx.wait(GO).await
}

async fn take(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(NEWS).await?);
    }
    Ok(taken)
}

async fn take_late(cx: Cx, n: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    take(cx, n).await
}

async fn take_jobs(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(JOB).await?);
    }
    Ok(taken)
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(IDLE, idle).register(TAKE, take);
        engine
            .register(TAKE_LATE, take_late)
            .register(TAKE_JOBS, take_jobs)
    });
    set_up.await
}

/// A run that has ended without these signals.
async fn ended_without(process: &Process, signals: &[(Signal<u32>, u32)]) -> RunId {
    let mut run = process.start(IDLE, &()).await.unwrap();
    until_waits(process, run.id()).await;
    for (signal, value) in signals {
        let sent = process.signal(&run, *signal, value).await.unwrap();
        assert_eq!(sent, Sent::Queued);
    }
    process.signal(&run, GO, &()).await.unwrap();
    soon("its end", run.result()).await.unwrap();
    run.id()
}

async fn parked(process: &Process) -> Vec<TroubleId> {
    let page = process.parked().fetch().await.unwrap();
    page.items.iter().map(Trouble::id).collect()
}

async fn si_10_a_run_that_ends_or_is_cancelled_leaves_its_signals_as_their_policies_say(db: Db) {
    let process = start(&db).await;
    let mut taker = process.start(TAKE_JOBS, &2).await.unwrap();
    until_waits(&process, taker.id()).await;
    let all = [(NEWS, 1), (LOOSE, 2), (PASSED_ON, 3)];
    let ended = ended_without(&process, &all).await;
    let cancelled = process.start(IDLE, &()).await.unwrap();
    until_waits(&process, cancelled.id()).await;
    for (signal, value) in all {
        let value = value + 10;
        process.signal(&cancelled, signal, &value).await.unwrap();
    }
    process.cancel(&cancelled).await.unwrap();
    super::until_is(&process, cancelled.id(), RunState::Cancelled).await;
    assert_eq!(soon("offers", taker.result()).await.unwrap(), [3, 13]);
    let left: Vec<_> = db.dump().await.mail.into_iter().collect();
    let values = left
        .iter()
        .map(|(id, row)| (id.run, row.parked_at.is_some()));
    assert_eq!(
        values.collect::<Vec<_>>(),
        [(ended, true), (cancelled.id(), true)]
    );
    let page = process.parked().fetch().await.unwrap();
    let Trouble::Signal(newest) = &page.items[0] else {
        panic!("it is a signal")
    };
    assert_eq!(newest.id.run, cancelled.id());
    assert_eq!(newest.state, RunState::Cancelled);
    assert_eq!(page.items[0].workflow().as_str(), "idle");
    let why = page.items[0].why().unwrap();
    assert!(why.message.contains("`news`"), "{why}");
    assert_sound(&db).await;
}

async fn si_10_a_parked_signal_is_replayed_and_wakes_whoever_waits(db: Db) {
    let process = start(&db).await;
    let ended = ended_without(&process, &[(NEWS, 7), (NEWS, 8)]).await;
    let [second, first] = parked(&process).await[..] else {
        panic!("two are parked")
    };
    assert_eq!((first.run(), second.run()), (ended, ended));
    let mut taker = process.start(TAKE, &2).await.unwrap();
    until_waits(&process, taker.id()).await;
    let to_it = Remedy::Replay((&taker).into());
    let anna = process.operator("anna").unwrap().reason("it went astray");
    anna.remedy(first, &to_it).await.unwrap();
    anna.remedy(second, &to_it).await.unwrap();
    assert_eq!(soon("both", taker.result()).await.unwrap(), [7, 8]);
    assert_eq!(parked(&process).await, []);
    let again = anna.remedy(first, &to_it).await.unwrap_err();
    let refused = matches!(again, Error::Refused(Refusal::SignalNotParked { .. }));
    assert!(refused, "{again}");
    let audit = process.audit().of(ended).fetch().await.unwrap().items;
    let said = audit.iter().map(|(_, row)| (&*row.action, &*row.target));
    let (first, second) = (first.to_string(), second.to_string());
    assert!(
        said.eq([("replay", &*first), ("replay", &*second)]),
        "{audit:?}"
    );
    assert_sound(&db).await;
}

async fn si_10_a_parked_signal_is_offered_or_removed(db: Db) {
    let process = start(&db).await;
    ended_without(&process, &[(JOB, 5), (JOB, 6)]).await;
    let [second, first] = parked(&process).await[..] else {
        panic!("two are parked")
    };
    process.remedy(second, &Remedy::Discard).await.unwrap();
    let mut taker = process.start(TAKE_JOBS, &1).await.unwrap();
    until_waits(&process, taker.id()).await;
    process.remedy(first, &Remedy::Offer).await.unwrap();
    assert_eq!(soon("the offer", taker.result()).await.unwrap(), [5]);
    let dump = db.dump().await;
    assert_eq!((dump.mail.len(), dump.offers.len()), (0, 0));
    assert_sound(&db).await;
}

async fn si_10_what_cannot_take_a_parked_signal_leaves_it_parked(db: Db) {
    let process = start(&db).await;
    let ended = ended_without(&process, &[(NEWS, 1)]).await;
    let [signal] = parked(&process).await[..] else {
        panic!("one is parked")
    };
    let to_ended = process.remedy(signal, &Remedy::Replay(ended.into())).await;
    assert!(matches!(to_ended, Err(Error::Value(_))), "{to_ended:?}");
    let to_nobody = process
        .remedy(signal, &Remedy::Replay("nobody".into()))
        .await;
    assert!(
        matches!(to_nobody, Err(Error::NoSuchRun(_))),
        "{to_nobody:?}"
    );
    let as_run = process.remedy(signal, &Remedy::Retry).await;
    assert!(matches!(as_run, Err(Error::Value(_))), "{as_run:?}");
    let as_signal = process.remedy(ended, &Remedy::Discard).await;
    assert!(matches!(as_signal, Err(Error::Value(_))), "{as_signal:?}");
    assert_eq!(parked(&process).await, [signal]);
    // What waits in the mailbox of a run that goes on is not parked.
    let waits = process.start(IDLE, &()).await.unwrap();
    process.signal(&waits, NEWS, &2).await.unwrap();
    let live = TroubleId::Signal(waits.id(), 1);
    let refused = process.remedy(live, &Remedy::Discard).await.unwrap_err();
    let refused = matches!(refused, Error::Refused(Refusal::SignalNotParked { .. }));
    assert!(refused);
}

async fn si_10_parked_signals_are_counted_grouped_paged_and_acted_upon_together(db: Db) {
    let process = start(&db).await;
    let news: Vec<_> = (0..3).map(|value| (NEWS, value)).collect();
    ended_without(&process, &news).await;
    ended_without(&process, &[(NEWS, 3), (JOB, 4)]).await;
    let queue = process.parked();
    assert_eq!(queue.count().await.unwrap(), 5);
    let groups = queue.groups().await.unwrap();
    let counts: Vec<_> = groups.iter().map(|group| group.count).collect();
    assert_eq!(counts, [4, 1]);
    let (mut seen, mut asked) = (Vec::new(), queue.clone().limit(2));
    loop {
        let page = asked.fetch().await.unwrap();
        seen.extend(page.items.iter().map(Trouble::id));
        match page.items.last().filter(|_| page.more) {
            Some(last) => asked = asked.after(last.id()),
            None => break,
        }
    }
    assert_eq!(seen, parked(&process).await);
    assert_eq!(queue.clone().only_runs().count().await.unwrap(), 0);
    let jobs = queue.clone().in_group(&groups[1].fingerprint);
    assert_eq!(jobs.act(&Remedy::Offer, |_| ()).await.unwrap().done, 1);
    // What is for runs passes signals by.
    assert_eq!(queue.act(&Remedy::Retry, |_| ()).await.unwrap().done, 0);
    let of_idle = queue.of("idle").unwrap();
    assert_eq!(of_idle.act(&Remedy::Discard, |_| ()).await.unwrap().done, 4);
    assert_eq!(process.parked().count().await.unwrap(), 0);
    assert_sound(&db).await;
}

async fn si_11_a_signal_expires_unless_it_is_read_in_time(db: Db) {
    let db = db.with_manual_clock();
    let process = start(&db).await;
    let idle = process.start(IDLE, &()).await.unwrap().id();
    let late = process.start(TAKE_LATE, &2).await.unwrap().id();
    for run in [idle, late] {
        until_waits(&process, run).await;
        for value in 1..=4 {
            let sent = process.signal(run, BRIEF, &value).await.unwrap();
            assert_eq!(sent, Sent::Queued);
        }
        process.signal(run, NEWS, &5).await.unwrap();
    }
    db.advance(HOUR);
    for run in [idle, late] {
        process.signal(run, BRIEF, &6).await.unwrap();
        process.signal(run, GO, &()).await.unwrap();
    }
    let mut handle = process.handle(TAKE_LATE, late).await.unwrap();
    let taken = soon("what is left", handle.result()).await.unwrap();
    assert_eq!(
        taken,
        [5, 6],
        "a wait passes by what has expired, however much that is"
    );
    let mut handle = process.handle(IDLE, idle).await.unwrap();
    soon("its end", handle.result()).await.unwrap();
    let left = db.dump().await.mail;
    let left: Vec<_> = left.iter().map(|(id, _)| id.number).collect();
    assert_eq!(left, [5, 6], "nor is what has expired parked");
    // Who waits when it comes has it at once.
    let mut taker = process.start(TAKE, &1).await.unwrap();
    until_waits(&process, taker.id()).await;
    process.signal(&taker, BRIEF, &7).await.unwrap();
    assert_eq!(soon("it", taker.result()).await.unwrap(), [7]);
    assert_sound(&db).await;
}
