//! A server over an engine in memory, and a client that sends bytes as they are.

use std::net::SocketAddr;
use std::time::Duration;

use roundel::{
    Attempt, Cx, Engine, EngineBuilder, Failure, Name, Result as RunResult, Retry, Signal,
    Timestamp, Workflow,
};
use roundel_server::{Limits, Role, Server, Serving, Token, Tokens};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
pub(crate) const BROKEN: Workflow<u64, u64> = Workflow::named("broken");
pub(crate) const WAITS: Workflow<u64, String> = Workflow::named("waits");
pub(crate) const ECHO: Workflow<String, String> = Workflow::named("echo");
pub(crate) const CROWD: Workflow<Vec<String>, String> = Workflow::named("crowd");
pub(crate) const STUBBORN: Workflow<u64, String> = Workflow::named("stubborn");
pub(crate) const WORD: Signal<String> = Signal::named("word");

/// Longer than anything here takes: a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

async fn double(_: Cx, number: u64) -> RunResult<u64> {
    Ok(number * 2)
}

async fn broken(_: Cx, _: u64) -> RunResult<u64> {
    Err(Failure::permanent("<script>alert(1)</script>"))
}

async fn waits(cx: Cx, _: u64) -> RunResult<String> {
    cx.wait(WORD).await
}

/// Fails with what it is given, everywhere that a failure is told.
async fn echo(cx: Cx, text: String) -> RunResult<String> {
    let done = |_: roundel::Attempt| async { Ok::<_, Failure>(text.clone()) };
    cx.effect("said", done).await?;
    Err(Failure::permanent(text.clone()).with_code(text))
}

/// Makes a call of each name, which fails with it before it comes to it, and waits.
async fn crowd(cx: Cx, names: Vec<String>) -> RunResult<String> {
    for name in names {
        let value = &name.clone();
        let call = |attempt: Attempt| async move {
            match attempt.number() {
                1 => Err(Failure::transient(value)),
                _ => Ok(value.clone()),
            }
        };
        let soon = Retry::fixed(2, Duration::from_millis(1));
        cx.effect(name, call).retry(soon).await?;
    }
    cx.wait(WORD).await
}

/// Makes a call that fails until this attempt, sleeps, and waits.
async fn stubborn(cx: Cx, until: u64) -> RunResult<String> {
    let call = |attempt: Attempt| async move {
        match u64::from(attempt.number()) {
            number if number < until => Err(Failure::transient(format!("no answer, {number}"))),
            number => Ok(number),
        }
    };
    let soon = Retry::fixed(9, Duration::from_millis(30));
    cx.effect("charge", call).retry(soon).await?;
    cx.sleep(Duration::from_millis(40)).await;
    cx.wait(WORD).await
}

/// A server, its engine and its tokens.
pub(crate) struct Place {
    pub(crate) engine: Engine,
    pub(crate) server: Server,
    pub(crate) serving: Serving,
    /// For one namespace, one for each role.
    pub(crate) tokens: Vec<(Role, Token)>,
    /// An administrator of all.
    pub(crate) root: Token,
    _folder: TempDir,
}

impl Place {
    pub(crate) async fn new() -> Place {
        Place::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Place {
        Place::over(Engine::in_memory(), limits).await
    }

    /// Over this engine, which gets the workflows of these tests.
    pub(crate) async fn over(engine: EngineBuilder, limits: Limits) -> Place {
        let engine = engine.register(DOUBLE, double);
        let engine = engine.register(BROKEN, broken).register(WAITS, waits);
        let engine = engine.register(ECHO, echo).register(CROWD, crowd);
        let engine = engine.register(STUBBORN, stubborn);
        let engine = engine.start().await.expect("an engine");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        let tokens = Tokens::at(&path).expect("no tokens yet");
        let mut made = Vec::new();
        for role in Role::ALL {
            let name = Name::new(role.as_str()).expect("a name");
            let places = vec!["default".to_owned()];
            let token = tokens.add((name, role), places, (Timestamp(0), None));
            made.push((role, token.expect("a token")));
        }
        let root = (Name::constant("root"), Role::Admin);
        let root = tokens.add(root, vec!["*".to_owned()], (Timestamp(0), None));
        let server = Server::over(engine.client()).tokens(tokens).limits(limits);
        let server = server.build();
        let serving = server
            .serve(([127, 0, 0, 1], 0).into())
            .await
            .expect("a port");
        Place {
            engine,
            server,
            serving,
            tokens: made,
            root: root.expect("a token"),
            _folder: folder,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    pub(crate) fn token(&self, role: Role) -> &str {
        let found = self.tokens.iter().find(|(known, _)| *known == role);
        found.expect("one of each").1.reveal()
    }

    /// A request by somebody of this role.
    pub(crate) async fn ask(&self, role: Role, what: &str, body: Option<&Value>) -> Answer {
        let token = format!("Authorization: Bearer {}\r\n", self.token(role));
        self.send(what, &token, body).await
    }

    /// A request by an administrator of all namespaces.
    pub(crate) async fn ask_as_root(&self, what: &str, body: Option<&Value>) -> Answer {
        let token = format!("Authorization: Bearer {}\r\n", self.root.reveal());
        self.send(what, &token, body).await
    }

    /// A request with these headers.
    pub(crate) async fn send(&self, what: &str, headers: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = "Content-Type: application/json\r\n";
        let head = format!(
            "{what} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}Content-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        self.raw((head + &body).as_bytes()).await
    }

    /// These bytes; what is answered, to the end.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address())
            .await
            .expect("a connection");
        // It may have heard enough before all is said.
        let _ = stream.write_all(bytes).await;
        let mut said = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said));
        let _ = read.await.expect("an answer in time");
        Answer::of(&said)
    }

    /// The head alone: of a stream, which has no end.
    pub(crate) async fn head(&self, bytes: &[u8]) -> (Answer, TcpStream) {
        let mut stream = TcpStream::connect(self.address())
            .await
            .expect("a connection");
        stream.write_all(bytes).await.expect("sent");
        let said = until(&mut stream, b"\r\n\r\n").await;
        (Answer::of(&said), stream)
    }
}

/// What comes until this does.
pub(crate) async fn until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    let reading = async {
        while !said.windows(end.len()).any(|part| part == end) {
            let mut part = [0; 4096];
            match stream.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(read) => said.extend_from_slice(&part[..read]),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("an answer in time");
    said
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn of(said: &[u8]) -> Answer {
        let said = String::from_utf8_lossy(said);
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or(0),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It is a problem of this kind.
    #[track_caller]
    pub(crate) fn is(&self, status: u16, code: &str) -> &Answer {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        assert_eq!(self.json()["code"], code, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Answer {
        assert_eq!(self.status, 200, "{self:?}");
        self
    }
}
