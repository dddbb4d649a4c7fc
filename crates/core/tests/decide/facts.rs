//! Facts: once per id, counted in streams, folded into documents, all of it or nothing.

use roundel_core::{
    Cause, Caused, DocumentId, FactId, Failure, Name, NewFact, Op, Payload, Projection, Record,
    RecordedFact, Refusal, Reply, Seen, StreamId,
};

use crate::world::{A, NS, World, value};

const SUM: Name = Name::constant("sum");
const ODD: Name = Name::constant("odd numbers fail");

fn number(payload: &Payload) -> u32 {
    payload.decode().expect("a number")
}

fn sum() -> Projection {
    Projection::new(SUM, |document, _, fact| {
        let before = document.map_or(0, number);
        Ok(Some(value(before + number(&fact.data))))
    })
}

/// Fails on odd numbers, panics at seven.
fn picky() -> Projection {
    Projection::new(ODD, |_, _, fact| match number(&fact.data) {
        7 => panic!("seven"),
        odd if !odd.is_multiple_of(2) => Err(Failure::permanent("odd")),
        even => Ok(Some(value(even))),
    })
}

fn fact(id: &'static str, said: u32) -> NewFact {
    let kind = Name::constant("said");
    NewFact {
        into: vec![(Name::constant("total"), sum())],
        ..NewFact::new(Name::constant(id), kind, value(said))
    }
}

fn in_stream(id: &'static str, said: u32, expected: Option<u64>) -> NewFact {
    NewFact {
        stream: Some(Name::constant("talk")),
        expected,
        ..fact(id, said)
    }
}

fn record(facts: Vec<NewFact>) -> Op {
    Op::Record(Record::new(NS, facts))
}

fn recorded(world: &mut World, facts: Vec<NewFact>) -> Vec<RecordedFact> {
    let Reply::Recorded(recorded) = world.must(record(facts)) else {
        panic!("facts are recorded")
    };
    recorded
}

fn document(world: &World, path: &'static str) -> Option<(u64, Option<u32>)> {
    let id = DocumentId::at(NS, Name::constant(path));
    let (_, row) = world.rows.live_document(&id)?;
    Some((row.version, row.value.as_ref().map(number)))
}

fn ids(world: &World) -> Vec<String> {
    let ids = world.rows.facts.iter();
    ids.map(|(id, _)| id.id.to_string()).collect()
}

#[test]
fn fa_05_a_fact_is_recorded_and_folded_in_one() {
    let mut world = World::new();
    let all = recorded(&mut world, vec![fact("a", 1), fact("b", 2)]);
    assert!(all.iter().all(|recorded| recorded.new));
    assert_eq!(document(&world, "total"), Some((2, Some(3))));
    let id = FactId {
        namespace: NS,
        id: Name::constant("a"),
    };
    let row = world.rows.facts.get(&id).expect("it is there");
    assert_eq!((row.at, row.own, row.cause), (world.now, false, None));
    assert_eq!(number(&row.data), 1);
}

#[test]
fn fa_08_the_same_fact_twice_is_one_and_another_under_its_id_is_refused() {
    let mut world = World::new();
    recorded(&mut world, vec![fact("a", 1)]);
    let again = recorded(&mut world, vec![fact("a", 1), fact("b", 5), fact("b", 5)]);
    let new: Vec<bool> = again.iter().map(|recorded| recorded.new).collect();
    assert_eq!(new, [false, true, false]);
    assert_eq!(document(&world, "total"), Some((2, Some(6))));
    let other = world.op(&record(vec![fact("c", 1), fact("a", 2)]));
    let id = Name::constant("a");
    assert_eq!(other, Err(Refusal::AnotherFact { id }));
    assert_eq!(ids(&world), ["a", "b"]);
}

#[test]
fn fa_03_if_the_second_cannot_be_folded_the_first_is_not_recorded() {
    let mut world = World::new();
    for (bad, code) in [(3, ""), (7, "panicked")] {
        let mut second = in_stream("b", bad, None);
        second.into.push((Name::constant("even"), picky()));
        let first = in_stream("a", 1, None);
        let refused = world.op(&record(vec![first, second]));
        let Err(Refusal::NotFolded {
            fact,
            projection,
            path,
            failure,
        }) = refused
        else {
            panic!("it is refused: {refused:?}")
        };
        assert_eq!((fact.as_str(), path.as_str()), ("b", "even"));
        assert_eq!((projection, failure.code.as_str()), (ODD, code));
        assert!(ids(&world).is_empty() && world.rows.streams.iter().next().is_none());
        assert_eq!(document(&world, "total"), None);
    }
}

