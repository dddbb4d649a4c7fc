//! Secrets that are seeded everywhere occur nowhere that they should not (P1, INV27).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{Cx, Engine, Failure, Name, Result as RunResult, Signal, Timestamp, Tx, Workflow};
use roundel_cli::Database;
use roundel_server::{Log, Role, Server, Tokens};

use crate::support::{Place, said};

const PAYLOAD: &str = "canary-of-payloads";
const RESULT: &str = "canary-of-results";
const SIGNAL: &str = "canary-of-signals";
const PASSWORD: &str = "canary-of-passwords";
const TOKEN: &str = "roundel_canaryoftokens";

const TAKES: Workflow<String, String> = Workflow::named("takes");
const STOPS: Workflow<String, String> = Workflow::named("stops");
const COUNTS: Workflow<u64, u64> = Workflow::named("counts");
const WORD: Signal<String> = Signal::named("word");

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("kept")).into_owned()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("kept").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn takes(cx: Cx, given: String) -> RunResult<String> {
    let step = cx.step("writes", |tx: Tx| {
        let given = given.clone();
        async move {
            tx.execute("CREATE TABLE IF NOT EXISTS kept (what TEXT UNIQUE)", ())
                .await?;
            tx.execute("INSERT INTO kept VALUES ($1)", (given.clone(),))
                .await?;
            // It is there already: the database says no.
            let twice = tx.execute("INSERT INTO kept VALUES ($1)", (given,)).await;
            assert!(twice.is_err());
            Ok::<_, Failure>(())
        }
    });
    step.await?;
    cx.effect("answers", |_| async { Ok::<_, Failure>(RESULT.to_owned()) })
        .await?;
    cx.wait(WORD).await
}

async fn stops(_: Cx, _: String) -> RunResult<String> {
    panic!("it cannot go on")
}

async fn counts(_: Cx, number: u64) -> RunResult<u64> {
    Ok(number)
}

fn ask(at: SocketAddr, what: &str, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("a connection");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a limit");
    let head = format!(
        "{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).expect("sent");
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    said
}

#[track_caller]
fn without_canaries(what: &str, text: &str, more: &[&str]) {
    for canary in [PAYLOAD, RESULT, SIGNAL, PASSWORD, TOKEN]
        .iter()
        .chain(more)
    {
        assert!(!text.contains(*canary), "{canary} in {what}: {text}");
    }
}

/// Tokens, one of them, and its secret; told nowhere but to its holder.
fn tokens(folder: &Path) -> (Tokens, String) {
    let path = folder.join("tokens.json");
    let tokens = Tokens::at(&path).expect("no tokens yet");
    let (name, all) = (Name::constant("ada"), vec!["default".to_owned()]);
    let token = tokens.add((name, Role::Admin), all, (Timestamp(0), None));
    let token = token.expect("a token");
    let secret = token.reveal().to_owned();
    let file = std::fs::read_to_string(&path).expect("the file");
    for (what, text) in [
        ("a token's debug form", format!("{token:?}")),
        ("the tokens' debug form", format!("{tokens:?}")),
        ("the file of tokens", file),
    ] {
        without_canaries(what, &text, &[&secret]);
    }
    (tokens, secret)
}

/// What is refused is not repeated.
fn refused(at: SocketAddr, secret: &str) {
    let quoted = format!("\"{PAYLOAD}\"");
    for (what, token, body) in [
        (
            "POST /api/v1/default/runs",
            secret,
            format!("{{\"workflow\":\"{PAYLOAD}"),
        ),
        (
            "POST /api/v1/default/runs",
            secret,
            format!("{{\"input\":{quoted}}}"),
        ),
        ("POST /api/v1/default/runs", secret, format!("[{quoted}]")),
        ("GET /api/v1/default/runs", TOKEN, String::new()),
        ("POST /api/v1/default/runs", TOKEN, quoted.clone()),
        ("DELETE /api/v1/default/runs", secret, quoted.clone()),
        (
            "POST /api/v1/other/runs",
            secret,
            format!("{{\"workflow\":\"x\",\"input\":{quoted}}}"),
        ),
    ] {
        let answer = ask(at, what, token, &body);
        assert!(answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
        without_canaries(what, &answer, &[secret]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_inv27_seeded_secrets_are_in_no_log_metric_or_error() {
    let kept = Kept::default();
    Log::new(tracing::Level::INFO, kept.clone()).install();
    tracing::info!("the log is read");
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::open(folder.path().join("shop.db"))
        .register(TAKES, takes)
        .register(STOPS, stops)
        .register(COUNTS, counts);
    let engine = engine.start().await.expect("an engine");
    let (tokens, secret) = tokens(folder.path());
    let server = Server::over(engine.client()).tokens(tokens).build();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await;
    let serving = serving.expect("a port");
    let at = serving.address();
    // One that waits, one that panics, one whose input does not fit its type.
    for workflow in ["takes", "stops", "counts"] {
        let body = format!("{{\"workflow\":\"{workflow}\",\"input\":\"{PAYLOAD}\"}}");
        let answer = ask(at, "POST /api/v1/default/runs", &secret, &body);
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    let given = format!("{PAYLOAD} again");
    let mut run = engine.start(TAKES, &given).await.expect("a run");
    let sent = engine.signal(run.id(), WORD, &SIGNAL.to_owned()).await;
    sent.expect("a signal");
    assert_eq!(run.result().await.expect("a result"), SIGNAL);
    for _ in 0..500 {
        if engine.parked().count().await.expect("a count") >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let parked = engine.parked().fetch().await.expect("a page").items;
    assert_eq!(parked.len(), 2);
    for trouble in &parked {
        let reason = trouble.why().expect("a reason");
        without_canaries("a failure", &format!("{reason} {reason:?}"), &[&secret]);
    }
    refused(at, &secret);
    for what in ["GET /metrics", "GET /api/v1/default/counts", "GET /healthz"] {
        without_canaries(what, &ask(at, what, &secret, ""), &[&secret]);
    }
    serving.stop().await;
    engine.shutdown().await;
    let log = kept.text();
    assert!(log.contains("the log is read"), "{log}");
    without_canaries("the log", &log, &[&secret]);
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_the_password_of_a_database_is_in_no_error() {
    for url in [
        format!("postgres://ada:{PASSWORD}@127.0.0.1:1/shop"),
        format!("postgres://ada:{PASSWORD}@127.0.0.1:nowhere/shop"),
        format!("postgres://ada:{PASSWORD}@/shop?host=/nowhere&password={PASSWORD}"),
        format!("postgres://ada@127.0.0.1:1/shop?password={PASSWORD}"),
        format!("postgres://ada:{PASSWORD}@127.0.0.1:1/shop?sslmode=strange"),
    ] {
        let short = Duration::from_secs(2);
        let error = Engine::open(&url).answer_within(short).start().await;
        let error = error.expect_err("nobody is there");
        without_canaries("an error", &format!("{error} {error:?}"), &[]);
        let database = Database::file(&url);
        without_canaries("a database's debug form", &format!("{database:?}"), &[]);
        let place = Place::empty();
        let told = said(place.command(&["runs", "list"]).env("ROUNDEL_DB", &url));
        assert_ne!(told.code, 0, "{url}");
        without_canaries(
            "what a command says",
            &format!("{}{}", told.out, told.err),
            &[],
        );
    }
}
