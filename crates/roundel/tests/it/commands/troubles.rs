//! The troubleshooting queue: what is there, alike or not, and what is done about many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roundel::{
    Attempt, Command, Cx, Error, Failure, Payload, Refusal, Remedied, Remedy, Result, RunState,
    Trouble, Tx, Workflow,
};

use super::QUICK;
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const MAIL: Command<u32, u32> = Command::named("mail").retry(QUICK);
const TRIP: Workflow<(), ()> = Workflow::named("trip");

all![
    co_10_what_is_parked_is_listed_counted_paged_and_grouped,
    co_10_many_are_retried_at_once_with_operator_and_reason,
    co_10_many_are_completed_and_cancelled_within_a_bound,
    co_10_a_rollback_that_failed_is_in_the_queue_until_it_is_accepted,
    co_10_what_is_not_parked_refuses_alone,
    co_10_of_several_who_act_at_once_one_does_it,
    k11_a_completed_command_is_not_done_again_from_the_queue,
];

/// While it is broken: even numbers have no account, odd ones a bad address.
async fn start(db: &Db, mended: &Arc<AtomicBool>) -> Process {
    let mended = mended.clone();
    let handler = move |_: Attempt, number: u32| {
        let mended = mended.clone();
        async move {
            match number % 2 {
                _ if mended.load(Ordering::Relaxed) => Ok(number),
                0 => Err(Failure::permanent(format!("no account {number}")).with_code("account")),
                _ => Err(Failure::permanent(format!("no street {number}")).with_code("address")),
            }
        }
    };
    let set_up = db.start(|engine| engine.handle(MAIL, handler).register(TRIP, trip));
    set_up.await
}

/// Fails, and cannot be undone.
async fn trip(cx: Cx, (): ()) -> Result<()> {
    let booked = cx.step("book", |_: Tx| async { Ok::<_, Failure>(()) });
    let undo = |_: Tx, ()| async { Err::<(), _>(Failure::business("sold out")) };
    booked.undo(undo).await?;
    Err(Failure::business("no hotel"))
}

async fn five_parked(process: &Process) {
    for number in 0..5_u32 {
        let sent = process.send(MAIL, &number).key(number.to_string());
        sent.await.unwrap();
    }
    until("all are parked", || async {
        process.parked().count().await.unwrap() == 5
    })
    .await;
}

async fn co_10_what_is_parked_is_listed_counted_paged_and_grouped(db: Db) {
    let process = start(&db, &Arc::default()).await;
    five_parked(&process).await;
    let (mut seen, mut asked) = (Vec::new(), process.parked().limit(2));
    loop {
        let page = asked.fetch().await.unwrap();
        seen.extend(page.items.iter().map(|run| run.id().run()));
        assert_eq!(page.more, seen.len() < 5);
        match page.items.last().filter(|_| page.more) {
            Some(last) => asked = asked.after(last.id()),
            None => break,
        }
    }
    assert!(seen.is_sorted_by(|one, next| one > next), "newest first");
    assert_eq!(seen.len(), 5);
    let groups = process.parked().groups().await.unwrap();
    let told: Vec<_> = groups
        .iter()
        .map(|group| (&*group.code, group.count))
        .collect();
    assert_eq!(told, [("account", 3), ("address", 2)]);
    assert_eq!(groups[0].workflows, ["mail"]);
    let alike = process.parked().in_group(&groups[1].fingerprint);
    assert_eq!(alike.count().await.unwrap(), 2);
    let coded = process.parked().with_code("account");
    assert_eq!(coded.count().await.unwrap(), 3);
    let elsewhere = process.parked().of("trip").unwrap();
    assert_eq!(elsewhere.count().await.unwrap(), 0);
}

async fn co_10_many_are_retried_at_once_with_operator_and_reason(db: Db) {
    let mended = Arc::new(AtomicBool::new(false));
    let process = start(&db, &mended).await;
    five_parked(&process).await;
    let anna = process.operator("anna").unwrap().reason("they have moved");
    let asked = anna.parked().with_code("address");
    // Not mended: those that are parked again are not taken up a second time.
    let done = asked.act(&Remedy::Retry, |_| ()).await.unwrap();
    assert_eq!((done.done, done.refused.len(), done.more), (2, 0, false));
    until("they are parked again", || async {
        process.parked().count().await.unwrap() == 5
    })
    .await;
    mended.store(true, Ordering::Relaxed);
    let mut heard = 0;
    let told = |sum: &Remedied| heard = heard.max(sum.done);
    assert_eq!(asked.act(&Remedy::Retry, told).await.unwrap().done, 2);
    assert_eq!(heard, 2);
    for number in [1, 3] {
        let mut sent = process.sent(MAIL, &number.to_string()).await.unwrap();
        assert_eq!(soon("reply", sent.result()).await.unwrap(), number);
    }
    assert_eq!(process.parked().count().await.unwrap(), 3);
    let audit = process.audit().fetch().await.unwrap().items;
    let said = audit.iter().map(|(_, row)| (&*row.action, &*row.reason));
    assert!(said.eq([("retry", "they have moved"); 4]), "{audit:?}");
    assert_sound(&db).await;
}

