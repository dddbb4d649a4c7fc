//! The machine: what it is, and how busy.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Ticks of the kernel's clock in a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

/// How busy the machine was, looked at again and again.
#[derive(Default)]
pub(super) struct Looks(Vec<(Instant, u64)>);

impl Looks {
    pub(super) fn look(&mut self) {
        self.note(Instant::now(), ticks());
    }

    pub(super) fn note(&mut self, at: Instant, ticks: u64) {
        self.0.push((at, ticks));
    }

    /// Processors in use, by whomever, on average over so long before a moment.
    pub(super) fn before(&self, end: Instant, time: Duration) -> Option<f64> {
        let first = self.0.first()?.0;
        let begin = end.checked_sub(time).unwrap_or(first).max(first);
        let ticks = self.at(end)? - self.at(begin)?;
        let seconds = end.checked_duration_since(begin)?.as_secs_f64();
        (seconds > 0.0).then(|| ticks / TICKS / seconds)
    }

    /// Ticks at a moment, as if they came evenly between two looks.
    fn at(&self, moment: Instant) -> Option<f64> {
        let after = self.0.iter().position(|(at, _)| *at >= moment);
        let (before, after) = match after {
            None => return Some(self.0.last()?.1 as f64),
            Some(0) => return Some(self.0.first()?.1 as f64),
            Some(after) => (self.0[after - 1], self.0[after]),
        };
        let part = (moment - before.0).as_secs_f64() / (after.0 - before.0).as_secs_f64();
        Some(before.1 as f64 + part * (after.1 - before.1) as f64)
    }
}

fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&stat)
}

/// The first line is `cpu user nice system idle iowait irq softirq steal`, and more.
pub(super) fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let numbers = line.split_whitespace().skip(1).map(|word| word.parse());
    let numbers: Vec<u64> = numbers.map_while(Result::ok).collect();
    let of = |at: usize| numbers.get(at).copied().unwrap_or(0);
    of(0) + of(1) + of(2) + of(5) + of(6)
}

/// In a line: processors, memory, system.
pub(super) fn describe() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpu, "model name").unwrap_or_else(|| "processors".to_owned());
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = field(&memory, "MemTotal").unwrap_or_default();
    let kilobytes: u64 = kilobytes
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or_default();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = said("uname", &["-sr"]);
    format!(
        "{count} x {model}, {} GiB of memory, {kernel}",
        (kilobytes + 512 * 1024) / (1024 * 1024)
    )
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The first line that a command prints; nothing if there is no such command.
pub(super) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    text.lines().next().unwrap_or_default().trim().to_owned()
}
