//! Looking at runs: lists in pages, filters, one run, its tree, counts; unknown ids are errors.

use std::collections::BTreeSet;
use std::time::Duration;

use roundel::{
    Cancelled, Cx, Error, Failure, Patched, Refusal, Result, RunId, RunState, Sent, Signal,
    Workflow,
};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, soon, until};

const ADD: Workflow<u32, u32> = Workflow::named("add");
const WAIT: Workflow<(), u32> = Workflow::named("wait");
const TREE: Workflow<u32, u32> = Workflow::named("tree");
const GO: Signal<u32> = Signal::named("go").offerable();

all![
    ro_50_pages_give_each_run_once_newest_first,
    ro_50_a_page_is_stable_while_runs_come,
    ro_50_filters_by_workflow_state_and_label,
    ro_50_a_page_is_filled_however_far_back_its_runs_are,
    ro_50_one_run_with_all_that_is_known_of_it,
    ro_50_a_tree_in_pages,
    ro_50_depths_and_statistics,
    ro_50_unknown_ids_are_errors,
    ro_50_other_namespaces_are_not_seen,
];

async fn add(_: Cx, n: u32) -> Result<u32> {
    match n {
        13 => Err(Failure::business("bad luck")),
        n => Ok(n + 1),
    }
}

async fn wait(cx: Cx, (): ()) -> Result<u32> {
    cx.wait(GO).await
}

/// So many children that wait.
async fn tree(cx: Cx, n: u32) -> Result<u32> {
    let children = (0..n).map(|_| cx.child(WAIT, &()));
    roundel::future::join_all(children).await;
    Ok(n)
}

async fn start(db: &Db) -> Process {
    let set_up = db.start(|engine| {
        let engine = engine.register(ADD, add).register(WAIT, wait);
        engine.register(TREE, tree)
    });
    set_up.await
}

/// All runs of a list, in pages of this size.
async fn all(list: roundel::Runs, size: usize) -> Vec<RunId> {
    let mut list = list.limit(size);
    let mut seen = Vec::new();
    loop {
        let page = list.fetch().await.unwrap();
        assert!(page.items.len() <= size);
        assert!(page.items.len() == size || !page.more);
        seen.extend(page.items.iter().map(|run| run.row.id));
        if !page.more {
            return seen;
        }
        list = list.after(*seen.last().unwrap());
    }
}

async fn ro_50_pages_give_each_run_once_newest_first(db: Db) {
    let process = start(&db).await;
    let mut runs = Vec::new();
    for n in 0..25 {
        let mut run = process.start(ADD, &(n + 100)).await.unwrap();
        soon("its end", run.result()).await.unwrap();
        runs.push(run.id());
    }
    runs.reverse();
    for size in [1, 7, 25, 100] {
        assert_eq!(all(process.runs(), size).await, runs, "pages of {size}");
    }
    let none = process.runs().limit(0).fetch().await.unwrap();
    assert_eq!(none.items.len(), 1, "at least one");
}

async fn ro_50_a_page_is_stable_while_runs_come(db: Db) {
    let process = start(&db).await;
    for n in 0..6 {
        process.start(ADD, &n).await.unwrap();
    }
    let first = process.runs().limit(3).fetch().await.unwrap();
    let last = first.items.last().unwrap().row.id;
    process.start(ADD, &100).await.unwrap();
    let newest = first.items[0].row.id;
    until("it has ended", || async {
        process.run(newest).await.unwrap().row.state.has_ended()
    })
    .await;
    process.delete(newest).await.unwrap();
    let second = process.runs().limit(3).after(last).fetch().await.unwrap();
    let seen: BTreeSet<RunId> = first.items.iter().map(|run| run.row.id).collect();
    assert!(second.items.iter().all(|run| !seen.contains(&run.row.id)));
    assert_eq!((second.items.len(), second.more), (3, false));
}

