//! Rounds that fit what a run waits for and has got.

use super::batches::alike;
use super::{Maker, OFFERED, PLAIN, payload};
use crate::testkit::Draw;
use crate::{
    Call, CancelMark, Caused, Consumed, Entry, Failure, GateId, Name, OpenWait, Outcome, Parent,
    Payload, Publish, Round, RunRow, RunState, STATE_CHANGED, Scope, Start, StateChange, Then,
    UndoMark, encode_entries,
};

impl Maker<'_> {
    /// A round of a run that somebody has.
    pub(super) fn round(&self, row: &RunRow, draw: &mut Draw) -> Round {
        let namespace = self.rows.lane(row.lane).namespace.clone();
        let owner = row.owner.expect("somebody has the run");
        let mut round = Round::new(row.id, owner, row.epoch);
        round.created_at = Some(row.created_at);
        round.parent = row.parent.map(|parent| parent.run);
        self.take(&mut round, &namespace, draw);
        if row.cancel == CancelMark::None || draw.one_in(6) {
            self.go_on(&mut round, row, draw);
            open(&mut round, &namespace, draw);
            self.look_again(&mut round, draw);
        } else {
            round.cancel_seen = draw.one_in(2);
            let below = self
                .rows
                .runs()
                .filter(|run| run.parent.is_some_and(|p| p.run == row.id));
            let mut below: Vec<_> = below.map(|run| run.id).collect();
            below.sort();
            let below = below.into_iter().map(Scope::Child);
            round.caused.extend(below.map(Caused::Cancel));
        }
        if draw.one_in(30) {
            round.consumed.push(Consumed::Mail(draw.below(5)));
        }
        record(&mut round, draw);
        leave(&mut round, row, draw);
        round.timer_at = draw.one_in(4).then(|| self.now.after(draw.span()));
        round.lease = draw.lease();
        round
    }

    /// The first round of a run that is just being started.
    pub(super) fn first_round(&self, mut round: Round, namespace: &Name, draw: &mut Draw) -> Round {
        open(&mut round, namespace, draw);
        for call in 100..100 + draw.below(2) as u32 {
            let caused = self.message(call, draw);
            round.caused.push(caused);
        }
        record(&mut round, draw);
        round.then = match draw.below(4) {
            0 => Then::Continue,
            1 => Then::End(RunState::Completed, Outcome::Value(payload(draw.below(9)))),
            _ => Then::Suspend,
        };
        round
    }

    /// Consumes and lets go of some of what is there.
    fn take(&self, round: &mut Round, namespace: &Name, draw: &mut Draw) {
        for (id, wait) in self.rows.waits_of(round.run) {
            let place = (id.name.clone(), id.call);
            if wait.taken.is_some() && draw.one_in(2) {
                round.consumed.push(Consumed::Wait(place.0, place.1));
            } else if draw.one_in(6) {
                if wait.place.is_some() {
                    let (namespace, name) = (namespace.clone(), id.name.clone());
                    round.gates.push(GateId { namespace, name });
                }
                round.closed.push(place);
            }
        }
        let own = self
            .rows
            .mail_of(round.run)
            .filter(|(id, _)| id.name.is_none());
        for (id, _) in own {
            if !draw.one_in(3) {
                round.consumed.push(Consumed::Mail(id.number));
            }
        }
    }

    /// Waits for its state to change, or goes on to: having looked at it now, or before.
    fn look_again(&self, round: &mut Round, draw: &mut Draw) {
        let mut calls: Vec<u32> = Vec::new();
        let again = round
            .closed
            .iter()
            .filter(|(name, _)| *name == STATE_CHANGED);
        calls.extend(again.map(|(_, call)| *call).filter(|_| draw.one_in(2)));
        if draw.one_in(4) {
            calls.push(u32::try_from(round.epoch).unwrap_or(0) * 100 + 99);
        }
        if calls.is_empty() {
            return;
        }
        let version = self
            .rows
            .states
            .get(&round.run)
            .map_or(0, |row| row.version);
        round.state_seen = Some(version.saturating_sub(draw.below(2)));
        round.opened.extend(calls.into_iter().map(|call| OpenWait {
            call,
            name: STATE_CHANGED,
            offerable: false,
        }));
    }

    /// Sets things off.
    fn go_on(&self, round: &mut Round, row: &RunRow, draw: &mut Draw) {
        let first = u32::try_from(row.epoch).unwrap_or(0) * 100 + 50;
        for call in first..first + draw.below(4) as u32 {
            let caused = match draw.below(15) {
                14 => {
                    let namespace = self.rows.lane(row.lane).namespace.clone();
                    Caused::Record(Box::new(self.facts(namespace, draw)))
                }
                0 | 1 => {
                    let start = self.below(row, call, draw);
                    let start = self.dressed_child(start, draw);
                    Caused::Child(call, Box::new(self.batched(start, draw)))
                }
                2 if draw.one_in(2) => {
                    let namespace = self.rows.lane(row.lane).namespace.clone();
                    let start = self.start(draw);
                    let start = self.batched(Start { namespace, ..start }, draw);
                    Caused::Send(Box::new(alike(start, draw)))
                }
                2 => {
                    let start = self.batched(self.start(draw), draw);
                    Caused::Spawn(call, Box::new(alike(start, draw)))
                }
                3 | 4 => {
                    let (namespace, target) = self.target(draw);
                    Caused::Watch(call, namespace, target)
                }
                5 => Caused::Cancel(self.scope(row, draw)),
                6 => Caused::RollBack(call, self.scope(row, draw), draw.context()),
                10 => match self.scope(row, draw) {
                    Scope::Call { call, .. } => Caused::Close(call),
                    Scope::Child(_) => Caused::Close(call),
                },
                7 | 8 => {
                    let namespace = self.rows.lane(row.lane).namespace.clone();
                    let publish = Publish {
                        namespace,
                        ..self.publish(draw)
                    };
                    Caused::Publish(call, Box::new(publish))
                }
                9 => {
                    let starts = (0..draw.below(4)).map(|at| {
                        let mut start = self.below(row, call, draw);
                        start.run.0 = uuid::Uuid::from_u128(start.run.0.as_u128() + u128::from(at));
                        start
                    });
                    Caused::Children(call, starts.collect())
                }
                _ => self.message(call, draw),
            };
            round.caused.push(caused);
        }
        if draw.one_in(6) {
            round.state.push(StateChange::Merge(draw.patch()));
        }
        if draw.one_in(12) {
            round.state.push(StateChange::Set(payload(draw.below(9))));
        }
    }

    /// A plain child of the run.
    fn below(&self, row: &RunRow, call: u32, draw: &mut Draw) -> Start {
        let parent = Some(Parent {
            run: row.id,
            execution: row.execution,
            call,
        });
        let namespace = self.rows.lane(row.lane).namespace.clone();
        Start {
            parent,
            namespace,
            ..self.start(draw)
        }
    }

    /// What some call set off, mostly one of this run.
    fn scope(&self, row: &RunRow, draw: &mut Draw) -> Scope {
        let below = self.runs().into_iter();
        let below = below.filter(|run| run.parent.is_some_and(|parent| parent.run == row.id));
        let below: Vec<&RunRow> = below.collect();
        let Some(child) = draw.one_of(&below).filter(|_| !draw.one_in(10)) else {
            return Scope::Child(self.some_run(draw));
        };
        let parent = child.parent.expect("just seen");
        match child.number {
            None => Scope::Child(child.id),
            Some(_) => Scope::Call {
                execution: parent.execution,
                call: parent.call,
            },
        }
    }

    /// A child, sometimes leased at once with its first round.
    fn dressed_child(&self, mut child: Start, draw: &mut Draw) -> Start {
        child.claimant = Self::claimant(draw);
        if let Some(claimant) = child.claimant.filter(|_| draw.one_in(3)) {
            let round = Round::new(child.run, claimant.worker, 1);
            child.first = Some(Box::new(self.first_round(round, &child.namespace, draw)));
        }
        child
    }

    fn message(&self, call: u32, draw: &mut Draw) -> Caused {
        if draw.one_in(2) {
            Caused::Signal(call, Box::new(self.signal(draw)))
        } else {
            Caused::Offer(call, Box::new(self.offer(draw)))
        }
    }
}

