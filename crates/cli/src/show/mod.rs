//! Showing things: to people, in lines that fit their terminal; to programs, as JSON.
//!
//! Nothing that came from a database reaches a terminal with control characters in it.

pub(crate) mod far;
pub(crate) mod table;
mod value;

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
pub(crate) use roundel_server::view::{Style, time};

use roundel::masked;
use serde_json::Value;
pub(crate) use value::as_value;

use crate::exit::{Failed, Result};

/// How to show what a command found.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Output {
    /// JSON, one object in a line.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Colours; `auto` means on a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Output"
    )]
    color: Color,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    fn on(self, terminal: bool) -> bool {
        match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                terminal && !refused && !dumb
            }
        }
    }
}

/// How a terminal is told what a text means.
fn code(style: Style) -> &'static str {
    match style {
        Style::Plain => "",
        Style::Head => "\x1b[1m",
        Style::Dim => "\x1b[2m",
        Style::Good => "\x1b[32m",
        Style::Bad => "\x1b[31m",
        Style::Look => "\x1b[33m",
        Style::Busy => "\x1b[36m",
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    color: bool,
    /// Columns, if it is a terminal.
    pub(crate) width: Option<usize>,
    /// Nobody reads any more.
    pub(crate) left: bool,
    text: String,
}

impl Output {
    pub(crate) fn screen(&self) -> Screen {
        let terminal = io::stdout().is_terminal();
        Screen {
            color: self.color.on(terminal),
            width: terminal.then(columns).flatten(),
            left: false,
            text: String::new(),
        }
    }

    /// Says what went wrong, where people look.
    pub(crate) fn complain(&self, failed: &Failed) {
        let color = self.color.on(io::stderr().is_terminal());
        let (on, off) = if color {
            ("\x1b[1;31m", "\x1b[0m")
        } else {
            ("", "")
        };
        let lines: Vec<String> = failed.message.lines().map(clean).collect();
        let _ = writeln!(io::stderr(), "{on}error:{off} {}", lines.join("\n  "));
    }

    /// Something to know that is not the answer.
    pub(crate) fn note(&self, text: &str) {
        let _ = writeln!(io::stderr(), "note: {}", clean(text));
    }
}

/// As the terminal says, or whoever set COLUMNS.
fn columns() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok();
    let set = set.and_then(|text| text.parse().ok());
    let size = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    set.or_else(size).filter(|width| *width >= 20)
}

impl Screen {
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub(crate) fn json(&mut self, value: &Value) {
        self.line(&masked(&value.to_string()));
    }

    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        if !self.color || style == Style::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("{}{text}\x1b[0m", code(style))
    }

    /// The text, cut to what is left of a line after so many columns; whole if it is not a
    /// terminal's.
    pub(crate) fn fit(&self, text: &str, taken: usize) -> String {
        match self.width {
            None => text.to_owned(),
            Some(width) => cut(text, width.saturating_sub(taken).max(8)),
        }
    }

    /// Lines of whole words that fit beside so many columns; one line if it is not a terminal's.
    pub(crate) fn wrapped(&self, text: &str, taken: usize) -> Vec<String> {
        let Some(width) = self.width else {
            return vec![clean(text)];
        };
        let room = width.saturating_sub(taken).max(20);
        let mut lines = vec![String::new()];
        for word in clean(text).split_whitespace() {
            let line = lines.last_mut().expect("never empty");
            let length = line.chars().count() + 1 + word.chars().count();
            if line.is_empty() {
                line.push_str(word);
            } else if length <= room {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines
    }

    /// What there is, to be written by another.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Writes what there is. Whoever looked may have gone; that is no error.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.left = true;
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

/// The text without what would move a cursor, ring a bell or turn the line around; and what is
/// sealed, and could not be opened, as that.
pub(crate) fn clean(text: &str) -> String {
    let text = &*masked(text);
    let hidden = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}');
        c.is_control() || turns || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// At most so many characters; what is cut ends with an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let text = &*masked(text);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

/// How far long work is, on standard error, if somebody sits there.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    last: Option<std::time::Instant>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let shown = io::stderr().is_terminal();
        Progress { shown, last: None }
    }

    pub(crate) fn say(&mut self, text: &str) {
        let now = std::time::Instant::now();
        let soon = self
            .last
            .is_some_and(|last| now.duration_since(last).as_millis() < 100);
        if !self.shown || soon {
            return;
        }
        self.last = Some(now);
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown && self.last.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_what_would_steer_a_terminal_is_shown_as_text() {
        assert_eq!(
            clean("a\x1b[2Jb\u{9b}c\u{202e}d"),
            "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d"
        );
        assert_eq!(clean("Bestellung Nº 7 ✓"), "Bestellung Nº 7 ✓");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
