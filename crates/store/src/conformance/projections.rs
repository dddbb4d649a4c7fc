//! Projections that follow by position, and their buildings.

use roundel_core::{
    Declare, DocumentId, Folds, Follow, Followed, Name, NewFact, Op, Payload, Position, Projection,
    ProjectionId, ProjectionRow, Rebuild, Record, Refusal, Reply,
};

use super::Make;
use super::desk::{Desk, read, submit};
use super::threads::together;
use super::words::NS;
use crate::{Answer, Error, Query, Store};

const KIND: Name = Name::constant("said");
const SUMS: Name = Name::constant("sums");

fn payload(number: u64) -> Payload {
    Payload::encode(&number).expect("a number")
}

fn number(payload: &Payload) -> u64 {
    payload.decode().expect("a number")
}

/// Adds up in such a way that a gap, a repetition and another order can be seen.
fn adding() -> Projection {
    Projection::new(SUMS, |document, _, fact| {
        let before = document.map_or(1, number);
        Ok(Some(payload(
            (before * 31 + number(&fact.data)) % 1_000_003,
        )))
    })
}

fn path(said: u64) -> Name {
    Name::new(format!("sum/{}", said % 2)).expect("a name")
}

fn folds() -> Folds {
    Folds::new(SUMS, 1, |fact| {
        Ok(vec![(path(number(&fact.data)), adding())])
    })
}

fn sums() -> ProjectionId {
    ProjectionId {
        namespace: NS,
        name: SUMS,
    }
}

fn declare(inline: bool) -> Op {
    Op::Declare(Declare {
        projection: sums(),
        version: 1,
        inline,
        kinds: vec![KIND],
    })
}

fn record(id: u64, inline: bool) -> Op {
    let name = Name::new(format!("fact {id}")).expect("a name");
    let mut fact = NewFact::new(name, KIND, payload(id));
    if inline {
        fact.into.push((path(id), adding()));
    }
    Op::Record(Record {
        knows: [(SUMS, 1)].into(),
        ..Record::new(NS, vec![fact])
    })
}

fn follow(generation: u32, (limit, alone): (usize, bool)) -> Op {
    Op::Follow(Follow {
        projection: sums(),
        generation,
        folds: folds(),
        limit,
        alone,
    })
}

fn followed(store: &dyn Store, generation: u32, how: (usize, bool)) -> Option<Followed> {
    match submit(store, vec![follow(generation, how)]).remove(0) {
        Ok(Reply::Followed(followed)) => Some(followed),
        Err(Error::Refused(Refusal::UnknownProjection { .. })) => None,
        other => panic!("{other:?}"),
    }
}

fn row(store: &dyn Store) -> ProjectionRow {
    let query = Query::Projections {
        namespace: Some(NS),
        count: true,
    };
    match read(store, query) {
        Ok(Answer::Projections(all)) => all.projections[0].1.clone(),
        other => panic!("{other:?}"),
    }
}

fn value(store: &dyn Store, path: Name) -> Option<u64> {
    match read(store, Query::Document(DocumentId::at(NS, path))) {
        Ok(Answer::Documents(page)) => {
            let row = page.items.first().map(|(_, row)| row)?;
            row.value.as_ref().map(number)
        }
        other => panic!("{other:?}"),
    }
}

/// What all facts come to, in the order of all.
fn expected(store: &dyn Store, parity: u64) -> Option<u64> {
    let filter = crate::FactFilter {
        namespace: Some(NS),
        limit: 1_000,
        ..crate::FactFilter::default()
    };
    let Ok(Answer::Facts(page)) = read(store, Query::Facts(filter)) else {
        panic!("facts are read")
    };
    let said = page.items.iter().map(|view| number(&view.row.data));
    let said = said.filter(|said| said % 2 == parity);
    said.fold(None, |before, said| {
        Some((before.unwrap_or(1) * 31 + said) % 1_000_003)
    })
}

