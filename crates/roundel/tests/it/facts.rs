//! Facts: recorded by clients and by steps, folded into documents in the same commit.

use roundel::{Command, Decision, Error, Fact, Failure, Projection, Refusal, Tx, Workflow};
use serde::{Deserialize, Serialize};

use crate::support::{Db, all, soon};

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Moved {
    from: String,
    to: String,
    cents: i64,
}

const MOVED: Fact<Moved> = Fact::named("moved");
const NOTED: Fact<String> = Fact::named("noted");

fn moved(from: &str, to: &str, cents: i64) -> Moved {
    let (from, to) = (from.to_owned(), to.to_owned());
    Moved { from, to, cents }
}

fn path(account: &str) -> String {
    format!("balance/{account}")
}

/// What each account has. Nobody's balance may be below zero, but for the bank's.
fn balances() -> Projection<i64> {
    let checked = |account: &str, after: i64| match after < 0 && account != "bank" {
        true => Err(Failure::business(format!("{account} has too little"))),
        false => Ok(Some(after)),
    };
    Projection::named("balances")
        .fold(
            MOVED,
            |moved| vec![path(&moved.from)],
            move |balance: Option<i64>, moved| {
                checked(&moved.from, balance.unwrap_or(0) - moved.cents)
            },
        )
        .fold(
            MOVED,
            |moved| vec![path(&moved.to)],
            move |balance, moved| checked(&moved.to, balance.unwrap_or(0) + moved.cents),
        )
}

async fn balance(client: &roundel::Client, account: &str) -> Option<i64> {
    let found = client.document(path(account)).await.expect("it is read");
    found.map(|document: roundel::Document<i64>| document.value)
}

async fn ids(client: &roundel::Client) -> Vec<String> {
    let page = client.facts().fetch().await.expect("they are read");
    page.items
        .iter()
        .map(|view| view.id.id.to_string())
        .collect()
}

async fn fa_05_a_fact_is_recorded_and_folded_in_one_commit(db: Db) {
    let process = db.start(|engine| engine.project(balances())).await;
    let recorded = process
        .record(MOVED, &moved("bank", "ada", 100))
        .id("first")
        .stream("till 1")
        .and(MOVED, &moved("ada", "bob", 30))
        .id("second")
        .stream("till 1")
        .expecting(1)
        .await
        .expect("both are recorded");
    let versions: Vec<_> = recorded.iter().map(|one| one.stream_version).collect();
    assert_eq!(versions, [Some(1), Some(2)]);
    assert_eq!(balance(&process, "ada").await, Some(70));
    assert_eq!(balance(&process, "bob").await, Some(30));
    let fact = process.fact("second").await.expect("it is read");
    let fact = fact.expect("it is there");
    assert_eq!(fact.row.kind.as_str(), "moved");
    assert!(!fact.row.own && fact.row.cause.is_none() && fact.row.by.is_some());
    let till = process.facts().stream("till 1", 1).fetch().await;
    assert_eq!(till.expect("it is read").items.len(), 1);
    assert_eq!(process.fact("third").await.expect("it is read"), None);
}

