//! `top`: once, where there is no terminal; live, where there is one, which is given back.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{ASK, Place};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_looks_once() {
    let place = Place::new().await;
    let worker = place.worker().await;
    worker.start(ASK, &"why".to_owned()).key("k").await.unwrap();
    place.run(&["start", "break", "--key", "b"]).ok();
    place.run(&["start", "refuse", "--key", "r"]).ok();
    place.run(&["queues", "pause", "mail"]).ok();
    let top = || place.run(&["top", "--json"]).ok().json();
    while top()["states"]["parked"] != 1 || top()["failed"].as_array().map(Vec::len) != Some(1) {}
    let seen = top();
    assert_eq!(seen["workers"].as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(seen["queues"][0]["paused"], true, "{seen}");
    let lines = place.run(&["top", "--once"]).ok().out;
    for part in [
        "1 parked",
        "workflow",
        "ask",
        "mail",
        "paused",
        "the machine is broken",
        "closed",
    ] {
        assert!(lines.contains(part), "`{part}` is missing: {lines}");
    }
    assert!(!lines.contains('\x1b'), "{lines}");
    worker.shutdown().await;
    // What is ready and waits is told, with the time.
    place.run(&["start", "greet", "\"Ada\""]).ok();
    assert!(top()["oldest_ready_at"].as_i64().is_some());
    assert!(
        place
            .run(&["top", "--once"])
            .ok()
            .out
            .contains("longest ready: ")
    );
}

/// A terminal of `tmux`, which goes with this value.
struct Terminal(String);

impl Terminal {
    /// None where there is no tmux.
    fn start(place: &Place, command: &str) -> Option<Terminal> {
        let name = format!(
            "roundel-{}-{}",
            std::process::id(),
            place.folder.path().display()
        );
        let name = name.replace(['/', '.'], "-");
        let folder = place.folder.path().to_str()?;
        let started = Command::new("tmux")
            .args([
                "-L",
                &name,
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-x",
                "100",
                "-y",
                "30",
            ])
            .args(["-c", folder, command])
            .status();
        started.ok()?.success().then_some(Terminal(name))
    }

    fn tmux(&self, args: &[&str]) -> String {
        let done = Command::new("tmux")
            .args(["-L", &self.0])
            .args(args)
            .output();
        String::from_utf8_lossy(&done.expect("tmux").stdout).into_owned()
    }

    fn shows(&self, part: &str) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if screen.contains(part) {
                return screen;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "no `{part}` in:\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_terminal_it_is_live_and_gives_the_terminal_back() {
    let place = Place::new().await;
    let program = env!("CARGO_BIN_EXE_roundel");
    // Whatever it was before must be so again: what the terminal says of itself, and the screen.
    let script = format!(
        "stty -a > before; echo first; {program} top --db runs.db; echo left $?; stty -a > after; \
         read line; {program} top --db runs.db; echo again $?; sleep 600"
    );
    let Some(terminal) = Terminal::start(&place, &script) else {
        eprintln!("skipped: there is no tmux");
        return;
    };
    let screen = terminal.shows("0 ready");
    assert!(
        !screen.contains("first"),
        "it has a screen of its own:\n{screen}"
    );
    let worker = place.worker().await;
    worker.start(ASK, &"why".to_owned()).key("k").await.unwrap();
    terminal.shows("1 waiting");
    terminal.tmux(&["resize-window", "-x", "60", "-y", "12"]);
    let screen = terminal.shows("1 waiting");
    assert!(
        screen.lines().all(|line| line.chars().count() <= 60),
        "{screen}"
    );
    terminal.tmux(&["send-keys", "q"]);
    let screen = terminal.shows("left 0");
    assert!(
        screen.contains("first"),
        "the screen is as it was:\n{screen}"
    );
    let modes = |name: &str| {
        let text = std::fs::read_to_string(place.folder.path().join(name)).unwrap();
        // The size was changed meanwhile.
        text.lines().skip(1).collect::<Vec<_>>().join("\n")
    };
    terminal.tmux(&["send-keys", "Enter"]);
    terminal.shows("1 waiting");
    assert_eq!(modes("before"), modes("after"));
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.shows("again 0");
    worker.shutdown().await;
}
