//! Which rows an operation needs, in stages. Keys are claimed first, then gates are locked, then
//! runs, each sorted; the rest hangs under rows that are locked by then. A store that locks takes
//! a batch through the stages together; the others load as they go.

mod facts;
mod gates;
mod incoming;
mod leases;
mod leftovers;
mod scopes;

use facts::{of_declared, of_follow, of_record};
use gates::{Gates, gate_of, gate_of_signal, of_gates};
use incoming::{of_receive, of_record_and_queues};
pub use leases::{Due, Keyed};
use leases::{of_claim, of_leases, of_permit, of_register};
use leftovers::{of_leftovers, of_redirect};
use scopes::{
    batch_of, of_batch, of_complete, of_delete, of_join, of_latch, of_mark, of_publish, of_scope,
};

use crate::decide::{offer_key, run_key, sender_key, target_run};
use crate::{
    Audited, Cancel, Caused, Claimant, Consumed, DocumentId, FactId, GateId, KeyId, LatchId,
    LockId, MailId, Name, Offer, Op, Policy, Position, PublicationId, QueueId, Round, Rows, RunId,
    RunRow, STATE_CHANGED, Signal, Start, StreamId, Target, Then, WorkerId, limits,
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
    /// The first workers, by id, that were last seen longer ago than `limits::UNSEEN`, this many,
    /// into `unseen`.
    Unseen(usize),
    /// Runs that are due, into `found`: `limit` that are no suspects, lane by lane, the lanes
    /// taking turns at being first, in a lane by priority, then oldest due first; then, if there
    /// are suspects due, the first of those of all lanes. A lease that ends later than the longest
    /// one is due too. And when the next is due after now, into `found_next`.
    Due(Due),
    /// The limits of a queue. Whoever has them is the only one who gives permits.
    Queue(QueueId),
    /// How many runs of a queue have a permit, by flow key, into `permits`, where operations keep
    /// the number right.
    Permits(QueueId),
    /// The run and all below it, `limit` of them, into `found`: whoever has a parent there comes
    /// before it, so that the first of them can go without leaving orphans. Brothers by id.
    Subtree(RunId, usize),
    /// The waits of a run for a signal.
    Waits(RunId, Name),
    /// All waits of a run, the offers they have, and for each gate of theirs the first who wait
    /// there, this many, with their runs: some of them may end together with this one.
    AllWaits(RunId, usize),
    /// The messages of that name that are not parked: the first that do not expire, this many, and
    /// all that do.
    Mail(RunId, Name, usize),
    /// One message.
    Letter(MailId),
    /// All signals in the mailbox of a run.
    Unread(RunId),
    /// What is matched to calls of the run: waits that have something, with what they have, and
    /// messages of the engine's own.
    Inbox(RunId),
    /// The first offers that nobody has, this many.
    Offers(GateId, usize),
    /// The first who wait for an offer and have none, this many, with their runs and what is
    /// matched to calls of those.
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
    /// A run that a publication set off, if one is left, into `found`.
    Heard(PublicationId),
    /// A latch.
    Latch(LatchId),
    /// The runs that one call set off together, in order, into `scopes`: run, execution, call.
    Scope(RunId, u32, u32),
    /// Something to be held alone until the transaction ends, by a store that does not work alone.
    Lock(LockId),
    /// A fact, which is held.
    Fact(FactId),
    /// How far a stream is, which is held.
    Stream(StreamId),
    /// A document, which is held.
    Document(DocumentId),
    /// All projections of a tenant. Nobody changes which they are meanwhile.
    Projections(Name),
    /// The facts after this one, this many, into `tail`; only such before which no other can come,
    /// if that is said.
    Tail(Position, usize, bool),
    /// The documents of a tenant after this path, this many, of whatever generation, into `swept`.
    Sweep(Name, String, usize),
    /// The last row of a namespace's audit. Whoever has it is the only one who adds to it.
    Audit(Name),
}

