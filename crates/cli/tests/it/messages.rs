//! The views `roundel_messages` and `roundel_message_event`: the log of cooperation, read from real
//! runs.

use roundel::{Cx, Engine, EngineBuilder, Failure, Result, RunState, Topic, Tx, Workflow};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::Place;

const ORDER: Workflow<u32, u32> = Workflow::named("order");
const STOCK: Workflow<u32, u32> = Workflow::named("stock");
const LABEL: Workflow<u32, u32> = Workflow::named("label");
const PLACED: Topic<u32> = Topic::named("placed");
const PACKED: Topic<u32> = Topic::named("packed");

async fn step(cx: &Cx, name: &'static str) -> Result<()> {
    let step = cx.step(name, |_| async { Ok::<_, Failure>(()) });
    step.undo(|_: Tx, ()| async { Ok::<_, Failure>(()) }).await
}

/// Publishes in a step of its own, then takes another; fails if it is to.
async fn order(cx: Cx, of: u32) -> Result<u32> {
    if of == 0 {
        let failing = cx.step("reserve", |_| async { Err(Failure::business("no")) });
        return failing.await;
    }
    let placing = cx.step("place", move |tx: Tx| async move {
        PACKED.publish(&tx, &of)?;
        PACKED.publish(&tx, &(of + 10))?;
        Ok::<_, Failure>(())
    });
    placing
        .undo(|_: Tx, ()| async { Ok::<_, Failure>(()) })
        .await?;
    step(&cx, "close").await?;
    match of {
        1 => Ok(of),
        _ => Err(Failure::business("too late")),
    }
}

async fn stock(cx: Cx, of: u32) -> Result<u32> {
    step(&cx, "first").await?;
    step(&cx, "second").await?;
    Ok(of)
}

async fn label(cx: Cx, of: u32) -> Result<u32> {
    cx.child(STOCK, &of).await
}

async fn shop(place: &Place) -> Engine {
    let engine: EngineBuilder = Engine::open(place.db())
        .register(ORDER, order)
        .register(STOCK, stock)
        .register(LABEL, label)
        .subscribe(PLACED, ORDER)
        .subscribe(PACKED, STOCK);
    engine.start().await.expect("an engine")
}

