//! The views `roundel_entry`, `roundel_messages` and `roundel_message_event`: the journal and the
//! log of cooperation, read from real runs, in a file and on a server.

use roundel::{Cx, Engine, EngineBuilder, Failure, Result, RunState, Topic, Tx, Workflow};
use roundel_testpg::Schema;
use rusqlite::Connection;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

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

/// Where the runs are.
enum Log {
    File(Place),
    Server(Schema),
}

impl Log {
    fn engine(&self) -> EngineBuilder {
        match self {
            Log::File(place) => Engine::open(place.db()),
            Log::Server(schema) => Engine::open(schema.address()).schema(schema.name()),
        }
    }

    /// One value a row.
    async fn read(&self, sql: &str, value: &str) -> Vec<String> {
        match self {
            Log::File(place) => {
                let db = Connection::open(place.db()).expect("the file");
                let mut statement = db.prepare(sql).expect("a query");
                let rows = statement.query_map([value], |row| row.get(0));
                let rows = rows.expect("rows").map(|row| row.expect("a text"));
                rows.collect()
            }
            Log::Server(schema) => {
                let mut server = PgConnection::connect(&schema.address()).await.expect("one");
                let query = sqlx::query_scalar(sql).bind(value);
                query.fetch_all(&mut server).await.expect("texts")
            }
        }
    }

    /// What happened to a message, and to the runs that it set off.
    async fn of(&self, message: &str) -> Vec<String> {
        let sql = "SELECT type FROM roundel_message_event WHERE message_id = $1 ORDER BY id";
        self.read(sql, message).await
    }
}

/// Each of these in a file and on a server.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod file {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(&super::Log::File(super::Place::empty())).await;
            })*
        }

        mod server {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let Some(schema) = roundel_testpg::schema() {
                    super::$name(&super::Log::Server(schema)).await;
                }
            })*
        }
    };
}

both! {
    sc_02_the_log_of_a_run_that_succeeds_and_of_one_that_fails_at_once,
    sc_05_a_message_is_seen_when_its_run_is_first_claimed,
    sc_05_lineage_grows_by_one_id_with_each_level,
    sc_05_a_rollback_reads_in_order_through_all_levels,
    a_run_without_a_message_is_in_the_log_too,
    entries_are_numbered_without_gaps,
}

