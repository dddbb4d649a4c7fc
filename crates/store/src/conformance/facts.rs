//! Facts: recorded once, counted in their streams, folded into their documents, read in order.

use std::collections::BTreeMap;

use roundel_core::{
    Cause, Caused, DocumentId, FactId, Failure, Name, NewFact, Op, Payload, Projection, Record,
    RecordedFact, Refusal, Reply, RunId, Seen,
};

use super::Make;
use super::desk::{Desk, read, submit};
use super::threads::together;
use super::words::{A, NS};
use crate::{
    Answer, DocumentFilter, DocumentView, Error, FactFilter, FactView, Page, Position, Query,
    Store, Stretch,
};

const TOTAL: Name = Name::constant("total");
const OTHER: Name = Name::constant("other");
const TALK: Name = Name::constant("talk");

fn name(text: &str) -> Name {
    Name::new(text.to_owned()).expect("a name")
}

fn payload(number: u64) -> Payload {
    Payload::encode(&number).expect("a number")
}

fn number(payload: &Payload) -> u64 {
    payload.decode().expect("a number")
}

/// Adds facts up, so that their order can be seen. At thirteen it fails, at zero the document goes.
fn sum() -> Projection {
    Projection::new(Name::constant("sum"), |document, _, fact| {
        let before = document.map_or(0, number);
        match number(&fact.data) {
            13 => Err(Failure::permanent("thirteen")),
            0 => Ok(None),
            said => Ok(Some(payload(before * 10 + said))),
        }
    })
}

fn fact(id: &str, said: u64) -> NewFact {
    NewFact {
        into: vec![(TOTAL, sum())],
        ..NewFact::new(name(id), Name::constant("said"), payload(said))
    }
}

fn in_talk(id: &str, said: u64) -> NewFact {
    NewFact {
        stream: Some(TALK),
        ..fact(id, said)
    }
}

fn record(facts: Vec<NewFact>) -> Op {
    Op::Record(Record::new(NS, facts))
}

fn recorded(desk: &Desk, facts: Vec<NewFact>) -> Vec<RecordedFact> {
    match desk.must(record(facts)) {
        Reply::Recorded(recorded) => recorded,
        other => panic!("{other:?}"),
    }
}

fn facts(desk: &Desk, filter: FactFilter) -> Stretch<FactView, Position> {
    match desk.read(Query::Facts(filter)) {
        Ok(Answer::Facts(page)) => page,
        other => panic!("{other:?}"),
    }
}

fn all() -> FactFilter {
    FactFilter {
        namespace: Some(NS),
        limit: 100,
        ..FactFilter::default()
    }
}

fn ids(page: &Stretch<FactView, Position>) -> Vec<String> {
    let ids = page.items.iter().map(|view| view.id.id.to_string());
    ids.collect()
}

fn documents(desk: &Desk, filter: DocumentFilter) -> Page<DocumentView> {
    match desk.read(Query::Documents(filter)) {
        Ok(Answer::Documents(page)) => page,
        other => panic!("{other:?}"),
    }
}

fn document(desk: &Desk, path: &str) -> Option<(u64, Option<u64>)> {
    let id = DocumentId::at(NS, name(path));
    match desk.read(Query::Document(id)) {
        Ok(Answer::Documents(page)) => {
            let (_, row) = page.items.into_iter().next()?;
            Some((row.version, row.value.as_ref().map(number)))
        }
        other => panic!("{other:?}"),
    }
}

pub fn fa_05_a_fact_comes_back_with_its_envelope(make: &Make) {
    let desk = Desk::new(make);
    let at = desk.now();
    let op = Op::Record(Record {
        own: true,
        by: Some(name("till 7")),
        ..Record::new(NS, vec![in_talk("a", 5)])
    });
    desk.must(op);
    let id = FactId {
        namespace: NS,
        id: name("a"),
    };
    let Ok(Answer::Facts(page)) = desk.read(Query::Fact(id)) else {
        panic!("a fact is read")
    };
    let row = &page.items[0].row;
    assert_eq!((row.kind.as_str(), row.version, row.own), ("said", 1, true));
    assert_eq!((row.by.clone(), row.cause), (Some(name("till 7")), None));
    assert_eq!(row.stream, Some((TALK, 1)));
    assert!(row.at >= at && number(&row.data) == 5);
    let unknown = FactId {
        namespace: OTHER,
        id: name("a"),
    };
    let unknown = desk.read(Query::Fact(unknown));
    assert!(matches!(unknown, Ok(Answer::Facts(page)) if page.items.is_empty()));
}