/// All runs have ended.
async fn rest(engine: &Engine) {
    loop {
        let runs = engine.runs().fetch().await.expect("runs").items;
        if runs.iter().all(|run| run.row.state.has_ended()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// One value a row.
fn read(place: &Place, sql: &str, value: &str) -> Vec<String> {
    let db = Connection::open(place.db()).expect("the file");
    let mut statement = db.prepare(sql).expect("a query");
    let rows = statement.query_map([value], |row| row.get(0));
    rows.expect("rows")
        .map(|row| row.expect("a text"))
        .collect()
}

/// What happened to a message, and to the runs that it set off.
fn log(place: &Place, message: &str) -> Vec<String> {
    let sql = "SELECT type FROM roundel_message_event WHERE message_id = ?1 ORDER BY id";
    read(place, sql, message)
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_02_the_log_of_a_run_that_succeeds_and_of_one_that_fails_at_once() {
    let place = Place::empty();
    let engine = shop(&place).await;
    let good = engine.publish(PACKED, &7).await.expect("published").id;
    let bad = engine.publish(PLACED, &0).await.expect("published").id;
    rest(&engine).await;
    engine.shutdown().await;
    let expected = ["EMITTED", "SEEN", "SUSPENDED", "SUSPENDED", "COMMITTED"];
    assert_eq!(log(&place, &good.to_string()), expected);
    let expected = ["EMITTED", "SEEN", "ROLLING_BACK", "ROLLED_BACK"];
    assert_eq!(log(&place, &bad.to_string()), expected);
    let sql = "SELECT topic || ' ' || payload FROM roundel_messages WHERE id = ?1";
    assert_eq!(read(&place, sql, &good.to_string()), ["packed 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_05_a_message_is_seen_when_its_run_is_first_claimed() {
    let place = Place::new().await;
    let engine = shop(&place).await;
    engine.shutdown().await;
    // Nobody is there to see it.
    let client = Engine::open(place.db()).start().await.expect("an engine");
    let id = client.publish(PACKED, &7).await.expect("published").id;
    client.shutdown().await;
    assert_eq!(log(&place, &id.to_string()), ["EMITTED"]);
    let engine = shop(&place).await;
    rest(&engine).await;
    engine.shutdown().await;
    assert_eq!(log(&place, &id.to_string())[..2], ["EMITTED", "SEEN"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_05_lineage_grows_by_one_id_with_each_level() {
    let place = Place::empty();
    let engine = shop(&place).await;
    let id = engine.publish(PLACED, &1).await.expect("published").id;
    rest(&engine).await;
    engine.shutdown().await;
    let sql = "SELECT cooperation_lineage FROM roundel_message_event WHERE type = ?1 ORDER BY id";
    let emitted = read(&place, sql, "EMITTED");
    let lineages: Vec<Value> = emitted
        .iter()
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect();
    assert_eq!(lineages[0], json!([]), "a client's");
    let sql = "SELECT coroutine_identifier FROM roundel_message_event \
               WHERE type = 'SEEN' AND message_id = ?1";
    let order = read(&place, sql, &id.to_string()).remove(0);
    assert_eq!(lineages[1..], [json!([order]), json!([order])]);
    let sql = "SELECT cooperation_lineage || ' ' || coroutine_identifier \
               FROM roundel_message_event WHERE type = 'SEEN' AND coroutine_name = ?1";
    let seen = read(&place, sql, "stock");
    assert_eq!(seen.len(), 2);
    for line in seen {
        let (lineage, run) = line.split_once(' ').expect("two");
        assert_eq!(lineage, json!([order, run]).to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sc_05_a_rollback_reads_in_order_through_all_levels() {
    let place = Place::empty();
    let engine = shop(&place).await;
    let id = engine.publish(PLACED, &2).await.expect("published").id;
    rest(&engine).await;
    let runs = engine.runs().fetch().await.expect("runs").items;
    let undone = |run: &&roundel::RunView| run.row.state == RunState::RolledBack;
    assert_eq!(runs.iter().filter(undone).count(), 3);
    engine.shutdown().await;
    let sql = "SELECT type || coalesce(' ' || step, '') FROM roundel_message_event \
               WHERE coroutine_name IS NULL OR coroutine_name = ?1 ORDER BY id";
    let expected = [
        "EMITTED",
        "SEEN",
        "EMITTED place",
        "EMITTED place",
        "SUSPENDED place",
        "SUSPENDED close",
        "ROLLING_BACK",
        "SUSPENDED close",
        "ROLLBACK_EMITTED place",
        "ROLLBACK_EMITTED place",
        "SUSPENDED place",
        "ROLLED_BACK",
    ];
    assert_eq!(read(&place, sql, "order"), expected);
    // The children's rollbacks lie between those of the messages and of the step.
    let sql = "SELECT coroutine_name || ' ' || type FROM roundel_message_event \
               WHERE id >= (SELECT min(id) FROM roundel_message_event \
                            WHERE type = 'ROLLBACK_EMITTED') AND ?1 <> '' ORDER BY id";
    let all = read(&place, sql, &id.to_string());
    let place_of = |what: &str| all.iter().position(|line| line == what).expect(what);
    let last_of = |what: &str| all.iter().rposition(|line| line == what).expect(what);
    assert_eq!(all[..2], ["order ROLLBACK_EMITTED"; 2]);
    assert!(last_of("stock ROLLED_BACK") < place_of("order SUSPENDED"));
    assert_eq!(
        all[all.len() - 2..],
        ["order SUSPENDED", "order ROLLED_BACK"]
    );
    let stock = all.iter().filter(|line| line.starts_with("stock")).count();
    assert_eq!(stock, 2 * 4, "each: rolling back, two undos, rolled back");
    // Of one message alone.
    let sql = "SELECT DISTINCT message_id FROM roundel_message_event WHERE type = ?1";
    for message in read(&place, sql, "ROLLBACK_EMITTED") {
        let expected = [
            "EMITTED",
            "SEEN",
            "SUSPENDED",
            "SUSPENDED",
            "COMMITTED",
            "ROLLBACK_EMITTED",
            "ROLLING_BACK",
            "SUSPENDED",
            "SUSPENDED",
            "ROLLED_BACK",
        ];
        assert_eq!(log(&place, &message), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_message_is_in_the_log_too() {
    let place = Place::empty();
    let engine = shop(&place).await;
    let mut run = engine.start(LABEL, &1).await.expect("started");
    run.result().await.expect("completed");
    engine.undo(run.id()).await.expect("undone");
    rest(&engine).await;
    engine.shutdown().await;
    let sql = "SELECT type FROM roundel_message_event \
               WHERE coroutine_identifier = ?1 AND message_id IS NULL ORDER BY id";
    let expected = [
        "SEEN",
        "SUSPENDED",
        "COMMITTED",
        "ROLLING_BACK",
        "ROLLBACK_EMITTED",
        "SUSPENDED",
        "ROLLED_BACK",
    ];
    assert_eq!(read(&place, sql, &run.id().to_string()), expected);
}
