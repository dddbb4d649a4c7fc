//! Traces, as OpenTelemetry has them: which trace a run is part of, and which span it is, and each
//! of its calls. Both follow from what is recorded, so nothing is written for them, whoever tells
//! of a span gives it the same number, and a call that is repeated after a crash stays one span.
//!
//! A run is in the trace that its context names, by the header `traceparent` of W3C Trace Context;
//! else its root is the trace. Who exports spans is the server's crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roundel_core::{RunId, digest};
use tokio::sync::mpsc;

use crate::cx::Attempt;
use crate::{Client, Key};

/// The trace that a run is part of, in its context: a `traceparent` header.
///
/// ```
/// use roundel::{Trace, TRACEPARENT};
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(Trace::parse(header).unwrap().to_string(), header);
/// # let _ = TRACEPARENT;
/// ```
pub const TRACEPARENT: Key<String> = Key::named("traceparent");

/// A place in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Which trace.
    pub id: u128,
    /// Which span of it.
    pub span: u64,
    /// Somebody keeps what it is told of it.
    pub sampled: bool,
}

impl Trace {
    /// What the header says; none if it is not one.
    #[must_use]
    pub fn parse(header: &str) -> Option<Trace> {
        let hex = |text: &str, digits: usize| {
            let fits = text.len() == digits;
            let plain = text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            u128::from_str_radix(text, 16)
                .ok()
                .filter(|_| fits && plain)
        };
        let mut parts = header.split('-');
        let version = hex(parts.next()?, 2)?;
        let (id, span) = (hex(parts.next()?, 32)?, hex(parts.next()?, 16)?);
        let flags = hex(parts.next()?, 2)?;
        // Later versions may say more; this one may not.
        let whole = parts.next().is_none() || version != 0;
        let valid = version != 0xff && id != 0 && span != 0 && whole;
        valid.then(|| Trace {
            id,
            span: u64::try_from(span).unwrap_or_default(),
            sampled: flags & 1 == 1,
        })
    }

    /// The trace of a tree whose context names none: its root.
    #[must_use]
    pub fn of_root(root: RunId) -> Trace {
        Trace {
            id: root.0.as_u128(),
            span: 0,
            sampled: true,
        }
    }

    /// The span that a run is.
    #[must_use]
    pub fn span_of_run(run: RunId) -> u64 {
        number(&[run.as_bytes()])
    }

    /// The span that a call is.
    #[must_use]
    pub fn span_of_call(run: RunId, execution: u32, call: u32) -> u64 {
        let (execution, call) = (execution.to_be_bytes(), call.to_be_bytes());
        number(&[&run.as_bytes()[..], &execution, &call])
    }
}

/// Never zero, which is no span.
fn number(parts: &[impl AsRef<[u8]>]) -> u64 {
    let digest = digest(parts);
    let mixed = (digest >> 64) ^ digest;
    u64::try_from(mixed & u128::from(u64::MAX))
        .unwrap_or_default()
        .max(1)
}

impl std::fmt::Display for Trace {
    /// As the header says it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.id, self.span)
    }
}

impl Attempt {
    /// The header `traceparent` for services that are called: they become part of the run's trace,
    /// below this call. None unless the run's context names a trace.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let trace = Trace::parse(&self.context(TRACEPARENT).ok()??)?;
        let (execution, call) = self.place();
        let span = Trace::span_of_call(self.run(), execution, call);
        Some(Trace { span, ..trace }.to_string())
    }
}

/// Runs that end, as they do, or once they have.
#[derive(Debug)]
pub struct Ends {
    receiver: mpsc::Receiver<RunId>,
    feed: Arc<Feed>,
}

/// Where they come from.
#[derive(Debug)]
pub(crate) struct Feed {
    sender: mpsc::Sender<RunId>,
    missed: AtomicU64,
}

impl Feed {
    /// A run has ended. Nobody waits for whoever listens. Says whether anybody does.
    pub(crate) fn tell(&self, run: RunId) -> bool {
        match self.sender.try_send(run) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.miss();
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

impl Feed {
    pub(crate) fn is_heard(&self) -> bool {
        !self.sender.is_closed()
    }

    /// A run has ended. Waits until there is room, unless nobody listens.
    pub(crate) async fn tell_in_turn(&self, run: RunId) {
        let _ = self.sender.send(run).await;
    }

    /// One will never be told.
    pub(crate) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Once nobody listens any more.
    pub(crate) async fn unheard(&self) {
        self.sender.closed().await;
    }
}

impl Client {
    /// Runs that end by commits of this process, in all namespaces, from now on. As many wait to be
    /// read as there is room for; the engine waits for nobody, and others are missed.
    #[must_use]
    pub fn ends(&self, room: usize) -> Ends {
        let (ends, feed) = Ends::with_room(room);
        self.inner.rests.feed(feed);
        ends
    }
}

impl Ends {
    pub(crate) fn with_room(room: usize) -> (Ends, Arc<Feed>) {
        let (sender, receiver) = mpsc::channel(room.max(1));
        let missed = AtomicU64::new(0);
        let feed = Arc::new(Feed { sender, missed });
        let ends = Ends {
            receiver,
            feed: feed.clone(),
        };
        (ends, feed)
    }

    /// The next; never none.
    pub async fn next(&mut self) -> Option<RunId> {
        self.receiver.recv().await
    }

    /// One that has ended already.
    pub fn try_next(&mut self) -> Option<RunId> {
        self.receiver.try_recv().ok()
    }

    /// How many were missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.feed.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_w3c_says() {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = Trace::parse(header).unwrap();
        assert_eq!((trace.span, trace.sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(trace.to_string(), header);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        assert!(!Trace::parse(later).unwrap().sampled);
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033311-01",
        ] {
            assert_eq!(Trace::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn spans_are_told_apart_and_are_never_zero() {
        let runs = (0..50_u8).map(|byte| RunId::from_bytes([byte; 16]));
        let mut spans: Vec<u64> = runs
            .flat_map(|run| {
                let calls = (1..=20).map(move |call| Trace::span_of_call(run, 1 + call % 2, call));
                calls.chain([Trace::span_of_run(run)])
            })
            .collect();
        let all = spans.len();
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), all);
        assert!(!spans.contains(&0));
    }
}