async fn ro_50_a_page_is_filled_however_far_back_its_runs_are(db: Db) {
    let process = start(&db).await;
    let (mut waiting, mut failed) = (Vec::new(), Vec::new());
    for n in 0..20 {
        if n % 7 == 0 {
            waiting.insert(0, process.start(WAIT, &()).await.unwrap().id());
        }
        let input = if n % 6 == 0 { 13 } else { n };
        let mut run = process.start(ADD, &input).await.unwrap();
        if input == 13 {
            failed.insert(0, run.id());
        }
        let _ = run.result().await;
    }
    for rows in [1, 2, 5, 100] {
        let of = |workflow| process.runs().of(workflow).unwrap().within(rows);
        for size in [1, 2, 3, 10] {
            assert_eq!(all(of("wait"), size).await, waiting, "{rows}, {size}");
            let list = of("add").in_state(RunState::Failed);
            assert_eq!(all(list, size).await, failed, "{rows}, {size}");
        }
        let one = of("wait").limit(10).look().await.unwrap();
        assert!(one.items.len() <= rows);
        assert_eq!(one.next.is_some(), rows < 23, "{rows} of all");
    }
}

async fn ro_50_filters_by_workflow_state_and_label(db: Db) {
    let process = start(&db).await;
    for n in 10..16 {
        let run = process.start(ADD, &n).label("parity", (n % 2).to_string());
        let _ = soon("its end", run.await.unwrap().result()).await;
        process.start(WAIT, &()).label("parity", "2").await.unwrap();
    }
    let list = || process.runs();
    until("all wait", || async {
        all(list().in_state(RunState::Waiting), 10).await.len() == 6
    })
    .await;
    assert_eq!(all(list().of("add").unwrap(), 4).await.len(), 6);
    assert_eq!(all(list().in_state(RunState::Completed), 2).await.len(), 5);
    assert_eq!(all(list().in_state(RunState::Failed), 2).await.len(), 1);
    let odd = list().with_label("parity", "1").unwrap();
    assert_eq!(all(odd.clone(), 2).await.len(), 3);
    assert_eq!(all(odd.in_state(RunState::Failed), 2).await.len(), 1);
    let neither = list().with_label("parity", "3").unwrap();
    assert_eq!(all(neither, 2).await.len(), 0);
    let both = list().of("wait").unwrap().in_state(RunState::Completed);
    assert_eq!(all(both, 2).await.len(), 0);
    assert!(matches!(list().of("a\nb"), Err(Error::BadName(_))));
}

async fn ro_50_one_run_with_all_that_is_known_of_it(db: Db) {
    let process = start(&db).await;
    let start = process.start(WAIT, &()).key("mine").label("of", "it");
    let run = start.priority(3).await.unwrap();
    until("it waits", || async {
        process.run("mine").await.unwrap().row.state == RunState::Waiting
    })
    .await;
    let view = process.run(&run).await.unwrap();
    assert_eq!(view, process.run("mine").await.unwrap());
    let (row, lane) = (&view.row, &view.lane);
    assert_eq!((row.id, row.priority, row.execution), (run.id(), 3, 1));
    assert_eq!((lane.workflow.as_str(), lane.version), ("wait", 1));
    assert_eq!(row.key.as_ref().unwrap().as_str(), "mine");
    let labels = view.labels.iter();
    let labels: Vec<_> = labels.map(|(name, of)| (name.as_str(), &**of)).collect();
    assert_eq!(labels, [("of", "it")]);
    assert_eq!((row.waits, row.mail), (1, 0));
    process.signal(&run, GO, &1).await.unwrap();
    let mut run = process.handle(WAIT, "mine").await.unwrap();
    assert_eq!(soon("its end", run.result()).await.unwrap(), 1);
    assert_eq!(process.journal("mine").await.unwrap().len(), 4);
}

async fn ro_50_a_tree_in_pages(db: Db) {
    let process = start(&db).await;
    let run = process.start(TREE, &7).await.unwrap();
    until("all wait", || async {
        all(process.runs().in_state(RunState::Waiting), 10)
            .await
            .len()
            == 8
    })
    .await;
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied();
        let page = process.children(&run, after, 3).await.unwrap();
        for child in &page.items {
            assert_eq!(child.row.parent.unwrap().run, run.id());
            assert_eq!((child.row.root, child.row.depth), (run.id(), 1));
            seen.push(child.row.id);
        }
        if !page.more {
            break;
        }
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.is_sorted(), "oldest first");
    let leaf = process.children(seen[0], None, 3).await.unwrap();
    assert!(leaf.items.is_empty() && !leaf.more);
}

