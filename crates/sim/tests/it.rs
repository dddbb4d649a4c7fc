//! The simulator itself: that it repeats, and that its schedules are worth something. The million
//! schedules, every planted bug and every crash point are a step of `cargo xtask test`.

use roundel_core::mutant;
use roundel_sim::{Cut, Mutant, Player, Reach, exhaust, hunt, play_all, scripted};

#[test]
fn the_same_seed_gives_the_same_schedule() {
    let player = Player::default();
    for seed in 0..40 {
        let (first, again) = (player.play(seed), Player::default().play(seed));
        assert_eq!(first, again, "seed {seed}");
    }
}

#[test]
fn another_seed_gives_another_schedule() {
    let player = Player::default();
    assert_ne!(player.play(1).hash, player.play(2).hash);
}

#[test]
fn schedules_keep_every_promise() {
    let report = play_all(1_000_000, 600);
    assert!(report.failed.is_empty(), "{:#?}", report.failed);
    // Claims that would find nothing are seldom sent, and not counted.
    assert!(report.median_ops >= 100, "{} ops", report.median_ops);
    assert!(
        report.median_crashes >= 1,
        "{} crashes",
        report.median_crashes
    );
}

#[test]
fn the_canary_is_seen_at_once() {
    let hunt = hunt(&[Mutant::Canary], 1);
    assert!(hunt.mutants[0].1.is_some_and(|at| at < 10), "{hunt:?}");
}

#[test]
fn fa_06_fa_10_bugs_of_facts_that_come_in_are_found() {
    let bugs = [
        Mutant::InboxClearedFirst,
        Mutant::NeedSeenTooEarly,
        Mutant::NeedUntold,
    ];
    let hunt = hunt(&bugs, 1);
    assert_eq!(hunt.caught(), bugs.len(), "{hunt:?}");
}

#[test]
fn fa_20_bugs_of_schedules_are_found() {
    let bugs = [
        Mutant::TickFiredTwice,
        Mutant::OverlapIgnored,
        Mutant::PauseIgnored,
        Mutant::AskedLost,
        Mutant::WaitingForgotten,
    ];
    let hunt = hunt(&bugs, 1);
    assert_eq!(hunt.caught(), bugs.len(), "{hunt:?}");
}

#[test]
fn scripted_trees_find_planted_bugs() {
    for bug in [
        Mutant::SettledUndone,
        Mutant::FinallyUnread,
        Mutant::FinallyTwice,
        Mutant::UndoArgumentsLost,
        Mutant::AcceptedUnasked,
    ] {
        mutant::switch(Some(bug));
        let report = exhaust(&scripted(), Reach::Alone);
        mutant::switch(None);
        assert!(report.violations > 0, "{bug:?} is not seen");
    }
}

#[test]
fn crashes_at_store_boundaries_find_a_planted_bug() {
    // Without a crash nothing is wrong with it: only a commit that is lost shows it.
    mutant::switch(Some(Mutant::StepOutsideRound));
    let report = exhaust(&[0, 1, 2, 3, 4, 5], Reach::Alone);
    mutant::switch(None);
    let found = report.failed.iter().flat_map(|(_, violations)| violations);
    let found: Vec<_> = found.filter(|what| what.contains("NotApplied")).collect();
    assert!(!found.is_empty(), "{report:?}");
}

#[test]
fn a_broken_promise_is_told_in_a_short_trace() {
    // The bugs of workflows are expected, and would each be printed.
    std::panic::set_hook(Box::new(|_| {}));
    mutant::switch(Some(Mutant::StepsAfterCancel));
    let player = Player::default();
    let seed = (1..).find(|seed| !player.play(*seed).violations.is_empty());
    let seed = seed.expect("it is found");
    let whole = player.tell(seed, Cut::default()).trace.len();
    let short = player.shrink(seed).expect("it is broken");
    mutant::switch(None);
    let _ = std::panic::take_hook();
    assert!(!short.violations.is_empty());
    assert!(
        short.trace.len() * 3 < whole * 2,
        "{} of {whole}",
        short.trace.len()
    );
    assert_eq!(
        player.shrink(seed),
        None,
        "without the bug nothing is broken"
    );
}
