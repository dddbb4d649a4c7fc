//! Starting runs: once per id, once per key.

use super::wakes::grant;
use super::{rounds, signals, target_run};
use crate::message::{KeyId, digest};
use crate::{
    CancelMark, Entry, Hint, JournalRow, KeyKind, KeyRow, Lane, Name, Refusal, Rows, RunId, RunRow,
    RunState, Start, Started, Target, Timestamp, encode_entries, limits,
};

/// Starts a run, or finds the one that has the key or the id.
pub(super) fn start(start: &Start, rows: &mut Rows, now: Timestamp) -> Result<Started, Refusal> {
    check(start)?;
    let digest = digest(&[start.workflow.as_str(), start.input.as_str()]);
    let found = existing(start, rows, digest)?;
    if let Some(run) = found {
        let sent = match &start.signal {
            Some(signal) => Some(signals::send(signal, rows, now)?),
            None => None,
        };
        return Ok(Started {
            run,
            new: false,
            first: None,
            sent,
            claimed: Vec::new(),
        });
    }
    if let Some(signal) = &start.signal {
        signals::check(&signal.payload)?;
    }
    insert(start, rows, digest, now)?;
    let due = start.at.is_none_or(|at| at <= now);
    let claimant = start.claimant.filter(|_| due);
    if let Some(claimant) = claimant {
        grant(rows, start.run, claimant, now);
    }
    let sent = start
        .signal
        .as_ref()
        .map(|signal| signals::send(signal, rows, now));
    let sent = sent.transpose().expect("a new run takes its first signal");
    let first = start.first.as_ref().filter(|_| claimant.is_some());
    if first.is_some() {
        rows.claimed.retain(|claimed| claimed.run != start.run);
    }
    let first = first.map(|round| rounds::commit(round, rows, now));
    Ok(Started {
        run: start.run,
        new: true,
        first,
        sent,
        claimed: Vec::new(),
    })
}

fn check(start: &Start) -> Result<(), Refusal> {
    Refusal::payload(start.input.size())?;
    Refusal::over("a run's labels", limits::LABELS, start.labels.len())?;
    for (_, value) in &start.labels {
        Refusal::over("a label's size in bytes", limits::LABEL_BYTES, value.len())?;
    }
    Ok(())
}

fn existing(start: &Start, rows: &Rows, digest: u128) -> Result<Option<RunId>, Refusal> {
    if let Some(key) = &start.key {
        if let Some(row) = rows.keys.get(&run_key(&start.namespace, key)) {
            if row.digest != digest {
                return Err(Refusal::Conflict { key: key.clone() });
            }
            return Ok(target_run(
                rows,
                &start.namespace,
                &Target::Key(key.clone()),
            ));
        }
    }
    Ok(rows.run(start.run).map(|row| row.id))
}

fn run_key(namespace: &Name, key: &Name) -> KeyId {
    let key = key.as_str().to_owned();
    KeyId {
        namespace: namespace.clone(),
        kind: KeyKind::Run,
        key,
    }
}

fn insert(start: &Start, rows: &mut Rows, digest: u128, now: Timestamp) -> Result<(), Refusal> {
    let (root, depth) = match start.parent {
        None => (start.run, 0),
        Some(parent) => {
            let row = rows
                .run(parent.run)
                .ok_or(Refusal::UnknownRun { run: parent.run })?;
            let depth = row.depth + 1;
            Refusal::over("a tree's depth", limits::DEPTH as usize, depth as usize)?;
            (row.root, depth)
        }
    };
    let version = start
        .version
        .unwrap_or_else(|| latest(rows, &start.namespace, &start.workflow));
    let (namespace, workflow) = (start.namespace.clone(), start.workflow.clone());
    let lane = rows.make_lane(Lane {
        namespace,
        workflow: workflow.clone(),
        version,
    });
    if let Some(key) = &start.key {
        let row = KeyRow {
            run: Some(start.run),
            digest,
            sent: None,
        };
        rows.keys.put(run_key(&start.namespace, key), row);
    }
    let started = Entry::Started {
        workflow,
        version,
        input: start.input.clone(),
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
    let labels = start
        .labels
        .iter()
        .map(|(name, value)| (start.run, name.clone(), value.clone()));
    rows.labels.extend(labels);
    let mut row = RunRow {
        id: start.run,
        lane,
        state: RunState::Ready,
        priority: start.priority,
        execution: 1,
        epoch: 0,
        owner: None,
        lease_until: None,
        ready_at: None,
        news_at: Some(start.at.map_or(now, |at| at.max(now))),
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
        parent: start.parent,
        root,
        depth,
        key: start.key.clone(),
        created_at: now,
        changed_at: now,
        outcome: None,
    };
    row.settle(now);
    if start.claimant.is_none() {
        rows.hints
            .push(Hint::Ready(lane, row.ready_at.unwrap_or(now)));
    }
    rows.put_run(row);
    Ok(())
}

/// The highest version known for the workflow; 1 if there is none.
pub(super) fn latest(rows: &Rows, namespace: &Name, workflow: &Name) -> u32 {
    let known = rows.lanes().iter();
    let same = known.filter(|lane| lane.namespace == *namespace && lane.workflow == *workflow);
    same.map(|lane| lane.version).max().unwrap_or(1)
}

/// Starts what a round set off. A child must be new: its parent will wait for it.
pub(super) fn start_caused(
    caused: &Start,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<RunId, Refusal> {
    let child = caused.parent.is_some();
    if child && existing(caused, rows, 0).map_or(true, |found| found.is_some()) {
        let key = caused.key.clone().unwrap_or(Name::constant("run id"));
        return Err(Refusal::Conflict { key });
    }
    start(caused, rows, now).map(|started| started.run)
}
