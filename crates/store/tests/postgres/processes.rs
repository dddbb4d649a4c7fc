//! Several processes on one schema: here, several stores in one.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use roundel_core::{Hint, Refusal};
use roundel_store::{Error, Listener, Postgres, Store};
use roundel_testpg::schema;

use crate::tools::{address, claimed, commit, dump, open, options, register, round, start};

struct Ear(Sender<&'static str>);

impl Listener for Ear {
    fn hints(&self, _: Vec<Hint>) {
        let _ = self.0.send("hints");
    }

    fn others_committed(&self) {
        let _ = self.0.send("others");
    }
}

#[test]
fn b1_what_one_commits_the_other_sees_in_its_next_batch() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    register(&one);
    let run = claimed(&one, 1);
    for epoch in (1..12).step_by(2) {
        commit(&one, round(run, epoch)).expect("a round");
        let late = commit(&two, round(run, epoch));
        let fenced = matches!(late, Err(Error::Refused(Refusal::Fenced { .. })));
        assert!(fenced, "{late:?}");
        commit(&two, round(run, epoch + 1)).expect("a round");
    }
    assert_eq!(dump(&one), dump(&two));
}

#[test]
fn c16_a_commit_is_told_to_the_other_process_and_to_its_own_only_as_hints() {
    let Some(schema) = schema() else { return };
    let (one, two) = (open(&schema), open(&schema));
    register(&one);
    // Those who begin to listen are told to look once.
    std::thread::sleep(Duration::from_millis(500));
    let (own, at_own) = channel();
    let (other, at_other) = channel();
    one.listen(Arc::new(Ear(own)));
    two.listen(Arc::new(Ear(other)));
    roundel_store::ask(&one, roundel_core::Op::Start(start(1))).expect("a start");
    let within = Duration::from_secs(20);
    assert_eq!(at_own.recv_timeout(within), Ok("hints"));
    assert_eq!(at_other.recv_timeout(within), Ok("others"));
    assert!(at_own.recv_timeout(Duration::from_millis(200)).is_err());
}

#[test]
fn c16_a_process_that_cannot_listen_finds_commits_of_others_by_looking() {
    let Some(schema) = schema() else { return };
    let pooled = roundel_store::PostgresOptions {
        pooled: true,
        ..options(&schema)
    };
    let one = open(&schema);
    let two = Postgres::open(&address(&schema), pooled).expect("a database");
    register(&one);
    let (other, at_other) = channel();
    two.listen(Arc::new(Ear(other)));
    let within = Duration::from_secs(20);
    // Its own commits are told as hints alone, and each look at others' once.
    for (number, closely) in [(1, false), (2, true), (3, false)] {
        two.watch_closely(closely);
        while at_other.recv_timeout(Duration::from_secs(2)).is_ok() {}
        roundel_store::ask(&one, roundel_core::Op::Start(start(number))).expect("a start");
        assert_eq!(at_other.recv_timeout(within), Ok("others"));
    }
    assert!(at_other.recv_timeout(Duration::from_millis(1500)).is_err());
}
