//! Facts that come in, in any order, twice, too early: what they come to is the same.

use std::collections::BTreeMap;

use proptest::prelude::*;
use roundel_core::{
    Envelope, INCOMING, Item, Name, NewFact, Op, Payload, Projection, Receive, Received, Reply,
    RunRow, RunState, Take,
};

use crate::world::{NS, World, value};

fn number(payload: &Payload) -> u32 {
    payload.decode().expect("a number")
}

fn sum() -> Projection {
    Projection::new(Name::constant("sum"), |document, _, fact| {
        let before = document.map_or(0, number);
        Ok(Some(value(before + number(&fact.data))))
    })
}

fn id(index: usize) -> Name {
    Name::new(format!("fact {index}")).expect("a name")
}

/// What is said, into which of three documents, and which facts before it are needed.
type Drawn = (u32, usize, Vec<prop::sample::Index>);

fn item(index: usize, (said, document, needs): &Drawn, take: Take) -> Item {
    let path = Name::new(format!("sum {document}")).expect("a name");
    let needs = needs.iter().filter(|_| index > 0);
    let fact = NewFact {
        into: vec![(path, sum())],
        needs: needs.map(|before| id(before.index(index))).collect(),
        ..NewFact::new(id(index), Name::constant("said"), value(*said))
    };
    Item {
        envelope: Payload::encode(&Envelope::of(&fact)).expect("JSON"),
        fact,
        from: None,
        take,
        patience: None,
    }
}

fn receive(world: &mut World, items: Vec<Item>) -> Vec<Received> {
    let op = Op::Receive(Receive {
        namespace: NS,
        items,
        by: None,
        knows: [].into(),
    });
    let Reply::Received(received) = world.must(op) else {
        panic!("facts are taken in")
    };
    received
}

fn items(world: &World) -> Vec<&RunRow> {
    let rows = &world.rows;
    let is_item = |row: &&RunRow| rows.lane(row.lane).workflow == INCOMING;
    let mut items: Vec<&RunRow> = rows.runs().filter(is_item).collect();
    items.sort_by_key(|row| (row.ready_at, row.id));
    items
}

/// Takes what is due until nothing is.
fn drain(world: &mut World, all: &BTreeMap<Name, Item>) {
    loop {
        let due = items(world).into_iter();
        let due = due.filter(|row| row.state == RunState::Ready);
        let due = due.map(|row| {
            let key = row.key.as_ref().expect("a key").as_str();
            let (_, id) = key.split_once(':').expect("of a fact");
            let item = all[&Name::new(id.to_owned()).expect("a name")].clone();
            let from = Some((row.id, row.execution));
            let take = Take::Record;
            Item { from, take, ..item }
        });
        let due: Vec<Item> = due.collect();
        if due.is_empty() {
            return;
        }
        receive(world, due);
    }
}

/// Documents and facts, after these came in one after the other.
fn after(order: &[usize], drawn: &[Drawn], queued: bool) -> (String, usize) {
    let mut world = World::new();
    let take = |queued: bool| match queued {
        true => Take::Queue,
        false => Take::Record,
    };
    let all = drawn.iter().enumerate();
    let all: BTreeMap<Name, Item> = all
        .map(|(index, drawn)| (id(index), item(index, drawn, take(queued))))
        .collect();
    for index in order {
        receive(&mut world, vec![all[&id(*index)].clone()]);
        if index % 3 == 0 {
            drain(&mut world, &all);
        }
    }
    drain(&mut world, &all);
    world.check();
    let documents: Vec<_> = world.rows.documents.iter().collect();
    (format!("{documents:?}"), world.rows.facts.iter().count())
}

fn drawn(needs: usize) -> impl Strategy<Value = Vec<Drawn>> {
    let needs = prop::collection::vec(any::<prop::sample::Index>(), 0..=needs);
    prop::collection::vec((0..100_u32, 0..3_usize, needs), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn fa_09_all_permutations_of_independent_facts_give_the_same_documents(
        drawn in drawn(0), order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
        queued in any::<bool>(),
    ) {
        let straight: Vec<usize> = (0..drawn.len()).collect();
        let order: Vec<usize> = order.into_iter().filter(|at| *at < drawn.len()).collect();
        prop_assert_eq!(after(&order, &drawn, queued), after(&straight, &drawn, false));
    }

    #[test]
    fn fa_08_facts_that_come_twice_give_the_same_documents(
        drawn in drawn(0), again in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        queued in any::<bool>(),
    ) {
        let straight: Vec<usize> = (0..drawn.len()).collect();
        let twice = again.iter().map(|at| at.index(drawn.len()));
        let twice: Vec<usize> = straight.iter().copied().chain(twice).collect();
        prop_assert_eq!(after(&twice, &drawn, queued), after(&straight, &drawn, false));
    }

    #[test]
    fn fa_10_facts_that_need_others_come_to_the_same_in_any_order(
        drawn in drawn(3), order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
        queued in any::<bool>(),
    ) {
        let straight: Vec<usize> = (0..drawn.len()).collect();
        let order: Vec<usize> = order.into_iter().filter(|at| *at < drawn.len()).collect();
        let found = after(&order, &drawn, queued);
        prop_assert_eq!(found.1, drawn.len(), "one waits for ever");
        prop_assert_eq!(found, after(&straight, &drawn, false));
    }
}

#[test]
fn fa_06_items_keep_their_order_although_time_stands_still_or_goes_back() {
    let mut world = World::new();
    for (index, back) in [0, 0, 5_000, 9_000, 0].into_iter().enumerate() {
        world.now.0 -= back;
        let drawn = (1, 0, Vec::new());
        receive(&mut world, vec![item(index, &drawn, Take::Queue)]);
    }
    let keys = items(&world).into_iter();
    let keys: Vec<String> = keys
        .filter_map(|row| Some(row.key.as_ref()?.to_string()))
        .collect();
    let expected = (0..5).map(|index| format!("{INCOMING}:fact {index}"));
    assert_eq!(keys, expected.collect::<Vec<_>>());
}
