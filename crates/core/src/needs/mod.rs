//! Which rows an operation needs, in stages. Keys are claimed first, then gates are locked, then
//! runs, each sorted; the rest hangs under rows that are locked by then. A store that locks takes
//! a batch through the stages together; the others load as they go.

mod scopes;

use std::collections::BTreeMap;

use scopes::{of_complete, of_join, of_latch, of_publish, of_scope};

use crate::decide::{offer_key, run_key, sender_key, target_run};
use crate::mutant::{self, Mutant};
use crate::{
    Caused, Claim, Claimant, Consumed, Delete, GateId, KeyId, LaneId, LatchId, Name, Offer, Op,
    PublicationId, Round, Rows, RunId, RunRow, Signal, Start, Target, Then, WorkerId, limits,
};

/// The stages, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Unique keys.
    Keys,
    /// Gates.
    Gates,
    /// Runs, workers, and searches for runs.
    Runs,
    /// What hangs under them.
    Rest,
    /// What hangs under what a search found.
    Found,
}

impl Stage {
    /// All, in order.
    pub const ALL: [Stage; 5] = [
        Stage::Keys,
        Stage::Gates,
        Stage::Runs,
        Stage::Rest,
        Stage::Found,
    ];
}

/// Something to load.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// A key.
    Key(KeyId),
    /// A gate.
    Gate(GateId),
    /// A run.
    Run(RunId),
    /// A worker.
    Worker(WorkerId),
    /// Runs of these lanes that are due, into `found`: `limit` that are no suspects, lane by lane,
    /// the lanes taking turns at being first, in a lane by priority, then oldest due first; then,
    /// if there are suspects due, the first of those of all lanes. A lease that ends later than
    /// the longest one is due too. And when the next is due after now, into `found_next`.
    Due(Vec<LaneId>, usize),
    /// The run and all below it, `limit` of them, into `found`: whoever has a parent there comes
    /// before it, so that the first of them can go without leaving orphans. Brothers by id.
    Subtree(RunId, usize),
    /// The waits of a run for a signal.
    Waits(RunId, Name),
    /// All waits of a run, the offers they have, and for each gate of theirs the first who wait
    /// there, this many, with their runs: some of them may end together with this one.
    AllWaits(RunId, usize),
    /// The first messages of that name, this many.
    Mail(RunId, Name, usize),
    /// What is matched to calls of the run: waits that have something, with what they have, and
    /// messages of the engine's own.
    Inbox(RunId),
    /// The first offers that nobody has, this many.
    Offers(GateId, usize),
    /// The first who wait for an offer and have none, this many, with their runs.
    Waiters(GateId, usize),
    /// Who waits for the run's end, with their runs.
    Watchers(RunId),
    /// A run's own state.
    State(RunId),
    /// Who subscribes to a topic, all of them: namespace, topic.
    Subscribers(Name, Name),
    /// A publication.
    Publication(PublicationId),
    /// The publications to a topic whose window is open, all of them, into `open_publications`:
    /// namespace, topic.
    OpenPublications(Name, Name),
    /// A latch.
    Latch(LatchId),
    /// The runs that one call set off together, in order, into `scopes`: run, execution, call.
    Scope(RunId, u32, u32),
}

