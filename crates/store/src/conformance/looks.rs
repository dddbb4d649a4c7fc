//! Looks through lists: each passes a bounded number of rows, and whoever follows them finds all
//! that fits, once.

use roundel_core::{
    Accept, AuditId, Audited, Context, Deadlines, Failure, Name, NewFact, Op, Park, Payload,
    PublicationId, Publish, Record, RunId, RunState, Start, Target,
};

use super::Make;
use super::desk::Desk;
use super::together::{undoable, undoing, undone};
use super::words::{A, NS};
use crate::{
    Answer, AuditFilter, AuditOrder, AuditView, FactFilter, FactView, LOOK, Position, Query,
    RunFilter, RunView, Stretch,
};

const RARE: Name = Name::constant("rare");
const CITY: Name = Name::constant("city");
const FAR: Name = Name::constant("far");

fn filter(limit: usize, look: usize) -> RunFilter {
    RunFilter {
        look,
        ..RunFilter::of(NS, limit)
    }
}

fn looked(desk: &Desk, filter: &RunFilter) -> Stretch<RunView, RunId> {
    match desk.read(Query::Runs(filter.clone())) {
        Ok(Answer::Looked(stretch)) => stretch,
        other => panic!("{other:?}"),
    }
}

/// Twenty-four runs, newest last: of each six, three are of a tenant of its own, one is of a rare
/// workflow, two have a label, and one of these is parked; and a few rollbacks that failed.
fn many(make: &Make) -> (Desk, Vec<RunView>) {
    let mut desk = Desk::new(make);
    for number in 0..24 {
        let mut start = desk.starting();
        match number % 6 {
            1 => start.workflow = RARE,
            2 | 3 => start.labels = vec![(CITY, "Ulm".to_owned())],
            0 => {}
            _ => start.namespace = Name::constant("elsewhere"),
        }
        let run = start.run;
        desk.started(start);
        if number % 6 == 3 {
            let park = Park {
                namespace: NS,
                target: Target::Run(run),
                seen: desk.run(run).epoch,
                failure: Failure::permanent("look at it"),
            };
            desk.must(Op::Park(Box::new(park)));
        }
    }
    for accepted in [true, false, false] {
        let run = desk.owned(A);
        undoable(&desk, run);
        desk.must(undoing(run));
        desk.claim(A, 99);
        undone(&desk, run, RunState::RollbackFailed);
        if accepted {
            let (namespace, target) = (NS, Target::Run(run));
            desk.must(Op::Accept(Accept { namespace, target }));
        }
    }
    let mut runs: Vec<RunView> = Vec::new();
    for row in desk.dump().runs.iter().rev() {
        runs.extend(desk.view(row.id));
    }
    (desk, runs)
}

/// Each kind of filter, with what it means.
type Fits = (RunFilter, fn(&RunView) -> bool);

fn filters() -> [Fits; 7] {
    let all = || filter(1, 1);
    let label = Some((CITY, "Ulm".to_owned()));
    let labelled = |run: &RunView| run.labels.iter().any(|(name, _)| *name == CITY);
    [
        (all(), |_| true),
        (
            RunFilter {
                workflow: Some(RARE),
                ..all()
            },
            |run| run.lane.workflow == RARE,
        ),
        (
            RunFilter {
                state: Some(RunState::Ready),
                ..all()
            },
            |run| run.row.state == RunState::Ready,
        ),
        (
            RunFilter {
                state: Some(RunState::Parked),
                ..all()
            },
            |run| run.row.state == RunState::Parked,
        ),
        (
            RunFilter {
                state: Some(RunState::RollbackFailed),
                ..all()
            },
            |run| run.row.state == RunState::RollbackFailed,
        ),
        (
            RunFilter {
                label: label.clone(),
                ..all()
            },
            labelled,
        ),
        (
            RunFilter {
                label,
                state: Some(RunState::Parked),
                ..all()
            },
            |run| run.row.state == RunState::Parked,
        ),
    ]
}

pub fn ro_50_whoever_follows_looks_of_any_size_finds_each_run_that_fits_once(make: &Make) {
    let (desk, runs) = many(make);
    for (filter, fits) in filters() {
        let expected: Vec<RunId> = runs
            .iter()
            .filter(|run| fits(run))
            .map(|run| run.row.id)
            .collect();
        assert!(expected.len() > 1, "{filter:?}");
        for (limit, look) in (1..=4).flat_map(|limit| (1..=30).map(move |look| (limit, look))) {
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let asked = RunFilter {
                    before,
                    limit,
                    look,
                    ..filter.clone()
                };
                let stretch = looked(&desk, &asked);
                assert!(stretch.items.len() <= limit);
                found.extend(stretch.items.iter().map(|run| run.row.id));
                let Some(next) = stretch.next else { break };
                assert!(before.is_none_or(|before| next < before), "it goes on");
                before = Some(next);
            }
            assert_eq!(found, expected, "{filter:?} by {limit}, {look}");
        }
    }
}

