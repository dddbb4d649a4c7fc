//! The same script on a disk that fails at every one of its changes or reads, or whose power goes
//! there.
//!
//! On a good disk the script leaves a known state after each deed. On a bad one each deed is
//! repeated until it is acknowledged, as a client would; then the states must be the same. After a
//! loss of power, what was acknowledged is there, and the deed under way wholly or not at all.
//!
//! `ROUNDEL_IO` is how many places to try of each kind (all of them, if it is large),
//! `ROUNDEL_SEED` which, and what a loss of power leaves.

mod play;
mod script;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use roundel_store::{Options, Query, Sqlite, Store};

use crate::disk::{By, How, Kind, Plan, Random};
use crate::figures::hand_over;
use crate::tools::read;
use play::{Ended, Play, folder, found, state};
use script::{Deed, operations, script};

/// Plays at a time: bad disks are waited for.
const PLAYERS: usize = 4;
/// What each loss of power is tried to leave, so many times.
const LOSSES: u64 = 5;

/// What the good disk shows.
struct Model {
    deeds: Vec<Deed>,
    /// Before and after each deed.
    states: Vec<String>,
    changes: u64,
    reads: u64,
}

/// The same for all tests.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let deeds = script();
        let mut states = Vec::new();
        play_well(&deeds, |play| {
            states.push(state(&play.stores[0], &play.path()).unwrap());
        });
        // Looking at the states makes changes too, so they are counted without.
        let (changes, reads) = play_well(&deeds, |_| ());
        hand_over("io", &[("operations", operations(&deeds))]);
        Model {
            deeds,
            states,
            changes,
            reads,
        }
    })
}

/// Plays on a good disk. Returns how many changes and reads there were.
fn play_well(deeds: &[Deed], mut see: impl FnMut(&Play<'_>)) -> (u64, u64) {
    let mut play = Play::new(Plan::Well, &[]);
    assert!(play.open() == Ended::Done);
    see(&play);
    for (number, deed) in deeds.iter().enumerate() {
        assert!(play.deed(number, deed) == Ended::Done);
        see(&play);
    }
    assert_eq!(play.disk.wrong(), [""; 0]);
    assert!(play.longest >= 1 << 20, "the log was made long ahead");
    let seen = (play.disk.changes(), play.disk.reads());
    play.close();
    seen
}

/// So many of these places, or as many as are asked for.
fn chosen(places: u64, tried: u64) -> Vec<u64> {
    let set = std::env::var("ROUNDEL_IO").ok();
    let tried = set.and_then(|text| text.parse().ok()).unwrap_or(tried);
    let stride = (places / tried.max(1)).max(1);
    let first = seed() % stride;
    (first..places)
        .step_by(usize::try_from(stride).unwrap())
        .collect()
}

fn seed() -> u64 {
    let set = std::env::var("ROUNDEL_SEED").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// At what something went wrong, and how often.
type Struck = BTreeMap<Kind, u64>;

/// Plays once for each of the chosen places, several at a time.
fn sweep(chosen: &[u64], play: impl Fn(&Model, u64) -> Option<Kind> + Sync) -> Struck {
    let model = model();
    let next = AtomicUsize::new(0);
    let struck = Mutex::new(Struck::new());
    std::thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                while let Some(at) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(kind) = play(model, *at) {
                        *struck.lock().unwrap().entry(kind).or_default() += 1;
                    }
                }
            });
        }
    });
    let struck = struck.into_inner().unwrap();
    println!("{} places: {struck:?}", chosen.len());
    struck
}

/// Plays with this plan and this patience until all is acknowledged.
fn play_through(model: &Model, plan: Plan, patience: Duration) -> Option<Kind> {
    let mut play = Play::new(plan, &model.states);
    play.patience = patience;
    assert!(play.open() == Ended::Done);
    for (number, deed) in model.deeds.iter().enumerate() {
        assert!(play.deed(number, deed) == Ended::Done);
    }
    assert_eq!(play.disk.wrong(), [""; 0], "{plan:?}");
    play.close();
    let struck = play.disk.struck();
    play.disk.mend();
    let left = found(&play.path(), &play.file);
    let wanted = model.states.last();
    assert_eq!(left.as_ref().ok(), wanted, "{plan:?}: {left:?}");
    struck
}

/// Tries so many changes, each of which fails so, with those after it.
fn errors(tried: u64, count: u64, how: How) -> Struck {
    errors_within(Options::default().answer_within, tried, count, how)
}

fn errors_within(patience: Duration, tried: u64, count: u64, how: How) -> Struck {
    sweep(&chosen(model().changes, tried), |model, from| {
        play_through(model, Plan::Errors { from, count, how }, patience)
    })
}

/// The same with reads.
fn read_errors(tried: u64, count: u64) {
    let by = By::Writers;
    let patience = Options::default().answer_within;
    let chosen = chosen(model().reads, tried);
    let struck = sweep(&chosen, |model, from| {
        play_through(model, Plan::Reads { from, count, by }, patience)
    });
    let failed = struck.get(&Kind::Read).copied().unwrap_or(0);
    assert!(failed * 2 > chosen.len() as u64, "reads fail: {struck:?}");
    hand_over("io", &[("reads", failed)]);
}