async fn ro_50_depths_and_statistics(db: Db) {
    let process = start(&db).await;
    let client = db.start(|engine| engine).await;
    let wait = process.start(WAIT, &()).await.unwrap();
    let mut done = process.start(ADD, &1).await.unwrap();
    soon("its end", done.result()).await.unwrap();
    for _ in 0..3 {
        let later = client.start(ADD, &1).delay(Duration::from_secs(3600));
        later.await.unwrap();
    }
    const IDLE: Signal<u32> = Signal::named("idle").offerable();
    for n in 0..4 {
        process.offer(IDLE, &n).await.unwrap();
        process.signal(&wait, IDLE, &n).await.unwrap();
    }
    let stats = process.stats().await.unwrap();
    let mut runs: Vec<_> = stats
        .runs
        .iter()
        .map(|(name, version, state, count)| (name.as_str(), *version, *state, *count))
        .collect();
    runs.sort_by_key(|(name, _, state, _)| (name.to_string(), state.as_str()));
    assert_eq!(
        runs,
        [
            ("add", 1, RunState::Completed, 1),
            ("add", 1, RunState::Ready, 3),
            ("wait", 1, RunState::Waiting, 1)
        ]
    );
    assert_eq!(stats.mail, 4);
    assert_eq!((stats.offers[0].0.as_str(), stats.offers[0].1), ("idle", 4));
}

async fn ro_50_unknown_ids_are_errors(db: Db) {
    let process = start(&db).await;
    let known = process.start(WAIT, &()).await.unwrap();
    let nobody: RunId = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    let unknown = |error: Error| match error {
        Error::NoSuchRun(_) => true,
        Error::Refused(Refusal::UnknownRun { run }) => run == nobody,
        Error::Refused(Refusal::UnknownKey { key }) => key.as_str() == "nobody",
        other => panic!("{other:?}"),
    };
    assert!(unknown(process.run(nobody).await.unwrap_err()));
    assert!(unknown(process.run("nobody").await.unwrap_err()));
    assert!(unknown(process.journal(nobody).await.unwrap_err()));
    assert!(unknown(process.journal_of(nobody, 1).await.unwrap_err()));
    assert!(unknown(
        process.journal_of(known.id(), 2).await.unwrap_err()
    ));
    assert!(unknown(process.state::<u32>(nobody).await.unwrap_err()));
    let children = process.children(nobody, None, 10).await;
    assert!(unknown(children.unwrap_err()));
    assert!(unknown(process.handle(WAIT, nobody).await.unwrap_err()));
    assert!(unknown(process.resume(nobody).await.unwrap_err()));
    assert!(unknown(process.resume("nobody").await.unwrap_err()));
    assert!(unknown(process.delete(nobody).await.unwrap_err()));
    assert!(unknown(process.delete_forced("nobody").await.unwrap_err()));
    let cancelled = process.cancel(nobody).await.unwrap();
    assert_eq!(cancelled, Cancelled::TargetUnknown);
    let sent = process.signal("nobody", GO, &1).await.unwrap();
    assert_eq!(sent, Sent::TargetUnknown);
    let patched = process.patch_state(nobody, &1, None).await.unwrap();
    assert_eq!(patched, Patched::TargetUnknown);
    assert!(process.state::<u32>(&known).await.unwrap().is_none());
    assert_sound(&db).await;
}

async fn ro_50_other_namespaces_are_not_seen(db: Db) {
    let mine = start(&db).await;
    let theirs = db.start(|engine| engine.namespace("theirs")).await;
    let run = mine.start(WAIT, &()).key("it").await.unwrap();
    assert!(theirs.run(&run).await.is_err());
    assert!(theirs.run("it").await.is_err());
    assert!(theirs.journal(&run).await.is_err());
    assert!(theirs.journal_of(run.id(), 1).await.is_err());
    assert!(theirs.children(&run, None, 10).await.is_err());
    assert!(theirs.delete_forced(&run).await.is_err());
    assert_eq!(all(theirs.runs(), 10).await.len(), 0);
    assert!(theirs.stats().await.unwrap().runs.is_empty());
    let sent = theirs.signal(&run, GO, &1).await.unwrap();
    assert_eq!(sent, Sent::TargetUnknown);
    let cancelled = theirs.cancel(&run).await.unwrap();
    assert_eq!(cancelled, Cancelled::TargetUnknown);
    let other = theirs.start(ADD, &1).key("it").await.unwrap();
    assert_ne!(other.id(), run.id(), "keys are each namespace's own");
}
