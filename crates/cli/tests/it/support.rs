//! The real binary, in a folder of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use roundel::{Cx, Engine, Failure, Result as RunResult, Signal, Workflow};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It ended like this, and said all of this about it.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) -> &Said {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.starts_with("error: "), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is missing: {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Said {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// One JSON object.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A folder with a database in it, `runs.db`.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    /// An empty folder.
    pub(crate) fn empty() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        Place { folder }
    }

    /// With a database, and nothing in it.
    pub(crate) async fn new() -> Place {
        let place = Place::empty();
        place.worker().await.shutdown().await;
        place
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("runs.db")
    }

    /// The binary, without what this process has in its environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_roundel"));
        command.args(args).current_dir(self.folder.path());
        for name in ["ROUNDEL_DB", "NO_COLOR", "COLUMNS"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the command on the database.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        said(self.command(args).args(["--db", "runs.db"]))
    }

    /// Changes the file behind the engine's back.
    pub(crate) fn sql(&self, sql: &str) {
        let connection = Connection::open(self.db()).expect("the file");
        connection.execute_batch(sql).expect("a change");
    }

    /// A process that works on the database: this one.
    pub(crate) async fn worker(&self) -> Engine {
        let engine = Engine::open(self.db())
            .register(GREET, greet)
            .register(ASK, ask)
            .register(REFUSE, refuse)
            .register(BREAK, breaks);
        engine.start().await.expect("an engine")
    }
}

pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said {
        code: output.status.code().expect("it was not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub(crate) const GREET: Workflow<String, String> = Workflow::named("greet");
pub(crate) const ASK: Workflow<String, String> = Workflow::named("ask");
pub(crate) const REFUSE: Workflow<(), ()> = Workflow::named("refuse");
const BREAK: Workflow<(), ()> = Workflow::named("break");
const ANSWER: Signal<String> = Signal::named("answer");

async fn hello(name: &str) -> RunResult<String> {
    Ok(format!("hello {name}"))
}

async fn greet(cx: Cx, name: String) -> RunResult<String> {
    cx.effect("say", |_| hello(&name)).await
}

async fn ask(cx: Cx, question: String) -> RunResult<String> {
    let greeting = cx.child(GREET, &question).await?;
    let answer = cx
        .wait(ANSWER)
        .within(std::time::Duration::from_secs(3600))
        .await?;
    Ok(format!("{greeting}: {answer}"))
}

async fn refuse(_: Cx, (): ()) -> RunResult<()> {
    Err(roundel::Failure::business("we are closed"))
}

async fn breaks(_: Cx, (): ()) -> RunResult<()> {
    Err(Failure::permanent("the machine is broken").with_code("broken"))
}