/// What `op` needs in this stage, given what earlier stages loaded.
pub fn needs(op: &Op, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match op {
        Op::Start(start) => of_start(start, rows, stage, out),
        Op::Commit(round) => of_round(round, rows, stage, out),
        Op::Signal(signal) => of_signal(signal, rows, stage, out),
        Op::Offer(offer) => of_offer(offer, rows, stage, out),
        Op::Cancel(cancel) => {
            of_target(&cancel.namespace, &cancel.target, rows, stage, out);
            let run = target_run(rows, &cancel.namespace, &cancel.target);
            if let Some(run) = run.filter(|_| stage == Stage::Rest) {
                of_wake(run, cancel.claimant, rows, out);
            }
        }
        Op::Patch(patch) => {
            of_target(&patch.namespace, &patch.target, rows, stage, out);
            if stage == Stage::Rest {
                out.extend(target_run(rows, &patch.namespace, &patch.target).map(Need::State));
            }
        }
        Op::Resume(resume) => of_target(&resume.namespace, &resume.target, rows, stage, out),
        Op::Undo(undo) => of_target(&undo.namespace, &undo.target, rows, stage, out),
        Op::Accept(accept) => of_target(&accept.namespace, &accept.target, rows, stage, out),
        Op::Publish(publish) => of_publish(publish, rows, stage, out),
        Op::Subscribe(subscribe) if stage == Stage::Keys => {
            let (namespace, topic) = (subscribe.namespace.clone(), subscribe.topic.clone());
            out.push(Need::Subscribers(namespace.clone(), topic.clone()));
            if subscribe.on {
                out.push(Need::OpenPublications(namespace, topic));
            }
        }
        Op::Subscribe(subscribe) => {
            for publication in &rows.open_publications {
                of_join((*publication, &subscribe.workflow), rows, stage, out);
            }
        }
        Op::Join(join) => of_join((join.publication, &join.workflow), rows, stage, out),
        Op::Complete(complete) => {
            of_target(&complete.namespace, &complete.target, rows, stage, out);
            let run = target_run(rows, &complete.namespace, &complete.target);
            if let Some(row) = run.and_then(|run| rows.run(run)) {
                of_complete(row, stage, out);
            }
        }
        Op::Delete(delete) => of_delete(delete, rows, stage, out),
        Op::Claim(claim) => of_claim(claim, rows, stage, out),
        Op::Renew(renew) => of_leases(renew.worker, &renew.runs, rows, stage, out),
        Op::Release(release) => of_leases(release.worker, &release.runs, rows, stage, out),
        Op::Register(register) if stage == Stage::Runs => out.push(Need::Worker(register.worker)),
        Op::Register(_) => {}
    }
}

fn of_claim(claim: &Claim, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    if stage == Stage::Runs {
        let limit = claim.limit.min(limits::CLAIM) + limits::LOOK_PAST + 1;
        out.push(Need::Worker(claim.worker));
        let mut lanes = claim.lanes.clone();
        if mutant::on(Mutant::AnyVersionClaimed) {
            lanes = (1..).map(crate::LaneId).take(rows.lanes().len()).collect();
        }
        out.push(Need::Due(lanes, limit));
    }
    if stage == Stage::Rest {
        let worker = rows.workers.get(&claim.worker);
        out.extend(worker.and_then(|worker| worker.suspect).map(Need::Run));
        for run in rows.found.iter().filter_map(|id| rows.run(*id)) {
            out.extend(run.owner.map(Need::Worker));
            if run.matched > 0 {
                out.push(Need::Inbox(run.id));
            }
        }
    }
}

fn of_delete(delete: &Delete, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    of_target(&delete.namespace, &delete.target, rows, stage, out);
    let Some(run) = target_run(rows, &delete.namespace, &delete.target) else {
        return;
    };
    if stage == Stage::Rest {
        let row = rows.run(run).expect("the target was loaded");
        out.push(Need::Run(row.root));
        out.extend(row.parent.map(|parent| Need::Run(parent.run)));
        out.push(Need::Subtree(run, limits::DELETE + 1));
    }
    if stage == Stage::Found {
        let found = || rows.found.iter().filter_map(|id| rows.run(*id));
        let waits = found().map(|run| run.waits as usize).sum();
        for run in found() {
            if run.waits > 0 {
                out.push(Need::AllWaits(run.id, waits));
            }
            if run.watchers > 0 {
                out.push(Need::Watchers(run.id));
            }
        }
        if let Some(row) = rows.run(run) {
            of_latch(row, out);
        }
    }
}

fn of_target(namespace: &Name, target: &Target, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match (stage, target) {
        (Stage::Keys, Target::Key(key)) => out.push(Need::Key(run_key(namespace, key))),
        (Stage::Runs, Target::Run(run)) => out.push(Need::Run(*run)),
        (Stage::Runs, Target::Key(key)) => {
            let row = rows.keys.get(&run_key(namespace, key));
            out.extend(row.and_then(|row| row.run).map(Need::Run));
        }
        _ => {}
    }
}

fn of_start(start: &Start, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let key = start.key.clone().map(Target::Key);
    match stage {
        Stage::Keys | Stage::Runs => {
            if let Some(key) = &key {
                of_target(&start.namespace, key, rows, stage, out);
            }
            of_target(&start.namespace, &Target::Run(start.run), rows, stage, out);
            if stage == Stage::Runs {
                out.extend(start.parent.map(|parent| Need::Run(parent.run)));
            }
        }
        Stage::Gates | Stage::Rest | Stage::Found => {}
    }
    if let Some(signal) = &start.signal {
        let has_key = key.and_then(|key| target_run(rows, &start.namespace, &key));
        of_message(signal, Some(has_key.unwrap_or(start.run)), rows, stage, out);
    }
    if let Some(first) = &start.first {
        of_round(first, rows, stage, out);
    }
}

