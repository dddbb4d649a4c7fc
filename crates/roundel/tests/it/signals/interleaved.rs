//! Send and suspend at every point of each other, and crashes at every point of a delivery
//! (SI-04, SI-05).

use std::time::Duration;

use roundel::{Cx, EngineBuilder, Error, Failure, Result, RunState, Sent};
use roundel_core::Op;
use roundel_store::Ask;

use super::{JOB, NEWS, Received};
use crate::support::{Db, Fault, Process, all, is_round, soon};

// Not on a server: a process that crashes there loses its connections, and is told so at once.
all![
    si_05_a_crash_at_any_point_of_a_delivery_loses_and_doubles_nothing,
    si_04_a_signal_sent_at_any_point_of_a_run_is_delivered_once,
    si_04_an_offer_made_at_any_point_of_a_run_is_delivered_once,
    si_04_many_senders_and_many_runs_at_once,
    si_04_offers_and_waiters_that_come_at_once_find_each_other,
];

const TALK: Received = Received::named("talk");
const WORK: Received = Received::named("work");
/// How many values each run takes.
const VALUES: u32 = 3;

async fn talk(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(NEWS).await?);
        let think = |_| async { Ok::<_, Failure>(()) };
        cx.effect("think", think).await?;
    }
    Ok(taken)
}

async fn work(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(JOB).await?);
        let think = |_| async { Ok::<_, Failure>(()) };
        cx.effect("think", think).await?;
    }
    Ok(taken)
}

fn both_workflows(engine: EngineBuilder) -> EngineBuilder {
    engine.register(TALK, talk).register(WORK, work)
}

/// How something is sent.
#[derive(Clone, Copy)]
enum By {
    Signal,
    Offer,
}

impl By {
    fn workflow(self) -> Received {
        match self {
            By::Signal => TALK,
            By::Offer => WORK,
        }
    }

    async fn send(self, from: &Process, key: &str, value: u32) -> Sent {
        match self {
            By::Signal => from.signal(key, NEWS, &value).await.unwrap(),
            By::Offer => from.offer(JOB, &value).await.unwrap(),
        }
    }
}

/// Holds the `point`th round of a run, sends while it is held, and lets it go on. Returns whether
/// there was such a round.
async fn send_at(db: &Db, by: By, fault: Fault, point: u32) -> bool {
    let (process, sender) = (
        db.start(both_workflows).await,
        db.start(|engine| engine).await,
    );
    let mut rounds = 0;
    process.store.rule(move |ask| {
        rounds += u32::from(is_round(ask));
        if is_round(ask) && rounds == point + 1 {
            return fault;
        }
        Fault::Pass
    });
    let key = format!("{fault:?} {point}");
    let start = process.start(by.workflow(), &VALUES).key(key.clone());
    let starting = tokio::spawn(async move { start.await });
    let mut next = 0;
    loop {
        let held = process.store.held() > 0;
        let state = sender.run(key.as_str()).await.ok().map(|run| run.row.state);
        if (held || state == Some(RunState::Waiting)) && next < VALUES {
            let sent = by.send(&sender, &key, next).await;
            next += u32::from(sent != Sent::TargetUnknown);
        }
        if held {
            process.store.mend();
            process.store.release();
        } else if state.is_some_and(RunState::has_ended) && process.metrics().live == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut run = starting.await.unwrap().unwrap();
    let taken = soon("the result", run.result()).await.unwrap();
    assert_eq!(taken, [0, 1, 2], "{key}");
    process.shutdown().await;
    sender.shutdown().await;
    process.store.struck() > 0
}

async fn send_everywhere(db: Db, by: By) {
    for fault in [Fault::Hold, Fault::HoldReply] {
        let mut point = 0;
        while soon("the run", send_at(&db, by, fault, point)).await {
            point += 1;
        }
        assert!(
            point > 2 * VALUES,
            "each wait and each effect has its round"
        );
    }
    let dump = db.dump().await;
    assert_eq!((dump.mail, dump.offers), (Vec::new(), Vec::new()));
}

async fn si_04_a_signal_sent_at_any_point_of_a_run_is_delivered_once(db: Db) {
    send_everywhere(db, By::Signal).await;
}

async fn si_04_an_offer_made_at_any_point_of_a_run_is_delivered_once(db: Db) {
    send_everywhere(db, By::Offer).await;
}

async fn si_04_many_senders_and_many_runs_at_once(db: Db) {
    const RUNS: usize = 40;
    const SIGNALS: u32 = 20;
    let process = db.start(both_workflows).await;
    let mut talks = Vec::new();
    for _ in 0..RUNS {
        let client = process.client();
        talks.push(tokio::spawn(async move {
            let mut run = client.start(TALK, &SIGNALS).await.unwrap();
            for value in 0..SIGNALS {
                let sent = client.signal(&run, NEWS, &value).await.unwrap();
                assert!(
                    matches!(sent, Sent::Delivered(_) | Sent::Queued),
                    "{sent:?}"
                );
            }
            soon("the talk", run.result()).await.unwrap()
        }));
    }
    for talk in talks {
        assert_eq!(talk.await.unwrap(), (0..SIGNALS).collect::<Vec<_>>());
    }
    assert_eq!(db.dump().await.mail, []);
}

async fn si_04_offers_and_waiters_that_come_at_once_find_each_other(db: Db) {
    const RUNS: u32 = 100;
    let process = db.start(both_workflows).await;
    let (mut offers, mut works) = (Vec::new(), Vec::new());
    for value in 0..RUNS {
        let client = process.client();
        offers.push(tokio::spawn(async move {
            client.offer(JOB, &value).await.unwrap()
        }));
        let client = process.client();
        works.push(tokio::spawn(async move {
            let mut run = client.start(WORK, &1).await.unwrap();
            soon("an offer", run.result()).await.unwrap()
        }));
    }
    let mut taken = Vec::new();
    for work in works {
        taken.extend(work.await.unwrap());
    }
    for offer in offers {
        offer.await.unwrap();
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..RUNS).collect::<Vec<_>>(), "each once");
    assert_eq!(db.dump().await.offers, []);
}

/// Starts the run under its key, sends it all values under theirs, and waits for its result.
async fn converse(process: &Process, key: &str) -> Result<Vec<u32>, Error> {
    let starting = process.start(TALK, &VALUES).key(key.to_owned());
    let mut run = starting.await?;
    for value in 0..VALUES {
        let sending = process.signal(&run, NEWS, &value);
        sending.key(value.to_string()).await?;
    }
    run.result().await
}

async fn si_05_a_crash_at_any_point_of_a_delivery_loses_and_doubles_nothing(db: Db) {
    let db = db.with_manual_clock();
    let lease = Duration::from_secs(30);
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        for point in 1.. {
            let first = db.start(both_workflows).await;
            let mut requests = 0;
            first.store.rule(move |ask| {
                let counts = !matches!(ask, Ask::Op(Op::Renew(_) | Op::Claim(_)));
                requests += u32::from(counts);
                if counts && requests == point {
                    return fault;
                }
                Fault::Pass
            });
            let key = format!("{fault:?} {point}");
            let told = first.unless_it_dies(converse(&first, &key)).await;
            first.crash();
            let crashed = told.is_none();
            let second = db.start(both_workflows).await;
            db.advance(lease);
            let taken = db.meanwhile("the result", converse(&second, &key)).await;
            assert_eq!(taken.unwrap(), [0, 1, 2], "{key}");
            second.shutdown().await;
            if !crashed {
                assert!(point > 3 * VALUES, "every delivery has its points");
                break;
            }
        }
    }
    assert_eq!(db.dump().await.mail, []);
}
