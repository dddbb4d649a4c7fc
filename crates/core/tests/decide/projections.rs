//! Projections that follow by position, are built anew, and are declared.

use roundel_core::{
    Declare, DocumentId, Failure, Folds, Follow, Followed, Name, NewFact, Op, Payload, Projection,
    ProjectionId, ProjectionRow, Rebuild, Record, Refusal, Reply, SkipFact,
};

use crate::world::{NS, World};

const KIND: Name = Name::constant("added");
const TOTAL: Name = Name::constant("total");
const SUMS: Name = Name::constant("sums");

fn payload(number: u64) -> Payload {
    Payload::encode(&number).expect("JSON")
}

/// Adds up; 13 it cannot.
fn adding(version: u32) -> Projection {
    let fold = Projection::new(SUMS, move |document, _, fact| {
        let number = |payload: &Payload| payload.decode::<u64>().unwrap_or_default();
        match number(&fact.data) {
            13 if version == 1 => Err(Failure::permanent("unlucky")),
            said => Ok(Some(payload(document.map_or(0, number) + said))),
        }
    });
    fold.with_version(version)
}

fn folds(version: u32) -> Folds {
    Folds::new(SUMS, version, move |_| Ok(vec![(TOTAL, adding(version))]))
}

fn sums() -> ProjectionId {
    ProjectionId {
        namespace: NS,
        name: SUMS,
    }
}

fn declare(version: u32, inline: bool) -> Op {
    Op::Declare(Declare {
        projection: sums(),
        version,
        inline,
        kinds: vec![KIND],
    })
}

/// Recorded by a process that has this version of the projection.
fn record_by(version: u32, number: u64, said: u64) -> Op {
    let id = Name::new(format!("fact {number}")).expect("a name");
    let fact = NewFact {
        into: vec![(TOTAL, adding(version))],
        ..NewFact::new(id, KIND, payload(said))
    };
    Op::Record(Record {
        knows: [(SUMS, version)].into(),
        ..Record::new(NS, vec![fact])
    })
}

/// Recorded, to be taken up afterwards.
fn record(number: u64, said: u64) -> Op {
    let Op::Record(mut record) = record_by(1, number, said) else {
        unreachable!("it was made so")
    };
    record.facts[0].into.clear();
    Op::Record(record)
}

/// All facts that there are, while nobody records.
fn follow_alone(version: u32, generation: u32) -> Op {
    let mut op = follow_by(version, generation, 100);
    if let Op::Follow(follow) = &mut op {
        follow.alone = true;
    }
    op
}

fn follow_by(version: u32, generation: u32, limit: usize) -> Op {
    Op::Follow(Follow {
        projection: sums(),
        generation,
        folds: folds(version),
        limit,
        alone: false,
    })
}

fn followed(world: &mut World, generation: u32, limit: usize) -> Followed {
    match world.must(follow_by(1, generation, limit)) {
        Reply::Followed(followed) => followed,
        _ => panic!("it is brought further"),
    }
}

fn row(world: &World) -> ProjectionRow {
    world
        .rows
        .projections
        .get(&sums())
        .expect("declared")
        .clone()
}

fn total(world: &World) -> Option<(u64, u64)> {
    let id = DocumentId::at(NS, TOTAL);
    let (_, row) = world.rows.live_document(&id)?;
    let value = row.value.as_ref().expect("it says something");
    Some((row.version, value.decode().expect("a number")))
}

#[test]
fn fa_13_documents_and_position_move_in_one_commit_whoever_asks() {
    let mut world = World::new();
    world.must(declare(1, false));
    (1..=10).for_each(|number| drop(world.must(record(number, number))));
    assert_eq!(total(&world), None);
    let mut passed = 0;
    loop {
        let came = followed(&mut world, 0, 3);
        passed += came.passed as u64;
        let live = row(&world).live.expect("it is live");
        assert_eq!(
            (live.position.number, live.facts, live.folds),
            (passed, passed, passed)
        );
        assert_eq!(total(&world), Some((passed, (1..=passed).sum())));
        if !came.more {
            break;
        }
    }
    assert_eq!(passed, 10);
    // Who asks again finds nothing, and changes nothing.
    let before = row(&world);
    assert_eq!(followed(&mut world, 0, 3).passed, 0);
    assert_eq!(row(&world), before);
}