fn hand_over_changes(struck: &Struck) {
    let of = |kind| struck.get(&kind).copied().unwrap_or(0);
    let figures = [
        ("writes", of(Kind::Write)),
        ("syncs", of(Kind::Sync)),
        ("truncations", of(Kind::Truncate)),
        ("openings", of(Kind::Open)),
        ("deletions", of(Kind::Delete)),
        ("points", struck.values().sum()),
    ];
    hand_over("io", &figures);
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

fn power_loss(model: &Model, at: u64) -> Option<Kind> {
    let (plan, states) = (Plan::PowerLoss { at }, &model.states);
    let mut play = Play::new(plan, states);
    let done = play_until_dead(&mut play, &model.deeds);
    assert!(play.disk.struck().is_some(), "{plan:?}");
    let known = &states[done..(done + 2).min(states.len())];
    assert_left(&play, &plan, at, known);
    play.disk.struck()
}

/// A change fails, and if that was told as something that did not happen, the power goes.
fn denied(model: &Model, from: u64) -> Option<Kind> {
    let states = &model.states;
    let mut struck = None;
    for how in [How::Error, How::Torn, How::Late, How::Full] {
        let plan = Plan::Errors {
            from,
            count: 1,
            how,
        };
        let mut play = Play::new(plan, states);
        play.cut = true;
        let done = play_until_dead(&mut play, &model.deeds);
        if play.disk.is_dead() {
            assert_left(&play, &plan, from, &states[done..=done]);
            struck = play.disk.struck();
        }
    }
    struck
}

#[test]
fn g4_a_change_that_fails_once_loses_nothing() {
    hand_over_changes(&errors(1_300, 1, How::Error));
}

#[test]
fn g4_a_write_that_fails_half_way_loses_nothing() {
    hand_over_changes(&errors(200, 1, How::Torn));
}

#[test]
fn a5_a_write_that_is_reported_as_failed_and_is_there_comes_once() {
    hand_over_changes(&errors(200, 1, How::Late));
}

#[test]
fn g4_a_disk_that_fails_for_a_while_loses_nothing() {
    hand_over_changes(&errors(200, 3, How::Error));
}

#[test]
fn g4_outcomes_that_stay_open_happened_wholly_or_not_at_all() {
    let patience = Duration::from_millis(150);
    hand_over_changes(&errors_within(patience, 40, 3, How::Error));
}

#[test]
fn g3_a_disk_that_is_full_for_a_while_loses_nothing() {
    let struck = errors(60, 25, How::Full);
    hand_over("io", &[("full_disks", struck.values().sum())]);
}

#[test]
fn g5_a_loss_of_power_loses_nothing_that_was_acknowledged() {
    let struck = sweep(&chosen(model().changes, 200), power_loss);
    let points: u64 = struck.values().sum();
    let figures = [("power_cuts", points), ("power_losses", points * LOSSES)];
    hand_over("io", &figures);
}

#[test]
fn a5_what_is_said_not_to_have_happened_is_not_there_after_a_loss_of_power() {
    let struck = sweep(&chosen(model().changes, 30), denied);
    hand_over("io", &[("denials", struck.values().sum())]);
}

#[test]
fn g4_a_read_that_fails_once_loses_nothing() {
    read_errors(100, 1);
}

#[test]
fn g4_reads_that_fail_for_a_while_lose_nothing() {
    read_errors(50, 5);
}

/// Every single read of a query that sees all rows fails once: the answer is the true one or none.
#[test]
fn g4_a_query_on_a_disk_that_fails_is_answered_truly_or_not_at_all() {
    let model = model();
    let mut play = Play::new(Plan::Well, &[]);
    assert!(play.open() == Ended::Done);
    for (number, deed) in model.deeds.iter().enumerate() {
        assert!(play.deed(number, deed) == Ended::Done);
    }
    let wanted = format!("{:?}", read(&play.stores[0], Query::Dump).unwrap());
    let (mut failed, mut refused) = (0, 0);
    loop {
        // Without what its readers remember.
        let store = Sqlite::open(&play.path(), play.file.options()).unwrap();
        play.disk.fail_lookup(failed);
        let answer = read(&store, Query::Dump);
        if play.disk.struck().is_none() {
            break;
        }
        failed += 1;
        match answer {
            Ok(answer) => assert_eq!(format!("{answer:?}"), wanted),
            Err(error) => {
                assert!(error.is_passing(), "{error}");
                refused += 1;
            }
        }
        let again = read(&store, Query::Dump).expect("the disk is well again");
        assert_eq!(format!("{again:?}"), wanted);
        store.close();
    }
    play.close();
    println!("{failed} reads, {refused} refused");
    assert!(failed > 10, "the query reads from the disk: {failed}");
    hand_over("io", &[("lookups", failed)]);
}
