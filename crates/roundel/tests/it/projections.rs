//! Projections that follow, are built anew, and read facts of older versions.

use roundel::{
    Arrival, Client, Error, Fact, Failure, Projection, Received, Refusal, RunState, UnknownFact,
    limits,
};
use serde::{Deserialize, Serialize};

use crate::support::{Db, all, on_objects, soon};

const PAID: Fact<u64> = Fact::named("paid");

#[derive(Serialize, Deserialize)]
struct Payment {
    by: String,
    cents: u64,
}

const PAYMENT: Fact<Payment> = Fact::named("paid").version(2);

/// All that was paid, in such a way that another order can be seen. 999 it cannot take.
fn total(name: &'static str) -> Projection<u64> {
    Projection::named(name).fold(
        PAID,
        move |_| vec![format!("{name}/total")],
        |total, paid| match paid {
            999 => Err(Failure::permanent("unlucky")),
            paid => expected_after(total, *paid),
        },
    )
}

fn expected_after(total: Option<u64>, paid: u64) -> Result<Option<u64>, Failure> {
    Ok(Some((total.unwrap_or(1) * 31 + paid) % 1_000_003))
}

fn expected(paid: impl IntoIterator<Item = u64>) -> Option<u64> {
    let fold = |total, paid| expected_after(total, paid).expect("it folds all");
    paid.into_iter().fold(None, fold)
}

async fn read(client: &Client, path: &'static str) -> Option<u64> {
    let found = client.document(path).await.expect("it is read");
    found.map(|document: roundel::Document<u64>| document.value)
}

async fn until(client: &Client, path: &'static str, value: Option<u64>) {
    let reached = async {
        while read(client, path).await != value {
            tokio::task::yield_now().await;
        }
    };
    soon(path, reached).await;
}

async fn fa_13_a_projection_follows_by_itself_and_goes_on_after_a_crash(db: Db) {
    let set_up = |engine: roundel::EngineBuilder| engine.project(total("after").following());
    let process = db.start(set_up).await;
    for paid in 0..20 {
        process.record(PAID, &paid).await.expect("it is recorded");
    }
    until(&process, "after/total", expected(0..20)).await;
    process.crash();
    // Nobody is there who follows; and then somebody is.
    let other = db.start(|engine| engine).await;
    for paid in 20..40 {
        other.record(PAID, &paid).await.expect("it is recorded");
    }
    assert_eq!(read(&other, "after/total").await, expected(0..20));
    let process = db.start(set_up).await;
    until(&process, "after/total", expected(0..40)).await;
    let all = process.projections().await.expect("they are read");
    let live = all[0].row.live.as_ref().expect("it is live");
    assert_eq!((live.facts, live.folds, all[0].facts), (40, 40, 40));
}

async fn fa_12_a_rebuild_equals_what_was_folded_and_loses_nothing_meanwhile(db: Db) {
    let process = db
        .start(|engine| {
            engine
                .project(total("inline"))
                .project(total("after").following())
        })
        .await;
    for paid in 0..30 {
        process.record(PAID, &paid).await.expect("it is recorded");
    }
    let recording = async {
        for paid in 30..60 {
            process.record(PAID, &paid).await.expect("it is recorded");
        }
    };
    let rebuilding = async {
        for name in ["inline", "after", "inline"] {
            process.rebuild(name).await.expect("it is built");
        }
    };
    tokio::join!(recording, rebuilding);
    assert_eq!(read(&process, "inline/total").await, expected(0..60));
    until(&process, "after/total", expected(0..60)).await;
    process.catch_up().await.expect("they are brought further");
    let all = process.projections().await.expect("they are read");
    let generation = |at: usize| all[at].row.live.as_ref().expect("it is live").generation;
    assert_eq!((generation(0), generation(1)), (1, 2));
    let unknown = process.rebuild("nothing").await;
    let unknown = unknown.expect_err("there is no such projection");
    assert!(unknown.to_string().contains("`nothing`"), "{unknown}");
}

async fn fa_12_what_was_recorded_before_is_there_when_an_inline_projection_starts(db: Db) {
    let before = db.start(|engine| engine).await;
    for paid in 0..10 {
        before.record(PAID, &paid).await.expect("it is recorded");
    }
    let process = db.start(|engine| engine.project(total("inline"))).await;
    assert_eq!(read(&process, "inline/total").await, expected(0..10));
    process.record(PAID, &10).await.expect("it is recorded");
    assert_eq!(read(&process, "inline/total").await, expected(0..11));
    // Who does not have it is told so, and spoils nothing.
    let lacks = before.record(PAID, &11).await;
    assert!(matches!(
        lacks,
        Err(Error::Refused(Refusal::LacksProjection { .. }))
    ));
    assert_eq!(read(&process, "inline/total").await, expected(0..11));
}

