//! Commands on a server, by its URL.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Place, Said, said};

/// A server, which goes with this value.
struct Server {
    child: Child,
    url: String,
    token: String,
}

impl Server {
    fn start(place: &Place, role: &str) -> Server {
        Server::start_by("http", place, role, &[])
    }

    /// With these arguments more; it is reached as `localhost`.
    fn start_by(scheme: &str, place: &Place, role: &str, more: &[&str]) -> Server {
        let add = ["tokens", "add", "ada", "--role", role, "--json"];
        Server::start_for(&add, scheme, place, more)
    }

    /// For a token of these namespaces.
    fn start_in(place: &Place, role: &str, places: &str) -> Server {
        let add = [
            "tokens", "add", "ada", "--role", role, "--json", "--in", places,
        ];
        Server::start_for(&add, "http", place, &[])
    }

    fn start_for(add: &[&str], scheme: &str, place: &Place, more: &[&str]) -> Server {
        let added = said(&mut place.command(add)).ok().json();
        let token = added["token"].as_str().expect("a token").to_owned();
        let serve = [
            "--db",
            "runs.db",
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
        ];
        let mut child = place
            .command(&[&serve[..], more].concat())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        let address = told["address"].as_str().expect("an address");
        let address = match scheme {
            "https" => address.replace("127.0.0.1", "localhost"),
            _ => address.to_owned(),
        };
        let url = format!("{scheme}://{address}");
        Server { child, url, token }
    }

