//! Short ways to say what tests ask for.

use std::time::Duration;

use roundel_core::{
    Call, Claimant, Consumed, Context, Delivery, Entry, GateId, Lane, Name, Offer, OpenWait,
    Outcome, Parent, Payload, Policy, Round, RunId, RunRow, RunState, Signal, Start, Target, Then,
    WorkerId, decode_entries, encode_entries,
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const NS: Name = Name::constant("default");
pub(super) const A: WorkerId = WorkerId(uuid::Uuid::from_u128(0xA));
pub(super) const B: WorkerId = WorkerId(uuid::Uuid::from_u128(0xB));
pub(super) const C: WorkerId = WorkerId(uuid::Uuid::from_u128(0xC));

pub(super) fn lane(namespace: &Name, workflow: &'static str, version: u32) -> Lane {
    let (namespace, workflow) = (namespace.clone(), Name::constant(workflow));
    Lane {
        namespace,
        workflow,
        version,
    }
}

pub(super) fn claimant(worker: WorkerId) -> Claimant {
    Claimant {
        worker,
        lease: LEASE,
    }
}

pub(super) fn value(value: u32) -> Payload {
    Payload::encode(&value).expect("a number is JSON")
}

pub(super) fn value_of(outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Value(value) => value.decode().unwrap_or_default(),
        Outcome::Failure(_) => u32::MAX,
    }
}

/// A start that says nothing special.
pub(super) fn start(run: RunId) -> Start {
    Start {
        version: Some(1),
        ..Start::new(NS, run, Name::constant("w"), Payload::null())
    }
}

/// The start, as a child of that run in this call.
pub(super) fn child_of(parent: &RunRow, call: u32, start: Start) -> Start {
    let (run, execution) = (parent.id, parent.execution);
    Start {
        parent: Some(Parent {
            run,
            execution,
            call,
        }),
        ..start
    }
}

pub(super) fn signal(run: RunId, name: &'static str, number: u32) -> Signal {
    Signal {
        namespace: NS,
        target: Target::Run(run),
        name: Name::constant(name),
        payload: value(number),
        policy: Policy::Keep,
        expires: None,
        key: None,
        claimant: None,
    }
}

pub(super) fn offering(name: &'static str, number: u32) -> Offer {
    let (name, payload) = (Name::constant(name), value(number));
    Offer {
        namespace: NS,
        name,
        payload,
        key: None,
        claimant: None,
    }
}

fn gate(name: &'static str) -> GateId {
    GateId {
        namespace: NS,
        name: Name::constant(name),
    }
}

/// The round, with waits for these signals begun; those whose name begins with `@` take offers.
pub(super) fn opening(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        let (call, offerable) = (*call, name.starts_with('@'));
        let what = Call::Wait {
            signal: Name::constant(name),
            until: None,
        };
        round = recording(round, &[Entry::Begun { call, what }]);
        if offerable {
            round.gates.push(gate(name));
        }
        let name = Name::constant(name);
        round.opened.push(OpenWait {
            call,
            name,
            offerable,
        });
    }
    round
}

/// The round, consuming what these waits have.
pub(super) fn consuming(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        round
            .consumed
            .push(Consumed::Wait(Name::constant(name), *call));
        let (call, outcome) = (*call, Outcome::Value(Payload::null()));
        round = recording(round, &[Entry::Done { call, outcome }]);
    }
    round
}

/// The round, letting these waits go.
pub(super) fn closing(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        round.closed.push((Name::constant(name), *call));
        if name.starts_with('@') {
            round.gates.push(gate(name));
        }
    }
    round
}

/// The round, with these entries after those it has.
pub(super) fn recording(mut round: Round, entries: &[Entry]) -> Round {
    let mut all = Vec::new();
    if round.count > 0 {
        all = decode_entries(&round.entries).expect("entries");
    }
    all.extend(entries.iter().cloned());
    round.count = u32::try_from(all.len()).expect("few");
    round.entries = encode_entries(&all);
    round
}

/// The round, with something in it.
pub(super) fn working(round: Round) -> Round {
    let (call, what) = (
        1,
        Call::Step {
            name: Name::constant("s"),
            undo: None,
        },
    );
    let outcome = Outcome::Value(Payload::null());
    recording(
        round,
        &[Entry::Did {
            call,
            what,
            outcome,
        }],
    )
}

pub(super) fn suspending(mut round: Round) -> Round {
    round.then = Then::Suspend;
    round
}

pub(super) fn ending(mut round: Round, state: RunState) -> Round {
    round.then = Then::End(state, Outcome::Value(value(7)));
    recording(round, &[Entry::Ended { state }])
}

/// The round, after which the run begins anew.
pub(super) fn continuing(round: Round, version: Option<u32>) -> Round {
    let (workflow, input) = (Name::constant("w"), value(2));
    let started = Entry::Started {
        workflow,
        version: version.unwrap_or(1),
        input,
        unsettled: None,
        context: Context::default(),
        due: None,
    };
    let mut round = recording(round, &[Entry::Continued]);
    round.then = Then::ContinueAsNew(encode_entries(&[started]), version);
    round
}

/// What kind of failure a message says; that it is a value, if it is one.
pub(super) fn code(delivery: &Delivery) -> String {
    match &delivery.body {
        Outcome::Failure(failure) => failure.code.clone(),
        Outcome::Value(_) => "a value".into(),
    }
}