async fn co_10_many_are_completed_and_cancelled_within_a_bound(db: Db) {
    let process = start(&db, &Arc::default()).await;
    five_parked(&process).await;
    let accounts = process.parked().with_code("account");
    let by_hand = Remedy::Complete(Payload::encode(&77).unwrap());
    let some = accounts.clone().at_most(2);
    let done = some.act(&by_hand, |_| ()).await.unwrap();
    assert_eq!((done.done, done.more), (2, true), "there is one more");
    // The newest first.
    for (number, reply) in [(4, Some(77)), (2, Some(77)), (0, None)] {
        let mut sent = process.sent(MAIL, &number.to_string()).await.unwrap();
        match reply {
            Some(reply) => assert_eq!(soon("reply", sent.result()).await.unwrap(), reply),
            None => {
                let row = process.run(&sent).await.unwrap().row;
                assert_eq!(row.state, RunState::Parked);
            }
        }
    }
    let done = process.parked().act(&Remedy::Cancel, |_| ()).await.unwrap();
    assert_eq!(done.done, 3);
    until("all have ended", || async {
        let stats = process.stats().await.unwrap();
        let cancelled = stats.runs.iter().find(|row| row.2 == RunState::Cancelled);
        cancelled.is_some_and(|row| row.3 == 3)
    })
    .await;
    assert_eq!(process.parked().count().await.unwrap(), 0);
    assert_sound(&db).await;
}

async fn co_10_a_rollback_that_failed_is_in_the_queue_until_it_is_accepted(db: Db) {
    let process = start(&db, &Arc::default()).await;
    let mut run = process.start(TRIP, &()).await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    let page = process.parked().fetch().await.unwrap();
    assert_eq!(page.items.len(), 1);
    let Trouble::Run(failed) = &page.items[0] else {
        panic!("it is a run")
    };
    assert_eq!(failed.row.state, RunState::RollbackFailed);
    process.remedy(run.id(), &Remedy::Retry).await.unwrap();
    until("it failed again", || async {
        process.parked().count().await.unwrap() == 1
    })
    .await;
    process.remedy(run.id(), &Remedy::Accept).await.unwrap();
    assert_eq!(process.parked().count().await.unwrap(), 0);
    let again = process.remedy(run.id(), &Remedy::Accept).await.unwrap_err();
    assert!(matches!(again, Error::Refused(Refusal::NotParked { .. })));
}

async fn co_10_what_is_not_parked_refuses_alone(db: Db) {
    let process = start(&db, &Arc::default()).await;
    five_parked(&process).await;
    let mut run = process.start(TRIP, &()).await.unwrap();
    soon("its end", run.result()).await.unwrap_err();
    // A rollback that failed has no reply to give; the commands have.
    let by_hand = Remedy::Complete(Payload::encode(&1).unwrap());
    let done = process.parked().act(&by_hand, |_| ()).await.unwrap();
    assert_eq!(done.done, 5);
    let refused: Vec<_> = done.refused.iter().map(|(run, _)| *run).collect();
    assert_eq!(refused, [run.id().into()]);
}

async fn co_10_of_several_who_act_at_once_one_does_it(db: Db) {
    let process = start(&db, &Arc::default()).await;
    let mut sent = process.send(MAIL, &1).key("1").await.unwrap();
    until("it is parked", || async {
        process.parked().count().await.unwrap() == 1
    })
    .await;
    let run = sent.id();
    let by_hand = Remedy::Complete(Payload::encode(&4).unwrap());
    let ways = [Remedy::Cancel, by_hand.clone(), Remedy::Cancel, by_hand];
    let acts = ways.iter().map(|remedy| process.remedy(run, remedy));
    let done = roundel::future::join_all(acts).await;
    let first = done.iter().filter(|done| done.is_ok()).count();
    assert_eq!(first, 1, "{done:?}");
    for done in done.into_iter().filter_map(Result::err) {
        assert!(matches!(done, Error::Refused(Refusal::NotParked { .. })));
    }
    let _ = soon("its one end", sent.result()).await;
    assert_sound(&db).await;
}

async fn k11_a_completed_command_is_not_done_again_from_the_queue(db: Db) {
    let mended = Arc::new(AtomicBool::new(true));
    let process = start(&db, &mended).await;
    let mut sent = process.send(MAIL, &6).key("6").await.unwrap();
    assert_eq!(soon("reply", sent.result()).await.unwrap(), 6);
    let ways = [
        Remedy::Retry,
        Remedy::RetryWith(Payload::encode(&7).unwrap()),
        Remedy::Cancel,
        Remedy::Complete(Payload::encode(&7).unwrap()),
        Remedy::Undo,
        Remedy::Skip,
        Remedy::Accept,
    ];
    let before = process.run(&sent).await.unwrap();
    for remedy in ways {
        let refused = process.remedy(sent.id(), &remedy).await.unwrap_err();
        let Error::Refused(Refusal::NotParked { .. }) = refused else {
            panic!("{remedy:?}: {refused:?}")
        };
    }
    assert_eq!(process.run(&sent).await.unwrap(), before);
}
