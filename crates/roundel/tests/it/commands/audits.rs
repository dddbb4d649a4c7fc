//! What is done in somebody's name is written down with it.

use roundel::{Cancelled, RunState};

use super::{BROKEN, CHARGE, Till, parked, start};
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Fault, all, soon, until};

all![
    co_12_what_operators_do_is_audited_and_what_programs_do_is_not,
    inv26_an_answer_that_is_lost_leaves_one_row,
];

async fn co_12_what_operators_do_is_audited_and_what_programs_do_is_not(db: Db) {
    let process = start(&db, &Till::new(BROKEN)).await;
    let mut sent = process.send(CHARGE, &7).key("1").await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    process.resume("charge:1").await.unwrap();
    until("it is parked again", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    let anna = process.operator("anna").unwrap().reason("ticket 7");
    anna.complete("charge:1", &"by hand").await.unwrap();
    assert_eq!(soon("reply", sent.result()).await.unwrap(), "by hand");
    assert!(anna.resume("charge:1").await.is_err(), "it has ended");
    let rows = process.audit().fetch().await.unwrap().items;
    let [(id, row)] = &rows[..] else {
        panic!("{rows:?}")
    };
    assert_eq!((id.number, row.operator.as_str()), (1, "anna"));
    assert_eq!((&*row.reason, &*row.action), ("ticket 7", "complete"));
    assert_eq!((row.run, &*row.target), (Some(sent.id()), "charge:1"));
    let of = process.audit().of(sent.id()).fetch().await.unwrap();
    assert_eq!(of.items, rows);
    assert_sound(&db).await;
}

async fn inv26_an_answer_that_is_lost_leaves_one_row(db: Db) {
    let process = start(&db, &Till::new(BROKEN)).await;
    process.send(CHARGE, &7).key("1").await.unwrap();
    until("it is parked", || async {
        !parked(&process).await.is_empty()
    })
    .await;
    let anna = process.operator("anna").unwrap();
    let is_audited = |ask: &roundel_store::Ask| {
        matches!(ask, roundel_store::Ask::Op(roundel_core::Op::Audited(_)))
    };
    process.store.once(Fault::LoseRequest, is_audited);
    anna.cancel("charge:1").await.unwrap_err();
    assert_eq!(process.audit().fetch().await.unwrap().items, []);
    process.store.once(Fault::LoseReply, is_audited);
    anna.cancel("charge:1").await.unwrap_err();
    assert_eq!(process.audit().fetch().await.unwrap().items.len(), 1);
    until("it is cancelled", || async {
        let row = process.run("charge:1").await.unwrap().row;
        row.state == RunState::Cancelled
    })
    .await;
    let again = anna.cancel("charge:1").await.unwrap();
    assert_eq!(again, Cancelled::AlreadyEnded(RunState::Cancelled));
    assert_eq!(process.audit().fetch().await.unwrap().items.len(), 2);
    assert_sound(&db).await;
}
