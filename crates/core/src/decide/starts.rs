//! Starting runs: once per id, once per key.

use std::collections::BTreeMap;

use super::batches::{self, Together};
use super::operators::NOBODY;
use super::queues::{self, Admission};
use super::wakes::grant;
use super::{rounds, run_key, signals, undos};
use crate::message::digest;
use crate::mutant::{self, Mutant};
use crate::{
    CancelMark, Deadlines, Entry, Flow, Hint, JournalRow, KeyRow, Lane, LaneId, Name, QueueId,
    Refusal, Rows, RunId, RunRow, RunState, Signal, Start, Started, Target, Timestamp, Told,
    UndoMark, encode_entries, limits,
};

/// Starts a run, or finds the one that has the key or the id.
pub(super) fn start(start: &Start, rows: &mut Rows, now: Timestamp) -> Result<Started, Refusal> {
    check(start)?;
    let digest = digest_of(start);
    if let Some(run) = existing(start, rows, digest)? {
        let signal = start.signal.as_ref();
        let sent = signal.map(|signal| signals::send_to(Some(run), signal, rows, now));
        return Ok(Started {
            sent: sent.transpose()?,
            ..alone(run, false)
        });
    }
    if let Some(run) = start.is_like(rows, now)
        && !mutant::on(Mutant::DedupeIgnored)
    {
        replace(start, run, rows, now);
        return Ok(alone(run, false));
    }
    if let Some(signal) = &start.signal {
        signals::may_send(signal, rows)?;
    }
    let mut together = Together::default();
    together.add(start);
    batches::may_open(start, &mut together, rows)?;
    let entry = rows.journal.len();
    insert(start, rows, digest, now)?;
    if start.batch.is_some() {
        batches::open(start, rows, now);
        join(&mut rows.journal, entry);
        return Ok(alone(start.run, true));
    }
    let due = start.begins_at(now).is_none_or(|at| at <= now);
    let claimant = start.claimant.filter(|_| due);
    let admission = claimant.map(|_| queues::admit(start, rows, now));
    let claimant = claimant.filter(|_| admission != Some(Admission::Waits));
    if let Some(claimant) = claimant {
        grant(rows, start.run, claimant, now);
        if admission == Some(Admission::Permit) {
            rows.run_mut(start.run).expect("just made").flow = Flow::Permit;
        }
    } else {
        let row = rows.run(start.run).expect("just made");
        let (lane, at) = (row.lane, row.ready_at.unwrap_or(now));
        rows.hints.push(Hint::Ready(lane, at));
    }
    let signal = start.signal.as_ref();
    let sent = signal.map(|signal| signals::send_to(Some(start.run), signal, rows, now));
    let sent = sent.transpose().expect("a new run takes its first signal");
    let first = start.first.as_ref().filter(|_| claimant.is_some());
    if first.is_some() {
        rows.claimed.retain(|claimed| claimed.run != start.run);
    }
    let first = first.map(|round| Box::new(rounds::commit(round, rows, now)));
    join(&mut rows.journal, entry);
    Ok(Started {
        run: start.run,
        new: true,
        first,
        sent,
        claimed: Vec::new(),
    })
}

/// This run is there, and nothing else was done.
fn alone(run: RunId, new: bool) -> Started {
    Started {
        run,
        new,
        first: None,
        sent: None,
        claimed: Vec::new(),
    }
}

/// The run that waits for others like it takes this one's input, and waits on: its next execution.
fn replace(start: &Start, run: RunId, rows: &mut Rows, now: Timestamp) {
    if !start.dedupe.as_ref().is_some_and(|dedupe| dedupe.last) {
        return;
    }
    let row = rows.run(run).expect("found");
    let lane = rows.lane(row.lane).clone();
    let started = Entry::Started {
        workflow: lane.workflow,
        version: lane.version,
        input: start.input.clone(),
        unsettled: None,
        context: start.context.clone(),
        due: due_later(start, now),
    };
    undos::append(rows, run, &[Entry::Continued], now);
    let epoch = rows.run(run).expect("found").epoch - 1;
    let started = encode_entries(&[started]);
    rounds::continue_as_new(rows, (run, epoch), (&started, None), NOBODY, now);
    let row = rows.run_mut(run).expect("found");
    row.news_at = start.begins_at(now);
    row.settle(now);
    let (lane, at) = (row.lane, row.ready_at.unwrap_or(now));
    rows.hints.push(Hint::Ready(lane, at));
}

/// What tells a request from another under the same key. Without one nobody asks.
fn digest_of(start: &Start) -> u128 {
    match start.key {
        Some(_) => digest(&[start.workflow.as_str(), start.input.identity()]),
        None => 0,
    }
}