/// Begins waits.
fn open(round: &mut Round, namespace: &Name, draw: &mut Draw) {
    let first = u32::try_from(round.epoch).unwrap_or(0) * 100;
    for call in first..first + draw.below(4) as u32 {
        let offerable = draw.one_in(2);
        let offered = offerable || draw.one_in(6);
        let name = draw.pick(if offered { &OFFERED } else { &PLAIN }).clone();
        if offerable {
            let (namespace, name) = (namespace.clone(), name.clone());
            round.gates.push(GateId { namespace, name });
        }
        round.opened.push(OpenWait {
            call,
            name,
            offerable,
        });
    }
}

fn record(round: &mut Round, draw: &mut Draw) {
    let entry = |call| Entry::Did {
        call,
        what: Call::Record {
            name: Name::constant("now"),
        },
        outcome: Outcome::Value(Payload::null()),
    };
    let entries: Vec<Entry> = (0..draw.below(3) as u32).map(entry).collect();
    round.count = entries.len() as u32;
    if round.count > 0 {
        round.entries = encode_entries(&entries);
    }
}

fn leave(round: &mut Round, row: &RunRow, draw: &mut Draw) {
    let failure = || Failure::business("no").with_code("no");
    if draw.one_in(8) {
        round.undo = Some(*draw.pick(&[UndoMark::Possible, UndoMark::Underway]));
    }
    round.then = match draw.below(24) {
        19 | 20 if row.undo == UndoMark::Underway => {
            let state = *draw.pick(&[RunState::RolledBack, RunState::RollbackFailed]);
            Then::End(state, Outcome::Failure(Box::new(failure())))
        }
        0..10 => Then::Continue,
        10..19 => Then::Suspend,
        19 if row.cancel != CancelMark::None => {
            Then::End(RunState::Cancelled, Outcome::Failure(Box::new(failure())))
        }
        19 | 20 => Then::End(RunState::Completed, Outcome::Value(payload(draw.below(9)))),
        21 => Then::End(RunState::Failed, Outcome::Failure(Box::new(failure()))),
        22 => {
            let workflow = Name::constant("alpha");
            let started = Entry::Started {
                workflow,
                version: 1,
                input: Payload::null(),
                unsettled: None,
                context: draw.context(),
                due: None,
            };
            let version = draw.one_in(2).then(|| 1 + draw.below(2) as u32);
            Then::ContinueAsNew(encode_entries(&[started]), version)
        }
        _ => Then::Park(Box::new(failure())),
    };
}