fn assert_folded(store: &dyn Store) {
    for parity in [0, 1] {
        assert_eq!(value(store, path(parity)), expected(store, parity));
    }
}

/// Takes up what is settled. On a server, what is under way elsewhere may hold it back for a while.
fn catch_up(store: &dyn Store, generation: u32, facts: u64) {
    while row(store)
        .build(generation)
        .is_some_and(|build| build.facts < facts)
    {
        followed(store, generation, (3, false));
        std::thread::yield_now();
    }
}

pub fn fa_13_a_projection_follows_without_gap_or_repetition_whoever_brings_it_further(make: &Make) {
    let desk = Desk::new(make);
    desk.must(declare(false));
    // Some record, some follow, at the same time.
    together(&desk.store, 4, |store, thread| {
        for turn in 0..10 {
            let op = match thread < 2 {
                true => record(thread as u64 * 100 + turn, false),
                false => follow(0, (3, false)),
            };
            while let Err(Error::Unavailable(_)) = submit(store, vec![op.clone()]).remove(0) {}
        }
    });
    let store = &*desk.store;
    catch_up(store, 0, 20);
    let live = row(store).live.expect("it is live");
    assert_eq!((live.facts, live.folds), (20, 20));
    assert_folded(store);
}

pub fn fa_12_a_rebuild_takes_over_in_one_commit_while_facts_arrive(make: &Make) {
    for inline in [false, true] {
        let desk = Desk::new(make);
        desk.must(declare(inline));
        (0..7).for_each(|id| drop(desk.must(record(id, inline))));
        let store = &*desk.store;
        if !inline {
            catch_up(store, 0, 7);
        }
        desk.must(Op::Rebuild(Rebuild { projection: sums() }));
        followed(store, 1, (3, false));
        desk.must(record(7, inline));
        if inline {
            assert_folded(store);
        } else {
            catch_up(store, 0, 8);
        }
        while row(store).next.is_some() {
            let came = followed(store, 1, (3, false));
            if inline && came.is_some_and(|came| !came.more) {
                followed(store, 1, (100, true));
            }
        }
        assert_folded(store);
        assert_eq!(row(store).live.expect("live").generation, 1);
        desk.must(record(8, inline));
        while row(store).sweep.is_some() {
            followed(store, 1, (3, false));
        }
        if !inline {
            catch_up(store, 1, 9);
        }
        assert_folded(store);
        let Ok(Answer::Dump(dump)) = desk.read(Query::Dump) else {
            panic!("all is read")
        };
        assert_eq!(dump.documents.len(), 2, "nothing is left of the old ones");
    }
}

pub fn fa_12_an_inline_projection_over_facts_is_built_before_it_is_read(make: &Make) {
    let desk = Desk::new(make);
    (0..5).for_each(|id| drop(desk.must(record(id, false))));
    desk.must(declare(true));
    let store = &*desk.store;
    assert!(row(store).live.is_none());
    desk.must(record(5, true));
    assert_eq!(value(store, path(1)), None);
    followed(store, 1, (100, true));
    assert_folded(store);
    desk.must(record(6, true));
    assert_folded(store);
    let query = Query::Projections {
        namespace: None,
        count: true,
    };
    let Ok(Answer::Projections(all)) = desk.read(query) else {
        panic!("projections are read")
    };
    assert_eq!(all.facts, Some(7));
    assert!(all.head > Position::default());
}

pub fn a_process_that_lacks_an_inline_projection_records_nothing_it_folds(make: &Make) {
    let desk = Desk::new(make);
    desk.must(declare(true));
    let Op::Record(mut bare) = record(1, false) else {
        unreachable!("it was made so")
    };
    bare.knows = [].into();
    let refused = desk.op(Op::Record(bare));
    let lacks = Refusal::LacksProjection {
        kind: KIND,
        projection: SUMS,
        version: 1,
    };
    assert_eq!(refused, Err(Error::Refused(lacks)));
}
