//! Facts that come in: queued in order, recorded with their removal, waiting for what they need,
//! parked when they cannot be recorded.

use std::time::Duration;

use roundel_core::{
    Cancel, DocumentId, Envelope, FactId, Failure, INCOMING, Item, Name, NewFact, Op, Payload,
    Projection, Receive, Received, Record, Refusal, Reply, Resume, RunId, RunState, Start, Take,
    Target, Timestamp,
};

use super::Make;
use super::desk::{Desk, read, sound, submit};
use super::threads::together;
use super::words::NS;
use crate::{Answer, DueFilter, Error, Query, RunView, Store};

const TOTAL: Name = Name::constant("total");

fn name(text: &str) -> Name {
    Name::new(text.to_owned()).expect("a name")
}

fn number(payload: &Payload) -> u64 {
    payload.decode().expect("a number")
}

/// Writes one after the other, so that their order can be seen. At thirteen it fails.
fn sum() -> Projection {
    Projection::new(Name::constant("sum"), |document, _, fact| {
        let before = document.map_or(0, number);
        match number(&fact.data) {
            13 => Err(Failure::permanent("thirteen")),
            said => Ok(Some(
                Payload::encode(&((before * 10 + said) % 1_000_007)).expect("a number"),
            )),
        }
    })
}

fn item(id: &str, said: u64, needs: &[&str], take: Take) -> Item {
    let fact = NewFact {
        into: vec![(TOTAL, sum())],
        needs: needs.iter().map(|id| name(id)).collect(),
        ..NewFact::new(
            name(id),
            Name::constant("said"),
            Payload::encode(&said).expect("a number"),
        )
    };
    Item {
        envelope: Payload::encode(&Envelope::of(&fact)).expect("JSON"),
        fact,
        from: None,
        take,
        patience: None,
    }
}

fn receive(items: Vec<Item>) -> Op {
    Op::Receive(Receive {
        namespace: NS,
        items,
        by: None,
        knows: [].into(),
    })
}

fn received(desk: &Desk, items: Vec<Item>) -> Vec<Received> {
    match desk.must(receive(items)) {
        Reply::Received(received) => received,
        other => panic!("{other:?}"),
    }
}

fn handled(desk: &Desk, id: &str, said: u64, needs: &[&str]) -> Received {
    received(desk, vec![item(id, said, needs, Take::Record)]).remove(0)
}

fn due_in(store: &dyn Store, now: Timestamp) -> Vec<RunView> {
    let query = Query::Due(DueFilter {
        namespace: NS,
        workflow: INCOMING,
        now,
        after: None,
        limit: 100,
    });
    match read(store, query) {
        Ok(Answer::Runs(page)) => page.items,
        other => panic!("{other:?}"),
    }
}

/// The ids of facts whose turn it is, in order.
fn due(desk: &Desk) -> Vec<String> {
    let due = due_in(&*desk.store, desk.now());
    due.iter().map(fact_of).collect()
}

fn fact_of(run: &RunView) -> String {
    let key = run.row.key.as_ref().map_or("", Name::as_str);
    key.trim_start_matches("roundel.incoming:").to_owned()
}

fn total(desk: &Desk) -> Option<u64> {
    let id = DocumentId::at(NS, TOTAL);
    match desk.read(Query::Document(id)) {
        Ok(Answer::Documents(page)) => number(page.items.first()?.1.value.as_ref()?).into(),
        other => panic!("{other:?}"),
    }
}

fn taken(run: &RunView, said: u64) -> Item {
    Item {
        from: Some((run.row.id, run.row.execution)),
        ..item(&fact_of(run), said, &[], Take::Record)
    }
}