#[test]
fn fa_12_a_building_is_made_beside_and_takes_over_when_it_has_all() {
    for inline in [false, true] {
        let mut world = World::new();
        world.must(declare(1, inline));
        let said = |world: &mut World, number: u64| {
            world.must(if inline {
                record_by(1, number, number)
            } else {
                record(number, number)
            });
            if !inline {
                followed(world, 0, 100);
            }
        };
        (1..=5).for_each(|number| said(&mut world, number));
        world.must(Op::Rebuild(Rebuild { projection: sums() }));
        assert!(followed(&mut world, 1, 2).more);
        // What is recorded meanwhile is in the one that is read at once, and in the other later.
        said(&mut world, 6);
        assert_eq!(total(&world), Some((6, 21)));
        while followed(&mut world, 1, 2).more && row(&world).next.is_some() {}
        if inline {
            assert!(row(&world).next.is_some(), "others may be recording");
            world.must(follow_alone(1, 1));
        }
        assert!(row(&world).next.is_none());
        assert_eq!(total(&world), Some((6, 21)));
        let live = row(&world).live.expect("it is live");
        assert_eq!(live.generation, 1);
        if inline {
            said(&mut world, 7);
        } else {
            world.must(record(7, 7));
        }
        let mut sweeps = 0;
        while !inline && row(&world).sweep.is_some() {
            followed(&mut world, 1, 100);
            sweeps += 1;
        }
        assert_eq!(total(&world), Some((7, 28)));
        assert!(inline || sweeps > 0 && world.rows.documents.iter().count() == 1);
    }
}

#[test]
fn an_inline_projection_that_comes_later_is_built_before_it_is_read() {
    let mut world = World::new();
    world.must(record(1, 1));
    world.must(declare(1, true));
    assert!(row(&world).live.is_none());
    // Until then nobody has to have it.
    world.must(record(2, 2));
    world.must(record_by(1, 3, 3));
    assert_eq!(total(&world), None);
    let mut too_few = follow_alone(1, 1);
    if let Op::Follow(follow) = &mut too_few {
        follow.limit = 2;
    }
    world.must(too_few);
    let next = row(&world).next.expect("it is being made");
    assert_eq!(next.facts, 0, "all of them, or none");
    followed(&mut world, 1, 100);
    assert!(row(&world).live.is_none(), "others may be recording");
    world.must(follow_alone(1, 1));
    assert_eq!(total(&world), Some((3, 6)));
    world.must(record_by(1, 4, 4));
    assert_eq!(total(&world), Some((4, 10)));
}

#[test]
fn a_process_without_a_projection_or_with_an_old_one_is_noticed() {
    let mut world = World::new();
    world.must(declare(1, true));
    let lacks = |version| Refusal::LacksProjection {
        kind: KIND,
        projection: SUMS,
        version,
    };
    let Op::Record(mut bare) = record(1, 1) else {
        unreachable!("it was made so")
    };
    bare.knows = [].into();
    assert_eq!(world.op(&Op::Record(bare)), Err(lacks(1)));
    world.must(record_by(1, 1, 1));
    let other = |known, found| Refusal::OtherProjection {
        projection: SUMS,
        known,
        found,
    };
    assert_eq!(world.op(&declare(1, false)), Err(other(1, 1)));
    // The old version goes on until the new one has all facts.
    world.must(declare(2, true));
    world.must(record_by(1, 2, 2));
    assert_eq!(world.op(&declare(1, true)), Err(other(2, 1)));
    world.must(follow_alone(2, 1));
    assert_eq!(world.op(&record_by(1, 3, 3)), Err(lacks(2)));
    world.must(record_by(2, 3, 3));
    assert_eq!(total(&world), Some((3, 6)));
}

#[test]
fn a_fact_that_cannot_be_folded_in_stops_its_projection_until_it_can_or_is_skipped() {
    let mut world = World::new();
    world.must(declare(1, false));
    for (number, said) in [(1, 1), (2, 13), (3, 3)] {
        world.must(record(number, said));
    }
    assert_eq!(followed(&mut world, 0, 100).passed, 1);
    let stuck = row(&world).live.and_then(|live| live.stuck);
    let stuck = stuck.expect("it cannot go on");
    assert_eq!((stuck.fact.as_str(), stuck.position.number), ("fact 2", 2));
    assert_eq!(total(&world), Some((1, 1)));
    let skip = |fact: &'static str| {
        Op::SkipFact(SkipFact {
            projection: sums(),
            fact: Name::constant(fact),
        })
    };
    let not = Refusal::NotStuck {
        projection: SUMS,
        fact: Name::constant("fact 1"),
    };
    assert_eq!(world.op(&skip("fact 1")), Err(not));
    world.must(skip("fact 2"));
    followed(&mut world, 0, 100);
    assert_eq!(total(&world), Some((2, 4)));
    // Another version of the code can fold it in.
    world.must(declare(2, false));
    world.must(follow_by(2, 1, 100));
    assert_eq!(total(&world), Some((3, 17)));
}

#[test]
fn a_document_is_one_projections_own() {
    let mut world = World::new();
    world.must(record_by(1, 1, 1));
    let thief = Projection::new(Name::constant("thief"), |_, _, _| Ok(None));
    let fact = NewFact {
        into: vec![(TOTAL, thief)],
        ..NewFact::new(Name::constant("other"), KIND, payload(1))
    };
    let refused = world.op(&Op::Record(Record::new(NS, vec![fact])));
    let Err(Refusal::NotFolded { failure, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(failure.code, "other_projection");
    assert_eq!(total(&world), Some((1, 1)));
}