pub(super) fn check(start: &Start) -> Result<(), Refusal> {
    let run = start.run;
    Refusal::payload(start.input.size())?;
    start.context.check()?;
    Refusal::over("a run's labels", limits::LABELS, start.labels.len())?;
    for (_, value) in &start.labels {
        Refusal::over("a label's size in bytes", limits::LABEL_BYTES, value.len())?;
        Refusal::nul("a label's value", value)?;
    }
    let first = start.first.as_ref();
    if first.is_some_and(|round| round.run != run) {
        let what = "its first round is another run's";
        return Err(Refusal::Inconsistent { run, what });
    }
    let is_for_it = |signal: &Signal| {
        signal.namespace == start.namespace
            && match &signal.target {
                Target::Run(to) => *to == run,
                Target::Key(to) => start.key.as_ref() == Some(to),
            }
    };
    if start
        .signal
        .as_ref()
        .is_some_and(|signal| !is_for_it(signal))
    {
        let what = "its first signal is for another run";
        return Err(Refusal::Inconsistent { run, what });
    }
    let alone = start.parent.is_none() && start.signal.is_none() && start.batch.is_none();
    if start.dedupe.is_some() && !alone {
        let what = "what stands for others like it is waited for, signalled or a batch";
        return Err(Refusal::Inconsistent { run, what });
    }
    // Who repeats it under its key may come when it no longer stands for others: two runs for one.
    if let Some(key) = start.key.clone().filter(|_| start.dedupe.is_some()) {
        return Err(Refusal::KeyOfSeveral { key });
    }
    batches::check(start)
}

/// The run that has the key, or the id. A key or id that was used for something else is a conflict.
fn existing(start: &Start, rows: &Rows, digest: u128) -> Result<Option<RunId>, Refusal> {
    if let Some(key) = &start.key
        && !mutant::on(Mutant::StartKeyIgnored)
    {
        let row = rows.keys.get(&run_key(&start.namespace, key));
        let taken = row.and_then(|row| Some((row.digest, row.run?)));
        if let Some((first, run)) = taken.filter(|(_, run)| rows.run(*run).is_some()) {
            if first != digest {
                return Err(Refusal::Conflict { key: key.clone() });
            }
            return Ok(Some(run));
        }
    }
    let Some(row) = rows.run(start.run) else {
        return Ok(None);
    };
    let lane = rows.lane(row.lane);
    let same = lane.namespace == start.namespace && lane.workflow == start.workflow;
    if !same || row.key != start.key {
        return Err(id_in_use(start.run));
    }
    Ok(Some(row.id))
}

fn id_in_use(run: RunId) -> Refusal {
    let key = Name::new(run.to_string()).expect("an id is a name");
    Refusal::Conflict { key }
}

/// A start and its first round are one row of the journal.
fn join(journal: &mut Vec<JournalRow>, at: usize) {
    let (start, round) = (&journal[at], journal.get(at + 1));
    let Some(round) = round.filter(|round| round.run == start.run && round.first == 2) else {
        return;
    };
    assert!(
        start.entries.last() == Some(&b']') && round.entries.first() == Some(&b'['),
        "entries are arrays"
    );
    let round = journal.remove(at + 1);
    let start = &mut journal[at];
    start.entries.pop();
    start.entries.push(b',');
    start.entries.extend_from_slice(&round.entries[1..]);
    start.count += round.count;
}

/// The root of its tree, how far below that it is, and what deadlines it has from there.
fn place(start: &Start, rows: &Rows) -> Result<(RunId, u16, Deadlines), Refusal> {
    let Some(parent) = start.parent else {
        return Ok((start.run, 0, start.deadlines));
    };
    let row = rows
        .run(parent.run)
        .ok_or(Refusal::UnknownRun { run: parent.run })?;
    let depth = row.depth + 1;
    Refusal::over("a tree's depth", limits::DEPTH as usize, depth as usize)?;
    let deadlines = match mutant::on(Mutant::DeadlineNotInherited) {
        true => start.deadlines,
        false => row.deadlines.and(start.deadlines),
    };
    Ok((row.root, depth, deadlines))
}

