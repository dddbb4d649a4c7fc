//! Rows go in and come out.

use roundel_core::{
    Claim, Consumed, Delete, Entry, Op, OpenWait, Outcome, Policy, Reply, RunState, Sent, Signal,
    Start, Target, Then, decode_entries,
};
use roundel_store::{Answer, Ask, Query, Store, ask};

use crate::tools::{
    FLOW, File, LEASE, SPACE, WORKER, ask_all, claimed, commit, dump, name, payload, read,
    register, round, run, start, started, suspended,
};

#[test]
fn a_run_is_started_committed_ended_and_read_back() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let committed = commit(&store, round(id, 1)).unwrap();
    assert_eq!((committed.epoch, committed.kept), (2, true));
    let mut last = round(id, 2);
    last.then = Then::End(RunState::Completed, Outcome::Value(payload("42")));
    commit(&store, last).unwrap();
    let Ok(Answer::Run(Some(view))) = read(&store, Query::Run(SPACE, Target::Run(id))) else {
        panic!("the run is there");
    };
    assert_eq!(view.row.state, RunState::Completed);
    assert_eq!(view.row.outcome, Some(Outcome::Value(payload("42"))));
    assert_eq!(view.lane.workflow, FLOW);
    let dump = dump(&store);
    let entries: Vec<Entry> = dump
        .journal
        .iter()
        .flat_map(|row| decode_entries(&row.entries).unwrap())
        .collect();
    assert_eq!(entries.len(), 3);
    assert_eq!(view.row.head, 3);
}

#[test]
fn reopening_keeps_everything() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    commit(&store, suspended(id, 1)).unwrap();
    let before = dump(&store);
    store.close();
    drop(store);
    let store = file.open();
    assert_eq!(dump(&store), before);
    assert_eq!(before.runs.len(), 1);
}

#[test]
fn a_signal_reaches_a_waiting_run_and_is_consumed() {
    let file = File::new();
    let store = file.open_with_worker();
    let lane = register(&store);
    let id = claimed(&store, 1);
    let mut waiting = suspended(id, 1);
    waiting.opened.push(OpenWait {
        call: 1,
        name: name("signed"),
        offerable: false,
    });
    commit(&store, waiting).unwrap();
    let signal = Signal {
        namespace: SPACE,
        target: Target::Run(id),
        name: name("signed"),
        payload: payload("true"),
        policy: Policy::Keep,
        expires: None,
        key: Some(name("once")),
        claimant: None,
    };
    for _ in 0..2 {
        let sent = ask(&store, Op::Signal(signal.clone()));
        assert_eq!(sent, Ok(Reply::Sent(Sent::Delivered(id), Vec::new())));
    }
    let claim = Op::Claim(Claim {
        worker: WORKER,
        lanes: vec![lane],
        limit: 10,
        lease: LEASE,
    });
    let Ok(Reply::Claimed { runs, .. }) = ask(&store, claim) else {
        panic!("the run is due");
    };
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].inbox.len(), 1);
    let mut reading = suspended(id, runs[0].epoch);
    reading.consumed.push(Consumed::Wait(name("signed"), 1));
    commit(&store, reading).unwrap();
    let dump = dump(&store);
    assert!(dump.mail.is_empty() && dump.waits.is_empty());
    assert_eq!(dump.keys.len(), 1);
}

#[test]
fn a_key_is_free_again_in_the_batch_that_deletes_its_run() {
    let file = File::new();
    let store = file.open();
    let keyed = |number| Start {
        key: Some(name("mine")),
        ..start(number)
    };
    started(&store, keyed(1));
    let delete = Delete {
        namespace: SPACE,
        target: Target::Key(name("mine")),
        force: true,
    };
    let asks = [
        Op::Start(keyed(2)),
        Op::Delete(delete.clone()),
        Op::Start(keyed(3)),
        Op::Delete(delete),
        Op::Start(keyed(1)),
    ];
    let answers = ask_all(&store, asks.map(Ask::Op).into());
    let new = answers.iter().filter_map(|answer| match &answer.result {
        Ok(Reply::Started(started)) => Some((started.run, started.new)),
        _ => None,
    });
    let new: Vec<_> = new.collect();
    assert_eq!(new, [(run(1), false), (run(3), true), (run(1), true)]);
    let dump = dump(&store);
    assert_eq!(
        (dump.runs.len(), dump.keys.len(), dump.journal.len()),
        (1, 1, 1)
    );
}