/// What `op` needs in this stage, given what earlier stages loaded.
pub fn needs(op: &Op, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match op {
        Op::Start(start) => of_start(start, rows, stage, out),
        Op::Commit(round) => of_round(round, rows, stage, out),
        Op::Signal(signal) => of_signal(signal, rows, stage, out),
        Op::Offer(offer) => of_offer(offer, rows, stage, out),
        Op::Redirect(redirect) => of_redirect(redirect, rows, stage, out),
        Op::Cancel(cancel) => of_cancel(cancel, rows, stage, out),
        Op::Patch(patch) => {
            of_target(&patch.namespace, &patch.target, rows, stage, out);
            let run = target_run(rows, &patch.namespace, &patch.target);
            if let Some(run) = run.filter(|_| stage == Stage::Rest) {
                out.push(Need::State(run));
                of_message(run, (&STATE_CHANGED, None), rows, out);
            }
        }
        Op::Resume(resume) => {
            of_target(&resume.namespace, &resume.target, rows, stage, out);
            let run = target_run(rows, &resume.namespace, &resume.target);
            if let Some(run) = run.filter(|_| resume.anew.is_some() && stage == Stage::Rest) {
                out.push(Need::Subtree(run, limits::DELETE + 1));
                out.push(Need::Inbox(run));
            }
        }
        Op::Undo(undo) => of_target(&undo.namespace, &undo.target, rows, stage, out),
        Op::Park(park) => of_target(&park.namespace, &park.target, rows, stage, out),
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
                of_complete(row, rows, stage, out);
            }
        }
        Op::Delete(delete) => of_delete(delete, rows, stage, out),
        Op::Forget(forget) => match stage {
            Stage::Keys => out.push(Need::Publication(forget.publication)),
            Stage::Runs => out.push(Need::Heard(forget.publication)),
            _ => {}
        },
        Op::Limit(limit) if stage == Stage::Gates => out.push(Need::Queue(limit.queue.clone())),
        Op::Limit(_) => {}
        Op::Record(record) => of_record_and_queues(record, rows, stage, out),
        Op::Receive(receive) => of_receive(receive, rows, stage, out),
        Op::Declare(op) => of_declared((&op.projection, true), stage, out),
        Op::Rebuild(op) => of_declared((&op.projection, false), stage, out),
        Op::SkipFact(op) => of_declared((&op.projection, false), stage, out),
        Op::Follow(follow) => of_follow(follow, rows, stage, out),
        Op::Claim(claim) => of_claim(claim, rows, stage, out),
        Op::Renew(renew) => of_leases(renew.worker, &renew.runs, rows, stage, out),
        Op::Release(release) => of_leases(release.worker, &release.runs, rows, stage, out),
        Op::Register(register) => of_register(register.worker, rows, stage, out),
        Op::IfParked(parked) => needs(&parked.op, rows, stage, out),
        Op::Audited(audited) => of_audited(audited, rows, stage, out),
    }
}

fn of_cancel(cancel: &Cancel, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    of_target(&cancel.namespace, &cancel.target, rows, stage, out);
    let run = target_run(rows, &cancel.namespace, &cancel.target);
    match (stage, run) {
        (Stage::Rest, Some(run)) => of_mark(run, cancel.claimant, rows, out),
        (Stage::Found, Some(run)) => {
            of_leftovers([run].into_iter(), 0, rows, out);
            of_batch(run, rows, out);
        }
        _ => {}
    }
}

