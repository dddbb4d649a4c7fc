//! Facts stand in the order of transactions, and that agrees with every document and stream.

use roundel_core::{Name, NewFact, Op, Payload, Projection, Record};
use roundel_store::{Answer, FactFilter, FactView, Query, Store, ask};
use roundel_testpg::schema;

use crate::tools::{SPACE, open, sql, wait_for};

fn record(id: &'static str, stream: Option<&'static str>) -> Op {
    let last = Projection::new(Name::constant("last"), |_, _, fact| {
        Ok(Some(fact.data.clone()))
    });
    let fact = NewFact {
        stream: stream.map(Name::constant),
        into: vec![(Name::constant("last"), last)],
        ..NewFact::new(Name::constant(id), Name::constant("said"), Payload::null())
    };
    Op::Record(Record::new(SPACE, vec![fact]))
}

fn facts(store: &dyn Store) -> Vec<FactView> {
    let filter = FactFilter {
        limit: 100,
        ..FactFilter::default()
    };
    match wait_for(store.read(Query::Facts(filter))) {
        Ok(Answer::Facts(page)) => page.items,
        other => panic!("{other:?}"),
    }
}

/// What a later transaction wrote, as one sees it that began earlier and waited for it.
fn comes_late(changed: &str, stream: Option<&'static str>) {
    let Some(schema) = schema() else { return };
    let store = open(&schema);
    ask(&store, record("first", stream)).expect("recorded");
    let later = [
        "UPDATE ",
        schema.name(),
        ".",
        changed,
        " SET xid = xid + 20",
    ];
    sql(&schema, &later.concat());
    let later = facts(&store)[0].position.batch;
    let before = store.metrics().retries;
    ask(&store, record("second", stream)).expect("recorded in the end");
    assert!(store.metrics().retries > before, "it was tried again");
    let facts = facts(&store);
    let ids: Vec<&str> = facts.iter().map(|view| view.id.id.as_str()).collect();
    assert_eq!(ids, ["first", "second"]);
    let beyond = match changed {
        "roundel_fact" => later,
        _ => later + 20,
    };
    assert!(facts[1].position.batch >= beyond, "under a later number");
}

#[test]
fn fa_12_who_comes_late_to_a_document_is_tried_again_under_a_later_number() {
    comes_late("roundel_document", None);
}

#[test]
fn fa_12_who_comes_late_to_a_stream_is_tried_again_under_a_later_number() {
    comes_late("roundel_fact", Some("talk"));
}
