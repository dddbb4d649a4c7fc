//! The script: starts, rounds, steps with the user's SQL, signals, offers, deletes, claims, facts
//! with projections that fold in the commit, follow and are built anew; from two stores, over a log
//! that is moved and a file that is opened again.

use roundel_core::{
    Cancel, Claim, Declare, Delete, Fence, Folds, Follow, Name, NewFact, Offer, Op, OpenWait,
    Outcome, Patch, Policy, Projection, ProjectionId, Rebuild, Record, Register, RunId, RunState,
    Signal, Start, Target, Then,
};
use roundel_store::{Ask, Tx, Work, Worked};

use crate::tools::{
    FLOW, LEASE, SPACE, WORKER, claimant, name, now_or_never, payload, round, run, start, suspended,
};

/// Runs that are lived through.
const RUNS: u128 = 9;
/// Runs beside each of them that come and go.
const CROWD: u128 = 12;

/// One entry of the script.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Asked at once, and decided in one transaction.
    Ask(Vec<Wish>),
    /// The log is moved into the database and cut.
    Checkpoint,
    /// The stores are closed and opened again.
    Reopen,
    /// The other store goes on.
    Switch,
}

#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Op(Box<Op>),
    /// A step of this run under this epoch, which runs this statement.
    Step(RunId, u64, &'static str),
}

impl Wish {
    pub(super) fn ask(&self) -> Ask {
        match self {
            Wish::Op(op) => Ask::Op(Op::clone(op)),
            Wish::Step(run, epoch, sql) => Ask::Work(Box::new(Step(*run, *epoch, sql))),
        }
    }
}

fn wish(op: Op) -> Wish {
    Wish::Op(Box::new(op))
}