/// What is asked for, and the end of the audit.
fn of_audited(audited: &Audited, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let Some(about) = audited.op.about() else {
        return;
    };
    needs(&audited.op, rows, stage, out);
    if stage == Stage::Keys {
        out.push(Need::Audit(about.namespace.clone()));
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
    match stage {
        Stage::Keys => out.extend(start.dedupe_key().map(Need::Key)),
        Stage::Runs => out.extend(start.last_alike(rows).map(Need::Run)),
        Stage::Rest => out.extend(start.last_alike(rows).map(Need::Inbox)),
        Stage::Gates => of_permit(start, rows, out),
        Stage::Found => {}
    }
    if let Some(signal) = &start.signal {
        let has_key = key.and_then(|key| target_run(rows, &start.namespace, &key));
        let to = has_key.unwrap_or(start.run);
        of_sent(signal, Some(to), rows, stage, out);
        if stage == Stage::Rest {
            let mut gates = Gates::default();
            gates.started(start);
            of_gates(gates, to, rows, out);
        }
    }
    if let Some(first) = &start.first {
        of_round(first, rows, stage, out);
    }
    for its in start.batch.iter().flat_map(|batch| batch.starts()) {
        of_start(its, rows, stage, out);
    }
}

fn of_signal(signal: &Signal, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    of_target(&signal.namespace, &signal.target, rows, stage, out);
    let to = target_run(rows, &signal.namespace, &signal.target);
    of_sent(signal, to, rows, stage, out);
}

/// A signal, once it is known which run it is for.
fn of_sent(signal: &Signal, to: Option<RunId>, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    if stage == Stage::Keys {
        let key = signal.key.as_ref();
        out.extend(key.map(|key| Need::Key(sender_key(signal, key))));
    }
    if stage == Stage::Gates && signal.policy == Policy::Offer {
        out.push(Need::Gate(gate_of_signal(signal)));
    }
    if let Some(to) = to.filter(|_| stage == Stage::Rest) {
        of_message(to, (&signal.name, signal.claimant), rows, out);
    }
}

/// A message of that name for a run.
fn of_message(
    run: RunId,
    (name, claimant): (&Name, Option<Claimant>),
    rows: &Rows,
    out: &mut Vec<Need>,
) {
    if rows.run(run).is_some_and(|row| row.waits > 0) {
        out.push(Need::Waits(run, name.clone()));
    }
    of_wake(run, claimant, rows, out);
}

fn of_offer(offer: &Offer, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let gate = gate_of(offer);
    if stage == Stage::Keys {
        let key = offer.key.as_ref();
        out.extend(key.map(|key| Need::Key(offer_key(&gate, key))));
    }
    of_offered(gate, offer.claimant, (rows, stage), out);
}

/// Something that is offered at a gate.
fn of_offered(
    gate: GateId,
    claimant: Option<Claimant>,
    (rows, stage): (&Rows, Stage),
    out: &mut Vec<Need>,
) {
    if stage == Stage::Gates {
        out.push(Need::Gate(gate.clone()));
        out.push(Need::Waiters(gate, 1));
    } else if stage == Stage::Rest
        && let Some(wait) = rows.waiters_at(&gate).next()
    {
        of_wake(wait.run, claimant, rows, out);
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
            of_gates(Gates::of(round), round.run, rows, out);
            if let Some(row) = rows.run(round.run) {
                of_round_rest(round, row, out);
            }
            if matches!(round.then, Then::End(..)) {
                of_batch(round.run, rows, out);
            }
        }
        Stage::Found => {
            of_woken(round, rows, out);
            let ends = matches!(round.then, Then::End(..)).then_some(round.run);
            let below = scopes::asked_to_end(round, rows);
            below.iter().for_each(|run| of_batch(*run, rows, out));
            let sent = Gates::of(round).offers.into_values().sum();
            of_leftovers(ends.into_iter().chain(below), sent, rows, out);
        }
    }
}

fn of_round_rest(round: &Round, row: &RunRow, out: &mut Vec<Need>) {
    let waits = row.waits as usize + round.opened.len();
    let state = STATE_CHANGED;
    let mut names: Vec<&Name> = Vec::new();
    names.extend(round.opened.iter().map(|wait| &wait.name));
    names.extend(round.closed.iter().map(|(name, _)| name));
    names.extend(round.consumed.iter().filter_map(|consumed| match consumed {
        Consumed::Wait(name, _) => Some(name),
        Consumed::Mail(_) => None,
    }));
    if !round.state.is_empty() {
        names.push(&state);
    }
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
    if !round.state.is_empty() || round.state_seen.is_some() {
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
        if row.mail > 0 {
            out.push(Need::Unread(round.run));
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
        // The last command that ends, ends its batch.
        for ends in [Some(row), batch_of(row, rows)].into_iter().flatten() {
            if let Some(parent) = ends.parent {
                of_wake(parent.run, claimant, rows, out);
            }
            for (_, watcher, ..) in rows.watchers_of(ends.id) {
                of_wake(watcher, claimant, rows, out);
            }
        }
    }
}

fn of_caused(round: &Round, caused: &Caused, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    match caused {
        Caused::Child(_, start) | Caused::Spawn(_, start) | Caused::Send(start) => {
            of_start(start, rows, stage, out);
        }
        Caused::Record(record) => of_record(record, rows, stage, out),
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