async fn fa_03_if_one_cannot_be_folded_none_is_recorded(db: Db) {
    let process = db.start(|engine| engine.project(balances())).await;
    let refused = process
        .record(MOVED, &moved("bank", "ada", 10))
        .and(MOVED, &moved("ada", "bob", 30))
        .await;
    let Err(Error::Refused(Refusal::NotFolded {
        projection,
        path,
        failure,
        ..
    })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(
        (projection.as_str(), path.as_str()),
        ("balances", "balance/ada")
    );
    assert_eq!(failure.message, "ada has too little");
    assert!(ids(&process).await.is_empty());
    assert_eq!(balance(&process, "ada").await, None);
}

async fn fa_08_a_fact_is_recorded_once(db: Db) {
    let process = db.start(|engine| engine.project(balances())).await;
    for times in 0..3 {
        let gift = process.record(MOVED, &moved("bank", "ada", 5)).id("gift");
        let recorded = gift.await.expect("it is the same");
        assert_eq!(recorded[0].new, times == 0);
    }
    assert_eq!(balance(&process, "ada").await, Some(5));
    let other = process
        .record(MOVED, &moved("bank", "ada", 6))
        .id("gift")
        .await;
    assert!(matches!(
        other,
        Err(Error::Refused(Refusal::AnotherFact { .. }))
    ));
}

const PAY: Workflow<i64, bool> = Workflow::named("pay");
const CHARGE: Command<i64, ()> = Command::named("charge");

async fn pay(cx: roundel::Cx, cents: i64) -> Result<bool, Failure> {
    let paid = cx.step("pay", move |tx: Tx| async move {
        MOVED.record(&tx, &moved("ada", "shop", cents)).await?;
        NOTED
            .record(&tx, &format!("paid {cents}"))
            .stream("notes")
            .await
    });
    match paid.await {
        Ok(()) => Ok(true),
        Err(failure) if failure.code == "not_folded" => Ok(false),
        Err(failure) => Err(failure),
    }
}

async fn fa_14_a_step_records_with_its_journal_and_both_lead_to_each_other(db: Db) {
    let process = db
        .start(|engine| engine.project(balances()).register(PAY, pay))
        .await;
    process
        .record(MOVED, &moved("bank", "ada", 100))
        .await
        .expect("it is recorded");
    let mut run = process.start(PAY, &40).await.expect("it starts");
    assert!(soon("the payment", run.result()).await.expect("it ends"));
    let mut poor = process.start(PAY, &70).await.expect("it starts");
    assert!(!soon("the refusal", poor.result()).await.expect("it ends"));
    assert_eq!(balance(&process, "shop").await, Some(40));
    let facts = process.facts().of_run(&run).await.expect("it is there");
    let facts = facts.fetch().await.expect("they are read").items;
    let kinds: Vec<&str> = facts.iter().map(|view| view.row.kind.as_str()).collect();
    assert_eq!(kinds, ["moved", "noted"]);
    for view in &facts {
        let cause = view.row.cause.expect("a round recorded it");
        assert!(view.row.own && cause.run == run.id() && cause.execution == 1);
    }
    let none = process.facts().of_run(&poor).await.expect("it is there");
    assert!(none.fetch().await.expect("they are read").items.is_empty());
}

async fn fa_14_a_command_handler_records_what_it_did(db: Db) {
    let handler = |tx: Tx, cents: i64| async move {
        MOVED
            .record(&tx, &moved("bank", "ada", cents))
            .id(format!("charge {cents}"))
            .await
    };
    let process = db
        .start(|engine| engine.project(balances()).handle_in_step(CHARGE, handler))
        .await;
    for cents in [3, 4, 3] {
        let mut sent = process.send(CHARGE, &cents).await.expect("it is sent");
        soon("the reply", sent.result())
            .await
            .expect("it is handled");
    }
    assert_eq!(
        balance(&process, "ada").await,
        Some(7),
        "three was charged once"
    );
    assert_eq!(ids(&process).await.len(), 2);
}

const KEEP: Workflow<bool, usize> = Workflow::named("keep");

/// Writes a row and a fact, and says how many rows it then sees. Told to, it fails after that.
async fn keep(cx: roundel::Cx, fails: bool) -> Result<usize, Failure> {
    let kept = cx.step("keep", move |tx: Tx| async move {
        tx.execute("CREATE TABLE IF NOT EXISTS kept (n INTEGER)", ())
            .await?;
        tx.execute("INSERT INTO kept VALUES (1)", ()).await?;
        MOVED.record(&tx, &moved("bank", "ada", 1)).await?;
        let seen = tx.query("SELECT n FROM kept", ()).await?.len();
        match fails {
            true => Err(Failure::business(format!("it saw {seen}"))),
            false => Ok(seen),
        }
    });
    kept.await
}

async fn fa_15_a_step_sees_what_it_wrote_and_one_that_fails_leaves_no_transaction_open(db: Db) {
    let process = db
        .start(|engine| engine.project(balances()).register(KEEP, keep))
        .await;
    for round in 1..=3 {
        let mut fails = process.start(KEEP, &true).await.expect("it starts");
        let failed = soon("the failure", fails.result()).await;
        let said = failed.expect_err("it fails").to_string();
        assert!(said.contains(&format!("it saw {round}")), "{said}");
        // What comes next is in a transaction of its own, in which nothing of that is.
        let mut keeps = process.start(KEEP, &false).await.expect("it starts");
        let seen = soon("the end", keeps.result()).await.expect("it ends");
        assert_eq!(seen, round, "its own row, and none of those that failed");
        assert_eq!(balance(&process, "ada").await, Some(round as i64));
    }
    // Nor does it keep others out.
    let other = db.start(|engine| engine.project(balances())).await;
    let gift = moved("bank", "ada", 10);
    soon("another process", async {
        other.record(MOVED, &gift).await
    })
    .await
    .expect("it is recorded");
    assert_eq!(balance(&process, "ada").await, Some(13));
}

async fn fa_18_many_who_record_at_once_lose_nothing(db: Db) {
    let processes = [
        db.start(|engine| engine.project(balances())).await,
        db.start(|engine| engine.project(balances())).await,
    ];
    let mut all = tokio::task::JoinSet::new();
    for turn in 0..40 {
        let client = processes[turn % 2].client();
        all.spawn(async move {
            let one = client
                .record(MOVED, &moved("bank", "ada", 1))
                .stream("till");
            one.await.expect("it is recorded")[0].stream_version
        });
    }
    let mut versions: Vec<_> = all.join_all().await.into_iter().flatten().collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=40).collect::<Vec<u64>>());
    assert_eq!(balance(&processes[0], "ada").await, Some(40));
    let page = processes[1].facts().fetch().await.expect("they are read");
    let order = page
        .items
        .iter()
        .map(|view| view.row.stream.clone().expect("in the till").1);
    assert!(order.is_sorted(), "the order of all is that of the stream");
}

