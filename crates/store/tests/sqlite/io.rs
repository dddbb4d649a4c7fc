//! The same script on a disk that fails at every one of its changes, or whose power goes there.
//!
//! The script starts runs, commits rounds and steps with the user's SQL, sends signals, claims,
//! deletes, moves the log, and opens the file again; also from a second store. On a good disk it
//! leaves a known state after each deed. On a bad one each deed is repeated until it is
//! acknowledged, as a client would; then the states must be the same. After a loss of power, what
//! was acknowledged is there, and the deed under way wholly or not at all.
//!
//! `ROUNDEL_IO` is how many of the changes to try of each kind (all of them, if it is large),
//! `ROUNDEL_SEED` which, and what a loss of power leaves.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use roundel_core::{
    Claim, Delete, Name, Op, OpenWait, Outcome, Policy, Register, RunId, RunState, Signal, Start,
    Target, Then,
};
use roundel_store::{Ask, Depth, Error, Options, Query, Request, Sqlite, Store, Tx, Work, Worked};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::disk::{Disk, How, Mounted, Plan, Random};
use crate::tools::{
    FLOW, File, LEASE, SPACE, WORKER, claimant, collector, name, now_or_never, payload, read,
    round, run, start, suspended, wait_for,
};

/// Changes that are tried of each kind, unless more are asked for.
const TRIED: u64 = 60;
/// Repetitions of one deed; a fault passes long before.
const TRIES: usize = 100;
/// Plays at a time.
const PLAYERS: usize = 4;
/// What each loss of power is tried to leave, so many times.
const LOSSES: u64 = 4;
const A_MOMENT: Duration = Duration::from_millis(5);
/// Runs in the script.
const RUNS: u128 = 9;

/// One entry of the script.
#[derive(Clone, Debug)]
enum Deed {
    /// Asked at once, and decided in one transaction.
    Ask(Vec<Wish>),
    /// The log is moved into the database and cut.
    Checkpoint,
    /// The stores are closed and opened again.
    Reopen,
    /// The other store goes on.
    Switch,
}

