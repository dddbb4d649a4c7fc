//! The machine: what it is, and how busy.

use std::fs;
use std::process::Command;
use std::time::Instant;

/// Ticks of the kernel's clock in a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

/// How busy the machine is from a moment on.
pub(super) struct Busy {
    begun: Instant,
    ticks: u64,
}

impl Busy {
    pub(super) fn begin() -> Busy {
        Busy {
            begun: Instant::now(),
            ticks: ticks(),
        }
    }

    /// Processors in use since then, on average; whoever used them.
    pub(super) fn end(&self) -> f64 {
        let ticks = ticks().saturating_sub(self.ticks);
        ticks as f64 / TICKS / self.begun.elapsed().as_secs_f64()
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
