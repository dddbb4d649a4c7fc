//! A program that is run for what it prints, and for no longer than it may.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a program wrote to both of its outputs.
pub(super) fn output(mut command: Command, patience: Duration) -> Result<String, String> {
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
    let ended = wait(&mut child, patience);
    // Also what it left running would keep the machine busy.
    stop_group(child.id());
    let _ = child.wait();
    let said = out.join().unwrap_or_default();
    let complained = err.join().unwrap_or_default();
    match ended {
        Some(true) => Ok(said),
        Some(false) => Err(format!("it failed: {}", last_lines(&complained, &said))),
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

fn collect<R: Read + Send + 'static>(from: Option<R>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether it succeeded; nothing if it did not end in time.
fn wait(child: &mut Child, patience: Duration) -> Option<bool> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
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
