//! Traces of runs, for OpenTelemetry: spans, as JSON over HTTP (OTLP), to a collector that was
//! configured; nothing is sent unless it was.
//!
//! A span is made of what the journal says, once a run has ended: one for the run, one for each of
//! its calls, with failed attempts and committed rounds as events. Their numbers follow from what
//! they are (`roundel::Trace`). Whoever works tells of the runs that it ends; nobody waits for the
//! collector: what does not fit into the queue, or is not taken after a few tries, is dropped and
//! counted.
//!
//! Absent on purpose: payloads and messages of failures, which may be secret; TLS, which a
//! collector beside the program has; other signals (`/metrics` has them).

mod post;
mod span;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roundel::{Client, Ends, RunId, Trace};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use post::Collector;

/// Spans in one request.
const SPANS: usize = 512;
/// What has ended is told within this time.
const SOON: Duration = Duration::from_secs(1);
/// How often one request is tried.
const TRIES: u32 = 3;
/// The pause before the second try; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(200);

/// Where spans go, and which.
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it follows a client"]
pub struct Traces {
    collector: Collector,
    service: String,
    part: f64,
    room: usize,
}

/// What was told so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// Spans that the collector took.
    pub spans: u64,
    /// Runs of which nothing was told: the queue was full, or they could not be read.
    pub runs_dropped: u64,
    /// Spans that the collector did not take.
    pub spans_dropped: u64,
}

#[derive(Default)]
struct Counts {
    spans: AtomicU64,
    runs_dropped: AtomicU64,
    missed: AtomicU64,
    spans_dropped: AtomicU64,
}

/// Traces that are being told. They stop when this is dropped, or stopped.
pub struct Telling {
    counts: Arc<Counts>,
    stopping: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Telling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Telling({:?})", self.told())
    }
}

impl Traces {
    /// To this collector: `http://127.0.0.1:4318`, to which `/v1/traces` is added if no path is
    /// said. Whatever it answers, nobody is led elsewhere.
    ///
    /// # Errors
    /// When that is no such address.
    pub fn to(url: &str) -> Result<Traces, String> {
        Ok(Traces {
            collector: Collector::at(url)?,
            service: "roundel".to_owned(),
            part: 1.0,
            room: 4096,
        })
    }

    /// In the name of this service; `roundel` unless said.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Of this part of all traces, 0 to 1, whole traces each; of all unless said.
    pub fn part(mut self, part: f64) -> Self {
        self.part = part.clamp(0.0, 1.0);
        self
    }

    /// So many runs may wait to be told of; 4,096 unless said.
    pub fn room(mut self, runs: usize) -> Self {
        self.room = runs;
        self
    }

    /// Tells of the runs of this client's namespace that this process ends from now on.
    pub fn follow(self, client: &Client) -> Telling {
        let ends = client.ends(self.room);
        self.tell(client, ends)
    }

    /// Tells of the runs of this client's namespace that end from now on in whichever process, a
    /// tree once its root has ended; see [`Client::ends_anywhere`].
    pub fn watch(self, client: &Client) -> Telling {
        let ends = client.ends_anywhere(self.room);
        self.tell(client, ends)
    }

    fn tell(self, client: &Client, ends: Ends) -> Telling {
        let counts = Arc::new(Counts::default());
        let (stopping, stopped) = watch::channel(false);
        let teller = Teller {
            ends,
            client: client.clone(),
            traces: self,
            counts: counts.clone(),
            spans: Vec::new(),
        };
        let task = Some(tokio::spawn(teller.run(stopped)));
        Telling {
            counts,
            stopping,
            task,
        }
    }
}

impl Telling {
    /// What was told so far.
    #[must_use]
    pub fn told(&self) -> Told {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Told {
            spans: count(&self.counts.spans),
            runs_dropped: count(&self.counts.runs_dropped) + count(&self.counts.missed),
            spans_dropped: count(&self.counts.spans_dropped),
        }
    }

    /// Tells what has ended so far, and stops.
    pub async fn stop(mut self) -> Told {
        self.stopping.send_replace(true);
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        self.told()
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What a teller does next.
enum Next {
    Ended(Option<RunId>),
    Late,
    Stop,
}

struct Teller {
    traces: Traces,
    client: Client,
    ends: Ends,
    counts: Arc<Counts>,
    spans: Vec<Value>,
}

impl Teller {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut until: Option<Instant> = None;
        loop {
            let late = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                ended = self.ends.next() => Next::Ended(ended),
                () = late => Next::Late,
                () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => Next::Stop,
            };
            match next {
                Next::Ended(Some(run)) => self.add(run).await,
                Next::Late => {
                    self.send().await;
                    until = None;
                }
                Next::Ended(None) | Next::Stop => break,
            }
            if self.spans.len() >= SPANS {
                self.send().await;
            }
            let missed = self.ends.missed();
            self.counts.missed.store(missed, Ordering::Relaxed);
            until = match (self.spans.is_empty(), until) {
                (true, _) => None,
                (false, Some(at)) => Some(at),
                (false, None) => Some(Instant::now() + SOON),
            };
        }
        while let Some(run) = self.ends.try_next() {
            self.add(run).await;
            if self.spans.len() >= SPANS {
                self.send().await;
            }
        }
        self.counts
            .missed
            .store(self.ends.missed(), Ordering::Relaxed);
        self.send().await;
    }

    async fn add(&mut self, run: RunId) {
        match self.spans_of(run).await {
            Ok(spans) => self.spans.extend(spans),
            // It is in another namespace, or has been removed since.
            Err(roundel::Error::NoSuchRun(_)) => {}
            Err(_) => {
                self.counts.runs_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn spans_of(&self, run: RunId) -> Result<Vec<Value>, roundel::Error> {
        let run = self.client.run(run).await?;
        let first = run
            .row
            .execution
            .saturating_sub(span::EXECUTIONS - 1)
            .max(1);
        let mut journals = Vec::new();
        for execution in first..=run.row.execution {
            let rounds = self.client.rounds(run.row.id, execution).await?;
            journals.push((execution, rounds));
        }
        Ok(span::spans(&run, &journals, |trace| self.is_told(trace)))
    }

    /// Whole traces are told, or nothing of them: their number says which.
    fn is_told(&self, trace: Trace) -> bool {
        #[allow(clippy::cast_precision_loss)]
        let place = (trace.id as u64) as f64 / u64::MAX as f64;
        trace.sampled && (place < self.traces.part || self.traces.part >= 1.0)
    }

    async fn send(&mut self) {
        let spans = std::mem::take(&mut self.spans);
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let service = json!({"key": "service.name", "value": {"stringValue": self.traces.service}});
        let scope = json!({"name": "roundel", "version": env!("CARGO_PKG_VERSION")});
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": [service]},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]});
        let body = body.to_string();
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            match self.traces.collector.post(&body).await {
                Ok(()) => {
                    self.counts.spans.fetch_add(count, Ordering::Relaxed);
                    return;
                }
                Err(refused) if attempt == TRIES || refused.for_good => {
                    let why = refused.why;
                    tracing::warn!(why, spans = count, "the collector of traces took nothing");
                    break;
                }
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        self.counts
            .spans_dropped
            .fetch_add(count, Ordering::Relaxed);
    }
}