pub fn fa_06_the_queue_is_taken_in_order_each_with_its_removal(make: &Make) {
    let desk = Desk::new(make);
    for (id, said) in [("c", 1), ("a", 2), ("b", 3)] {
        received(&desk, vec![item(id, said, &[], Take::Queue)]);
    }
    assert_eq!(
        due(&desk),
        ["c", "a", "b"],
        "the order is that of a counter"
    );
    assert_eq!(total(&desk), None);
    let runs = due_in(&*desk.store, desk.now());
    let items = runs.iter().zip(1..).map(|(run, said)| taken(run, said));
    let got = received(&desk, items.collect());
    assert!(
        got.iter()
            .all(|one| matches!(one, Received::Recorded(fact) if fact.new))
    );
    assert_eq!((due(&desk).len(), total(&desk)), (0, Some(123)));
    // Who read the queue before does nothing.
    let again = received(&desk, runs.iter().map(|run| taken(run, 9)).collect());
    assert!(again.iter().all(|one| *one == Received::Gone));
    assert_eq!(total(&desk), Some(123));
    let run = desk.view(runs[0].row.id).expect("its run is there").row;
    assert_eq!(run.state, RunState::Completed);
    sound(&*desk.store);
}

pub fn fa_08_what_is_queued_twice_is_one_and_another_under_its_id_is_refused(make: &Make) {
    let desk = Desk::new(make);
    let first = received(&desk, vec![item("a", 1, &[], Take::Queue)]);
    let again = received(&desk, vec![item("a", 1, &[], Take::Queue)]);
    assert_eq!(first, again);
    let other = received(&desk, vec![item("a", 2, &[], Take::Queue)]);
    assert!(matches!(&other[0], Received::Refused(_)), "{other:?}");
    assert!(matches!(handled(&desk, "a", 1, &[]), Received::Recorded(fact) if fact.new));
    assert_eq!(due(&desk).len(), 0, "it was handed in, and left the queue");
    let late = received(&desk, vec![item("a", 1, &[], Take::Queue)]);
    assert!(
        matches!(&late[0], Received::Recorded(fact) if !fact.new),
        "{late:?}"
    );
    assert_eq!(total(&desk), Some(1));
    sound(&*desk.store);
}

pub fn fa_02_the_one_that_fails_is_parked_with_its_error_and_the_others_are_not(make: &Make) {
    let desk = Desk::new(make);
    let items = [("a", 1), ("b", 13), ("c", 3)];
    let items = items.map(|(id, said)| item(id, said, &[], Take::Record));
    let got = received(&desk, items.to_vec());
    let Received::Parked { run, failure } = &got[1] else {
        panic!("it is parked: {got:?}")
    };
    assert_eq!(failure.code, "not_folded");
    assert_eq!(total(&desk), Some(13));
    let row = desk.view(*run).expect("it is there").row;
    assert_eq!(row.state, RunState::Parked);
    assert!(due(&desk).is_empty(), "nobody takes it again by itself");
    // An operator lets it be tried again, and discards it.
    let target = Target::Run(*run);
    let resume = Resume {
        namespace: NS,
        target: target.clone(),
        skip: false,
        anew: None,
    };
    desk.must(Op::Resume(resume));
    assert_eq!(due(&desk), ["b"]);
    let again = received(&desk, vec![taken(&due_in(&*desk.store, desk.now())[0], 13)]);
    assert!(matches!(&again[0], Received::Parked { .. }));
    desk.must(Op::Cancel(Cancel {
        namespace: NS,
        target,
        keep: false,
        claimant: None,
    }));
    let row = desk.view(*run).expect("it is there").row;
    assert_eq!(row.state, RunState::Cancelled);
    assert_eq!(total(&desk), Some(13));
    sound(&*desk.store);
}

pub fn fa_10_what_waits_is_let_go_in_the_commit_that_records_what_it_needs(make: &Make) {
    let desk = Desk::new(make);
    let waiting = |received: &Received, on: &str| match received {
        Received::Waiting { on: missing, .. } => assert_eq!(missing.as_str(), on),
        other => panic!("it waits: {other:?}"),
    };
    waiting(&handled(&desk, "b", 2, &["a"]), "a");
    waiting(&handled(&desk, "c", 3, &["a", "b"]), "a");
    waiting(&handled(&desk, "d", 4, &["a", "x"]), "a");
    assert!(due(&desk).is_empty());
    let Reply::Recorded(recorded) = desk.must(Op::Record(Record::new(
        NS,
        vec![item("a", 1, &[], Take::Record).fact],
    ))) else {
        panic!("it is recorded")
    };
    assert_eq!(recorded[0].let_go, 3);
    assert_eq!(due(&desk), ["b", "c", "d"], "in their old order");
    let runs = due_in(&*desk.store, desk.now());
    let needs: [&[&str]; 3] = [&["a"], &["a", "b"], &["a", "x"]];
    let items = runs
        .iter()
        .zip(needs)
        .zip(2..)
        .map(|((run, needs), said)| Item {
            from: Some((run.row.id, run.row.execution)),
            ..item(&fact_of(run), said, needs, Take::Record)
        });
    let got = received(&desk, items.collect());
    assert!(matches!(&got[0], Received::Recorded(_)), "{got:?}");
    assert!(
        matches!(&got[1], Received::Recorded(_)),
        "the one before it is there: {got:?}"
    );
    waiting(&got[2], "x");
    assert_eq!(total(&desk), Some(123));
    handled(&desk, "x", 5, &[]);
    assert_eq!(due(&desk), ["d"]);
    sound(&*desk.store);
}

