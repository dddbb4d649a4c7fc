//! From a run and its journal to spans. The same rows give the same spans.

use std::collections::BTreeMap;

use roundel::{Class, Entry, Failure, Name, RunId, RunState, RunView, Timestamp, Trace};
use roundel_core::{Call, JournalRow, Outcome, decode_entries};
use serde_json::{Value, json};

/// The last executions of a run that are told.
pub(super) const EXECUTIONS: u32 = 8;
/// Calls of a run, and events of a span, that are told.
const CALLS: usize = 1000;
const EVENTS: usize = 128;

/// A round: when, under which fence, and what it says.
type Round = (Timestamp, u64, Vec<Entry>);

/// What has begun.
struct Open {
    what: Call,
    at: Timestamp,
    events: Vec<Value>,
}

/// What is known of a run while its journal is read.
struct Reader {
    run: RunId,
    trace: u128,
    spans: Vec<Value>,
    rounds: Vec<Value>,
    more_rounds: usize,
    began: Option<Timestamp>,
}

/// The spans of a run that has ended; none if nobody wants them.
pub(super) fn spans(
    run: &RunView,
    journals: &[(u32, Vec<JournalRow>)],
    wanted: impl Fn(Trace) -> bool,
) -> Vec<Value> {
    let row = &run.row;
    let decoded: Vec<(u32, Vec<Round>)> = journals
        .iter()
        .map(|(execution, rounds)| {
            let round = |round: &JournalRow| {
                let entries = decode_entries(&round.entries).unwrap_or_default();
                (round.at, round.epoch, entries)
            };
            (*execution, rounds.iter().map(round).collect())
        })
        .collect();
    let entries = decoded.iter().flat_map(|(_, rounds)| rounds);
    let mut entries = entries.flat_map(|(_, _, entries)| entries);
    let above = entries.find_map(|entry| match entry {
        Entry::Started { context, .. } => context.get(&NAME).cloned(),
        _ => None,
    });
    let above = above.and_then(|header| Trace::parse(&header.decode::<String>().ok()?));
    let trace = above.unwrap_or_else(|| Trace::of_root(row.root));
    if !wanted(trace) {
        return Vec::new();
    }
    let mut reader = Reader {
        run: row.id,
        trace: trace.id,
        spans: Vec::new(),
        rounds: Vec::new(),
        more_rounds: 0,
        began: None,
    };
    for (execution, rounds) in &decoded {
        reader.read(*execution, rounds);
    }
    let parent = match row.parent {
        Some(parent) => Some(Trace::span_of_call(
            parent.run,
            parent.execution,
            parent.call,
        )),
        None => above.map(|above| above.span),
    };
    reader.finish(run, parent)
}

/// The key of `roundel::TRACEPARENT`.
const NAME: Name = Name::constant("traceparent");

impl Reader {
    fn read(&mut self, execution: u32, rounds: &[Round]) {
        let mut open: BTreeMap<u32, Open> = BTreeMap::new();
        let mut before = rounds.first().map_or(Timestamp(0), |(at, ..)| *at);
        for (at, epoch, entries) in rounds {
            self.began.get_or_insert(*at);
            self.round(
                *at,
                &[("execution", json!(execution)), ("epoch", json!(epoch))],
            );
            for entry in entries {
                self.entry(execution, entry, (before, *at), &mut open);
            }
            before = *at;
        }
        // What was let go has no end of its own.
        for (call, open) in open {
            self.close(execution, call, &open, (before, None));
        }
    }

    fn entry(
        &mut self,
        execution: u32,
        entry: &Entry,
        (before, at): (Timestamp, Timestamp),
        open: &mut BTreeMap<u32, Open>,
    ) {
        // What began and ended in one round began after the round before.
        let begin = |what: &Call, at: Timestamp| Open {
            what: what.clone(),
            at,
            events: Vec::new(),
        };
        match entry {
            Entry::Begun { call, what } => {
                open.insert(*call, begin(what, at));
            }
            Entry::Attempted {
                call,
                what,
                attempt,
                failure,
                at: failed,
                ..
            } => {
                let one = open.entry(*call).or_insert_with(|| begin(what, before));
                if one.events.len() < EVENTS {
                    let mut said = failed_with(failure);
                    said.push(attribute("roundel.attempt", json!(attempt)));
                    one.events.push(event("attempt failed", *failed, &said));
                }
            }
            Entry::Worked { call, what, .. } => {
                open.entry(*call).or_insert_with(|| begin(what, before));
            }
            Entry::Done { call, outcome } => {
                if let Some(one) = open.remove(call) {
                    self.close(execution, *call, &one, (at, failure_of(outcome)));
                }
            }
            Entry::Did {
                call,
                what,
                outcome,
            } => {
                let one = open.remove(call).unwrap_or_else(|| begin(what, before));
                self.close(execution, *call, &one, (at, failure_of(outcome)));
            }
            Entry::Settled { call, failure, .. } => {
                if let Some(one) = open.remove(call) {
                    self.close(execution, *call, &one, (at, failure.as_deref()));
                }
            }
            _ => {}
        }
    }