fn of_signal(signal: &Signal, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    of_target(&signal.namespace, &signal.target, rows, stage, out);
    let to = target_run(rows, &signal.namespace, &signal.target);
    of_message(signal, to, rows, stage, out);
}

/// A signal, once it is known which run it is for.
fn of_message(signal: &Signal, to: Option<RunId>, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match stage {
        Stage::Keys => {
            let key = signal.key.as_ref();
            out.extend(key.map(|key| Need::Key(sender_key(signal, key))));
        }
        Stage::Rest => {
            let Some(run) = to else { return };
            if rows.run(run).is_some_and(|row| row.waits > 0) {
                out.push(Need::Waits(run, signal.name.clone()));
            }
            of_wake(run, signal.claimant, rows, out);
        }
        Stage::Gates | Stage::Runs | Stage::Found => {}
    }
}

fn of_offer(offer: &Offer, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let gate = gate_of(offer);
    match stage {
        Stage::Keys => {
            let key = offer.key.as_ref();
            out.extend(key.map(|key| Need::Key(offer_key(&gate, key))));
        }
        Stage::Gates => {
            out.push(Need::Gate(gate.clone()));
            out.push(Need::Waiters(gate, 1));
        }
        Stage::Rest => {
            if let Some(wait) = rows.waiters_at(&gate).next() {
                of_wake(wait.run, offer.claimant, rows, out);
            }
        }
        Stage::Runs | Stage::Found => {}
    }
}

fn gate_of(offer: &Offer) -> GateId {
    GateId {
        namespace: offer.namespace.clone(),
        name: offer.name.clone(),
    }
}

/// A run that may be woken, and taken by whoever has it in memory, hands over its inbox.
fn of_wake(run: RunId, claimant: Option<Claimant>, rows: &Rows, out: &mut Vec<Need>) {
    let Some(row) = rows.run(run) else { return };
    if row.matched > 0 && claimant.is_some_and(|by| row.holder == Some(by.worker)) {
        out.push(Need::Inbox(run));
    }
}

fn of_round(round: &Round, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    for caused in &round.caused {
        of_caused(round, caused, rows, stage, out);
    }
    match stage {
        Stage::Keys => {}
        Stage::Gates => {
            out.extend(round.gates.iter().cloned().map(Need::Gate));
        }
        Stage::Runs => {
            out.push(Need::Run(round.run));
            out.extend(round.parent.map(Need::Run));
        }
        Stage::Rest => {
            of_gates(round, rows, out);
            if let Some(row) = rows.run(round.run) {
                of_round_rest(round, row, out);
            }
        }
        Stage::Found => of_woken(round, rows, out),
    }
}

/// The gates that a round and the first rounds of what it starts pass.
#[derive(Default)]
struct Gates {
    /// Each with the number of offers made there.
    offers: BTreeMap<GateId, usize>,
    /// Waits that begin.
    opened: usize,
}

impl Gates {
    fn of(round: &Round) -> Gates {
        let mut gates = Gates::default();
        gates.add(round);
        gates
    }

    fn add(&mut self, round: &Round) {
        self.opened += round.opened.len();
        for gate in &round.gates {
            self.offers.entry(gate.clone()).or_default();
        }
        for caused in &round.caused {
            match caused {
                Caused::Offer(_, offer) => {
                    *self.offers.entry(gate_of(offer)).or_default() += 1;
                }
                Caused::Child(_, start) | Caused::Spawn(_, start) => {
                    start.first.iter().for_each(|first| self.add(first));
                }
                _ => {}
            }
        }
    }
}

/// Offers may be taken, given and given back: as often as there are waits and offers.
fn of_gates(round: &Round, rows: &Rows, out: &mut Vec<Need>) {
    let gates = Gates::of(round);
    let open = rows.run(round.run).map_or(0, |row| row.waits as usize);
    let waits = open + gates.opened;
    for (gate, offers) in gates.offers {
        out.push(Need::Waiters(gate.clone(), waits + offers + 1));
        out.push(Need::Offers(gate, waits + 1));
    }
}

