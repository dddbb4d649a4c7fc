//! What is set off together: publications and who hears them, latches, windows.

use std::time::Duration;

use roundel_core::{
    Caused, Join, Joined, Name, Op, PublicationId, Publish, Refusal, Reply, RunId, RunState, Start,
    limits,
};

use super::Make;
use super::desk::{Desk, submit};
use super::together::{
    CALL, children, completing, due, failing, heard, joining, nothing_told, publish_and_wait,
    published, publishing, scope, setting_off, subscribing, told,
};
use super::words::{A, B, NS, child_of, code, ending, lane, suspending, value, value_of};
use crate::Query;

pub fn sc_01_a_publication_starts_one_run_for_each_that_subscribes(make: &Make) {
    let mut desk = Desk::new(make);
    for workflow in ["stock", "mail"] {
        assert_eq!(
            desk.must(subscribing(workflow, true)),
            Reply::Subscribed(true)
        );
        assert_eq!(
            desk.must(subscribing(workflow, true)),
            Reply::Subscribed(false)
        );
    }
    let publish = publishing(&mut desk);
    let first = published(&desk, publish.clone());
    assert_eq!((first.new, first.heard), (true, 2));
    // Asked again, as after an answer that was lost.
    let again = published(&desk, publish.clone());
    assert_eq!((again.new, again.heard, again.id), (false, 2, first.id));
    let other = Publish {
        payload: value(4),
        ..publish
    };
    let refused = desk.refused(Op::Publish(other));
    assert!(matches!(refused, Refusal::Conflict { .. }), "{refused}");
    let dump = desk.dump();
    assert_eq!((dump.runs.len(), dump.publications.len()), (2, 1));
    for row in &dump.runs {
        assert_eq!((row.publication, row.parent), (Some(first.id), None));
        assert_eq!((row.state, row.number), (RunState::Ready, None));
    }
}

pub fn sc_15_sc_16_who_hears_is_pinned_at_emission(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("stock", true));
    let parent = desk.owned(A);
    let id = publish_and_wait(&mut desk, parent, None);
    assert_eq!(
        desk.must(subscribing("mail", true)),
        Reply::Subscribed(true)
    );
    assert_eq!(
        desk.must(subscribing("stock", false)),
        Reply::Subscribed(true)
    );
    assert_eq!(
        desk.must(subscribing("stock", false)),
        Reply::Subscribed(false)
    );
    let names: Vec<String> = heard(&desk, parent).into_iter().map(|one| one.0).collect();
    assert_eq!(names, ["stock"]);
    assert_eq!(joining(&desk, id, "mail"), Joined::Late, "it has no window");
    let later = publishing(&mut desk);
    assert_eq!(published(&desk, later).heard, 1);
    assert_eq!(desk.dump().publications[0].1.heard, 1);
}

