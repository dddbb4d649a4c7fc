//! Questions and their answers.

use roundel_core::{Caused, Parent, RunState, StateChange, Target};
use roundel_store::{Answer, Error, Page, Query, RunFilter, RunView, Sqlite};

use crate::tools::{
    FLOW, File, SPACE, claimed, commit, dump, name, payload, read, round, run, start, started,
};

fn filter() -> RunFilter {
    RunFilter::of(SPACE, 10)
}

fn runs(store: &Sqlite, query: Query) -> Page<RunView> {
    match read(store, query) {
        Ok(Answer::Runs(page)) => page,
        Ok(Answer::Looked(found)) => Page {
            items: found.items,
            more: found.next.is_some(),
        },
        other => panic!("{other:?}"),
    }
}

fn numbers(page: &Page<RunView>) -> Vec<u128> {
    page.items
        .iter()
        .map(|view| view.row.id.0.as_u128())
        .collect()
}

#[test]
fn runs_are_listed_newest_first_page_by_page() {
    let file = File::new();
    let store = file.open();
    for number in 1..=25 {
        started(&store, start(number));
    }
    let mut seen = Vec::new();
    let mut filter = filter();
    loop {
        let page = runs(&store, Query::Runs(filter.clone()));
        seen.extend(numbers(&page));
        filter.before = page.items.last().map(|view| view.row.id);
        if !page.more {
            break;
        }
        assert_eq!(page.items.len(), 10);
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<_>>());
}

#[test]
fn runs_are_found_by_workflow_state_label_key_and_namespace() {
    let file = File::new();
    let store = file.open_with_worker();
    claimed(&store, 1);
    let mut labelled = start(2);
    labelled.labels = vec![(name("customer"), "Ada".into()), (name("size"), "4".into())];
    labelled.key = Some(name("order 7"));
    started(&store, labelled);
    let mut other = start(3);
    other.namespace = name("elsewhere");
    other.workflow = name("other");
    started(&store, other);
    let mut parked = round(run(1), 1);
    let failure = roundel_core::Failure::permanent("look at it");
    parked.then = roundel_core::Then::Park(Box::new(failure));
    commit(&store, parked).unwrap();
    let found = |filter| numbers(&runs(&store, Query::Runs(filter)));
    assert_eq!(found(filter()), [2, 1]);
    let state = |state| RunFilter {
        state: Some(state),
        ..filter()
    };
    assert_eq!(found(state(RunState::Parked)), [1]);
    assert_eq!(found(state(RunState::Ready)), [2]);
    let workflow = |text| RunFilter {
        workflow: Some(name(text)),
        ..filter()
    };
    assert_eq!(found(workflow("flow")), [2, 1]);
    assert_eq!(found(workflow("other")), [0; 0]);
    let label = |text: &str| RunFilter {
        label: Some((name("customer"), text.into())),
        ..filter()
    };
    assert_eq!(found(label("Ada")), [2]);
    assert_eq!(found(label("Bob")), [0; 0]);
    let by_key = Query::Run(SPACE, Target::Key(name("order 7")));
    let Ok(Answer::Run(Some(view))) = read(&store, by_key) else {
        panic!("it is found by its key");
    };
    assert_eq!(view.labels.len(), 2);
    let elsewhere = Query::Run(SPACE, Target::Run(run(3)));
    assert_eq!(
        read(&store, elsewhere),
        Ok(Answer::Run(None)),
        "another tenant's run"
    );
}

#[test]
fn a_journal_is_read_from_an_entry_on() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    for epoch in 1..=5 {
        commit(&store, round(id, epoch)).unwrap();
    }
    let journal = |after, limit| {
        let query = Query::Journal {
            run: id,
            execution: 1,
            after,
            limit,
        };
        match read(&store, query) {
            Ok(Answer::Journal(page)) => {
                let firsts: Vec<u64> = page.items.iter().map(|row| row.first).collect();
                (firsts, page.more)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(journal(0, usize::MAX), (vec![1, 2, 3, 4, 5, 6], false));
    assert_eq!(journal(0, 2), (vec![1, 2], true));
    assert_eq!(journal(4, 2), (vec![5, 6], false));
    assert_eq!(journal(u64::MAX, 2), (vec![], false));
    let own = rusqlite::Connection::open(file.path()).unwrap();
    let sql = "SELECT group_concat(number || ' ' || kind) FROM roundel_entry";
    let entries: String = own.query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(entries.starts_with("1 started,2 cancel_seen,"), "{entries}");
}

#[test]
fn children_state_workers_and_counts_are_read() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    let mut parent = round(id, 1);
    for call in 1..=3 {
        let mut child = start(u128::from(call) + 10);
        child.parent = Some(Parent {
            run: id,
            execution: 1,
            call,
        });
        parent.caused.push(Caused::Child(call, Box::new(child)));
    }
    parent.state.push(StateChange::Set(payload("{\"a\": 1}")));
    commit(&store, parent).unwrap();
    let page = runs(&store, Query::Children(id, None, 2));
    assert_eq!((numbers(&page), page.more), (vec![11, 12], true));
    let page = runs(&store, Query::Children(id, Some(run(12)), 2));
    assert_eq!((numbers(&page), page.more), (vec![13], false));
    let Ok(Answer::State(Some(state))) = read(&store, Query::State(id)) else {
        panic!("it has a state");
    };
    assert_eq!((state.version, state.value.as_str()), (1, "{\"a\": 1}"));
    let Ok(Answer::Workers(workers)) = read(&store, Query::Workers) else {
        panic!("workers are listed");
    };
    assert_eq!(workers.len(), 1);
    let Ok(Answer::Stats(stats)) = read(&store, Query::Stats(SPACE)) else {
        panic!("there are counts");
    };
    assert_eq!(
        stats.runs,
        [
            (FLOW, 1, RunState::Ready, 3),
            (FLOW, 1, RunState::Running, 1)
        ]
    );
    assert_eq!(
        read(&store, Query::Mail(id, 0, 10)),
        Ok(Answer::Mail(Vec::new()))
    );
    let unknown = read(&store, Query::State(run(77)));
    assert!(matches!(unknown, Err(Error::Refused(_))), "{unknown:?}");
}

#[test]
fn g14_readers_see_whole_commits_while_the_writer_works() {
    let file = File::new();
    let store = file.open_with_worker();
    let id = claimed(&store, 1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for epoch in 1..200 {
                commit(&store, round(id, epoch)).unwrap();
            }
        });
        while !writer.is_finished() {
            let dump = dump(&store);
            let entries: u64 = dump.journal.iter().map(|row| u64::from(row.count)).sum();
            assert_eq!(dump.runs[0].head, entries);
        }
    });
}