pub fn fa_08_the_same_fact_twice_is_one(make: &Make) {
    let desk = Desk::new(make);
    recorded(&desk, vec![in_talk("a", 1)]);
    let again = recorded(&desk, vec![in_talk("a", 1), in_talk("b", 2)]);
    let new: Vec<_> = again
        .iter()
        .map(|fact| (fact.new, fact.stream_version))
        .collect();
    assert_eq!(new, [(false, Some(1)), (true, Some(2))]);
    let other = desk.refused(record(vec![fact("c", 1), in_talk("a", 9)]));
    assert_eq!(other, Refusal::AnotherFact { id: name("a") });
    assert_eq!(ids(&facts(&desk, all())), ["a", "b"]);
    assert_eq!(document(&desk, "total"), Some((2, Some(12))));
}

pub fn fa_01_fa_03_what_cannot_be_folded_leaves_nothing(make: &Make) {
    let desk = Desk::new(make);
    recorded(&desk, vec![in_talk("a", 1)]);
    let refused = desk.refused(record(vec![in_talk("b", 2), in_talk("c", 13)]));
    let Refusal::NotFolded { fact, failure, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((fact, failure.message.as_str()), (name("c"), "thirteen"));
    assert_eq!(ids(&facts(&desk, all())), ["a"]);
    assert_eq!(document(&desk, "total"), Some((1, Some(1))));
    let next = recorded(&desk, vec![in_talk("d", 3)]);
    assert_eq!(next[0].stream_version, Some(2), "nothing was counted");
}

pub fn fa_02_of_a_batch_the_one_that_fails_fails_alone(make: &Make) {
    let desk = Desk::new(make);
    let ops = [("a", 1), ("b", 13), ("c", 3)];
    let ops = ops.map(|(id, said)| record(vec![fact(id, said)]));
    let replies = desk.batch(ops.into());
    let good: Vec<bool> = replies.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true]);
    let refused = &replies[1];
    assert!(matches!(
        refused,
        Err(Error::Refused(Refusal::NotFolded { .. }))
    ));
    assert_eq!(ids(&facts(&desk, all())), ["a", "c"]);
    assert_eq!(document(&desk, "total"), Some((2, Some(13))));
}

pub fn a_stream_refuses_what_expects_another_number(make: &Make) {
    let desk = Desk::new(make);
    let expecting = |id: &str, expected| NewFact {
        expected: Some(expected),
        ..in_talk(id, 1)
    };
    recorded(&desk, vec![expecting("a", 0), expecting("b", 1)]);
    let refused = desk.refused(record(vec![expecting("c", 1)]));
    let moved = Refusal::StreamMoved {
        stream: TALK,
        expected: 1,
        found: 2,
    };
    assert_eq!(refused, moved);
    recorded(&desk, vec![fact("x", 1), expecting("c", 2)]);
    let talk = FactFilter {
        stream: Some((TALK, 1)),
        ..all()
    };
    assert_eq!(ids(&facts(&desk, talk)), ["b", "c"]);
}

pub fn fa_18_what_was_decided_on_old_documents_is_refused(make: &Make) {
    let desk = Desk::new(make);
    let decided = |id: &str, version| {
        let seen = vec![Seen {
            path: TOTAL,
            version,
            generation: 0,
        }];
        let facts = vec![fact(id, 1)];
        Op::Record(Record {
            seen,
            ..Record::new(NS, facts)
        })
    };
    let replies = desk.batch(vec![decided("a", 0), decided("b", 0), decided("b", 1)]);
    let good: Vec<bool> = replies.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true]);
    assert_eq!(
        desk.refused(decided("c", 0)),
        Refusal::Stale { path: TOTAL }
    );
    desk.must(record(vec![fact("gone", 0)]));
    assert_eq!(document(&desk, "total"), Some((3, None)));
    assert_eq!(
        desk.refused(decided("c", 0)),
        Refusal::Stale { path: TOTAL }
    );
    desk.must(decided("c", 3));
    assert_eq!(document(&desk, "total"), Some((4, Some(1))));
}

pub fn fa_14_a_round_and_its_facts_lead_to_each_other(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let recording = |desk: &Desk, facts| {
        let mut round = desk.round(run);
        let record = Record::new(NS, facts);
        round.caused.push(Caused::Record(Box::new(record)));
        desk.op(Op::Commit(round))
    };
    let refused = recording(&desk, vec![fact("a", 1), fact("b", 13)]);
    assert!(matches!(
        refused,
        Err(Error::Refused(Refusal::NotFolded { .. }))
    ));
    let head = desk.run(run).head;
    recording(&desk, vec![fact("a", 1)]).expect("it stands");
    recorded(&desk, vec![fact("z", 2)]);
    let of_run = |run: RunId| FactFilter {
        run: Some(run),
        ..all()
    };
    let page = facts(&desk, of_run(run));
    assert_eq!(ids(&page), ["a"]);
    let cause = Cause {
        run,
        execution: 1,
        entry: head + 1,
    };
    assert_eq!(page.items[0].row.cause, Some(cause));
    let nobody = desk.new_id();
    assert!(facts(&desk, of_run(nobody)).items.is_empty());
    let mut elsewhere = desk.round(run);
    let record = Record::new(OTHER, vec![fact("b", 1)]);
    elsewhere.caused.push(Caused::Record(Box::new(record)));
    let refused = desk.refused(Op::Commit(elsewhere));
    assert!(matches!(refused, Refusal::Inconsistent { .. }));
}