async fn a_fact_that_cannot_be_folded_in_stops_who_follows_until_it_is_skipped(db: Db) {
    let process = db
        .start(|engine| engine.project(total("after").following()))
        .await;
    for (id, paid) in [("one", 1), ("bad", 999), ("two", 2)] {
        let recorded = process.record(PAID, &paid).id(id).await;
        recorded.expect("it is recorded all the same");
    }
    process.catch_up().await.expect("as far as it goes");
    let all = process.projections().await.expect("they are read");
    let live = all[0].row.live.as_ref().expect("it is live");
    let stuck = live.stuck.as_ref().expect("it is stuck");
    assert_eq!(stuck.fact.as_str(), "bad");
    let operator = process.operator("ada").expect("a name").reason("unlucky");
    operator
        .skip_fact("after", "bad")
        .await
        .expect("it is skipped");
    until(&process, "after/total", expected([1, 2])).await;
}

async fn j2_code_that_panics_stops_who_follows_and_nobody_else(db: Db) {
    let shaky = Projection::<u64>::named("shaky").following().fold(
        PAID,
        |paid| vec![format!("by/{}", 10 / paid)],
        |_, paid| Ok(Some(*paid)),
    );
    let process = db
        .start(|engine| engine.project(shaky).project(total("inline")))
        .await;
    for (id, paid) in [("one", 5), ("bad", 0), ("two", 2)] {
        let recorded = process.record(PAID, &paid).id(id).await;
        recorded.expect("it is recorded all the same");
    }
    process.catch_up().await.expect("as far as it goes");
    assert_eq!(read(&process, "inline/total").await, expected([5, 0, 2]));
    let all = process.projections().await.expect("they are read");
    let shaky = all.iter().find(|one| one.name.as_str() == "shaky");
    let live = shaky.and_then(|one| one.row.live.as_ref());
    let stuck = live.and_then(|live| live.stuck.as_ref());
    let stuck = stuck.expect("it is stuck");
    assert_eq!(
        (stuck.fact.as_str(), &*stuck.failure.code),
        ("bad", "panicked")
    );
    process.skip_fact("shaky", "bad").await.expect("skipped");
    until(&process, "by/5", Some(2)).await;
}

async fn fa_07_what_a_process_lacks_a_projection_for_waits_for_one_that_has_it(db: Db) {
    let old = db.start(|engine| engine.project(total("one"))).await;
    let new = db
        .start(|engine| engine.project(total("one")).project(total("two")))
        .await;
    for (id, paid) in [("first", 5), ("second", 7)] {
        let handed = old.handle_fact(Arrival::of(PAID, &paid).id(id)).await;
        let handed = handed.expect("it is kept");
        assert!(matches!(handed, Received::Queued(_)), "{handed:?}");
    }
    // It is left where it is, and is no trouble.
    let ticked = old.tick(old.now()).await.expect("nothing to do");
    assert_eq!(ticked.incoming, roundel::TakenIn::default());
    let queued = old.incoming(RunState::Ready, None, 10).await;
    assert_eq!(queued.expect("they are read").items.len(), 2);
    let ticked = new.tick(new.now()).await.expect("they are taken");
    assert_eq!(ticked.incoming.recorded, 2);
    for path in ["one/total", "two/total"] {
        assert_eq!(read(&new, path).await, expected([5, 7]));
    }
}

async fn fa_12_what_folds_unknown_kinds_is_built_as_it_was_folded(db: Db) {
    let strange = || {
        let path = |fact: &UnknownFact| vec![format!("strange/{}", fact.kind)];
        let count = |count: Option<u64>, _: &UnknownFact| Ok(Some(count.unwrap_or(0) + 1));
        Projection::<u64>::named("strange").fold_unknown(path, count)
    };
    const ODD: Fact<u64> = Fact::named("odd");
    let process = db
        .start(|engine| engine.project(total("known")).project(strange()))
        .await;
    process.record(PAID, &1).await.expect("it is known");
    process.record(ODD, &2).await.expect("it is recorded");
    let handed = process.handle_fact(Arrival::of(ODD, &3)).await;
    assert!(matches!(handed, Ok(Received::Recorded(_))), "{handed:?}");
    for _ in 0..2 {
        assert_eq!(read(&process, "strange/odd").await, Some(2));
        assert_eq!(read(&process, "strange/paid").await, None);
        process.rebuild("strange").await.expect("it is built");
    }
    // Who does not have it may record nothing that it would fold.
    let other = db.start(|engine| engine.project(total("known"))).await;
    let lacks = other.record(ODD, &4).await;
    let lacks = lacks.expect_err("it would not be counted");
    assert!(lacks.to_string().contains("`strange`"), "{lacks}");
}