    /// A call has ended.
    fn close(
        &mut self,
        execution: u32,
        call: u32,
        open: &Open,
        (at, failure): (Timestamp, Option<&Failure>),
    ) {
        if self.spans.len() >= CALLS {
            return;
        }
        let (kind, name) = open.what.signature();
        let mut attributes = vec![
            attribute("roundel.run", json!(self.run.to_string())),
            attribute("roundel.call", json!(kind)),
            attribute("roundel.attempts", json!(open.events.len() + 1)),
        ];
        attributes.extend(failure.into_iter().flat_map(failed_with));
        let name = if name.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind} {name}")
        };
        self.spans.push(json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", Trace::span_of_call(self.run, execution, call)),
            "parentSpanId": format!("{:016x}", Trace::span_of_run(self.run)),
            "name": name,
            "kind": 1,
            "startTimeUnixNano": nanos(open.at.min(at)),
            "endTimeUnixNano": nanos(at),
            "attributes": attributes,
            "events": open.events,
            "status": status(failure.is_some()),
        }));
    }

    fn round(&mut self, at: Timestamp, said: &[(&str, Value)]) {
        if self.rounds.len() >= EVENTS {
            self.more_rounds += 1;
            return;
        }
        let said = said.iter();
        let said = said.map(|(name, value)| attribute(&format!("roundel.{name}"), value.clone()));
        let said: Vec<Value> = said.collect();
        self.rounds.push(event("round", at, &said));
    }

    fn finish(mut self, run: &RunView, parent: Option<u64>) -> Vec<Value> {
        let row = &run.row;
        let failed = match &row.outcome {
            Some(Outcome::Failure(failure)) => Some(&**failure),
            _ => None,
        };
        let mut attributes = vec![
            attribute("roundel.run", json!(row.id.to_string())),
            attribute("roundel.root", json!(row.root.to_string())),
            attribute("roundel.namespace", json!(run.lane.namespace.as_str())),
            attribute("roundel.workflow", json!(run.lane.workflow.as_str())),
            attribute("roundel.version", json!(run.lane.version)),
            attribute("roundel.state", json!(row.state.as_str())),
        ];
        attributes.extend(failed.into_iter().flat_map(failed_with));
        let began = self.began.unwrap_or(row.created_at).min(row.created_at);
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace),
            "spanId": format!("{:016x}", Trace::span_of_run(row.id)),
            "name": run.lane.workflow.as_str(),
            "kind": 1,
            "startTimeUnixNano": nanos(began),
            "endTimeUnixNano": nanos(row.changed_at.max(began)),
            "attributes": attributes,
            "events": self.rounds,
            "droppedEventsCount": self.more_rounds,
            "status": status(row.state != RunState::Completed),
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if row.root != row.id {
            // Who set it off may be in another trace by now; its root is not.
            span["links"] = json!([{
                "traceId": format!("{:032x}", self.trace),
                "spanId": format!("{:016x}", Trace::span_of_run(row.root)),
                "attributes": [attribute("roundel.link", json!("root"))],
            }]);
        }
        self.spans.push(span);
        self.spans
    }
}

fn failure_of(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Failure(failure) => Some(failure),
        Outcome::Value(_) => None,
    }
}

/// What kind of failure: what it says may be secret.
fn failed_with(failure: &Failure) -> Vec<Value> {
    let class = match failure.class {
        Class::Business => "business",
        Class::Transient => "transient",
        Class::Permanent => "permanent",
        Class::Exhausted => "exhausted",
        Class::Cancelled => "cancelled",
    };
    let mut said = vec![attribute("roundel.failure.class", json!(class))];
    if !failure.code.is_empty() {
        said.push(attribute("roundel.failure.code", json!(failure.code)));
    }
    said
}

fn status(failed: bool) -> Value {
    json!({"code": if failed { 2 } else { 1 }})
}

fn event(name: &str, at: Timestamp, attributes: &[Value]) -> Value {
    json!({"name": name, "timeUnixNano": nanos(at), "attributes": attributes})
}

fn attribute(name: &str, value: Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Bool(truth) => json!({"boolValue": truth}),
        Value::String(text) => json!({"stringValue": text}),
        other => json!({"stringValue": other.to_string()}),
    };
    json!({"key": name, "value": value})
}

/// As OTLP has it in JSON: a text, since it is beyond what numbers of JSON are good for.
fn nanos(at: Timestamp) -> String {
    (i128::from(at.0) * 1000).to_string()
}