pub fn ro_50_a_look_passes_no_more_rows_than_it_may_and_says_how_far_it_came(make: &Make) {
    let (desk, _) = many(make);
    let all: Vec<RunId> = desk.dump().runs.iter().rev().map(|row| row.id).collect();
    let rare = RunFilter {
        workflow: Some(RARE),
        ..filter(9, 1)
    };
    for look in 1..all.len() {
        let stretch = looked(
            &desk,
            &RunFilter {
                look,
                ..rare.clone()
            },
        );
        assert_eq!(stretch.next, Some(all[look - 1]), "a look at {look} rows");
        let passed = &all[..look];
        assert!(stretch.items.iter().all(|run| passed.contains(&run.row.id)));
    }
    // The last look sees that nothing comes after it.
    for look in [all.len(), all.len() + 1, LOOK, usize::MAX] {
        let stretch = looked(
            &desk,
            &RunFilter {
                look,
                ..rare.clone()
            },
        );
        assert_eq!(
            (stretch.items.len(), stretch.next),
            (4, None),
            "{look} rows"
        );
    }
    // Through a label or what is parked, the others are not passed at all.
    let state = Some(RunState::Parked);
    let parked = looked(
        &desk,
        &RunFilter {
            state,
            ..filter(9, 4)
        },
    );
    assert_eq!((parked.items.len(), parked.next), (4, None));
    let label = Some((CITY, "Ulm".to_owned()));
    let labelled = looked(
        &desk,
        &RunFilter {
            label,
            ..filter(9, 16)
        },
    );
    assert_eq!((labelled.items.len(), labelled.next), (8, None));
}

pub fn ro_50_a_look_for_what_was_never_started_is_over_at_once(make: &Make) {
    let mut desk = Desk::new(make);
    let start = Start {
        workflow: RARE,
        ..desk.starting()
    };
    desk.started(start);
    desk.start();
    for (namespace, workflow) in [
        (NS, Some(Name::constant("never"))),
        (Name::constant("nobody"), None),
        (Name::constant("nobody"), Some(RARE)),
    ] {
        let stretch = looked(
            &desk,
            &RunFilter {
                namespace,
                workflow,
                ..filter(1, 1)
            },
        );
        assert_eq!((stretch.items, stretch.next), (Vec::new(), None));
    }
}

pub fn ro_50_a_page_of_a_long_list_is_found_in_a_second_step(make: &Make) {
    let mut desk = Desk::new(make);
    let rare = |desk: &mut Desk| {
        let start = Start {
            workflow: RARE,
            ..desk.starting()
        };
        desk.started(start).run
    };
    let oldest = [rare(&mut desk), rare(&mut desk)];
    for _ in 0..11 {
        let starts = (0..100).map(|_| Op::Start(desk.starting())).collect();
        desk.batch(starts);
    }
    let newest = rare(&mut desk);
    let asked = |limit, look| {
        let workflow = Some(RARE);
        let stretch = looked(
            &desk,
            &RunFilter {
                workflow,
                ..filter(limit, look)
            },
        );
        let found: Vec<RunId> = stretch.items.iter().map(|run| run.row.id).collect();
        (found, stretch.next)
    };
    let [older, old] = oldest;
    assert_eq!(asked(1, LOOK), (vec![newest], Some(newest)));
    assert_eq!(asked(2, LOOK), (vec![newest, old], Some(old)));
    assert_eq!(asked(3, LOOK), (vec![newest, old, older], None));
    assert_eq!(asked(3, 1_102), (vec![newest, old], Some(old)));
    let (found, next) = asked(3, 1_000);
    assert_eq!(found, [newest]);
    assert!(next.is_some_and(|next| next < newest && next > old));
}

/// Nineteen facts of two kinds, in two tenants: a third of them of the rare one.
fn facts(desk: &Desk) -> Vec<FactView> {
    for number in 0..19 {
        let kind = if number % 3 == 0 { RARE } else { CITY };
        let id = Name::new(format!("f{number}")).expect("a name");
        let fact = NewFact::new(id, kind, Payload::null());
        let namespace = if number % 6 == 3 { FAR } else { NS };
        desk.must(Op::Record(Record::new(namespace, vec![fact])));
    }
    let all = FactFilter {
        limit: 100,
        ..FactFilter::default()
    };
    facts_of(desk, all).items
}

fn facts_of(desk: &Desk, filter: FactFilter) -> Stretch<FactView, Position> {
    match desk.read(Query::Facts(filter)) {
        Ok(Answer::Facts(found)) => found,
        other => panic!("{other:?}"),
    }
}