#[derive(Clone, Debug)]
enum Wish {
    Op(Box<Op>),
    /// A step of this run under this epoch, which runs this statement.
    Step(RunId, u64, &'static str),
}

impl Wish {
    fn ask(&self) -> Ask {
        match self {
            Wish::Op(op) => Ask::Op(Op::clone(op)),
            Wish::Step(run, epoch, sql) => Ask::Work(Box::new(Step(*run, *epoch, sql))),
        }
    }
}

fn wish(op: Op) -> Wish {
    Wish::Op(Box::new(op))
}

struct Step(RunId, u64, &'static str);

impl Work for Step {
    fn lease(&self) -> (RunId, roundel_core::WorkerId, u64) {
        (self.0, WORKER, self.1)
    }

    fn run(&mut self, tx: Tx) -> Worked {
        // A statement that fails for the disk's sake fails its transaction too.
        let keep = now_or_never(tx.execute(self.2, ())).is_ok();
        Worked {
            round: round(self.0, self.1),
            keep,
        }
    }

    fn refused(&mut self, error: roundel_store::TxError) -> roundel_core::Round {
        panic!("a step of the script breaks no rule: {error}");
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

const TABLE: &str = "CREATE TABLE ledger (id INTEGER PRIMARY KEY, pad BLOB)";
const NOTE: &str = "INSERT INTO ledger (pad) VALUES (printf('%3000d', 7))";
const WAIT: Name = Name::constant("signed");

/// What happens to one run, from its start to its end, or its deletion.
fn life(number: u128) -> Vec<Deed> {
    let id = run(number);
    let one = |op| Deed::Ask(vec![wish(op)]);
    let begin = Start {
        claimant: Some(claimant()),
        key: Some(name(&format!("key-{number}"))),
        ..start(number)
    };
    let mut waiting = suspended(id, 4);
    waiting.opened.push(OpenWait {
        call: 1,
        name: WAIT,
        offerable: false,
    });
    let signal = Signal {
        namespace: SPACE,
        target: Target::Run(id),
        name: WAIT,
        payload: payload("true"),
        policy: Policy::Keep,
        key: Some(name("once")),
        claimant: Some(claimant()),
    };
    let mut last = round(id, 6);
    last.then = Then::End(RunState::Completed, Outcome::Value(payload("42")));
    let sql = if number == 1 { TABLE } else { NOTE };
    let mut deeds = vec![
        one(Op::Start(begin)),
        Deed::Ask(vec![Wish::Step(id, 1, sql)]),
        Deed::Ask(vec![
            wish(Op::Commit(round(id, 2))),
            wish(Op::Start(start(100 + number))),
            Wish::Step(id, 3, NOTE),
        ]),
        one(Op::Commit(waiting)),
        one(Op::Signal(signal)),
        one(Op::Commit(last)),
    ];
    if number == 3 {
        // The next commit of the first store is the one before which the log is made longer: it
        // is empty then, and begins with zeros.
        deeds.insert(1, Deed::Checkpoint);
    }
    if number.is_multiple_of(2) {
        deeds.push(one(Op::Delete(Delete {
            namespace: SPACE,
            target: Target::Run(id),
            force: false,
        })));
    }
    deeds
}

fn script() -> Vec<Deed> {
    let lane = roundel_core::Lane {
        namespace: SPACE,
        workflow: FLOW,
        version: 1,
    };
    let register = Register {
        worker: WORKER,
        name: "test".into(),
        lanes: vec![lane],
    };
    let mut deeds = vec![Deed::Ask(vec![wish(Op::Register(register))])];
    for number in 1..=RUNS {
        deeds.extend(life(number));
        deeds.extend(match number {
            2 | 5 | 8 => Some(Deed::Checkpoint),
            3 | 7 => Some(Deed::Switch),
            6 => Some(Deed::Reopen),
            _ => None,
        });
    }
    let claim = Op::Claim(Claim {
        worker: WORKER,
        lanes: vec![roundel_core::LaneId(1)],
        limit: 3,
        lease: LEASE,
    });
    deeds.push(Deed::Ask(vec![wish(claim)]));
    deeds
}

/// What a file holds: the engine's rows and the user's.
fn state(store: &Sqlite, path: &Path) -> Result<String, Error> {
    let dump = read(store, Query::Dump)?;
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let ledger = Connection::open_with_flags(path, flags).and_then(|own| {
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'ledger'";
        let rows = "SELECT count(*) FROM ledger";
        let count = |sql| own.query_row(sql, [], |row| row.get::<_, i64>(0));
        match count(tables)? {
            0 => Ok(None),
            _ => count(rows).map(Some),
        }
    });
    let ledger = ledger.map_err(|error| Error::Unavailable(error.to_string()))?;
    Ok(format!("{ledger:?} {dump:?}"))
}

/// The script on a disk, with two stores on one file.
struct Play<'a> {
    folder: TempDir,
    file: File,
    disk: Mounted,
    stores: Vec<Sqlite>,
    current: usize,
    /// The longest log, in bytes.
    longest: u64,
    /// How long a request may take.
    patience: Duration,
    /// The power goes when a deed is said not to have happened.
    cut: bool,
    /// The states before and after each deed, if they are known.
    states: &'a [String],
}

/// How a deed ended.
#[derive(PartialEq, Eq)]
enum Ended {
    Done,
    /// The power is gone.
    Dead,
}

/// In memory, where there is such a place.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

impl<'a> Play<'a> {
    fn new(plan: Plan, states: &'a [String]) -> Play<'a> {
        let folder = folder();
        let disk = Disk::mount(folder.path(), plan);
        Play {
            folder,
            file: File::new(),
            disk,
            stores: Vec::new(),
            current: 0,
            longest: 0,
            patience: Options::default().answer_within,
            cut: false,
            states,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("runs.db")
    }

    fn open(&mut self) -> Ended {
        for _ in 0..TRIES {
            if self.disk.is_dead() {
                return Ended::Dead;
            }
            let options = Options {
                answer_within: self.patience,
                ..self.file.options()
            };
            match Sqlite::open(&self.path(), options) {
                Ok(store) => self.stores.push(store),
                Err(error) => assert!(self.disk.struck(), "on a good disk: {error}"),
            }
            if self.stores.len() == 2 {
                return Ended::Done;
            }
        }
        panic!("the file does not open any more");
    }

    fn close(&mut self) {
        for store in self.stores.drain(..) {
            store.close();
        }
    }

    fn deed(&mut self, number: usize, deed: &Deed) -> Ended {
        match deed {
            Deed::Ask(wishes) => {
                let ended = self.ask(number, wishes);
                let log = std::fs::metadata(self.folder.path().join("runs.db-wal"));
                self.longest = self.longest.max(log.map_or(0, |log| log.len()));
                ended
            }
            Deed::Reopen => {
                self.close();
                self.open()
            }
            Deed::Switch => {
                self.current = 1 - self.current;
                Ended::Done
            }
            Deed::Checkpoint => {
                // If this one fails, a later one will do.
                let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
                let _ = Connection::open(self.path()).and_then(|own| own.execute_batch(sql));
                Ended::Done
            }
        }
    }

    fn ask(&mut self, number: usize, wishes: &[Wish]) -> Ended {
        let mut left = wishes.to_vec();
        for _ in 0..TRIES {
            let Some(results) = self.submit(&left) else {
                return Ended::Dead;
            };
            let mut again = Vec::new();
            let mut unknown = false;
            for (wish, result) in left.into_iter().zip(results) {
                match result {
                    Ok(_) => {}
                    Err(error) => {
                        assert!(self.disk.struck(), "on a good disk: {error}");
                        assert!(error.is_passing(), "deed {number}, {wish:?}: {error}");
                        unknown |= matches!(error, Error::Unknown(_));
                        again.push(wish);
                    }
                }
            }
            if again.is_empty() || (unknown && self.happened(number)) {
                return Ended::Done;
            }
            if self.cut && !unknown && again.len() == wishes.len() {
                self.disk.cut();
                return Ended::Dead;
            }
            left = again;
        }
        panic!("deed {number} does not succeed any more");
    }

    /// None when the power went.
    fn submit(&self, wishes: &[Wish]) -> Option<Vec<Result<roundel_core::Reply, Error>>> {
        let (sink, answers) = collector();
        let request = |(tag, wish): (usize, &Wish)| Request {
            ask: Box::new(wish.ask()),
            tag: tag as u64,
            sink: sink.clone(),
        };
        let requests = wishes.iter().enumerate().map(request).collect();
        self.stores[self.current].submit(requests);
        let mut found = Vec::new();
        while found.len() < wishes.len() {
            match answers.recv_timeout(A_MOMENT) {
                Ok(answer) => found.push(answer),
                Err(_) if self.disk.is_dead() => return None,
                Err(_) => {}
            }
        }
        if self.disk.is_dead() && found.iter().any(|answer| answer.result.is_err()) {
            return None;
        }
        found.sort_by_key(|answer| answer.tag);
        Some(found.into_iter().map(|answer| answer.result).collect())
    }

    /// Asks the file; under the write lock, because a slow commit may still be under way.
    fn happened(&self, number: usize) -> bool {
        let path = self.path();
        let store = &self.stores[self.current];
        let look = || -> Result<String, Error> {
            let own = Connection::open(&path).and_then(|own| {
                own.execute_batch("BEGIN IMMEDIATE")?;
                Ok(own)
            });
            let _own = own.map_err(|error| Error::Unavailable(error.to_string()))?;
            state(store, &path)
        };
        let found = (0..TRIES).find_map(|_| {
            let state = look();
            state.inspect_err(|_| std::thread::sleep(A_MOMENT)).ok()
        });
        let found = found.expect("the rows can be read again");
        let place = self.states[number..=number + 1]
            .iter()
            .position(|known| *known == found);
        place.expect("an unknown deed happened wholly or not at all") == 1
    }
}

/// What the good disk shows: the state after each deed, and the number of changes.
fn model(deeds: &[Deed]) -> (Vec<String>, u64) {
    let mut states = Vec::new();
    let mut changes = 0;
    // Looking at the states makes changes too, so they are counted without.
    for look in [true, false] {
        let mut play = Play::new(Plan::Well, &[]);
        assert!(play.open() == Ended::Done);
        let path = play.path();
        let mut see = |play: &Play<'_>| {
            if look {
                states.push(state(&play.stores[0], &path).unwrap());
            }
        };
        see(&play);
        for (number, deed) in deeds.iter().enumerate() {
            assert!(play.deed(number, deed) == Ended::Done);
            see(&play);
        }
        assert_eq!(play.disk.wrong(), [""; 0]);
        assert!(play.longest >= 1 << 20, "the log was made long ahead");
        changes = play.disk.changes();
        play.close();
    }
    (states, changes)
}

/// The state of a file that is opened on a good disk, if nothing is wrong with it.
fn found(path: &Path, clock: &File) -> Result<String, String> {
    let store = Sqlite::open(path, clock.options()).map_err(|error| error.to_string())?;
    let mut wrong = Vec::new();
    let checked = wait_for(roundel_store::verify(&store, Depth::Rows, |_, found| {
        wrong.extend(found.iter().map(ToString::to_string));
    }));
    let checked = checked.map_err(|error| error.to_string());
    let found = checked.and_then(|_| state(&store, path).map_err(|error| error.to_string()));
    store.close();
    drop(store);
    wrong.extend(Sqlite::integrity(path, || ()).map_err(|error| error.to_string())?);
    match wrong.is_empty() {
        true => found,
        false => Err(wrong.join("; ")),
    }
}

/// Some of these changes, or all.
fn chosen(changes: u64) -> Vec<u64> {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let tried: u64 = setting("ROUNDEL_IO").unwrap_or(TRIED);
    let stride = (changes / tried.max(1)).max(1);
    let first = seed() % stride;
    (first..changes)
        .step_by(usize::try_from(stride).unwrap())
        .collect()
}

fn seed() -> u64 {
    let set = std::env::var("ROUNDEL_SEED").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Plays the script once for each of the chosen changes, a few at a time: bad disks are waited for.
fn sweep(play: impl Fn(&[Deed], &[String], u64) + Sync) {
    let deeds = script();
    let (states, changes) = model(&deeds);
    let chosen = chosen(changes);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some(at) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    play(&deeds, &states, *at);
                }
            });
        }
    });
    println!("{} of {changes} changes", chosen.len());
}

