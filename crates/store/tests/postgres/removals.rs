//! Trees that ended long ago are removed in great numbers: together, beside what is at work, and so
//! that their room is used again.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use roundel_core::{
    Delete, Op, Outcome, Payload, Refusal, Reply, RunId, RunState, Start, Target, Then,
};
use roundel_store::{Answered, Ask, Error, Postgres, Request, Sink, Store};
use roundel_testpg::schema;

use crate::tools::{SPACE, claimed, commit, dump, open, register, round, sql, start};

struct Answers(mpsc::Sender<Answered>);

impl Sink for Answers {
    fn deliver(&self, answers: Vec<Answered>) {
        for answer in answers {
            let _ = self.0.send(answer);
        }
    }
}

/// Asks for all of these at once; the answers in the order in which they were asked for.
fn ask_all(store: &Postgres, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
    let (sender, answers) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Answers(sender));
    let request = |(tag, op)| Request {
        ask: Box::new(Ask::Op(op)),
        tag,
        sink: Arc::clone(&sink),
    };
    let requests: Vec<Request> = (0..).zip(ops).map(request).collect();
    let count = requests.len();
    store.submit(requests);
    let within = Duration::from_secs(60);
    let answers = (0..count).map(|_| answers.recv_timeout(within).expect("an answer"));
    let mut answers: Vec<Answered> = answers.collect();
    answers.sort_by_key(|answer| answer.tag);
    answers.into_iter().map(|answer| answer.result).collect()
}

fn id(number: u128) -> RunId {
    start(number).run
}

fn delete(number: u128) -> Op {
    Op::Delete(Delete {
        namespace: SPACE,
        target: Target::Run(id(number)),
        force: false,
    })
}

fn last_round(run: RunId) -> roundel_core::Round {
    let mut last = round(run, 1);
    last.then = Then::End(RunState::Completed, Outcome::Value(Payload::null()));
    last
}

fn ended(store: &Postgres, numbers: std::ops::Range<u128>) {
    for number in numbers {
        let run = claimed(store, number);
        commit(store, last_round(run)).expect("its end");
    }
}

fn gone(result: &Result<Reply, Error>) -> Option<usize> {
    match result {
        Ok(Reply::Deleted { runs, more: false }) => Some(*runs),
        _ => None,
    }
}

#[test]
fn m6_trees_that_have_ended_go_in_one_commit_and_each_is_answered() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    ended(&store, 1..42);
    let child = "UPDATE roundel_run SET parent_run = '00000000-0000-0000-0000-000000000028', \
         root = '00000000-0000-0000-0000-000000000028', parent_execution = 1, parent_call = 1 \
         WHERE id = '00000000-0000-0000-0000-000000000029'";
    assert_eq!(sql(&schema, child), 1, "41 is below 40");
    let live = claimed(&store, 50);
    let before = store.metrics().batches;
    let asked = (1..41).chain([50, 60]).map(delete).collect();
    let answers = ask_all(&store, asked);
    let gone: Vec<Option<usize>> = answers.iter().map(gone).collect();
    assert_eq!(gone[..39], [Some(1); 39]);
    assert_eq!(gone[39], Some(2), "with the one below it");
    let state = RunState::Running;
    let refusal = |at: usize| match &answers[at] {
        Err(Error::Refused(refusal)) => refusal.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(40), Refusal::NotEnded { run: live, state });
    assert_eq!(refusal(41), Refusal::UnknownRun { run: id(60) });
    let batches = store.metrics().batches - before;
    assert!(batches <= 4, "{batches} batches");
    let dump = dump(&store);
    assert!(dump.runs.iter().map(|row| row.id).eq([live]));
    assert!(dump.journal.iter().all(|row| row.run == live));
}

#[test]
fn ro_51_what_follows_a_removal_of_the_same_run_comes_after_it() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    ended(&store, 1..2);
    let live = claimed(&store, 2);
    let again = Op::Start(Start::clone(&start(1)));
    let ends = Op::Commit(last_round(live));
    let answers = ask_all(&store, vec![delete(1), ends, again, delete(2)]);
    assert_eq!((gone(&answers[0]), gone(&answers[3])), (Some(1), Some(1)));
    assert!(matches!(&answers[1], Ok(Reply::Committed(_))));
    match &answers[2] {
        Ok(Reply::Started(started)) => assert!(started.new, "the one before it is gone"),
        other => panic!("{other:?}"),
    }
    assert!(dump(&store).runs.iter().map(|row| row.id).eq([id(1)]));
}

/// Runs that ended, as many as it takes for room to be made.
const MANY: &str = "INSERT INTO roundel_run (id, root, epoch, head, mail_last, created_at, \
     changed_at, execution, mail, matched, waits, watchers, crashes, lane, priority, depth, \
     cancel, suspect, state) \
     SELECT id, id, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, false, 'completed' \
     FROM generate_series(1, 5000) AS n, LATERAL (SELECT lpad(to_hex(n), 32, '0')::uuid) AS x (id)";
const LOOKED: &str = "SELECT 1 FROM pg_stat_user_tables WHERE relname = 'roundel_run' \
     AND schemaname = current_schema() AND vacuum_count > 0";

#[test]
fn m6_the_room_of_what_was_removed_is_used_again_before_long() {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    register(&store);
    assert_eq!(sql(&schema, MANY), 5_000);
    let answers = ask_all(&store, (1..5_001).map(delete).collect());
    assert_eq!(answers.iter().filter_map(gone).sum::<usize>(), 5_000);
    let until = Instant::now() + Duration::from_secs(30);
    while sql(&schema, LOOKED) == 0 {
        assert!(Instant::now() < until, "the server was not asked");
        std::thread::sleep(Duration::from_millis(50));
    }
}
