//! Rounds that are decided over rows that a process keeps: whatever others wrote is noticed.

use std::sync::{Arc, Mutex, mpsc};

use roundel_core::{
    Caused, Claim, Claimant, Flow, Lane, Limit, Name, Op, Outcome, Parent, Payload, Policy,
    QueueId, Register, Reply, RunId, RunState, Signal, Start, Target, Then,
};
use roundel_store::{Answered, Ask, Postgres, Request, Sink, Store, ask};
use roundel_testpg::{Schema, schema};

use crate::tools::{
    FLOW, LEASE, SPACE, WORKER, claimed, commit, dump, open, register, round, sql, start,
};

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

/// Hands answers on.
struct Answers(Mutex<mpsc::Sender<Answered>>);

impl Sink for Answers {
    fn deliver(&self, answers: Vec<Answered>) {
        let sender = self.0.lock().expect("whoever sends is well");
        answers
            .into_iter()
            .for_each(|answer| drop(sender.send(answer)));
    }
}

fn limit(store: &dyn Store, change: impl FnOnce(&mut Limit)) {
    let mut limit = Limit::of(QueueId {
        namespace: SPACE,
        queue: FLOW,
    });
    change(&mut limit);
    ask(store, Op::Limit(limit)).expect("a limit");
}

/// Starts a run that asks for a permit. Says whether it has been given one.
fn takes(store: &dyn Store, number: u128) -> bool {
    let run = claimed(store, number);
    let dump = dump(store);
    let mut rows = dump.runs.iter();
    let row = rows.find(|row| row.id == run).expect("the run");
    row.flow == Flow::Permit
}

/// Two processes with a queue of which the first has taken a permit, so that it keeps the row: two
/// of four are left to claims.
fn kept_queue(schema: &Schema) -> (Postgres, Postgres) {
    let (one, two) = (open(schema), open(schema));
    register(&one);
    limit(&one, |limit| limit.concurrency = Some(Some(4)));
    assert!(takes(&one, 1));
    (one, two)
}

#[test]
fn co_30_permits_that_another_process_gave_to_starts_are_seen() {
    let Some(schema) = schema() else { return };
    let (one, two) = kept_queue(&schema);
    assert!(takes(&two, 2));
    let before = one.metrics().retries;
    assert!(!takes(&one, 3), "half is left to claims");
    assert!(one.metrics().retries > before, "it was noticed");
}

#[test]
fn co_30_permits_that_another_process_gave_to_claims_are_seen() {
    let Some(schema) = schema() else { return };
    let (one, two) = kept_queue(&schema);
    ask(&two, Op::Start(start(2))).expect("a start");
    assert_eq!(claim(&two, 1), 1);
    assert!(!takes(&one, 3), "half is left to claims");
}

#[test]
fn co_30_limits_that_another_process_changed_hold_at_once() {
    let Some(schema) = schema() else { return };
    let (one, two) = kept_queue(&schema);
    limit(&two, |limit| limit.paused = Some(true));
    assert!(!takes(&one, 2));
    limit(&two, |limit| limit.paused = Some(false));
    assert!(takes(&one, 3));
}

#[test]
fn co_30_permits_of_a_queue_that_is_kept_come_and_go_in_one_statement() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    register(&one);
    limit(&one, |limit| limit.concurrency = Some(Some(4)));
    for made in [
        "CREATE TABLE noted (alone boolean)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO noted SELECT current_query() LIKE '%spent AS%'; RETURN NEW; END $$",
        "CREATE TRIGGER note BEFORE UPDATE ON roundel_queue FOR EACH ROW EXECUTE FUNCTION note()",
    ] {
        sql(&schema, made);
    }
    for number in 1..50 {
        assert!(takes(&one, number), "the one before has given its back");
        let run = RunId(uuid::Uuid::from_u128(number));
        let mut end = round(run, 1);
        end.then = Then::End(RunState::Completed, Outcome::Value(Payload::null()));
        commit(&one, end).expect("its end");
    }
    assert_eq!(one.metrics().retries, 0);
    // Now and then permits are counted again.
    let alone = sql(&schema, "DELETE FROM noted WHERE alone");
    assert!(alone > 60, "{alone} of 98");
}

#[test]
fn co_30_starts_that_ask_for_permits_share_a_transaction() {
    const STARTS: u128 = 200;
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    kept(&one);
    limit(&one, |limit| limit.concurrency = Some(Some(10_000)));
    let before = one.metrics().batches;
    all_at_once(&one, (0..STARTS).map(|number| taking(100 + number)));
    let batches = one.metrics().batches - before;
    assert!(batches <= 4, "{batches} transactions");
    assert_eq!(held(&one) as u128, STARTS);
}

