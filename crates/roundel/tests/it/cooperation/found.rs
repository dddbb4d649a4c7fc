//! What schedules of the simulator found, as tests of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundel::{Cx, Failure, RunState, Tx, Workflow};

use crate::support::{Db, all, until};

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const PART: Workflow<u32, u32> = Workflow::named("part");

all![
    sc_30_an_undo_in_the_database_that_fails_for_now_is_tried_again,
    sc_62_a_child_that_was_deleted_has_no_result,
];

async fn sc_30_an_undo_in_the_database_that_fails_for_now_is_tried_again(db: Db) {
    let tried = Arc::new(AtomicU32::new(0));
    let order = {
        let tried = tried.clone();
        move |cx: Cx, of: u32| {
            let tried = tried.clone();
            async move {
                let undo = move |_: Tx, _: u32| {
                    let first = tried.fetch_add(1, Ordering::Relaxed) == 0;
                    async move {
                        match first {
                            true => Err(Failure::transient("the table is locked")),
                            false => Ok(()),
                        }
                    }
                };
                let step = cx.step("reserve", |_| async move { Ok::<_, Failure>(of) });
                step.undo(undo).await?;
                Err::<u32, _>(Failure::business("no"))
            }
        }
    };
    let process = db.start(|engine| engine.register(ORDER, order)).await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    assert!(order.result().await.is_err());
    let state = process.run(order.id()).await.unwrap().row.state;
    assert_eq!(state, RunState::RolledBack);
    assert_eq!(tried.load(Ordering::Relaxed), 2);
}

async fn sc_62_a_child_that_was_deleted_has_no_result(db: Db) {
    let order = |cx: Cx, _: u32| async move {
        let parts = cx.children(PART, &[1, 2]).await;
        let failure = parts.unwrap_err();
        assert_eq!(failure.code, "deleted", "{failure}");
        Ok::<u32, Failure>(0)
    };
    let part = |cx: Cx, of: u32| async move {
        if of == 2 {
            cx.sleep(Duration::from_millis(300)).await;
        }
        Ok::<u32, Failure>(of)
    };
    let process = db.start(|engine| engine.register(ORDER, order).register(PART, part));
    let process = process.await;
    let mut order = process.start(ORDER, &1).await.unwrap();
    let parts = async || {
        process
            .runs()
            .of("part")
            .unwrap()
            .fetch()
            .await
            .unwrap()
            .items
    };
    let ended = async || {
        let all = parts().await.into_iter();
        { all }.find(|run| run.row.state == RunState::Completed)
    };
    until("one has ended", async || ended().await.is_some()).await;
    let first = ended().await.unwrap().row.id;
    process.delete_forced(first).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 0);
}
