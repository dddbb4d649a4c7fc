//! Statements of an operator's own: who may ask, what can be asked, and the page for it.

use roundel::{Engine, EngineBuilder};
use roundel_server::{Limits, Role};
use roundel_testweb::{Browser, untested};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Place};

/// A server over this engine, with a run whose key is a formula.
async fn over(engine: EngineBuilder) -> Place {
    let place = Place::over(engine, Limits::default()).await;
    let body = json!({"workflow": "double", "input": 1, "key": "=1+1"});
    let line = "POST /api/v1/default/runs";
    place.ask(Role::Submitter, line, Some(&body)).await.ok();
    place
}

/// The same, over a file.
async fn place() -> (Place, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let place = over(Engine::open(folder.path().join("shop.db"))).await;
    (place, folder)
}

async fn ask(place: &Place, path: &str, statement: &str) -> Answer {
    let body = json!({"statement": statement});
    place
        .ask_as_root(&format!("POST /api/v1/{path}"), Some(&body))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_whoever_may_go_everywhere_asks_in_sql_and_changes_nothing() {
    let (place, _folder) = place().await;
    asks(&place).await;
    place.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_whoever_may_go_everywhere_asks_a_server_in_sql_and_changes_nothing() {
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let engine = Engine::open(schema.address()).schema(schema.name());
    let place = over(engine).await;
    asks(&place).await;
    place.engine.shutdown().await;
}

async fn asks(place: &Place) {
    let one = "SELECT key, priority FROM roundel_run WHERE key IS NOT NULL";
    let found = ask(place, "sql", one).await.ok().json();
    assert_eq!(found["columns"], json!(["key", "priority"]));
    assert_eq!(
        (&found["rows"], &found["more"]),
        (&json!([["=1+1", 0]]), &json!(false))
    );
    let file = ask(place, "sql/csv", one).await.ok();
    assert!(file.head.contains("content-type: text/csv"), "{file:?}");
    assert!(file.body.contains("\"'=1+1\",0\r\n"), "o7: {file:?}");
    let views = place
        .ask_as_root("GET /api/v1/sql/views", None)
        .await
        .ok()
        .json();
    let known = |one: &Value| one["name"] == "roundel_messages" && one["kind"] == "view";
    assert!(
        views["items"].as_array().unwrap().iter().any(known),
        "{views}"
    );

    // It sees all namespaces: an administrator of some is not enough.
    let body = json!({"statement": one});
    for role in Role::ALL {
        for path in ["sql", "sql/csv"] {
            let line = format!("POST /api/v1/{path}");
            place
                .ask(role, &line, Some(&body))
                .await
                .is(403, "forbidden");
        }
        let line = "GET /api/v1/sql/views";
        place.ask(role, line, None).await.is(403, "forbidden");
    }
    let may = |me: Value| me["may"].as_array().unwrap().contains(&json!("ask in SQL"));
    assert!(may(place
        .ask_as_root("GET /api/v1/me", None)
        .await
        .ok()
        .json()));
    assert!(!may(place
        .ask(Role::Admin, "GET /api/v1/me", None)
        .await
        .ok()
        .json()));

    for statement in [
        "DELETE FROM roundel_run",
        "UPDATE roundel_run SET priority = 1",
        "CREATE TABLE x (a)",
        "SELECT 1; DELETE FROM roundel_run",
        "PRAGMA journal_mode = DELETE",
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "SELECT * FROM nothing",
        "",
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT sum(a) FROM n",
    ] {
        ask(place, "sql", statement).await.is(400, "bad_request");
        ask(place, "sql/csv", statement)
            .await
            .is(400, "bad_request");
    }
    let found = ask(place, "sql", one).await.ok().json();
    assert_eq!(found["rows"], json!([["=1+1", 0]]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h9_the_page_for_it_runs_statements_by_key_and_shows_text() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("h9_the_page_for_it_runs_statements", &why),
    };
    let (place, _folder) = place().await;
    let page = browser.page((1280, 800), "light");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    page.press("x");
    page.shows("What there is to ask");
    page.shows("roundel_message_event");
    page.fill(
        "textarea",
        "SELECT '<img src=x onerror=alert(1)>' AS word, 7 AS number",
    );
    page.value(
        "document.querySelector('textarea').dispatchEvent(new KeyboardEvent('keydown', \
         {key: 'Enter', ctrlKey: true, bubbles: true}))",
    );
    page.shows("<img src=x onerror=alert(1)>");
    page.shows("1 row");
    assert_eq!(
        page.value("document.querySelectorAll('#page img').length"),
        0
    );
    assert_eq!(
        page.value("location.hash.includes('statement=SELECT')"),
        true
    );
    // From the address alone, as a link that somebody was sent.
    page.value("location.hash = '#/default/sql?statement=SELECT+41%2B1+AS+answer'");
    page.until("document.querySelector('tbody td')?.innerText === '42'");
    page.click(("tr", "roundel_messages"), "roundel_messages");
    page.until("document.querySelector('textarea').value.includes('\"roundel_messages\"')");
    page.fill("textarea", "DELETE FROM roundel_run");
    page.click(("form", "Run"), "Run");
    page.until("document.querySelector('.note.wrong')?.hidden === false");
    page.fill("textarea", "SELECT 1 AS one");
    page.value(
        "window.kept = []; URL.createObjectURL = (blob) => { window.kept.push(blob); \
                return 'data:text/csv,x'; }; true",
    );
    page.click(("form", "Save"), "Save as CSV");
    page.until("window.kept.length === 1");
    let text = page.value("window.kept[0].text()");
    assert_eq!(text, "\"one\"\r\n1\r\n");
    let asked = |said: &String| said.contains("the server responded with a status of 400");
    let complaints = page.complaints().into_iter();
    let complaints: Vec<String> = complaints.filter(|said| !asked(said)).collect();
    assert_eq!(complaints, Vec::<String>::new());
    place.serving.stop().await;
    place.engine.shutdown().await;
}
