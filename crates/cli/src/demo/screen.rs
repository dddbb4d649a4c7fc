//! What people see while it runs: lines, and below them a bar if they sit at a terminal.

use std::io::{IsTerminal, Write};

/// How wide the bar itself is; the whole line stays below 80 columns.
const BAR: usize = 24;

/// How far the demo is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) done: u64,
    pub(super) orders: u64,
    pub(super) parcels: u64,
    pub(super) busy: u64,
}

/// Where it is shown.
#[derive(Debug, PartialEq)]
enum Kind {
    Terminal,
    /// Lines only; a line for every quarter.
    Plain {
        quarters: u64,
    },
    Silent,
}

#[derive(Debug)]
pub(super) struct Screen {
    kind: Kind,
    last: Option<Progress>,
}

impl Screen {
    /// On standard output, unless that is for programs.
    pub(super) fn new(json: bool) -> Screen {
        let kind = if json {
            Kind::Silent
        } else if std::io::stdout().is_terminal() {
            Kind::Terminal
        } else {
            Kind::Plain { quarters: 0 }
        };
        Screen { kind, last: None }
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, text: &str) {
        match self.kind {
            Kind::Silent => {}
            Kind::Plain { .. } => show(&format!("{text}\n")),
            Kind::Terminal => {
                show(&format!("\r\x1b[K{text}\n"));
                if let Some(progress) = self.last {
                    show(&bar(progress));
                }
            }
        }
    }

    /// Shows how far it is.
    pub(super) fn progress(&mut self, now: Progress) {
        let before = self.last.replace(now);
        match &mut self.kind {
            Kind::Terminal if before != Some(now) => show(&format!("\r\x1b[K{}", bar(now))),
            Kind::Plain { quarters } => {
                let reached = now.done * 4 / now.orders.max(1);
                if reached > *quarters {
                    *quarters = reached;
                    show(&format!("{} of {} orders done\n", now.done, now.orders));
                }
            }
            Kind::Terminal | Kind::Silent => {}
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if self.kind == Kind::Terminal {
            show("\r\x1b[K");
        }
        self.last = None;
    }
}

/// Nobody may be looking any more; that is no reason to stop.
fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn bar(progress: Progress) -> String {
    let Progress {
        done,
        orders,
        parcels,
        busy,
    } = progress;
    let part = done as f64 / orders.max(1) as f64;
    let full = ((part * BAR as f64) as usize).min(BAR);
    let (full, rest) = ("#".repeat(full), "-".repeat(BAR - full));
    format!("  [{full}{rest}] {done}/{orders} orders, {parcels} parcels, {busy} retries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fits_80_columns() {
        let (done, orders) = (9_999, 10_000);
        let (parcels, busy) = (30_000, 30_000);
        let line = bar(Progress {
            done,
            orders,
            parcels,
            busy,
        });
        assert!(line.len() < 80, "{line}");
        assert!(
            line.contains(&format!("{}-]", "#".repeat(BAR - 1))),
            "{line}"
        );
    }
}