fn errors(count: u64, how: How) {
    errors_within(Options::default().answer_within, count, how);
}

fn errors_within(patience: Duration, count: u64, how: How) {
    sweep(|deeds, states, from| {
        let plan = Plan::Errors { from, count, how };
        let mut play = Play::new(plan, states);
        play.patience = patience;
        assert!(play.open() == Ended::Done);
        for (number, deed) in deeds.iter().enumerate() {
            assert!(play.deed(number, deed) == Ended::Done);
        }
        assert_eq!(play.disk.wrong(), [""; 0], "{plan:?}");
        play.close();
        play.disk.mend();
        let left = found(&play.path(), &play.file);
        assert_eq!(left.as_ref().ok(), states.last(), "{plan:?}: {left:?}");
    });
}

/// Plays until the power goes. Returns how many deeds were acknowledged.
fn play_until_dead(play: &mut Play<'_>, deeds: &[Deed]) -> usize {
    let mut done = 0;
    if play.open() == Ended::Done {
        let mut deeds = deeds.iter().enumerate();
        while deeds
            .next()
            .is_some_and(|(number, deed)| play.deed(number, deed) == Ended::Done)
        {
            done += 1;
        }
    }
    play.close();
    assert_eq!(play.disk.wrong(), [""; 0]);
    done
}