struct Step(RunId, u64, &'static str);

impl Work for Step {
    fn lease(&self) -> (RunId, roundel_core::WorkerId, Fence) {
        (self.0, WORKER, round(self.0, self.1).fence())
    }

    fn run(&mut self, tx: Tx) -> Worked {
        // A statement that fails for the disk's sake fails its transaction too.
        let keep = now_or_never(tx.execute(self.2, ())).is_ok();
        Worked {
            round: round(self.0, self.1),
            keep,
        }
    }

    fn refused(&mut self, error: roundel_store::TxError) -> roundel_core::Round {
        panic!("a step of the script breaks no rule: {error}");
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

const TABLE: &str = "CREATE TABLE ledger (id INTEGER PRIMARY KEY, pad BLOB)";
const NOTE: &str = "INSERT INTO ledger (pad) VALUES (printf('%3000d', 7))";
const WAIT: Name = Name::constant("signed");

fn bystander(number: u128, place: u128) -> RunId {
    run(1_000 * number + place)
}

/// Many operations in one transaction: runs are started, one is told to end and another's state is
/// patched, and something is offered to whoever wants it.
fn crowd(number: u128) -> Deed {
    let begin = |place| Start {
        run: bystander(number, place),
        ..start(number)
    };
    let mut wishes: Vec<Wish> = (1..=CROWD)
        .map(|place| wish(Op::Start(begin(place))))
        .collect();
    wishes.push(wish(Op::Cancel(Cancel {
        namespace: SPACE,
        target: Target::Run(bystander(number, 1)),
        keep: false,
        claimant: None,
    })));
    wishes.push(wish(Op::Patch(Patch {
        namespace: SPACE,
        target: Target::Run(bystander(number, 2)),
        patch: payload(r#"{"seen":true}"#),
        expected: None,
    })));
    wishes.push(wish(Op::Offer(Offer {
        namespace: SPACE,
        name: WAIT,
        payload: payload("1"),
        key: Some(name(&format!("offer-{number}"))),
        claimant: None,
    })));
    Deed::Ask(wishes)
}

/// All but one of the crowd go.
fn dispersed(number: u128) -> Deed {
    let delete = |place| {
        wish(Op::Delete(Delete {
            namespace: SPACE,
            target: Target::Run(bystander(number, place)),
            force: true,
        }))
    };
    Deed::Ask((2..=CROWD).map(delete).collect())
}

const INLINE: Name = Name::constant("inline");
const AFTER: Name = Name::constant("after");
const SAID: Name = Name::constant("said");

fn projection(name: Name) -> ProjectionId {
    let namespace = SPACE;
    ProjectionId { namespace, name }
}

/// In such a way that a gap, a repetition and another order can be seen.
fn chain(name: Name) -> Projection {
    Projection::new(name, |document, _, fact| {
        let number = |payload: &roundel_core::Payload| payload.decode::<u64>().unwrap_or_default();
        let after = document.map_or(1, number) * 31 + number(&fact.data);
        Ok(Some(payload(&(after % 1_000_003).to_string())))
    })
}

fn declare(name: Name) -> Op {
    Op::Declare(Declare {
        inline: name == INLINE,
        projection: projection(name),
        version: 1,
        kinds: vec![SAID],
    })
}

/// Two facts that are folded in by their commit.
fn facts(number: u128) -> Op {
    let fact = |part: u128| NewFact {
        into: vec![(INLINE, chain(INLINE))],
        stream: Some(SAID),
        ..NewFact::new(
            name(&format!("fact {number} {part}")),
            SAID,
            payload(&(2 * number + part).to_string()),
        )
    };
    Op::Record(Record {
        knows: [(INLINE, 1)].into(),
        ..Record::new(SPACE, vec![fact(0), fact(1)])
    })
}

/// The next fact is taken up by what follows, or by what is being built of it.
fn follow(generation: u32) -> Op {
    let into = |_: &_| Ok(vec![(AFTER, chain(AFTER))]);
    Op::Follow(Follow {
        projection: projection(AFTER),
        generation,
        folds: Folds::new(AFTER, 1, into),
        limit: 1,
        alone: false,
    })
}

/// What happens to one run, from its start to its end, or its deletion.
fn life(number: u128) -> Vec<Deed> {
    let id = run(number);
    let one = |op| Deed::Ask(vec![wish(op)]);
    let begin = Start {
        claimant: Some(claimant()),
        key: Some(name(&format!("key-{number}"))),
        ..start(number)
    };
    let mut waiting = suspended(id, 4);
    waiting.opened.push(OpenWait {
        call: 1,
        name: WAIT,
        offerable: false,
    });
    let signal = Signal {
        namespace: SPACE,
        target: Target::Run(id),
        name: WAIT,
        payload: payload("true"),
        policy: Policy::Keep,
        expires: None,
        key: Some(name("once")),
        claimant: Some(claimant()),
    };
    let mut last = round(id, 6);
    last.then = Then::End(RunState::Completed, Outcome::Value(payload("42")));
    let sql = if number == 1 { TABLE } else { NOTE };
    let mut deeds = vec![
        one(Op::Start(begin)),
        Deed::Ask(vec![Wish::Step(id, 1, sql)]),
        Deed::Ask(vec![
            wish(Op::Commit(round(id, 2))),
            wish(Op::Start(start(100 + number))),
            Wish::Step(id, 3, NOTE),
        ]),
        one(Op::Commit(waiting)),
        one(Op::Signal(signal)),
        one(Op::Commit(last)),
        crowd(number),
        one(facts(number)),
        one(follow(0)),
        dispersed(number),
    ];
    if number == 3 {
        // The next commit of the first store is the one before which the log is made longer: it
        // is empty then, and begins with zeros.
        deeds.insert(1, Deed::Checkpoint);
    }
    if number.is_multiple_of(2) {
        deeds.push(one(Op::Delete(Delete {
            namespace: SPACE,
            target: Target::Run(id),
            force: false,
        })));
    }
    deeds
}

pub(crate) fn script() -> Vec<Deed> {
    let lane = roundel_core::Lane {
        namespace: SPACE,
        workflow: FLOW,
        version: 1,
    };
    let register = Register {
        worker: WORKER,
        name: "test".into(),
        lanes: vec![lane],
    };
    let declared = [INLINE, AFTER].map(|name| wish(declare(name)));
    let mut deeds = vec![
        Deed::Ask(vec![wish(Op::Register(register))]),
        Deed::Ask(declared.into()),
    ];
    for number in 1..=RUNS {
        deeds.extend(life(number));
        deeds.extend(match number {
            2 | 5 | 8 => Some(Deed::Checkpoint),
            3 | 7 => Some(Deed::Switch),
            6 => Some(Deed::Reopen),
            _ => None,
        });
    }
    let rebuild = Op::Rebuild(Rebuild {
        projection: projection(AFTER),
    });
    deeds.push(Deed::Ask(vec![wish(rebuild)]));
    deeds.extend((0..3).map(|_| Deed::Ask(vec![wish(follow(1))])));
    let claim = Op::Claim(Claim {
        worker: WORKER,
        lanes: vec![roundel_core::LaneId(1)],
        limit: 3,
        lease: LEASE,
    });
    deeds.push(Deed::Ask(vec![wish(claim)]));
    deeds
}

/// Operations in the script.
pub(crate) fn operations(deeds: &[Deed]) -> u64 {
    let of = |deed: &Deed| match deed {
        Deed::Ask(wishes) => wishes.len() as u64,
        Deed::Checkpoint | Deed::Reopen | Deed::Switch => 0,
    };
    deeds.iter().map(of).sum()
}