    fn run(&self, place: &Place, args: &[&str]) -> Said {
        let mut command = place.command(args);
        said(
            command
                .args(["--db", &self.url])
                .env("ROUNDEL_TOKEN", &self.token),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is sent, and what holds it back.
fn commands_and_queues(ask: &dyn Fn(&[&str]) -> Said) {
    ask(&["queues", "pause", "mail"]).ok();
    assert!(ask(&["queues"]).ok().out.contains("mail"));
    ask(&["commands", "send", "mail", "1", "--id", "one"]).ok();
    assert!(ask(&["commands", "list", "mail"]).ok().out.contains("one"));
    assert!(
        ask(&["commands", "show", "mail", "one"])
            .ok()
            .out
            .contains("ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_as_its_database_does() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let server = Server::start(&place, "operator");
    let ask = |args: &[&str]| server.run(&place, args);
    let start = [
        "start",
        "ask",
        "\"a \\u0000 b 12345678901234567890\"",
        "--key",
        "k",
    ];
    let started = ask(&[&start[..], &["--label", "a=b", "--json"]].concat())
        .ok()
        .json();
    assert_eq!(started["new"], true);
    assert_eq!(
        ask(&[&start[..], &["--json"]].concat()).ok().json()["new"],
        false
    );
    ask(&["start", "break", "--key", "b", "--priority", "3"]).ok();
    while ask(&["parked", "list", "--json"]).ok().out.is_empty() {}
    while ask(&["runs", "show", "k", "--json"]).ok().json()["state"] != "waiting" {}
    // What programs are told is the same.
    for args in [
        &["runs", "list", "--limit", "1", "--json"][..],
        &["runs", "list", "--state", "parked", "--json"],
        &["runs", "list", "--label", "a=b", "--json"],
        &["parked", "list", "--json"],
        &["parked", "groups", "--json"],
    ] {
        let (there, here) = (ask(args).ok().out, place.run(args).ok().out);
        assert_eq!(there, here, "{args:?}");
        assert!(!there.is_empty(), "{args:?}");
    }
    let shown = ask(&["runs", "show", "k"]).ok().out;
    assert!(!shown.contains("timeline"), "it is for screens: {shown}");
    for part in ["ask", "started `ask`", "waiting"] {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    assert!(ask(&["runs", "tree", "k"]).ok().out.contains("greet"));
    assert!(ask(&["runs", "why", "k"]).ok().out.contains("answer"));
    let sent = ask(&["signal", "k", "answer", "\"yes\"", "--json"])
        .ok()
        .json();
    assert_ne!(sent["sent"], Value::Null, "{sent}");
    let id = ask(&["parked", "list", "--json"]).ok().json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    ask(&["parked", "cancel", &id, "--reason", "enough"]).ok();
    commands_and_queues(&ask);
    // It is audited in the name of the token.
    let audit = ask(&["audit", "--json", "--limit", "100"]).ok().out;
    assert!(
        audit.contains("\"ada\"") && audit.contains("enough"),
        "{audit}"
    );
    ask(&["start", "ask", "\"why\"", "--key", "c"]).ok();
    ask(&["runs", "cancel", "c"]).ok();
    while ask(&["runs", "show", "c", "--json"]).ok().json()["state"] != "cancelled" {}
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_have_is_said() {
    let place = Place::new().await;
    let server = Server::start(&place, "viewer");
    let ask = |args: &[&str]| server.run(&place, args);
    ask(&["runs", "show", "no"]).fails(3, &["404", "not_found"]);
    ask(&["start", "greet"]).fails(1, &["403", "forbidden", "--role"]);
    ask(&["verify"]).fails(2, &["`verify` needs the database itself", "runs list"]);
    ask(&["retention", "run", "--older-than", "1d"]).fails(
        2,
        &[
            "`retention run` needs the database",
            "--db",
            "retention show",
        ],
    );
    ask(&["retention", "show", "--older-than", "1d"]).fails(2, &["does not know `older-than`"]);
    ask(&["audit", "verify"]).fails(2, &["`audit verify` needs the database"]);
    ask(&["sql", "SELECT 1"]).fails(1, &["403"]);
    ask(&["backup", "a.db"]).fails(2, &["`backup` needs the database"]);
    ask(&[
        "runs",
        "list",
        "--after",
        "0199ab00-0000-7000-8000-000000000000",
    ])
    .fails(2, &["does not know `after`"]);
    ask(&["start", "greet", "--wait"]).fails(2, &["does not know `wait`"]);
    ask(&["runs", "cancel", "--all", "--yes"]).fails(2, &["does not know"]);
    ask(&["runs", "cancel", "k", "--operator", "eve"]).fails(2, &["the token says who"]);
    let mut none = place.command(&["runs", "list", "--db", &server.url]);
    said(none.env_remove("ROUNDEL_TOKEN")).fails(2, &["needs a token", "tokens add"]);
    let mut wrong = place.command(&["runs", "list", "--db", &server.url]);
    said(wrong.env("ROUNDEL_TOKEN", "rdl_wrong")).fails(1, &["401", "ROUNDEL_TOKEN"]);
    std::fs::write(
        place.folder.path().join("token"),
        format!("{}\n", server.token),
    )
    .unwrap();
    let args = ["runs", "list", "--db", &server.url, "--token-file", "token"];
    said(place.command(&args).env_remove("ROUNDEL_TOKEN")).ok();
    let mut gone = place.command(&["runs", "list", "--db", "http://127.0.0.1:1"]);
    said(gone.env("ROUNDEL_TOKEN", "rdl_x")).fails(5, &["cannot be asked"]);
    let mut far = place.command(&["runs", "list", "--db", "http://example.com"]);
    said(far.env("ROUNDEL_TOKEN", "rdl_x")).fails(2, &["in the clear", "ssh -L"]);
}

fn certificate(name: &str) -> String {
    format!(
        "{}/../server/tests/it/tls/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_asked_by_tls_and_only_if_it_is_trusted() {
    let place = Place::new().await;
    let (cert, key) = (certificate("one.pem"), certificate("one.key"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let server = Server::start_by("https", &place, "operator", &tls);
    let start = [
        "start", "greet", "\"ada\"", "--key", "k", "--ca", &cert, "--json",
    ];
    assert_eq!(server.run(&place, &start).ok().json()["new"], true);
    let follow = ["runs", "list", "--ca", &cert];
    assert!(server.run(&place, &follow).ok().out.contains("greet"));
    // Another's certificate, and what the system trusts, are not it: nothing is asked.
    let other = certificate("two.pem");
    let failed = server.run(&place, &["runs", "list", "--ca", &other]);
    failed.fails(1, &["cannot be asked", "certificate", "--ca"]);
    let mut system = place.command(&["runs", "list", "--db", &server.url]);
    system
        .env("ROUNDEL_TOKEN", &server.token)
        .env("SSL_CERT_FILE", &other);
    said(&mut system).fails(1, &["certificate", "--ca"]);
    // Nor is a name that is not in it, of whoever signed it.
    let by_number = server.url.replace("localhost", "127.0.0.1");
    let mut named = place.command(&["runs", "list", "--db", &by_number, "--ca", &cert]);
    said(named.env("ROUNDEL_TOKEN", &server.token)).fails(1, &["certificate"]);
    server
        .run(&place, &["runs", "list", "--ca", &key])
        .fails(2, &["one.key", "PEM"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_followed_on_a_server_until_it_has_ended() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let server = Server::start(&place, "operator");
    server
        .run(&place, &["start", "ask", "\"why\"", "--key", "k"])
        .ok();
    let mut follow = place.command(&["runs", "show", "k", "--follow", "--json"]);
    follow
        .args(["--db", &server.url])
        .env("ROUNDEL_TOKEN", &server.token);
    let mut child = follow.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut told = Vec::new();
    while !told.iter().any(|line: &String| line.contains("answer")) {
        told.push(lines.next().expect("more").expect("a line"));
    }
    server
        .run(&place, &["signal", "k", "answer", "\"yes\""])
        .ok();
    told.extend(lines.map(|line| line.expect("a line")));
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{told:?}");
    // As by the database itself, and each entry once.
    let here = place
        .run(&["runs", "show", "k", "--follow", "--json"])
        .ok()
        .out;
    assert_eq!(told, here.lines().collect::<Vec<_>>());
    let shown = server
        .run(&place, &["runs", "show", "k", "--follow"])
        .ok()
        .out;
    assert!(shown.contains("completed"), "{shown}");
    // One that fails is answered so, and one that is not there is not followed.
    server.run(&place, &["start", "refuse", "--key", "r"]).ok();
    let refused = server.run(&place, &["runs", "show", "r", "--follow"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    server
        .run(&place, &["runs", "show", "no", "--follow"])
        .fails(3, &["404"]);
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_limited_and_many_are_mended_on_a_server() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let server = Server::start(&place, "operator");
    let ask = |args: &[&str]| server.run(&place, args);
    let set = [
        "queues",
        "set",
        "mail",
        "--concurrency",
        "5",
        "--rate",
        "100/1m",
        "--json",
    ];
    let limits = ask(&[&set[..], &["--reason", "calm"]].concat()).ok().json();
    assert_eq!(
        (&limits["concurrency"], &limits["per_key"]),
        (&5.into(), &Value::Null)
    );
    ask(&[
        "queues",
        "set",
        "mail",
        "--concurrency",
        "none",
        "--per-key",
        "2",
    ])
    .ok();
    let queues = ask(&["queues", "--json"]).ok().out;
    assert_eq!(queues, place.run(&["queues", "--json"]).ok().out);
    let limits: Value = serde_json::from_str(&queues).expect("JSON");
    assert_eq!(
        (&limits["concurrency"], &limits["per_key"]),
        (&Value::Null, &2.into())
    );
    assert!(queues.contains("100"), "{queues}");
    assert!(ask(&["audit", "--json"]).ok().out.contains("calm"));
    // Three are parked; a filter finds them, and nothing is done before somebody agrees.
    for key in ["a", "b", "c"] {
        ask(&["start", "break", "--key", key]).ok();
    }
    while ask(&["parked", "list", "--json"]).ok().out.lines().count() < 3 {}
    let cancel = ["parked", "cancel", "--code", "broken", "--json"];
    let dry = ask(&[&cancel[..], &["--dry-run"]].concat()).ok().json();
    assert_eq!(dry["found"], 3);
    ask(&cancel).fails(2, &["--yes"]);
    let none = ["parked", "cancel", "--code", "other", "--yes", "--json"];
    assert_eq!(ask(&none).ok().json()["done"], 0);
    ask(&["parked", "cancel", "a", "--dry-run"]).fails(2, &["dry-run"]);
    let yes = ["--yes", "--without-undo", "--reason", "enough"];
    assert_eq!(ask(&[&cancel[..], &yes].concat()).ok().json()["done"], 3);
    assert!(ask(&["parked", "list", "--json"]).ok().out.is_empty());
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_things_are_kept_is_set_on_a_server_by_those_who_may_delete() {
    let place = Place::new().await;
    let admin = Server::start(&place, "admin");
    let set = |args: &[&str]| admin.run(&place, &[&["retention", "set"], args].concat());
    assert_eq!(
        set(&["30d", "--json"]).ok().json()["ended"],
        2_592_000_000_u64
    );
    let greet = set(&["ever", "--workflow", "greet", "--reason", "law", "--json"]);
    assert_eq!(greet.ok().json()["workflows"]["greet"], "ever");
    let shown = place.run(&["retention", "show"]).ok().err;
    assert!(shown.contains("`greet` for ever"), "{shown}");
    // On a server it says the same, to whoever may look.
    let told = admin.run(&place, &["retention", "show"]).ok().out;
    assert_eq!(told, "kept: `greet` for ever, the rest 30 d\n");
    let told = admin
        .run(&place, &["retention", "show", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&told["ended"], &told["workflows"]["greet"]),
        (&2_592_000_000_u64.into(), &"ever".into())
    );
    assert_eq!(
        set(&["program", "--json"]).ok().json()["ended"],
        Value::Null
    );
}

/// Who listens, what was published, and that somebody listens no more.
fn subscribed(place: &Place, ask: &dyn Fn(&[&str]) -> Said) {
    ask(&[
        "topics",
        "subscribe",
        "news",
        "greet",
        "--reason",
        "curious",
    ])
    .ok();
    ask(&["publish", "news", "\"rain\""]).ok();
    let shown = ["topics", "show", "news", "--json"];
    assert_eq!(ask(&shown).ok().out, place.run(&shown).ok().out);
    assert_eq!(ask(&shown).ok().json()["heard"], 1);
    let left = ask(&["topics", "unsubscribe", "news", "greet", "--json"]);
    assert_eq!(left.ok().json()["changed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_and_subscriptions_are_set_on_a_server_as_on_its_database() {
    let place = Place::new().await;
    let server = Server::start(&place, "operator");
    let ask = |args: &[&str]| server.run(&place, args);
    let add = [
        "schedules",
        "add",
        "tea",
        "--workflow",
        "greet",
        "--input",
        "\"ada\"",
        "--cron",
        "30 3 * * mon-fri",
        "--zone",
        "Europe/Zurich",
        "--overlap",
        "queue",
        "--catch-up",
        "all",
        "--grace",
        "5min",
    ];
    let said = ask(&add).ok().out;
    assert!(said.starts_with("`tea` is new; next: "), "{said}");
    let shown = ask(&["schedules", "show", "tea", "--json"]).ok().json();
    assert_eq!(shown["grace_ms"], 300_000, "{shown}");
    assert_eq!(
        (&shown["overlap"], &shown["catch_up"]),
        (&"queue".into(), &"all".into())
    );
    assert!(
        place.run(&["schedules", "add"]).code == 2,
        "it needs to know what"
    );
    assert!(
        place.run(&add).ok().out.contains("as it was"),
        "the database says the same"
    );
    for args in [
        &["schedules", "next", "tea"][..],
        &["schedules", "next", "tea", "--count", "7", "--json"],
    ] {
        assert_eq!(ask(args).ok().out, place.run(args).ok().out, "{args:?}");
    }
    assert_eq!(
        ask(&["schedules", "next", "tea"]).ok().out.lines().count(),
        10
    );
    let range = ["--from", "2026-01-05", "--to", "2026-01-06"];
    let backfill = [&["schedules", "backfill", "tea", "--json"], &range[..]].concat();
    assert_eq!(ask(&backfill).ok().json()["times"], 1);
    subscribed(&place, &ask);
    assert_eq!(ask(&["schedules", "remove", "tea"]).ok().out, "done\n");
    ask(&["schedules", "show", "tea"]).fails(3, &["404"]);
    assert!(ask(&["audit", "--json"]).ok().out.contains("curious"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_parked_is_counted_and_mended_on_a_server_by_its_key() {
    let place = Place::new().await;
    let worker = place.worker().await;
    let server = Server::start(&place, "operator");
    let ask = |args: &[&str]| server.run(&place, args);
    for key in ["a", "b", "c"] {
        ask(&["start", "break", "--key", key]).ok();
    }
    while ask(&["parked", "count"]).ok().out.trim() != "3" {}
    for args in [
        &["parked", "count", "--json"][..],
        &["parked", "count", "--code", "other"],
    ] {
        assert_eq!(ask(args).ok().out, place.run(args).ok().out, "{args:?}");
    }
    ask(&["parked", "count", "--group", "x"]).fails(2, &["does not know `group`"]);
    ask(&["runs", "complete", "a", "\"by hand\"", "--reason", "done"]).ok();
    let outcome = ask(&["runs", "show", "a", "--json"]).ok().json()["outcome"].clone();
    assert_eq!(outcome["value"], "by hand", "{outcome}");
    // It is tried again, and parked again.
    let before = ask(&["runs", "show", "b", "--json"]).ok().json()["changed_at"].clone();
    ask(&["runs", "resume", "b"]).ok();
    while ask(&["runs", "show", "b", "--json"]).ok().json()["changed_at"] == before {}
    ask(&["parked", "cancel", "c"]).ok();
    ask(&["runs", "accept", "c"]).fails(1, &["409", "not parked"]);
    ask(&["runs", "complete", "no", "1"]).fails(3, &["404"]);
    // What would be undone is told first, and done only if somebody agrees.
    ask(&["start", "greet", "\"ada\"", "--key", "g"]).ok();
    while ask(&["runs", "show", "g", "--json"]).ok().json()["state"] != "completed" {}
    let preview = ["runs", "undo", "g", "--preview", "--json"];
    let (there, here) = (ask(&preview).ok().json(), place.run(&preview).ok().json());
    assert_eq!(there, here);
    ask(&["runs", "undo", "g", "--preview"]).ok();
    ask(&["runs", "undo", "g"]).fails(2, &["--yes"]);
    assert_eq!(
        ask(&["runs", "show", "g", "--json"]).ok().json()["state"],
        "completed"
    );
    ask(&["runs", "undo", "g", "--yes"]).ok();
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_and_documents_are_asked_of_a_server() {
    let place = Place::new().await;
    let server = Server::start_in(&place, "admin", "*");
    let ask = |args: &[&str]| server.run(&place, args);
    ask(&["start", "greet", "\"ada\"", "--key", "k"]).ok();
    for args in [
        &["sql", "SELECT 1 AS one, NULL AS two, 'x' AS one"][..],
        &["sql", "SELECT 1 AS one, NULL AS two, 'x' AS one", "--json"],
        &[
            "sql",
            "SELECT number FROM roundel_entry ORDER BY number",
            "--limit",
            "1",
            "--json",
        ],
        &["sql", "--views"],
    ] {
        assert_eq!(ask(args).ok().out, place.run(args).ok().out, "{args:?}");
    }
    let views = ask(&["sql", "--views", "--json"]).ok().out;
    assert!(views.contains("roundel_messages"), "{views}");
    ask(&["sql", "DELETE FROM roundel_run"]).fails(2, &["only"]);
    assert!(ask(&["documents", "list", "--json"]).ok().out.is_empty());
    assert!(
        ask(&["facts", "list", "--run", "k", "--json"])
            .ok()
            .out
            .is_empty()
    );
}