async fn documents_are_listed_by_their_paths(db: Db) {
    let process = db.start(|engine| engine.project(balances())).await;
    for account in ["ada", "bob", "eve"] {
        let given = process.record(MOVED, &moved("bank", account, 1));
        given.await.expect("it is recorded");
    }
    let first = process.documents("balance/", None, 3).await.expect("read");
    let paths = |page: &roundel::Page<roundel::DocumentView>| -> Vec<String> {
        page.items
            .iter()
            .map(|(id, _)| id.path.to_string())
            .collect()
    };
    assert_eq!(
        paths(&first),
        ["balance/ada", "balance/bank", "balance/bob"]
    );
    assert!(first.more);
    let last = first.items.last().map(|(id, _)| id.path.clone());
    let rest = process.documents("balance/", last, 3).await.expect("read");
    assert_eq!(paths(&rest), ["balance/eve"]);
    let wrong = process.document::<String>("balance/ada").await;
    assert!(matches!(wrong, Err(Error::Value(_))), "{wrong:?}");
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Duty {
    doctor: String,
    on: bool,
}

const DUTY: Fact<Duty> = Fact::named("duty");

fn duties() -> Projection<bool> {
    let path = |duty: &Duty| vec![format!("on duty/{}", duty.doctor)];
    Projection::named("duties").fold(DUTY, path, |_, duty| Ok(Some(duty.on)))
}

/// Goes home, if somebody else stays.
async fn goes_home(client: roundel::Client, doctor: &'static str) -> bool {
    let decided = client.decide(|look| async move {
        let mut stay = 0;
        for other in ["ada", "bob", "eve"]
            .into_iter()
            .filter(|other| *other != doctor)
        {
            let on = look.document::<bool>(format!("on duty/{other}")).await?;
            stay += usize::from(on == Some(true));
        }
        let (doctor, on) = (doctor.to_owned(), false);
        Ok(match stay {
            0 => Decision::of(false),
            _ => Decision::of(true)
                .record(DUTY, &Duty { doctor, on })
                .stream("duty"),
        })
    });
    decided.await.expect("it is decided")
}

async fn fa_18_fa_21_deciders_are_as_if_one_came_after_the_other(db: Db) {
    let processes = [
        db.start(|engine| engine.project(duties())).await,
        db.start(|engine| engine.project(duties())).await,
    ];
    for round in 0..4 {
        for doctor in ["ada", "bob", "eve"] {
            let (doctor, on) = (doctor.to_owned(), true);
            let comes = processes[0].record(DUTY, &Duty { doctor, on });
            comes.await.expect("it is recorded");
        }
        let mut all = tokio::task::JoinSet::new();
        for (turn, doctor) in ["ada", "bob", "eve"].into_iter().enumerate() {
            all.spawn(goes_home(processes[(turn + round) % 2].client(), doctor));
        }
        let gone = all
            .join_all()
            .await
            .into_iter()
            .filter(|gone| *gone)
            .count();
        assert_eq!(gone, 2, "one of three stays, in round {round}");
    }
    let page = processes[0].facts().stream("duty", 0).fetch().await;
    let decided = page.expect("they are read").items;
    assert!(decided.len() == 8 && decided.iter().all(|view| view.row.own));
}

async fn a_decider_that_fails_or_decides_nothing_leaves_nothing(db: Db) {
    let process = db.start(|engine| engine.project(balances())).await;
    let nothing = process.decide(|look| async move {
        assert!(look.now() > roundel::Timestamp(0));
        let balance = look.document::<i64>(path("ada")).await?;
        Ok(Decision::of(balance))
    });
    assert_eq!(nothing.await.expect("it is decided"), None);
    let poor =
        process.decide(|_| async { Ok(Decision::of(()).record(MOVED, &moved("ada", "bob", 1))) });
    let poor = poor.await;
    assert!(matches!(
        poor,
        Err(Error::Refused(Refusal::NotFolded { .. }))
    ));
    let wrong = process.decide(|_| async { Ok(Decision::of(()).id("of what?")) });
    assert!(wrong.await.is_err());
    assert!(ids(&process).await.is_empty());
}

#[tokio::test]
async fn two_projections_of_one_name_are_refused() {
    let engine = roundel::Engine::in_memory();
    let twice = engine.project(balances()).project(balances()).start().await;
    let message = twice.expect_err("it is refused").to_string();
    assert!(message.contains("`balances`"), "{message}");
}

all![
    fa_05_a_fact_is_recorded_and_folded_in_one_commit,
    fa_03_if_one_cannot_be_folded_none_is_recorded,
    fa_08_a_fact_is_recorded_once,
    fa_14_a_step_records_with_its_journal_and_both_lead_to_each_other,
    fa_14_a_command_handler_records_what_it_did,
    fa_15_a_step_sees_what_it_wrote_and_one_that_fails_leaves_no_transaction_open,
    fa_18_many_who_record_at_once_lose_nothing,
    documents_are_listed_by_their_paths,
    fa_18_fa_21_deciders_are_as_if_one_came_after_the_other,
    a_decider_that_fails_or_decides_nothing_leaves_nothing,
];