async fn j8_facts_of_older_versions_are_read_as_newer_ones(db: Db) {
    let old = db.start(|engine| engine).await;
    old.record(PAID, &3).await.expect("in euros, by nobody");
    let by = Projection::<u64>::named("by").fold(
        PAYMENT,
        |payment| vec![format!("by/{}", payment.by)],
        |cents, payment| Ok(Some(cents.unwrap_or(0) + payment.cents)),
    );
    let upcast = |euros| Payment {
        by: "somebody".into(),
        cents: euros * 100,
    };
    let process = db
        .start(|engine| engine.project(by).upcast(PAID, PAYMENT, upcast))
        .await;
    let ada = Payment {
        by: "ada".into(),
        cents: 5,
    };
    process.record(PAYMENT, &ada).await.expect("it is recorded");
    process.record(PAID, &1).await.expect("also an old one");
    assert_eq!(read(&process, "by/somebody").await, Some(400));
    assert_eq!(read(&process, "by/ada").await, Some(5));
    let wrong = roundel::Engine::in_memory().upcast(PAYMENT, PAID, |payment| payment.cents);
    let wrong = wrong
        .start()
        .await
        .expect_err("newer does not become older");
    assert!(wrong.to_string().contains("`paid`"), "{wrong}");
}

async fn fa_12_a_version_that_folds_nothing_ends_a_projection(db: Db) {
    let process = db.start(|engine| engine.project(total("old"))).await;
    for paid in 0..5 {
        process.record(PAID, &paid).await.expect("it is recorded");
    }
    process.crash();
    // Under another name it is another, and nobody folds for the one that is gone.
    let renamed = || {
        let fold = |total: Option<u64>, paid: &u64| expected_after(total, *paid);
        Projection::<u64>::named("new").fold(PAID, |_| vec!["new/total".into()], fold)
    };
    let process = db.start(|engine| engine.project(renamed())).await;
    let refused = process.record(PAID, &5).await.expect_err("one is lacking");
    assert!(refused.to_string().contains("`old`"), "{refused}");
    process.crash();
    // A version of it that folds nothing ends it.
    let ended = || Projection::<u64>::named("old").version(2);
    let process = db
        .start(|engine| engine.project(renamed()).project(ended()))
        .await;
    process.record(PAID, &5).await.expect("it is recorded");
    assert_eq!(read(&process, "new/total").await, expected(0..6));
    until(&process, "old/total", None).await;
    process.crash();
    let process = db.start(|engine| engine.project(renamed())).await;
    process.record(PAID, &6).await.expect("it is recorded");
    assert_eq!(read(&process, "new/total").await, expected(0..7));
}

fn copies() -> Projection<String> {
    let path = |(path, _): &(String, String)| vec![path.clone()];
    let copy =
        |_: Option<String>, (_, text): &(String, String)| Ok::<_, Failure>(Some(text.clone()));
    Projection::named("copies").fold(COPIED, path, copy)
}

const COPIED: Fact<(String, String)> = Fact::named("copied");

async fn fa_01_paths_are_any_text_and_what_is_no_path_or_too_large_leaves_nothing(db: Db) {
    let process = db.start(|engine| engine.project(copies())).await;
    let large = "x".repeat(1 << 20);
    let paths = [
        "a%b",
        "a_b",
        "a'b\"c",
        "ü/ß/\u{1f600}",
        "a\\b",
        "a?b#c&d",
        " x ",
    ];
    for (path, text) in paths
        .into_iter()
        .map(|path| (path, path))
        .chain([("large", &*large)])
    {
        let copied = (path.to_owned(), text.to_owned());
        process.record(COPIED, &copied).await.expect(path);
        let found = process.document::<String>(path).await.expect(path);
        assert!(found.expect(path).value == text, "{path}");
        let page = process.documents(path, None, 10).await.expect(path);
        assert_eq!(page.items.len(), 1, "{path}");
    }
    let before = process.facts().fetch().await.expect("facts").items.len();
    let (long, huge) = ("x".repeat(257), "x".repeat(limits::PAYLOAD_BYTES));
    for (path, text) in [
        ("", ""),
        ("a\nb", ""),
        ("a\0b", ""),
        (&*long, ""),
        ("huge", &*huge),
    ] {
        let refused = process
            .record(COPIED, &(path.to_owned(), text.to_owned()))
            .await;
        refused.expect_err("that is too much");
    }
    let facts = process.facts().fetch().await.expect("facts").items;
    assert_eq!(facts.len(), before);
    assert_eq!(
        process
            .documents("", None, 100)
            .await
            .expect("documents")
            .items
            .len(),
        before
    );
}

all![
    fa_12_a_version_that_folds_nothing_ends_a_projection,
    fa_01_paths_are_any_text_and_what_is_no_path_or_too_large_leaves_nothing,
    fa_07_what_a_process_lacks_a_projection_for_waits_for_one_that_has_it,
    fa_12_what_folds_unknown_kinds_is_built_as_it_was_folded,
    fa_13_a_projection_follows_by_itself_and_goes_on_after_a_crash,
    fa_12_a_rebuild_equals_what_was_folded_and_loses_nothing_meanwhile,
    fa_12_what_was_recorded_before_is_there_when_an_inline_projection_starts,
    a_fact_that_cannot_be_folded_in_stops_who_follows_until_it_is_skipped,
    j2_code_that_panics_stops_who_follows_and_nobody_else,
    j8_facts_of_older_versions_are_read_as_newer_ones,
];
on_objects![
    fa_13_a_projection_follows_by_itself_and_goes_on_after_a_crash,
    fa_12_a_rebuild_equals_what_was_folded_and_loses_nothing_meanwhile,
];
