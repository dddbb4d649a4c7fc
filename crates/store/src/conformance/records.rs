//! What verification reads: everything of a run together, page by page.

use roundel_core::check::RunRecord;
use roundel_core::{Name, OfferId, RunId, Start};

use super::Make;
use super::desk::Desk;
use super::words::{A, claimant, opening, suspending};
use crate::{Answer, Query};

/// All records, read in pages of this size.
fn records(desk: &Desk, limit: usize) -> Vec<(RunId, RunRecord)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Ok(Answer::Records(page)) = desk.read(Query::Records(after, limit)) else {
            panic!("records")
        };
        assert!(page.items.len() <= limit);
        after = page.items.last().map(|(run, _)| *run);
        all.extend(page.items);
        if !page.more {
            return all;
        }
    }
}

pub fn records_hold_all_rows_of_each_run_in_pages_of_any_size(make: &Make) {
    let mut desk = Desk::new(make);
    let start = Start {
        key: Some(Name::constant("k")),
        labels: vec![(Name::constant("city"), "Bern".into())],
        claimant: Some(claimant(A)),
        ..desk.starting()
    };
    let parent = desk.started(start).run;
    let child = desk.owned_child(parent, A);
    let round = opening(desk.round(child), &[(1, "go"), (2, "@job"), (3, "@job")]);
    desk.commit(round);
    desk.signal(child, "go", 1);
    desk.signal(child, "other", 2);
    desk.offer("@job", 3);
    let watcher = desk.owned(A);
    desk.watching(watcher, roundel_core::Target::Run(child));
    let mut round = desk.round(parent);
    let state = roundel_core::Payload::null();
    round.state.push(roundel_core::StateChange::Set(state));
    desk.commit(suspending(round));
    let all = records(&desk, 1000);
    for limit in [1, 2] {
        assert_eq!(records(&desk, limit), all, "in pages of {limit}");
    }
    let ids: Vec<RunId> = all.iter().map(|(run, _)| *run).collect();
    assert_eq!(ids, [parent, child, watcher]);
    let (top, below) = (&all[0].1, &all[1].1);
    assert_eq!((top.keys.len(), top.labels.len()), (1, 1));
    assert_eq!(top.state.as_ref().map(|state| state.version), Some(1));
    let above = below.parent.as_ref().expect("a parent");
    assert_eq!(
        (above.0.id, above.1.clone()),
        (parent, Some(super::words::NS))
    );
    assert_eq!((below.mail.len(), below.waits.len()), (2, 3));
    assert_eq!((below.gates.len(), below.offers.len()), (1, 1));
    assert_eq!(below.watches, [(child, watcher, 1, 5)]);
    let dump = desk.dump();
    let rows: Vec<_> = all
        .iter()
        .filter_map(|(_, record)| record.row.clone())
        .collect();
    assert_eq!(rows, dump.runs);
    let journal: Vec<_> = all
        .iter()
        .flat_map(|(_, record)| record.journal.clone())
        .collect();
    assert_eq!(journal, dump.journal);
}

pub fn offers_are_read_with_their_gates_and_who_has_them_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    desk.waiting(A, &[(1, "@job")]);
    for name in ["@job", "@job", "@work"] {
        desk.offer(name, 1);
    }
    let (mut found, mut after): (Vec<_>, Option<OfferId>) = (Vec::new(), None);
    loop {
        let Ok(Answer::Offers(page)) = desk.read(Query::Offers(after, 1)) else {
            panic!("offers")
        };
        assert_eq!(page.items.len(), 1);
        after = page.items.last().map(|offer| offer.id.clone());
        found.extend(page.items);
        if !page.more {
            break;
        }
    }
    let shown = found.iter().map(|offer| {
        let (name, last) = (
            offer.id.gate.name.as_str(),
            offer.gate.as_ref().map(|g| g.offers),
        );
        (name, offer.id.place, last, offer.waits)
    });
    let shown: Vec<_> = shown.collect();
    let expected = [
        ("@job", 1, Some(2), 1),
        ("@job", 2, Some(2), 0),
        ("@work", 1, Some(1), 0),
    ];
    assert_eq!(shown, expected);
}