#[test]
fn a_stream_counts_its_facts_and_refuses_what_expects_another_number() {
    let mut world = World::new();
    let both = vec![in_stream("a", 1, Some(0)), in_stream("b", 1, Some(1))];
    let versions = recorded(&mut world, both)
        .iter()
        .map(|recorded| recorded.stream_version)
        .collect::<Vec<_>>();
    assert_eq!(versions, [Some(1), Some(2)]);
    let late = world.op(&record(vec![in_stream("c", 1, Some(1))]));
    assert_eq!(
        late,
        Err(Refusal::StreamMoved {
            stream: Name::constant("talk"),
            expected: 1,
            found: 2,
        })
    );
    let again = recorded(&mut world, vec![in_stream("b", 1, Some(1))]);
    assert_eq!(again[0].stream_version, Some(2), "the answer it had");
    let id = StreamId {
        namespace: NS,
        name: Name::constant("talk"),
    };
    assert_eq!(world.rows.streams.get(&id).expect("it is there").version, 2);
}

#[test]
fn fa_18_what_was_decided_on_old_documents_is_refused() {
    let mut world = World::new();
    let decided = |version, id| {
        let seen = Seen {
            path: Name::constant("total"),
            version,
            generation: 0,
        };
        Op::Record(Record {
            seen: vec![seen],
            own: true,
            ..Record::new(NS, vec![fact(id, 1)])
        })
    };
    world.must(decided(0, "a"));
    let stale = Err(Refusal::Stale {
        path: Name::constant("total"),
    });
    assert_eq!(world.op(&decided(0, "b")), stale);
    world.must(decided(1, "b"));
    assert_eq!(document(&world, "total"), Some((2, Some(2))));
}

#[test]
fn a_document_that_was_removed_goes_on_counting() {
    let mut world = World::new();
    let remove = NewFact {
        into: vec![(
            Name::constant("total"),
            Projection::new(SUM, |_, _, _| Ok(None)),
        )],
        ..fact("b", 0)
    };
    recorded(&mut world, vec![fact("a", 1), remove]);
    assert_eq!(document(&world, "total"), Some((2, None)));
    recorded(&mut world, vec![fact("c", 4)]);
    assert_eq!(document(&world, "total"), Some((3, Some(4))));
}

#[test]
fn fa_14_a_step_records_in_its_round_and_the_fact_leads_back_to_it() {
    let mut world = World::new();
    let run = world.owned(A);
    let mut round = world.round(run);
    let head = world.run(run).head;
    let mut bad = fact("a", 3);
    bad.into.push((Name::constant("even"), picky()));
    for facts in [vec![bad], vec![fact("a", 1)]] {
        let good = facts[0].into.len() == 1;
        let record = Record::new(NS, facts);
        round.caused = vec![Caused::Record(Box::new(record))];
        assert_eq!(world.try_commit(round.clone()).is_ok(), good);
        let epoch = world.run(run).epoch;
        assert_eq!(epoch > round.epoch, good, "the round stands or falls");
    }
    let (_, row) = world.rows.facts.iter().next().expect("it is there");
    let entry = head + 1;
    let execution = 1;
    let cause = Cause {
        run,
        execution,
        entry,
    };
    assert_eq!(row.cause, Some(cause));
}

#[test]
fn limits_are_named() {
    let mut world = World::new();
    let many = (0..1001).map(|_| fact("a", 1)).collect();
    let refused = world.op(&record(many));
    assert!(matches!(refused, Err(Refusal::Limit { limit: 1000, .. })));
    let mut wide = fact("a", 1);
    wide.into = vec![(Name::constant("total"), sum()); 65];
    let refused = world.op(&record(vec![wide]));
    assert!(matches!(refused, Err(Refusal::Limit { limit: 64, .. })));
}