async fn shop(log: &Log) -> Engine {
    let engine: EngineBuilder = log
        .engine()
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

async fn sc_02_the_log_of_a_run_that_succeeds_and_of_one_that_fails_at_once(log: &Log) {
    let engine = shop(log).await;
    let good = engine.publish(PACKED, &7).await.expect("published").id;
    let bad = engine.publish(PLACED, &0).await.expect("published").id;
    rest(&engine).await;
    engine.shutdown().await;
    let expected = ["EMITTED", "SEEN", "SUSPENDED", "SUSPENDED", "COMMITTED"];
    assert_eq!(log.of(&good.to_string()).await, expected);
    let expected = ["EMITTED", "SEEN", "ROLLING_BACK", "ROLLED_BACK"];
    assert_eq!(log.of(&bad.to_string()).await, expected);
    let sql = "SELECT topic || ' ' || payload FROM roundel_messages WHERE id = $1";
    assert_eq!(log.read(sql, &good.to_string()).await, ["packed 7"]);
}

async fn sc_05_a_message_is_seen_when_its_run_is_first_claimed(log: &Log) {
    let engine = shop(log).await;
    engine.shutdown().await;
    // Nobody is there to see it.
    let client = log.engine().start().await.expect("an engine");
    let id = client.publish(PACKED, &7).await.expect("published").id;
    client.shutdown().await;
    assert_eq!(log.of(&id.to_string()).await, ["EMITTED"]);
    let engine = shop(log).await;
    rest(&engine).await;
    engine.shutdown().await;
    assert_eq!(log.of(&id.to_string()).await[..2], ["EMITTED", "SEEN"]);
}

async fn sc_05_lineage_grows_by_one_id_with_each_level(log: &Log) {
    let engine = shop(log).await;
    let id = engine.publish(PLACED, &1).await.expect("published").id;
    rest(&engine).await;
    engine.shutdown().await;
    let sql = "SELECT cooperation_lineage FROM roundel_message_event WHERE type = $1 ORDER BY id";
    let emitted = log.read(sql, "EMITTED").await;
    let lineages: Vec<Value> = emitted
        .iter()
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect();
    assert_eq!(lineages[0], json!([]), "a client's");
    let sql = "SELECT coroutine_identifier FROM roundel_message_event \
               WHERE type = 'SEEN' AND message_id = $1";
    let order = log.read(sql, &id.to_string()).await.remove(0);
    assert_eq!(lineages[1..], [json!([order]), json!([order])]);
    let sql = "SELECT cooperation_lineage || ' ' || coroutine_identifier \
               FROM roundel_message_event WHERE type = 'SEEN' AND coroutine_name = $1";
    let seen = log.read(sql, "stock").await;
    assert_eq!(seen.len(), 2);
    for line in seen {
        let (lineage, run) = line.split_once(' ').expect("two");
        assert_eq!(lineage, json!([order, run]).to_string());
    }
}

async fn sc_05_a_rollback_reads_in_order_through_all_levels(log: &Log) {
    let engine = shop(log).await;
    let id = engine.publish(PLACED, &2).await.expect("published").id;
    rest(&engine).await;
    let runs = engine.runs().fetch().await.expect("runs").items;
    let undone = |run: &&roundel::RunView| run.row.state == RunState::RolledBack;
    assert_eq!(runs.iter().filter(undone).count(), 3);
    engine.shutdown().await;
    let sql = "SELECT type || coalesce(' ' || step, '') FROM roundel_message_event \
               WHERE coroutine_name IS NULL OR coroutine_name = $1 ORDER BY id";
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
    assert_eq!(log.read(sql, "order").await, expected);
    // The children's rollbacks lie between those of the messages and of the step.
    let sql = "SELECT coroutine_name || ' ' || type FROM roundel_message_event \
               WHERE id >= (SELECT min(id) FROM roundel_message_event \
                            WHERE type = 'ROLLBACK_EMITTED') AND $1 <> '' ORDER BY id";
    let all = log.read(sql, &id.to_string()).await;
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
    let sql = "SELECT DISTINCT message_id FROM roundel_message_event WHERE type = $1";
    for message in log.read(sql, "ROLLBACK_EMITTED").await {
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
        assert_eq!(log.of(&message).await, expected);
    }
}

async fn a_run_without_a_message_is_in_the_log_too(log: &Log) {
    let engine = shop(log).await;
    let mut run = engine.start(LABEL, &1).await.expect("started");
    run.result().await.expect("completed");
    engine.undo(run.id()).await.expect("undone");
    rest(&engine).await;
    engine.shutdown().await;
    let sql = "SELECT type FROM roundel_message_event \
               WHERE coroutine_identifier = $1 AND message_id IS NULL ORDER BY id";
    let expected = [
        "SEEN",
        "SUSPENDED",
        "COMMITTED",
        "ROLLING_BACK",
        "ROLLBACK_EMITTED",
        "SUSPENDED",
        "ROLLED_BACK",
    ];
    assert_eq!(log.read(sql, &run.id().to_string()).await, expected);
}

async fn entries_are_numbered_without_gaps(log: &Log) {
    let engine = shop(log).await;
    let mut run = engine.start(STOCK, &1).await.expect("started");
    run.result().await.expect("completed");
    engine.shutdown().await;
    let sql = "SELECT kind FROM roundel_entry WHERE $1 <> '' ORDER BY number";
    let kinds = log.read(sql, "any").await;
    assert_eq!(kinds.first().map(String::as_str), Some("started"));
    assert_eq!(kinds.last().map(String::as_str), Some("ended"));
    let sql = "SELECT CAST(count(DISTINCT number) = max(number) AS TEXT) FROM roundel_entry \
               WHERE $1 <> '' AND number > 0";
    assert!(["1", "true"].contains(&log.read(sql, "any").await[0].as_str()));
}
