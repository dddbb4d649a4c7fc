//! Rounds that are decided over rows that a process keeps: whatever others wrote is noticed.

use roundel_core::{
    Lane, Name, Op, Payload, Policy, Register, Reply, RunId, Signal, Start, Target,
};
use roundel_store::{Postgres, Store, ask};
use roundel_testpg::schema;

use crate::tools::{FLOW, SPACE, WORKER, claimed, commit, dump, open, register, round, sql, start};

fn mail(store: &dyn Store, run: RunId) -> (u32, u64) {
    let dump = dump(store);
    let row = dump.runs.iter().find(|row| row.id == run);
    row.map(|row| (row.mail, row.epoch)).expect("the run")
}

fn signal(run: RunId) -> Op {
    Op::Signal(Signal {
        namespace: SPACE,
        target: Target::Run(run),
        name: Name::constant("go"),
        payload: Payload::null(),
        policy: Policy::Keep,
        expires: None,
        key: None,
        claimant: None,
    })
}

/// A run of which the store has just committed a round, so that it keeps it.
fn kept(store: &Postgres) -> RunId {
    register(store);
    let run = claimed(store, 1);
    commit(store, round(run, 1)).expect("a round");
    run
}

#[test]
fn c6_a_message_from_another_process_is_not_lost_under_a_row_that_is_kept() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    let run = kept(&one);
    let before = one.metrics().retries;
    ask(&two, signal(run)).expect("a signal");
    commit(&one, round(run, 2)).expect("a round");
    assert_eq!(mail(&one, run), (1, 3));
    assert!(one.metrics().retries > before, "it was noticed");
}

#[test]
fn b1_rounds_over_rows_that_are_kept_need_no_second_try() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    let run = kept(&one);
    for epoch in 2..20 {
        commit(&one, round(run, epoch)).expect("a round");
    }
    assert_eq!(mail(&one, run), (0, 20));
    assert_eq!(one.metrics().retries, 0);
}

#[test]
fn ro_04_a_run_that_another_process_has_started_is_not_started_again() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    kept(&one);
    kept_as(&two, 2);
    ask(&one, Op::Start(start(3))).expect("a start");
    match ask(&two, Op::Start(start(3))) {
        Ok(Reply::Started(started)) => assert!(!started.new),
        other => panic!("{other:?}"),
    }
}

/// The same as `kept`, of another number: so that the store knows the lanes.
fn kept_as(store: &Postgres, number: u128) {
    register(store);
    let run = claimed(store, number);
    commit(store, round(run, 1)).expect("a round");
}

#[test]
fn h6_a_row_that_is_gone_is_no_answer() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    let run = kept(&one);
    sql(&schema, "DELETE FROM roundel_run");
    let refused = commit(&one, round(run, 2));
    assert!(refused.is_err(), "{refused:?}");
    let dump = dump(&one);
    assert_eq!(dump.runs.len(), 0);
}

#[test]
fn l7_a_process_whose_own_row_is_gone_makes_it_again_before_anything_depends_on_it() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    let run = kept(&one);
    sql(&schema, "DELETE FROM roundel_committer");
    let rows = || sql(&schema, "UPDATE roundel_committer SET batch = batch");
    // A round that only goes on depends on its run alone, and does not look.
    commit(&one, round(run, 2)).expect("a round");
    assert_eq!(rows(), 0);
    ask(&one, Op::Start(start(2))).expect("a start");
    assert_eq!(rows(), 1);
}

#[test]
fn ro_04_a_version_that_another_process_made_known_is_taken_by_the_next_start() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    kept(&one);
    let newest = || Start {
        version: None,
        ..start(2)
    };
    let second = Op::Register(Register {
        worker: WORKER,
        name: "second".into(),
        lanes: vec![Lane {
            namespace: SPACE,
            workflow: FLOW,
            version: 2,
        }],
    });
    let Ok(Reply::Registered(lanes)) = ask(&two, second) else {
        panic!("it is registered");
    };
    ask(&one, Op::Start(newest())).expect("a start");
    let dump = dump(&one);
    let row = dump.runs.iter().find(|row| row.id == newest().run);
    assert_eq!(row.expect("the run").lane, lanes[0]);
}