pub fn fa_10_what_waits_too_long_is_parked(make: &Make) {
    let desk = Desk::new(make);
    let patient = Item {
        patience: Some(Duration::from_secs(60)),
        ..item("b", 2, &["a"], Take::Record)
    };
    received(&desk, vec![patient]);
    assert!(due(&desk).is_empty());
    desk.pass(Duration::from_secs(61));
    assert_eq!(due(&desk), ["b"]);
    let run = due_in(&*desk.store, desk.now()).remove(0);
    let late = Item {
        from: Some((run.row.id, run.row.execution)),
        ..item("b", 2, &["a"], Take::Record)
    };
    let got = received(&desk, vec![late]);
    assert!(
        matches!(&got[0], Received::Parked { failure, .. } if failure.code == "fact_missing"),
        "{got:?}"
    );
    handled(&desk, "a", 1, &[]);
    assert!(due(&desk).is_empty(), "an operator decides");
    sound(&*desk.store);
}

pub fn fa_10_who_waits_and_what_comes_at_the_same_time_miss_each_other_never(make: &Make) {
    let desk = Desk::new(make);
    together(&desk.store, 6, |store, thread| {
        for turn in 0..8 {
            let (needed, needing) = (format!("a {turn}"), format!("b {turn} {thread}"));
            let one = match thread {
                0 => item(&needed, 1, &[], Take::Record),
                _ => item(&needing, 2, &[&needed], Take::Record),
            };
            loop {
                match submit(store, vec![receive(vec![one.clone()])]).remove(0) {
                    Ok(_) => break,
                    Err(Error::Unavailable(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    });
    loop {
        let runs = due_in(&*desk.store, desk.now());
        if runs.is_empty() {
            break;
        }
        received(&desk, runs.iter().map(|run| taken(run, 2)).collect());
    }
    for turn in 0..8 {
        for thread in 1..6 {
            let id = name(&format!("b {turn} {thread}"));
            let query = Query::Fact(FactId { namespace: NS, id });
            let Ok(Answer::Facts(page)) = desk.read(query) else {
                panic!("a fact is read")
            };
            assert_eq!(page.items.len(), 1, "b {turn} {thread} waits for ever");
        }
    }
    sound(&*desk.store);
}

pub fn fa_03_what_a_decider_queues_and_sends_comes_with_its_facts_or_not_at_all(make: &Make) {
    let desk = Desk::new(make);
    let outgoing = Name::constant("outgoing");
    let decision = |said: u64, run: u128| {
        let run = RunId(uuid::Uuid::from_u128(run));
        let sent = Start::new(NS, run, outgoing.clone(), Payload::null());
        Op::Record(Record {
            queued: vec![item("later", 7, &[], Take::Queue)],
            sent: vec![sent],
            ..Record::new(NS, vec![item("now", said, &[], Take::Record).fact])
        })
    };
    let refused = desk.refused(decision(13, 1));
    assert!(matches!(refused, Refusal::NotFolded { .. }), "{refused:?}");
    assert!(due(&desk).is_empty() && desk.view(RunId(uuid::Uuid::from_u128(1))).is_none());
    desk.must(decision(5, 2));
    assert_eq!((due(&desk).len(), total(&desk)), (1, Some(5)));
    assert!(desk.view(RunId(uuid::Uuid::from_u128(2))).is_some());
    sound(&*desk.store);
}