pub fn sc_16_subscriptions_and_publications_of_one_batch_keep_their_order(make: &Make) {
    let mut desk = Desk::new(make);
    let ids: Vec<Publish> = (0..3).map(|_| publishing(&mut desk)).collect();
    let [first, second, third] = &ids[..] else {
        unreachable!("three")
    };
    let replies = desk.batch(vec![
        Op::Publish(first.clone()),
        subscribing("stock", true),
        Op::Publish(second.clone()),
        subscribing("mail", true),
        subscribing("stock", false),
        Op::Publish(third.clone()),
    ]);
    let heard = replies.into_iter().filter_map(|reply| match reply {
        Ok(Reply::Published(published)) => Some(published.heard),
        Ok(_) => None,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(heard.collect::<Vec<_>>(), [0, 1, 1]);
    let runs = desk.dump().runs;
    assert_eq!(runs[0].publication, Some(second.id));
    assert_eq!(runs[1].publication, Some(third.id));
}

pub fn sc_12_what_nobody_hears_is_answered_in_the_same_commit(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let publish = publishing(&mut desk);
    let id = publish.id;
    let caused = Caused::Publish(CALL, Box::new(publish));
    let committed = desk.commit(setting_off(&desk, parent, caused));
    assert!(committed.kept, "it goes on at once");
    assert_eq!(value_of(&committed.inbox[0].body), 0);
    let dump = desk.dump();
    assert_eq!(dump.publications[0].0, id);
    assert_eq!(dump.publications[0].1.heard, 0);
    assert_eq!(dump.latches, []);
    let second = desk.owned(B);
    assert_eq!(children(&mut desk, second, 0), []);
}

pub fn d6_a_scope_of_any_size_is_told_once_when_the_last_has_ended(make: &Make) {
    for (count, latches) in [(1, 1), (32, 1), (33, 2), (47, 16), (100, 17)] {
        let mut desk = Desk::new(make);
        let parent = desk.owned(A);
        let runs = children(&mut desk, parent, count);
        assert_eq!(desk.dump().latches.len(), latches, "of {count}");
        for (number, run) in (0..).zip(&runs) {
            assert_eq!(desk.run(*run).number, Some(number));
        }
        // In an order of their own.
        let mut claimed = desk.claimed_ids(B, runs.len());
        assert_eq!(claimed.len(), runs.len());
        claimed.sort_by_key(|run| run.as_bytes()[15].wrapping_mul(37));
        let last = claimed.pop().expect("one at least");
        for run in claimed {
            desk.end(run);
        }
        nothing_told(&desk, parent);
        desk.end(last);
        assert_eq!(desk.dump().latches, []);
        assert_eq!(told(&desk, parent), 0);
        assert_eq!(desk.claimed_ids(B, 9), [], "D7: one has it");
    }
}

pub fn d6_those_that_end_in_one_batch_tell_once(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 70);
    assert_eq!(desk.claim(B, runs.len()).len(), runs.len());
    let end = |run: &RunId| Op::Commit(ending(desk.round(*run), RunState::Completed));
    let ends: Vec<Op> = runs.iter().map(end).collect();
    assert!(desk.batch(ends).iter().all(Result::is_ok));
    assert_eq!(told(&desk, parent), 0);
}

pub fn d6_d7_those_that_end_at_the_same_time_tell_once(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 48);
    assert_eq!(desk.claim(B, runs.len()).len(), runs.len());
    let ends: Vec<Op> = runs
        .iter()
        .map(|run| Op::Commit(ending(desk.round(*run), RunState::Completed)))
        .collect();
    let store = &*desk.store;
    std::thread::scope(|scope| {
        for part in ends.chunks(12) {
            scope.spawn(move || {
                for end in part {
                    assert!(submit(store, vec![end.clone()])[0].is_ok());
                }
            });
        }
    });
    assert_eq!(told(&desk, parent), 0);
    assert_eq!(desk.claimed_ids(B, 9), []);
}

pub fn inv5_a_child_that_ends_twice_is_counted_once(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 3);
    desk.claim(B, 9);
    let first = ending(desk.round(runs[0]), RunState::Completed);
    desk.commit(first.clone());
    let again = desk.refused(Op::Commit(first));
    assert!(matches!(again, Refusal::Fenced { .. }), "{again}");
    assert_eq!(desk.dump().latches[0].1.open, 2);
    desk.end(runs[1]);
    nothing_told(&desk, parent);
    desk.end(runs[2]);
    assert_eq!(told(&desk, parent), 0);
}

pub fn sc_22_how_many_failed_is_told_with_the_end_of_the_last(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 40);
    desk.claim(B, runs.len());
    // One of those that are counted in a part of their own, and one that is not.
    failing(&desk, runs[39]);
    failing(&desk, runs[0]);
    for run in &runs[1..39] {
        nothing_told(&desk, parent);
        desk.end(*run);
    }
    assert_eq!(told(&desk, parent), 2);
}

pub fn sc_62_the_runs_of_a_scope_are_read_in_order_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let runs = children(&mut desk, parent, 1_001);
    let first = scope(&desk, parent, 0);
    assert!(first.more && first.items.len() <= 1_000);
    let next = first.items.last().and_then(|view| view.row.number);
    let rest = scope(&desk, parent, next.expect("a number") + 1);
    assert!(!rest.more);
    let read: Vec<RunId> = first
        .items
        .iter()
        .chain(&rest.items)
        .map(|view| view.row.id)
        .collect();
    assert_eq!(read, runs);
    assert_eq!(scope(&desk, parent, 1_001).items, []);
    let nobody = desk.new_id();
    assert!(
        desk.read(Query::Scope {
            run: nobody,
            execution: 1,
            call: CALL,
            from: 0
        })
        .is_err()
    );
}

pub fn m1_more_than_the_limit_is_told_to_the_call_and_sets_nothing_off(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let row = desk.run(parent);
    let starts = (0..=limits::FAN_OUT).map(|_| child_of(&row, CALL, desk.starting()));
    let starts: Vec<Start> = starts.collect();
    let committed = desk.commit(setting_off(&desk, parent, Caused::Children(CALL, starts)));
    let codes: Vec<String> = committed.inbox.iter().map(code).collect();
    assert!(
        committed.kept && codes.contains(&"refused".into()),
        "{codes:?}"
    );
    assert_eq!(desk.dump().runs.len(), 1);
}