fn of_round_rest(round: &Round, row: &RunRow, out: &mut Vec<Need>) {
    let waits = row.waits as usize + round.opened.len();
    let mut names: Vec<&Name> = Vec::new();
    names.extend(round.opened.iter().map(|wait| &wait.name));
    names.extend(round.closed.iter().map(|(name, _)| name));
    names.extend(round.consumed.iter().filter_map(|consumed| match consumed {
        Consumed::Wait(name, _) => Some(name),
        Consumed::Mail(_) => None,
    }));
    names.sort();
    names.dedup();
    for name in names {
        if row.waits > 0 {
            out.push(Need::Waits(round.run, name.clone()));
        }
        if row.mail > 0 {
            out.push(Need::Mail(round.run, name.clone(), waits + 1));
        }
    }
    if row.matched > 0 {
        out.push(Need::Inbox(round.run));
    }
    if !round.state.is_empty() {
        out.push(Need::State(round.run));
    }
    if row.suspect {
        out.push(Need::Worker(round.worker));
    }
    if matches!(round.then, Then::End(..) | Then::ContinueAsNew(..)) && row.waits > 0 {
        out.push(Need::AllWaits(round.run, row.waits as usize));
    }
    if matches!(round.then, Then::End(..)) {
        out.extend(row.parent.map(|parent| Need::Run(parent.run)));
        of_latch(row, out);
        if row.watchers > 0 {
            out.push(Need::Watchers(round.run));
        }
    }
}

/// Whoever a round may wake: those who wait at its gates, and for its end.
fn of_woken(round: &Round, rows: &Rows, out: &mut Vec<Need>) {
    let claimant = Some(round.claimant());
    let row = rows.run(round.run);
    let mut gates = Gates::of(round);
    let ends = matches!(round.then, Then::End(..) | Then::ContinueAsNew(..));
    if let Some(row) = row.filter(|_| ends) {
        let namespace = &rows.lane(row.lane).namespace;
        let waits = rows.waits_of(row.id);
        for (wait, _) in waits.filter(|(_, wait)| wait.place.is_some()) {
            let (namespace, name) = (namespace.clone(), wait.name.clone());
            let gate = GateId { namespace, name };
            gates.offers.entry(gate).or_default();
        }
    }
    let waits = row.map_or(0, |row| row.waits as usize) + gates.opened;
    for (gate, offers) in &gates.offers {
        for wait in rows.waiters_at(gate).take(waits + offers + 1) {
            of_wake(wait.run, claimant, rows, out);
        }
    }
    if let Some(row) = row.filter(|_| matches!(round.then, Then::End(..))) {
        if let Some(parent) = row.parent {
            of_wake(parent.run, claimant, rows, out);
        }
        for (_, watcher, ..) in rows.watchers_of(row.id) {
            of_wake(watcher, claimant, rows, out);
        }
    }
}

fn of_caused(round: &Round, caused: &Caused, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match caused {
        Caused::Child(_, start) | Caused::Spawn(_, start) => of_start(start, rows, stage, out),
        Caused::Signal(_, signal) => of_signal(signal, rows, stage, out),
        Caused::Offer(_, offer) => of_offer(offer, rows, stage, out),
        Caused::Watch(_, namespace, target) => of_target(namespace, target, rows, stage, out),
        Caused::Children(_, starts) => {
            for start in starts {
                of_start(start, rows, stage, out);
            }
        }
        Caused::Publish(_, publish) => of_publish(publish, rows, stage, out),
        Caused::Close(call) => {
            let row = rows.run(round.run).filter(|_| stage == Stage::Rest);
            out.extend(row.map(|row| {
                Need::Latch(LatchId {
                    run: row.id,
                    execution: row.execution,
                    call: *call,
                    part: 0,
                })
            }));
        }
        Caused::RollBack(_, scope, _) | Caused::Cancel(scope) => {
            of_scope(round, *scope, rows, stage, out);
        }
    }
}

fn of_leases(worker: WorkerId, runs: &[RunId], rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match stage {
        Stage::Runs => {
            out.push(Need::Worker(worker));
            out.extend(runs.iter().map(|run| Need::Run(*run)));
        }
        Stage::Rest => {
            let due = runs.iter().filter_map(|id| rows.run(*id));
            out.extend(
                due.filter(|run| run.matched > 0)
                    .map(|run| Need::Inbox(run.id)),
            );
        }
        _ => {}
    }
}