pub fn facts_and_documents_are_read_in_pages(make: &Make) {
    let desk = Desk::new(make);
    for number in 0..7 {
        let mut one = fact(&format!("f{number}"), 1);
        one.into = vec![(name(&format!("p/{number}")), sum()), (name("q"), sum())];
        recorded(&desk, vec![one]);
    }
    let mut read = Vec::new();
    let mut after: Option<Position> = None;
    // What is under way elsewhere on a server may hold them back for a while.
    while read.len() < 7 {
        let filter = FactFilter {
            after,
            settled: true,
            limit: 3,
            ..all()
        };
        let page = facts(&desk, filter);
        read.extend(ids(&page));
        after = page.items.last().map(|view| view.position).or(after);
        std::thread::yield_now();
    }
    assert_eq!(read, ["f0", "f1", "f2", "f3", "f4", "f5", "f6"]);
    let (mut paths, mut after) = (Vec::new(), None);
    loop {
        let filter = DocumentFilter {
            namespace: Some(NS),
            prefix: "p/".into(),
            after,
            limit: 3,
            ..DocumentFilter::default()
        };
        let page = documents(&desk, filter);
        paths.extend(page.items.iter().map(|(id, _)| id.path.to_string()));
        after = page.items.last().map(|(id, _)| id.clone());
        if !page.more {
            break;
        }
    }
    let expected: Vec<String> = (0..7).map(|number| format!("p/{number}")).collect();
    assert_eq!(paths, expected);
}

pub fn inv25_facts_of_one_namespace_are_not_seen_in_another(make: &Make) {
    let desk = Desk::new(make);
    recorded(&desk, vec![in_talk("a", 1)]);
    let other = Op::Record(Record::new(OTHER, vec![in_talk("a", 2)]));
    let Reply::Recorded(recorded) = desk.must(other) else {
        panic!("it is recorded")
    };
    assert_eq!(recorded[0].stream_version, Some(1));
    assert_eq!(document(&desk, "total"), Some((1, Some(1))));
    assert_eq!(ids(&facts(&desk, all())), ["a"]);
    let everywhere = FactFilter {
        namespace: None,
        ..all()
    };
    assert_eq!(facts(&desk, everywhere).items.len(), 2);
}

/// A counter that only a decision on its last value may raise.
fn raise(store: &dyn Store, id: &str) -> u64 {
    let path = DocumentId::at(NS, TOTAL);
    loop {
        let Ok(Answer::Documents(page)) = read(store, Query::Document(path.clone())) else {
            panic!("a document is read")
        };
        let (version, value) = page.items.first().map_or((0, 0), |(_, row)| {
            (row.version, row.value.as_ref().map_or(0, number))
        });
        let next = value + 1;
        let into = Projection::new(Name::constant("set"), |_, _, fact| {
            Ok(Some(fact.data.clone()))
        });
        let fact = NewFact {
            into: vec![(TOTAL, into)],
            stream: Some(TALK),
            ..NewFact::new(name(id), Name::constant("raised"), payload(next))
        };
        let seen = vec![Seen {
            path: TOTAL,
            version,
            generation: 0,
        }];
        let record = Record {
            seen,
            ..Record::new(NS, vec![fact])
        };
        match submit(store, vec![Op::Record(record)]).remove(0) {
            Ok(_) => return next,
            Err(Error::Refused(Refusal::Stale { .. }) | Error::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

pub fn fa_18_decisions_of_many_are_as_if_one_after_the_other(make: &Make) {
    let desk = Desk::new(make);
    let raised = together(&desk.store, 6, |store, thread| {
        let ids = (0..5).map(|turn| format!("{thread} {turn}"));
        ids.map(|id| raise(store, &id)).collect::<Vec<u64>>()
    });
    let mut raised: Vec<u64> = raised.into_iter().flatten().collect();
    raised.sort_unstable();
    assert_eq!(raised, (1..=30).collect::<Vec<u64>>(), "none was lost");
    let page = facts(&desk, all());
    let order: BTreeMap<u64, u64> = page
        .items
        .iter()
        .map(|view| {
            let version = view.row.stream.as_ref().expect("in a stream").1;
            (version, number(&view.row.data))
        })
        .collect();
    assert!(order.iter().all(|(version, said)| version == said));
    let by_position: Vec<u64> = page
        .items
        .iter()
        .map(|view| number(&view.row.data))
        .collect();
    assert!(
        by_position.is_sorted(),
        "the order of all is that of each stream: {by_position:?}"
    );
}