/// Whatever a loss of power leaves, it is one of these states.
fn assert_left(play: &Play<'_>, what: &Plan, number: u64, known: &[String]) {
    for turn in 0..LOSSES {
        let seed = seed() * 1_000_003 + number * LOSSES + turn;
        let after = folder();
        play.disk.leave(after.path(), &mut Random::new(seed));
        let left = found(&after.path().join("runs.db"), &play.file);
        let fits = left.as_ref().is_ok_and(|left| known.contains(left));
        assert!(fits, "{what:?}, seed {seed}: {left:?}");
    }
}

fn power_loss(deeds: &[Deed], states: &[String], at: u64) {
    let plan = Plan::PowerLoss { at };
    let mut play = Play::new(plan, states);
    let done = play_until_dead(&mut play, deeds);
    assert!(play.disk.struck(), "{plan:?}");
    let known = &states[done..(done + 2).min(states.len())];
    assert_left(&play, &plan, at, known);
}

/// A change fails, and if that was told as something that did not happen, the power goes.
fn denied(deeds: &[Deed], states: &[String], from: u64) {
    for how in [How::Error, How::Torn, How::Late, How::Full] {
        let plan = Plan::Errors {
            from,
            count: 1,
            how,
        };
        let mut play = Play::new(plan, states);
        play.cut = true;
        let done = play_until_dead(&mut play, deeds);
        if play.disk.is_dead() {
            assert_left(&play, &plan, from, &states[done..=done]);
        }
    }
}

#[test]
fn g4_a_change_that_fails_once_loses_nothing() {
    errors(1, How::Error);
}

#[test]
fn g4_a_write_that_fails_half_way_loses_nothing() {
    errors(1, How::Torn);
}

#[test]
fn a5_a_write_that_is_reported_as_failed_and_is_there_comes_once() {
    errors(1, How::Late);
}

#[test]
fn g4_a_disk_that_fails_for_a_while_loses_nothing() {
    errors(3, How::Error);
}

#[test]
fn g4_outcomes_that_stay_open_happened_wholly_or_not_at_all() {
    errors_within(Duration::from_millis(150), 3, How::Error);
}

#[test]
fn g3_a_disk_that_is_full_for_a_while_loses_nothing() {
    errors(25, How::Full);
}

#[test]
fn g5_a_loss_of_power_loses_nothing_that_was_acknowledged() {
    sweep(power_loss);
}

#[test]
fn a5_what_is_said_not_to_have_happened_is_not_there_after_a_loss_of_power() {
    sweep(denied);
}
