//! The pipe to the browser: JSON, each message ended by a zero byte; answers by number, and events.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::{Value, json};

/// Longer than anything takes: a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The browser reads from descriptor 3 and writes to 4: a shell puts the pipes there.
const SHELL: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

const SWITCHES: &[&str] = &[
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--mute-audio",
    "about:blank",
];

type Waiting = Arc<Mutex<HashMap<u64, Sender<Value>>>>;

/// A browser's process, and what is under way to it.
#[derive(Debug)]
pub(crate) struct Wire {
    child: Child,
    to: Mutex<(ChildStdin, u64)>,
    waiting: Waiting,
    events: Arc<Mutex<Vec<Value>>>,
    profile: PathBuf,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wire {
    pub(crate) fn open(program: &Path) -> std::io::Result<Wire> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("roundel-testweb-{}-{number}", std::process::id());
        let profile = env::temp_dir().join(name);
        fs::create_dir_all(&profile)?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(SHELL).arg(program).args(SWITCHES);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn()?;
        let to = child.stdin.take().expect("piped");
        let from = child.stdout.take().expect("piped");
        let (waiting, events) = (Waiting::default(), Arc::new(Mutex::new(Vec::new())));
        let heard = (waiting.clone(), events.clone());
        thread::spawn(move || hear(from, &heard.0, &heard.1));
        Ok(Wire {
            child,
            to: Mutex::new((to, 0)),
            waiting,
            events,
            profile,
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Panics
    /// When there is none, or when it is an error: the test cannot go on.
    pub(crate) fn ask(&self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let answer = self.try_ask(session, method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Asks, and waits for the answer, which may be an error.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn try_ask(&self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let answer = self.send(session, method, params);
        match answer.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("{method} is not answered"),
            Err(RecvTimeoutError::Disconnected) => panic!("the browser has gone at {method}"),
        }
    }

    fn send(&self, session: Option<&str>, method: &str, params: &Value) -> Receiver<Value> {
        let (told, answer) = channel();
        let mut to = lock(&self.to);
        to.1 += 1;
        let mut message = json!({"id": to.1, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        lock(&self.waiting).insert(to.1, told);
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        if to.0.write_all(&bytes).is_err() {
            lock(&self.waiting).clear();
        }
        answer
    }

    /// What was told of this session without being asked for, so far.
    pub(crate) fn events(&self, session: &str) -> Vec<Value> {
        let events = lock(&self.events);
        let its = events.iter().filter(|event| event["sessionId"] == session);
        its.cloned().collect()
    }
}

fn hear(from: ChildStdout, waiting: &Waiting, events: &Mutex<Vec<Value>>) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while from.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        bytes.clear();
        match message["id"].as_u64() {
            Some(id) => {
                let told = lock(waiting).remove(&id);
                let _ = told.map(|told| told.send(message));
            }
            None => lock(events).push(message),
        }
    }
    // Whoever still waits is told that nobody answers.
    lock(waiting).clear();
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