pub fn ro_50_whoever_follows_looks_at_facts_finds_each_that_fits_once(make: &Make) {
    let desk = Desk::new(make);
    let all = facts(&desk);
    assert_eq!(all.len(), 19);
    for (namespace, kind) in [
        (Some(NS), Some(RARE)),
        (Some(FAR), None),
        (None, Some(CITY)),
    ] {
        let fits = |fact: &&FactView| {
            namespace
                .as_ref()
                .is_none_or(|name| fact.id.namespace == *name)
                && kind.as_ref().is_none_or(|kind| fact.row.kind == *kind)
        };
        let expected: Vec<&FactView> = all.iter().filter(fits).collect();
        assert!(expected.len() > 2);
        for (limit, look) in (1..=4).flat_map(|limit| (1..=21).map(move |look| (limit, look))) {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let filter = FactFilter {
                    namespace: namespace.clone(),
                    kind: kind.clone(),
                    after,
                    limit,
                    look: Some(look),
                    ..FactFilter::default()
                };
                let stretch = facts_of(&desk, filter);
                assert!(stretch.items.len() <= limit.min(look));
                let place = |at: Option<Position>| {
                    let at = at?;
                    all.iter().position(|fact| fact.position == at)
                };
                let passed = |at| place(at).map_or(0, |place| place + 1);
                if let Some(next) = stretch.next {
                    let rows = passed(Some(next)) - passed(after);
                    assert!((1..=look).contains(&rows), "{rows} of {look}");
                }
                found.extend(stretch.items);
                let Some(next) = stretch.next else { break };
                after = Some(next);
            }
            let found: Vec<&FactView> = found.iter().collect();
            assert_eq!(found, expected, "by {limit}, {look}");
        }
    }
}

pub fn ro_50_whoever_follows_looks_at_the_audit_finds_each_row_that_fits_once(make: &Make) {
    let mut desk = Desk::new(make);
    let anna = Name::constant("anna");
    for number in 0..18_u32 {
        let namespace = if number % 6 == 5 { FAR } else { NS };
        let start = Start {
            namespace,
            ..desk.starting()
        };
        let audited = Audited {
            operator: if number % 4 == 0 {
                anna.clone()
            } else {
                Name::constant("bert")
            },
            reason: String::new(),
            op: Op::Start(start),
        };
        desk.must(Op::Audited(Box::new(audited)));
    }
    let rows: Vec<AuditView> = desk.dump().audit;
    assert_eq!(rows.len(), 18);
    for order in [AuditOrder::OldestFirst, AuditOrder::NewestFirst] {
        for (namespace, operator) in [(NS, Some(anna.clone())), (FAR, None), (NS, None)] {
            let fits = |(id, row): &&AuditView| {
                id.namespace == namespace && operator.as_ref().is_none_or(|by| row.operator == *by)
            };
            let mut expected: Vec<AuditView> = rows.iter().filter(fits).cloned().collect();
            if order == AuditOrder::NewestFirst {
                expected.reverse();
            }
            assert!(expected.len() > 2);
            for (limit, look) in (1..=4).flat_map(|limit| (1..=17).map(move |look| (limit, look))) {
                let (mut found, mut after) = (Vec::new(), None::<AuditId>);
                loop {
                    let filter = AuditFilter {
                        namespace: Some(namespace.clone()),
                        operator: operator.clone(),
                        run: None,
                        order,
                        after: after.clone(),
                        limit,
                        look: Some(look),
                    };
                    let Ok(Answer::Audit(stretch)) = desk.read(Query::Audit(filter)) else {
                        panic!("no audit")
                    };
                    assert!(stretch.items.len() <= limit.min(look));
                    found.extend(stretch.items);
                    let Some(next) = stretch.next else { break };
                    // Numbers have no gaps.
                    if let (Some(after), AuditOrder::OldestFirst) = (&after, order) {
                        assert!((1..=look as u64).contains(&(next.number - after.number)));
                    }
                    after = Some(next);
                }
                assert_eq!(found, expected, "{order:?} by {limit}, {look}");
            }
        }
    }
}

pub fn ro_50_publications_are_counted_up_to_a_number_and_what_is_left_out_is_told(make: &Make) {
    let mut desk = Desk::new(make);
    for (topic, count) in [("a", 5), ("b", 3), ("c", 1)] {
        for _ in 0..count {
            let publish = Publish {
                namespace: NS,
                id: PublicationId(desk.new_id().0),
                topic: Name::constant(topic),
                payload: Payload::null(),
                deadlines: Deadlines::default(),
                context: Context::default(),
                window: None,
            };
            desk.must(Op::Publish(publish));
        }
    }
    for (rows, expected) in [
        (LOOK, [(5, false), (3, false), (1, false)]),
        (usize::MAX, [(5, false), (3, false), (1, false)]),
        (15, [(5, false), (3, false), (1, false)]),
        (14, [(4, true), (3, false), (1, false)]),
        (9, [(3, true), (3, false), (1, false)]),
        (8, [(2, true), (2, true), (1, false)]),
        (0, [(1, true), (1, true), (1, false)]),
    ] {
        let Ok(Answer::Topics(topics)) = desk.read(Query::Topics(NS, rows)) else {
            panic!("topics")
        };
        let counted: Vec<(u64, bool)> = topics
            .iter()
            .map(|topic| (topic.publications, topic.more))
            .collect();
        assert_eq!(counted, expected, "{rows} rows");
        let unheard: Vec<u64> = topics.iter().map(|topic| topic.unheard).collect();
        assert_eq!(unheard, expected.map(|(count, _)| count));
        assert!(topics.iter().all(|topic| topic.last_at.is_some()));
    }
}
