//! Runs come back after whatever happened to their process (SI-15).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, Error, Failure, Result, Workflow};
use roundel_core::Op;
use roundel_store::Ask;

use crate::support::{Db, Fault, both, soon, until};

both![
    si_15_a_worker_that_was_blocked_past_its_lease_takes_the_run_up_again,
    si_15_a_run_that_is_resumed_while_it_is_being_parked_goes_on,
];

const BLOCK: Workflow<(), u32> = Workflow::named("block");
const NOTHING: Workflow<(), ()> = Workflow::named("nothing");
const STUBBORN: Workflow<(), u32> = Workflow::named("stubborn");

async fn nothing(_: Cx, (): ()) -> Result<()> {
    Ok(())
}

/// Blocks its thread in the first call, once it has said so, until it is told to go on.
struct Blocker {
    calls: AtomicU32,
    said: Sender<()>,
    told: Mutex<Receiver<()>>,
}

impl Blocker {
    fn call(&self) -> u32 {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if call == 1 {
            self.said.send(()).expect("the test waits");
            let told = self.told.lock().expect("only one blocks");
            let _ = told.recv_timeout(Duration::from_secs(10));
        }
        call
    }
}

async fn si_15_a_worker_that_was_blocked_past_its_lease_takes_the_run_up_again(db: Db) {
    let db = db.with_manual_clock();
    let lease = Duration::from_millis(150);
    let ((said, blocked), (tell, told)) = (channel(), channel());
    let (calls, told) = (AtomicU32::new(0), Mutex::new(told));
    let blocker = Arc::new(Blocker { calls, said, told });
    let block = move |cx: Cx, (): ()| {
        let blocker = blocker.clone();
        async move {
            let call = |_| async { Ok::<_, Failure>(blocker.call()) };
            cx.effect("block", call).await
        }
    };
    let process = db
        .start(|engine| {
            let engine = engine.register(BLOCK, block);
            engine.register(NOTHING, nothing).lease(lease)
        })
        .await;
    let mut run = process.start(BLOCK, &()).await.unwrap();
    blocked.recv().unwrap();
    let epoch = process.run(&run).await.unwrap().row.epoch;
    // The lease ends; the renewal hears of it, then the same process claims the run again.
    let renewals = Arc::new(AtomicU32::new(0));
    let counted = renewals.clone();
    process.store.rule(move |ask| {
        let renewal = matches!(ask, Ask::Op(Op::Renew(_)));
        counted.fetch_add(u32::from(renewal), Ordering::SeqCst);
        Fault::Pass
    });
    db.advance(lease);
    until("the lease was found to be lost", || async {
        renewals.load(Ordering::SeqCst) >= 2
    })
    .await;
    let mut other = process.start(NOTHING, &()).priority(1).await.unwrap();
    soon("another run", other.result()).await.unwrap();
    until("the run is claimed again", || async {
        process.run(&run).await.unwrap().row.epoch > epoch
    })
    .await;
    tell.send(()).unwrap();
    assert!(soon("the end", run.result()).await.unwrap() <= 2);
}

async fn si_15_a_run_that_is_resumed_while_it_is_being_parked_goes_on(db: Db) {
    let calls = Arc::new(AtomicU32::new(0));
    let stubborn = {
        let calls = calls.clone();
        move |_: Cx, (): ()| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                if call < 100 {
                    return Err(Failure::permanent("not yet"));
                }
                Ok(call)
            }
        }
    };
    let process = db.start(|engine| engine.register(STUBBORN, stubborn)).await;
    let mut run = process.start(STUBBORN, &()).await.unwrap();
    loop {
        match soon("the next attempt", run.result()).await {
            Ok(calls) => break assert_eq!(calls, 100),
            Err(Error::Parked { .. }) => process.resume(&run).await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}
