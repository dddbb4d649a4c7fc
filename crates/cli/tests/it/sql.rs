//! `sql`: what it answers, and what it refuses.

use std::io::Write;
use std::process::Stdio;

use sqlx::Connection;

use crate::support::{Place, said};

async fn with_runs() -> Place {
    let place = Place::new().await;
    place
        .run(&["start", "greet", "\"Ada\"", "--key", "ada"])
        .ok();
    place
        .run(&["start", "greet", "\"Bob\"", "--key", "bob"])
        .ok();
    place
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_answered_as_a_table_or_as_json() {
    let place = with_runs().await;
    let ask = "SELECT key, state, NULL AS missing FROM roundel_run ORDER BY key";
    let told = place.run(&["sql", ask]).ok();
    let lines: Vec<&str> = told.out.lines().map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "key  state  missing",
            "ada  ready  null",
            "bob  ready  null"
        ]
    );
    let told = place.run(&["sql", "--json", "--limit", "1", ask]).ok();
    let wanted = serde_json::json!({"key": "ada", "state": "ready", "missing": null});
    assert_eq!(told.json(), wanted);
    assert!(told.err.contains("1 row, and there are more"), "{told:?}");
    // Ids and payloads are as other commands take and show them.
    let run = place.run(&["runs", "show", "ada", "--json"]).ok().json();
    place.run(&["signal", "ada", "hello", "[1]"]).ok();
    let found = "SELECT id, body FROM roundel_run JOIN roundel_mail ON run = id";
    let found = place.run(&["sql", "--json", found]).ok().json();
    assert_eq!(found["id"], run["run"]);
    assert!(
        found["body"]
            .as_str()
            .is_some_and(|body| body.contains("[1]")),
        "{found}"
    );
    let views = place.run(&["sql", "--views"]).ok().out;
    for name in ["view   roundel_entry", "table  roundel_run", "created_at"] {
        assert!(views.contains(name), "`{name}` is missing: {views}");
    }
    let mut command = place.command(&["sql", "--db", "runs.db", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(b"SELECT 1 AS one").expect("a statement");
    drop(input);
    let out = child.wait_with_output().expect("it ends").stdout;
    assert_eq!(String::from_utf8_lossy(&out), "{\"one\":1}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_wrong_or_writes_is_refused() {
    let place = with_runs().await;
    for (sql, part) in [
        ("DELETE FROM roundel_run", "only statements that read"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT 1; SELECT 2", "one at a time"),
        ("SELECT ?", "parameters"),
    ] {
        place.run(&["sql", sql]).fails(2, &[part]);
    }
    let table = place
        .run(&["sql", "SELECT count(*) AS n FROM roundel_run"])
        .ok();
    assert_eq!(table.out, "n\n2\n");
    // What would steer a terminal is text.
    let told = place
        .run(&["sql", "SELECT char(27) || '[2J' AS \"a\x1b[2Jb\""])
        .ok();
    assert!(!told.out.contains('\x1b'), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_objects_answer_as_far_as_they_can() {
    let place = Place::empty();
    let told = said(&mut place.command(&["sql", "SELECT 1", "--db", "folder:objects"]));
    assert_ne!(told.code, 0, "{told:?}");
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let (url, name) = (schema.address(), schema.name());
    let on = ["--db", url.as_str(), "--schema", name];
    said(place.command(&["migrate"]).args(on)).ok();
    let told = said(
        place
            .command(&["sql", "SELECT count(*) AS n FROM roundel_run"])
            .args(on),
    );
    assert_eq!(told.ok().out, "n\n0\n");
    let told = said(place.command(&["sql", "DELETE FROM roundel_run"]).args(on));
    told.fails(2, &["only statements that read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_a_server_is_confined_to_a_namespace() {
    let place = Place::empty();
    let told = said(&mut place.command(&["confine", "anybody"]));
    told.fails(2, &["roles are a server's"]);
    let Some(schema) = roundel_testpg::schema() else {
        return;
    };
    let (url, name) = (schema.address(), schema.name());
    let role = [name, "_cli"].concat();
    let confine = ["confine", role.as_str(), "--namespace", "shop"];
    let on = ["--db", url.as_str(), "--schema", name];
    said(place.command(&confine).args(on)).fails(4, &["roundel migrate"]);
    said(place.command(&["migrate"]).args(on)).ok();
    said(place.command(&confine).args(on)).fails(4, &["there is no role"]);
    let owner = |text: &str| {
        let text = text.replace("READER", &role);
        let url = url.clone();
        async move {
            let mut connection = sqlx::PgConnection::connect(&url).await.expect("a server");
            let done = sqlx::query(&text).execute(&mut connection).await;
            done.expect("the statement");
        }
    };
    owner("CREATE ROLE READER LOGIN PASSWORD 'reading'").await;
    let confined = said(place.command(&confine).args(on).arg("--json")).ok();
    assert_eq!(confined.json()["namespace"], "shop");
    for space in ["shop", "bank"] {
        let subscribe = ["topics", "subscribe", space, "flow", "--namespace", space];
        said(place.command(&subscribe).args(on)).ok();
    }
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    let reader = [scheme, "://", &role, ":reading@", host].concat();
    let asked = ["sql", "SELECT topic FROM roundel_subscription"];
    let all = said(place.command(&asked).args(on)).ok().out;
    assert!(all.contains("shop") && all.contains("bank"), "{all}");
    let mine = said(place.command(&asked).args(on).args(["--reader", &reader]));
    assert_eq!(mine.ok().out, "topic\nshop\n");
    owner("DROP OWNED BY READER").await;
    owner("DROP ROLE READER").await;
}