fn insert(start: &Start, rows: &mut Rows, digest: u128, now: Timestamp) -> Result<(), Refusal> {
    let (root, depth, deadlines) = place(start, rows)?;
    let version = start
        .version
        .unwrap_or_else(|| latest(rows, &start.namespace, &start.workflow));
    let (namespace, workflow) = (start.namespace.clone(), start.workflow.clone());
    let lane = rows.make_lane(&Lane {
        namespace,
        workflow: workflow.clone(),
        version,
    });
    if start.flow_key.is_some() {
        let namespace = start.namespace.clone();
        let queue = start.workflow.clone();
        rows.make_lane(&QueueId { namespace, queue }.marker());
    }
    if let Some(key) = &start.key {
        let row = KeyRow {
            run: Some(start.run),
            digest,
            sent: None,
        };
        rows.keys.put(run_key(&start.namespace, key), row);
    }
    if let Some(key) = start.dedupe_key() {
        let row = KeyRow {
            run: Some(start.run),
            digest: 0,
            sent: None,
        };
        rows.keys.put(key, row);
    }
    let started = Entry::Started {
        workflow,
        version,
        input: start.input.clone(),
        unsettled: None,
        context: start.context.clone(),
        due: due_later(start, now),
    };
    rows.journal.push(JournalRow {
        run: start.run,
        execution: 1,
        first: 1,
        count: 1,
        epoch: 0,
        at: now,
        entries: encode_entries(&[started]),
    });
    let labels: BTreeMap<&Name, &String> = start.labels.iter().map(|(k, v)| (k, v)).collect();
    let labels = labels.into_iter();
    let labels = labels.map(|(name, value)| (start.run, name.clone(), value.clone()));
    rows.labels.extend(labels);
    let mut row = RunRow {
        parent: start.parent,
        root,
        depth,
        deadlines,
        timer_at: deadlines.forward.map(|due| due.at),
        ..fresh(start, lane, now)
    };
    row.settle(now);
    rows.put_run(row);
    Ok(())
}

/// When it may begin, if not at once.
fn due_later(start: &Start, now: Timestamp) -> Option<Timestamp> {
    start.begins_at(now).filter(|at| *at > now)
}

/// The row of a run that has just been started.
fn fresh(start: &Start, lane: LaneId, now: Timestamp) -> RunRow {
    RunRow {
        id: start.run,
        lane,
        state: RunState::Ready,
        priority: start.priority,
        execution: 1,
        epoch: 0,
        owner: None,
        lease_until: None,
        ready_at: None,
        news_at: Some(start.begins_at(now).map_or(now, |at| at.max(now))),
        timer_at: None,
        head: 1,
        mail_last: 0,
        mail: 0,
        matched: 0,
        waits: 0,
        watchers: 0,
        suspect: false,
        crashes: 0,
        cancel: CancelMark::None,
        holder: None,
        parent: None,
        root: start.run,
        depth: 0,
        told: Told::Message,
        number: None,
        publication: None,
        undo: UndoMark::Nothing,
        deadlines: start.deadlines,
        flow: Flow::Free,
        flow_key: start.flow_key.clone(),
        key: start.key.clone(),
        created_at: now,
        changed_at: now,
        outcome: None,
    }
}

/// The highest version known for the workflow; 1 if there is none.
pub(super) fn latest(rows: &Rows, namespace: &Name, workflow: &Name) -> u32 {
    let known = rows.lanes().iter();
    let same = known.filter(|lane| lane.namespace == *namespace && lane.workflow == *workflow);
    let versions = same.map(|lane| lane.version);
    let versions = versions.filter(|version| *version != Lane::LIMITS);
    versions.max().unwrap_or(1)
}

/// May this child be started? It must be new: its parent will wait for it.
pub(super) fn may_start(child: &Start, rows: &Rows) -> Result<(), Refusal> {
    check(child)?;
    place(child, rows)?;
    match is_new(child, rows)? {
        true => Ok(()),
        false => Err(in_use(child)),
    }
}

/// Has nobody its key or its id?
pub(super) fn is_new(start: &Start, rows: &Rows) -> Result<bool, Refusal> {
    Ok(existing(start, rows, digest_of(start))?.is_none())
}

/// Somebody has its key, or its id.
pub(super) fn in_use(start: &Start) -> Refusal {
    let key = start.key.clone();
    key.map_or_else(|| id_in_use(start.run), |key| Refusal::Conflict { key })
}

/// How far below the root of its tree it is.
pub(super) fn depth(start: &Start, rows: &Rows) -> Result<u16, Refusal> {
    place(start, rows).map(|(_, depth, _)| depth)
}

/// May a step send all of these? Those that were sent before are not sent again.
pub(super) fn may_send<'s>(
    sent: impl Iterator<Item = &'s Start>,
    rows: &Rows,
) -> Result<(), Refusal> {
    let mut keys: BTreeMap<&Name, u128> = BTreeMap::new();
    let (mut together, mut batches) = (Together::default(), Vec::new());
    for start in sent {
        check(start)?;
        let digest = digest_of(start);
        let new = existing(start, rows, digest)?.is_none();
        let first = together.add(start);
        match &start.key {
            None if !first => return Err(id_in_use(start.run)),
            Some(key) if *keys.entry(key).or_insert(digest) != digest => {
                return Err(Refusal::Conflict { key: key.clone() });
            }
            _ => batches.extend((new && first).then_some(start)),
        }
    }
    let mut batches = batches.into_iter();
    batches.try_for_each(|start| batches::may_open(start, &mut together, rows))
}

/// Starts a child.
pub(super) fn child(child: &Start, rows: &mut Rows, now: Timestamp) -> Result<(), Refusal> {
    may_start(child, rows)?;
    start(child, rows, now).map(|_| ())
}
