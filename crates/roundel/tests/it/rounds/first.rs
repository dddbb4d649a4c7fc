//! Rounds: what is committed is committed once.

use roundel::{Cx, Failure, Result, Workflow};

use crate::support::{Db, Fault, both, is_round, soon};

const SUM: Workflow<u32, u32> = Workflow::named("sum");

async fn sum(cx: Cx, n: u32) -> Result<u32> {
    let mut sum = 0;
    for i in 0..n {
        sum += cx
            .effect("add", move |_| async move { Ok::<_, Failure>(i) })
            .await?;
    }
    Ok(sum)
}

both![ro_01_a_round_that_could_not_be_written_is_written_once];

async fn ro_01_a_round_that_could_not_be_written_is_written_once(db: Db) {
    let process = db.start(|engine| engine.register(SUM, sum)).await;
    process.store.once(Fault::Unavailable, is_round);
    let error = process.start(SUM, &4).await;
    assert!(error.is_err());
    let mut handle = process.start(SUM, &4).await.unwrap();
    assert_eq!(soon("the sum", handle.result()).await.unwrap(), 6);
}
