//! What was not read goes on to the next execution (SI-18).

use roundel::future::{self, Either};
use roundel::{Cx, Result, RunState, Sent, Signal};

use super::{GO, JOB, NEWS, Received, until_waits};
use crate::support::{Db, all, soon, until};

all![
    si_18_unread_signals_stay_in_order_across_names_and_two_executions,
    si_18_unread_signals_stay_when_the_process_crashes_in_between,
    si_18_a_signal_that_lost_a_wait_goes_to_the_next_execution,
    si_18_an_offer_that_lost_a_wait_goes_to_another_run,
];

const ANEW: Received = Received::named("anew");
const LOSE: Received = Received::named("lose");
const WORK: Received = Received::named("work");
const OTHER: Signal<u32> = Signal::named("other");

/// Begins anew twice, each time when told to, then takes four of two names as they came.
async fn anew(cx: Cx, executions: u32) -> Result<Vec<u32>> {
    cx.wait(GO).await?;
    if cx.execution() < executions {
        return cx.continue_as_new(&executions).await;
    }
    let mut taken = Vec::new();
    for _ in 0..4 {
        let value = match future::select(cx.wait(NEWS), cx.wait(OTHER)).await {
            Either::Left((value, _)) | Either::Right((value, _)) => value?,
        };
        taken.push(value);
    }
    Ok(taken)
}

/// Waits for news or a job in its first execution, and for news in its second.
async fn lose(cx: Cx, _: u32) -> Result<Vec<u32>> {
    if cx.execution() == 2 {
        return Ok(vec![cx.wait(NEWS).await?]);
    }
    let others = future::select(cx.wait(NEWS), cx.wait(JOB));
    match future::select(cx.wait(GO), others).await {
        Either::Left((told, _)) => told?,
        Either::Right(_) => unreachable!("nothing else was taken up"),
    }
    cx.continue_as_new(&0).await
}

async fn work(cx: Cx, _: u32) -> Result<Vec<u32>> {
    Ok(vec![cx.wait(JOB).await?])
}

async fn si_18_unread_signals_stay_in_order_across_names_and_two_executions(db: Db) {
    let process = db.start(|engine| engine.register(ANEW, anew)).await;
    let mut run = process.start(ANEW, &3).await.unwrap();
    for execution in 1..=3 {
        until_waits(&process, run.id()).await;
        let row = process.run(&run).await.unwrap().row;
        assert_eq!(row.execution, execution);
        let sent = match execution {
            1 => [(NEWS, 1), (OTHER, 2)],
            2 => [(OTHER, 3), (NEWS, 4)],
            _ => [(NEWS, 5), (OTHER, 6)],
        };
        for (signal, value) in sent {
            let sent = process.signal(&run, signal, &value).await.unwrap();
            assert_eq!(sent, Sent::Queued);
        }
        process.signal(&run, GO, &()).await.unwrap();
    }
    let taken = soon("all", run.result()).await.unwrap();
    assert_eq!(taken, [1, 2, 3, 4]);
    let left: Vec<u64> = db
        .dump()
        .await
        .mail
        .iter()
        .map(|(id, _)| id.number)
        .collect();
    assert_eq!(left.len(), 2, "what nobody took stays to be seen");
}

async fn si_18_unread_signals_stay_when_the_process_crashes_in_between(db: Db) {
    let mut process = db.start(|engine| engine.register(ANEW, anew)).await;
    let run = process.start(ANEW, &3).await.unwrap().id();
    for (execution, sent) in [(2, [(NEWS, 1), (OTHER, 2)]), (3, [(OTHER, 3), (NEWS, 4)])] {
        for (signal, value) in sent {
            process.signal(run, signal, &value).await.unwrap();
        }
        process.signal(run, GO, &()).await.unwrap();
        until("it waits in the next execution", || async {
            let row = process.run(run).await.unwrap().row;
            (row.execution, row.state) == (execution, RunState::Waiting)
        })
        .await;
        process.crash();
        process = db.start(|engine| engine.register(ANEW, anew)).await;
    }
    process.signal(run, GO, &()).await.unwrap();
    let mut handle = process.handle(ANEW, run).await.unwrap();
    let taken = soon("all", handle.result()).await.unwrap();
    assert_eq!(taken, [1, 2, 3, 4]);
}

async fn si_18_a_signal_that_lost_a_wait_goes_to_the_next_execution(db: Db) {
    let process = db.start(|engine| engine.register(LOSE, lose)).await;
    let client = db.start(|engine| engine).await;
    let mut run = process.start(LOSE, &0).await.unwrap();
    until_waits(&process, run.id()).await;
    // Both come in one commit, so the run finds both: the first to come wins.
    let ops = vec![
        client.signal(&run, GO, &()).op().unwrap(),
        client.signal(&run, NEWS, &7).op().unwrap(),
    ];
    for reply in client.at_once(ops).await {
        let sent = reply.unwrap();
        assert!(format!("{sent:?}").contains("Delivered"), "{sent:?}");
    }
    assert_eq!(soon("the news", run.result()).await.unwrap(), [7]);
}

async fn si_18_an_offer_that_lost_a_wait_goes_to_another_run(db: Db) {
    let process = db
        .start(|engine| engine.register(LOSE, lose).register(WORK, work))
        .await;
    let client = db.start(|engine| engine).await;
    let mut run = process.start(LOSE, &0).await.unwrap();
    until_waits(&process, run.id()).await;
    let mut worker = process.start(WORK, &0).await.unwrap();
    until_waits(&process, worker.id()).await;
    let ops = vec![
        client.signal(&run, GO, &()).op().unwrap(),
        client.offer(JOB, &9).op().unwrap(),
    ];
    for reply in client.at_once(ops).await {
        let sent = reply.unwrap();
        let to = format!("Delivered({:?})", run.id());
        assert!(format!("{sent:?}").contains(&to), "{sent:?}");
    }
    assert_eq!(soon("the offer", worker.result()).await.unwrap(), [9]);
    process.signal(&run, NEWS, &7).await.unwrap();
    assert_eq!(soon("the news", run.result()).await.unwrap(), [7]);
}
