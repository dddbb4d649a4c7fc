//! Two processes on one file: here, two stores in one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use roundel_core::{Claim, Hint, Op, Refusal, Reply, WorkerId};
use roundel_store::{Error, Listener, Sqlite, Store, ask};

use crate::tools::{
    File, LEASE, claimed, commit, dump, register, round, row, start, started, suspended,
};

const OTHER: WorkerId = WorkerId(uuid::Uuid::from_u128(8));

enum Heard {
    Hints,
    Others,
}

struct Ear(Sender<Heard>);

impl Listener for Ear {
    fn hints(&self, _: Vec<Hint>) {
        let _ = self.0.send(Heard::Hints);
    }

    fn others_committed(&self) {
        let _ = self.0.send(Heard::Others);
    }
}

fn ear() -> (Arc<Ear>, Receiver<Heard>) {
    let (sender, receiver) = channel();
    (Arc::new(Ear(sender)), receiver)
}

#[test]
fn g7_what_one_commits_the_other_sees_in_its_next_batch() {
    let file = File::new();
    let one = file.open_with_worker();
    let two = file.open();
    let id = claimed(&one, 1);
    commit(&one, round(id, 1)).unwrap();
    // The second store now has the run in memory, then the first moves on, and so forth.
    for epoch in (2..20).step_by(2) {
        commit(&two, round(id, epoch)).unwrap();
        let late = commit(&one, round(id, epoch));
        assert!(
            matches!(late, Err(Error::Refused(Refusal::Fenced { .. }))),
            "{late:?}"
        );
        commit(&one, round(id, epoch + 1)).unwrap();
    }
    assert_eq!(row(&two, id).epoch, 20);
    assert_eq!(dump(&one), dump(&two));
}

#[test]
fn g7_lanes_made_by_another_process_are_known() {
    let file = File::new();
    let one = file.open();
    let two = file.open();
    assert_eq!(register(&one), register(&two));
    assert_eq!(dump(&one).lanes.len(), 1);
    assert_eq!(dump(&one).workers.len(), 1);
}

#[test]
fn b4_a_run_is_claimed_by_one_of_two() {
    let file = File::new();
    let (one, two) = (file.open_with_worker(), file.open());
    let lane = register(&two);
    for number in 1..=20 {
        started(&one, start(number));
    }
    let claim = |worker| {
        Op::Claim(Claim {
            worker,
            lanes: vec![lane],
            limit: 3,
            lease: LEASE,
        })
    };
    let other = Op::Register(roundel_core::Register {
        worker: OTHER,
        name: "other".into(),
        lanes: Vec::new(),
    });
    ask(&two, other).unwrap();
    let mut taken = Vec::new();
    while taken.len() < 20 {
        for (store, worker) in [(&one, crate::tools::WORKER), (&two, OTHER)] {
            let Ok(Reply::Claimed { runs, .. }) = ask(store, claim(worker)) else {
                panic!("a claim is answered");
            };
            taken.extend(runs.into_iter().map(|claimed| claimed.run));
        }
    }
    taken.sort();
    let count = taken.len();
    taken.dedup();
    assert_eq!((count, taken.len()), (20, 20));
}

#[test]
fn commits_of_another_process_are_heard_of_and_own_ones_are_not() {
    let file = File::new();
    let (one, two) = (file.open_with_worker(), file.open());
    let (ear, heard) = ear();
    one.listen(ear);
    one.watch_closely(true);
    let id = claimed(&one, 1);
    commit(&one, suspended(id, 1)).unwrap();
    started(&one, start(2));
    let Ok(Heard::Hints) = heard.recv_timeout(Duration::from_secs(10)) else {
        panic!("a start is hinted at");
    };
    // Long enough for several looks.
    assert!(
        heard.recv_timeout(Duration::from_millis(60)).is_err(),
        "own commits are not news"
    );
    started(&two, start(3));
    let Ok(Heard::Others) = heard.recv_timeout(Duration::from_secs(10)) else {
        panic!("the other process's commit is news");
    };
    assert!(
        heard.recv_timeout(Duration::from_millis(60)).is_err(),
        "once is enough"
    );
    one.watch_closely(false);
    started(&two, start(4));
    assert!(matches!(
        heard.recv_timeout(Duration::from_secs(10)),
        Ok(Heard::Others)
    ));
}

#[cfg(target_os = "linux")]
const GUEST: &str = "ROUNDEL_TEST_GUEST";

/// Not a test of its own: the other process of the next one, which wants the file for itself.
#[cfg(target_os = "linux")]
#[test]
fn a_guest_wants_the_file_for_itself() {
    use rustix::fs::{FlockOperation, fcntl_lock};
    if let Some(path) = std::env::var_os(GUEST) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .read(true)
            .open(path);
        let locked = fcntl_lock(file.unwrap(), FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(rustix::io::Errno::AGAIN), "it is in use");
    }
}

/// Locks belong to a process, and all of them go when it closes the file once, in whatever way.
/// Then a guest takes itself for the only one and removes the log under those who write to it.
#[cfg(target_os = "linux")]
#[test]
fn looking_at_a_file_keeps_the_locks_of_those_who_have_it_open() {
    let file = File::new();
    let store = file.open_with_worker();
    let looks: [fn(&File); 4] = [
        |_| (),
        |file| drop(Sqlite::schema(&file.path()).unwrap()),
        |file| drop(Sqlite::integrity(&file.path(), || ()).unwrap()),
        |file| drop(file.open()),
    ];
    for (number, look) in looks.iter().enumerate() {
        look(&file);
        let guest = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::a_guest_wants_the_file_for_itself"])
            .env(GUEST, file.path())
            .output()
            .unwrap();
        assert!(guest.status.success(), "after look {number}: {guest:?}");
        started(&store, start(number as u128 + 1));
    }
    drop(store);
    assert_eq!(dump(&file.open()).runs.len(), 4);
}
