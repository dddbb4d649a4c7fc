//! A log for a server that runs by itself: one JSON object in a line, so that nothing that is told
//! in it can pretend to be another line, or steer a terminal.
//!
//! Absent on purpose: spans, files, levels by module. A program that wants more has a subscriber of
//! its own.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use roundel::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::view::time;

/// Writes what is told, from this level on.
pub struct Log {
    level: Level,
    out: Mutex<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log({})", self.level)
    }
}

impl Log {
    /// To this, from this level on.
    pub fn new(level: Level, out: impl Write + Send + 'static) -> Log {
        let out = Mutex::new(Box::new(out) as Box<dyn Write + Send>);
        Log { level, out }
    }

    /// From now on this process writes to it, unless it has a log already.
    pub fn install(self) {
        let _ = tracing::subscriber::set_global_default(self);
    }
}

/// What an event says.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0
            .insert(field.name().to_owned(), harmless(value).into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

/// JSON escapes the first 32 characters; these others steer terminals too.
fn harmless(text: &str) -> String {
    let steers = |c: char| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}');
        let c1 = matches!(c, '\u{7f}'..='\u{9f}');
        turns || c1 || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

impl Subscriber for Log {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event() && *about.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let about = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.map_or(0, |since| since.as_micros());
        let now = Timestamp(i64::try_from(micros).unwrap_or(i64::MAX));
        let mut line = Map::new();
        line.insert("at".into(), time::utc(now).into());
        line.insert("level".into(), about.level().as_str().to_lowercase().into());
        line.insert("from".into(), about.target().into());
        line.append(&mut fields.0);
        let line = format!("{}\n", Value::Object(line));
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(line.as_bytes());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn p2_nothing_that_is_told_can_make_a_line_or_steer_a_terminal() {
        let kept = Kept::default();
        let log = Log::new(Level::INFO, kept.clone());
        tracing::subscriber::with_default(log, || {
            let error = "no\n{\"level\":\"error\"}\r\x1b[2J\u{9b}1A\u{202e}";
            tracing::warn!(%error, count = 7_u64, "a request failed");
            tracing::debug!("not told");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        assert!(!text.contains(['\u{9b}', '\u{202e}']), "{text:?}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["count"]),
            (&"warn".into(), &7.into())
        );
        assert_eq!(line["message"], "a request failed");
    }
}