#[test]
fn children_that_end_at_the_same_time_share_a_transaction() {
    const CHILDREN: u128 = 200;
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    let run = kept(&one);
    let numbers = 100..100 + CHILDREN;
    let mut parent = round(run, 2);
    for (call, number) in (1..).zip(numbers.clone()) {
        let parent_is = Parent {
            run,
            execution: 1,
            call,
        };
        let child = Start {
            parent: Some(parent_is),
            ..start(number)
        };
        parent.caused.push(Caused::Child(call, Box::new(child)));
    }
    commit(&one, parent).expect("a round with children");
    let mut left = CHILDREN as usize;
    while left > 0 {
        let taken = claim(&one, left);
        assert!(taken > 0, "{left} are left");
        left -= taken;
    }
    let before = one.metrics().batches;
    let ends = numbers.map(|number| {
        let mut end = round(RunId(uuid::Uuid::from_u128(number)), 1);
        end.then = Then::End(RunState::Completed, Outcome::Value(Payload::null()));
        Op::Commit(end)
    });
    all_at_once(&one, ends);
    let batches = one.metrics().batches - before;
    assert!(batches <= 4, "{batches} transactions");
    assert_eq!(mail(&one, run).0 as u128, CHILDREN);
}

/// Takes so many at most. Says how many it took.
fn claim(store: &Postgres, limit: usize) -> usize {
    let lanes = vec![register(store)];
    let (worker, lease) = (WORKER, LEASE);
    let claim = Op::Claim(Claim {
        worker,
        lanes,
        limit,
        lease,
    });
    match ask(store, claim) {
        Ok(Reply::Claimed { runs, .. }) => runs.len(),
        other => panic!("{other:?}"),
    }
}

/// A start that asks for a permit.
fn taking(number: u128) -> Op {
    let (worker, lease) = (WORKER, LEASE);
    Op::Start(Start {
        claimant: Some(Claimant { worker, lease }),
        ..start(number)
    })
}

/// Asks for all of it in one go; each is answered, and none refused.
fn all_at_once(store: &Postgres, ops: impl Iterator<Item = Op>) {
    let (sender, answers) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Answers(Mutex::new(sender)));
    let request = |(tag, op)| Request {
        ask: Box::new(Ask::Op(op)),
        tag,
        sink: sink.clone(),
    };
    let requests: Vec<Request> = (0..).zip(ops).map(request).collect();
    let asked = requests.len();
    store.submit(requests);
    drop(sink);
    // Ends when nobody is left who might answer.
    let mut tags: Vec<u64> = Vec::new();
    for answer in answers {
        assert!(answer.result.is_ok(), "{:?}", answer.result);
        tags.push(answer.tag);
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), asked);
}

/// How many permits are given.
fn held(store: &Postgres) -> usize {
    let dump = dump(store);
    let held = dump.runs.iter().filter(|row| row.flow == Flow::Permit);
    held.count()
}

/// More than a batch holds, so that the second is decided while the first is under way.
const TWO_BATCHES: u128 = 1024;

#[test]
fn co_30_permits_that_are_being_given_are_given_once() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    register(&one);
    limit(&one, |limit| limit.concurrency = Some(Some(1_200)));
    assert!(takes(&one, 1));
    all_at_once(&one, (0..TWO_BATCHES).map(|number| taking(100 + number)));
    assert_eq!(held(&one), 600, "half is left to claims");
    assert_eq!(one.metrics().retries, 0);
}

#[test]
fn c6_what_came_behind_rounds_that_do_not_hold_is_decided_again() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    kept(&one);
    all_at_once(&one, (100..100 + TWO_BATCHES).map(taking));
    let run = |number| RunId(uuid::Uuid::from_u128(number));
    ask(&two, signal(run(105))).expect("a signal");
    let before = one.metrics().retries;
    let rounds = (100..100 + TWO_BATCHES).map(|number| Op::Commit(round(run(number), 1)));
    all_at_once(&one, rounds);
    assert!(one.metrics().retries > before, "it was noticed");
    let dump = dump(&one);
    let there = dump.runs.iter().filter(|row| row.id != run(1));
    let once = there.filter(|row| row.epoch == 2);
    assert_eq!(once.count() as u128, TWO_BATCHES);
    assert_eq!(mail(&one, run(105)), (1, 2));
}

#[test]
fn ro_04_what_is_asked_for_again_while_it_is_under_way_is_done_once() {
    let Some(schema) = schema() else { return };
    let one = open(&schema);
    kept(&one);
    let (starts, again) = (100..100 + TWO_BATCHES / 2, 100..100 + TWO_BATCHES / 2);
    all_at_once(&one, starts.chain(again).map(taking));
    assert_eq!(dump(&one).runs.len() as u128, 1 + TWO_BATCHES / 2);
    assert_eq!(one.metrics().retries, 0);
}
