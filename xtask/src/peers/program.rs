//! A program that is run for what it prints, and for no longer than it may.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::machine::Looks;
use super::read::has_figures;

/// What came, and when the last line of figures did.
type Said = (String, Option<Instant>);

/// What a program said.
pub(super) struct Output {
    pub(super) text: String,
    /// When the last line of figures came.
    pub(super) figures_at: Option<Instant>,
    /// How busy the machine was while it ran.
    pub(super) looks: Looks,
}

/// Runs it until it ends.
pub(super) fn output(mut command: Command, patience: Duration) -> Result<Output, String> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that what it started goes with it.
    command.process_group(0);
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let out = collect(child.stdout.take());
    let err = collect(child.stderr.take());
    let mut looks = Looks::default();
    let ended = wait(&mut child, patience, &mut looks);
    // Also what it left running would keep the machine busy.
    stop_group(child.id());
    let _ = child.wait();
    let (text, figures_at) = out.join().unwrap_or_default();
    let (complained, _) = err.join().unwrap_or_default();
    match ended {
        Some(true) => Ok(Output {
            text,
            figures_at,
            looks,
        }),
        Some(false) => Err(format!("it failed: {}", last_lines(&complained, &text))),
        None => Err(format!("it took more than {} s", patience.as_secs())),
    }
}

/// Ends every process of the group that this one leads.
pub(super) fn stop_group(leader: u32) {
    let _ = Command::new("kill")
        .args(["-KILL", "--", &format!("-{leader}")])
        .stderr(Stdio::null())
        .status();
}

/// Everything that comes, and when the last line of figures came.
fn collect<R: Read + Send + 'static>(from: Option<R>) -> thread::JoinHandle<Said> {
    thread::spawn(move || {
        let (mut text, mut figures_at) = (String::new(), None);
        let Some(from) = from else {
            return (text, figures_at);
        };
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let said = String::from_utf8_lossy(&line);
            if has_figures(&said) {
                figures_at = Some(Instant::now());
            }
            text.push_str(&said);
            line.clear();
        }
        (text, figures_at)
    })
}

/// Whether it succeeded; nothing if it did not end in time.
fn wait(child: &mut Child, patience: Duration, looks: &mut Looks) -> Option<bool> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        looks.look();
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(_) => return Some(false),
        }
    }
    None
}

fn last_lines(complained: &str, said: &str) -> String {
    let text = if complained.trim().is_empty() {
        said
    } else {
        complained
    };
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join(" / ")
}
