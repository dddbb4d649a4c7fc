//! Commands that are sent in one call: each under its id, each answered.

use std::collections::HashSet;

use roundel::{Error, Refusal};

use super::{CHARGE, Till, WELL, start};
use crate::rounds::sound::assert_sound;
use crate::support::{Db, all, soon};

all![
    co_01_commands_sent_together_are_sent_once_each,
    co_01_one_of_many_that_is_refused_is_refused_alone,
    co_01_commands_sent_together_are_sent_in_somebodys_name,
    co_01_more_commands_than_are_asked_for_at_once_are_all_sent,
];

async fn co_01_commands_sent_together_are_sent_once_each(db: Db) {
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let charges = || (0..60).map(|number| process.send(CHARGE, &number).key(number.to_string()));
    for (again, new) in [(false, true), (true, false)] {
        let sent = process.start_all(charges()).await;
        assert_eq!(sent.len(), 60, "again: {again}");
        for (number, sent) in sent.into_iter().enumerate() {
            let mut sent = sent.unwrap();
            assert_eq!(sent.is_new(), new, "{number}");
            let reply = soon("reply", sent.result()).await.unwrap();
            assert_eq!(reply, format!("charged {number}"));
        }
    }
    assert_eq!(till.tries(), 60);
    assert_sound(&db).await;
}

async fn co_01_one_of_many_that_is_refused_is_refused_alone(db: Db) {
    let till = Till::new(WELL);
    let process = start(&db, &till).await;
    let mut first = process.send(CHARGE, &1).key("b").await.unwrap();
    soon("reply", first.result()).await.unwrap();
    let charges = [("a", 1), ("b", 2), ("\n", 3), ("c", 4)];
    let charges = charges.map(|(id, amount)| process.send(CHARGE, &amount).key(id));
    let sent = process.start_all(charges).await;
    let Err(Error::Refused(Refusal::Conflict { .. })) = &sent[1] else {
        panic!("{:?}", sent[1])
    };
    assert!(sent[2].is_err(), "that is no id");
    for id in ["a", "c"] {
        let mut sent = process.sent(CHARGE, id).await.unwrap();
        soon("reply", sent.result()).await.unwrap();
    }
    assert!(sent[0].is_ok() && sent[3].is_ok());
    assert_eq!(till.tries(), 3);
}

async fn co_01_commands_sent_together_are_sent_in_somebodys_name(db: Db) {
    let process = start(&db, &Till::new(WELL)).await;
    let ada = process.client().operator("ada").unwrap();
    let other = process.client().in_namespace("elsewhere").unwrap();
    let sent = [
        ada.send(CHARGE, &1),
        process.send(CHARGE, &2),
        other.send(CHARGE, &3),
    ];
    let sent = process.start_all(sent).await;
    let runs: Vec<_> = sent.into_iter().map(|sent| sent.unwrap().id()).collect();
    let audit = process.audit().fetch().await.unwrap().items;
    let audited: Vec<_> = audit.iter().filter_map(|(_, row)| row.run).collect();
    assert_eq!(audited, [runs[0]]);
    assert!(process.run(runs[1]).await.is_ok() && process.run(runs[2]).await.is_err());
    assert!(other.run(runs[2]).await.is_ok());
}

async fn co_01_more_commands_than_are_asked_for_at_once_are_all_sent(db: Db) {
    let process = db.start(|engine| engine).await;
    let charges = (0..1_100).map(|id| process.send(CHARGE, &id).key(id.to_string()));
    let sent = process.start_all(charges).await;
    let runs: Vec<_> = sent.into_iter().map(|sent| sent.unwrap().id()).collect();
    assert_eq!(runs.iter().collect::<HashSet<_>>().len(), 1_100);
    for number in [0, 1, 999, 1_000, 1_099] {
        let sent = process.sent(CHARGE, &number.to_string()).await.unwrap();
        assert_eq!(sent.id(), runs[number], "in the order given");
    }
    let stats = process.stats().await.unwrap();
    assert_eq!(
        stats.runs.iter().map(|(.., count)| count).sum::<u64>(),
        1_100
    );
    assert!(
        process
            .start_all(Vec::<roundel::StartRun<u32>>::new())
            .await
            .is_empty()
    );
}