pub fn sc_14_a_window_is_waited_for_as_one_that_has_not_ended(make: &Make) {
    let mut desk = Desk::new(make);
    let stock = desk.register(B, vec![lane(&NS, "stock", 1), lane(&NS, "mail", 1)]);
    desk.must(subscribing("stock", true));
    let parent = desk.owned(A);
    let window = Duration::from_secs(60);
    let id = publish_and_wait(&mut desk, parent, Some(window));
    assert_eq!(desk.claim_from(B, &stock, 9).0.len(), 1);
    desk.end(heard(&desk, parent)[0].1);
    nothing_told(&desk, parent);
    // Whoever comes in time joins, once: by itself, or by subscribing.
    let Joined::New(mail) = joining(&desk, id, "mail") else {
        panic!("it is in time")
    };
    assert_eq!(joining(&desk, id, "mail"), Joined::Already(mail));
    desk.must(subscribing("mail", true));
    let names: Vec<String> = heard(&desk, parent).into_iter().map(|one| one.0).collect();
    assert_eq!(names, ["stock", "mail"]);
    desk.must(subscribing("late", true));
    assert_eq!(desk.dump().publications[0].1.heard, 3);
    // It closes, and they are waited for.
    desk.pass(window);
    assert_eq!(
        joining(&desk, id, "other"),
        Joined::Late,
        "D5: at the very moment"
    );
    let mut round = suspending(due(&desk, parent));
    round.caused.push(Caused::Close(CALL));
    desk.commit(round);
    nothing_told(&desk, parent);
    let late = desk.register(B, vec![lane(&NS, "late", 1)]);
    for lanes in [stock, late] {
        for claimed in desk.claim_from(B, &lanes, 9).0 {
            desk.end(claimed.run);
        }
    }
    assert_eq!(told(&desk, parent), 0);
    assert_eq!(joining(&desk, id, "other"), Joined::Late);
}

pub fn sc_14_nobody_joins_what_is_unknown_elsewhere_or_given_up(make: &Make) {
    let mut desk = Desk::new(make);
    let nothing = PublicationId(desk.new_id().0);
    assert_eq!(joining(&desk, nothing, "mail"), Joined::Unknown);
    let window = Some(Duration::from_secs(60));
    let parent = desk.owned(A);
    let id = publish_and_wait(&mut desk, parent, window);
    let elsewhere = Join {
        namespace: Name::constant("elsewhere"),
        publication: id,
        workflow: Name::constant("mail"),
    };
    assert_eq!(
        desk.must(Op::Join(elsewhere)),
        Reply::Joined(Joined::Unknown)
    );
    desk.cancel(parent);
    assert_eq!(
        joining(&desk, id, "mail"),
        Joined::Late,
        "its end was asked for"
    );
    // A client's is joined for as long as it is open.
    let publish = Publish {
        window,
        ..publishing(&mut desk)
    };
    let own = published(&desk, publish).id;
    assert!(matches!(joining(&desk, own, "mail"), Joined::New(_)));
    desk.pass(Duration::from_secs(60));
    assert_eq!(joining(&desk, own, "stock"), Joined::Late);
}

pub fn sc_13_what_nobody_begins_is_completed_from_outside(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("absent", true));
    let parent = desk.owned(A);
    publish_and_wait(&mut desk, parent, None);
    let absent = heard(&desk, parent)[0].1;
    desk.must(completing(absent));
    let row = desk.run(absent);
    assert_eq!(row.state, RunState::Completed);
    assert_eq!(value_of(&row.outcome.expect("a value")), 9);
    assert_eq!(told(&desk, parent), 0);
    for run in [absent, parent] {
        let refused = desk.refused(completing(run));
        assert!(matches!(refused, Refusal::HasBegun { .. }), "{refused}");
    }
    let nobody = desk.new_id();
    let refused = desk.refused(completing(nobody));
    assert!(matches!(refused, Refusal::UnknownRun { .. }), "{refused}");
}

pub fn inv25_a_topic_of_one_namespace_is_not_heard_in_another(make: &Make) {
    let mut desk = Desk::new(make);
    desk.must(subscribing("stock", true));
    let elsewhere = Publish {
        namespace: Name::constant("elsewhere"),
        ..publishing(&mut desk)
    };
    assert_eq!(published(&desk, elsewhere).heard, 0);
    let here = publishing(&mut desk);
    assert_eq!(published(&desk, here).heard, 1);
}
