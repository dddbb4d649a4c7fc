//! What can be read: lists, filters, pages, counts; and starts by key.

use std::time::Duration;

use roundel_core::{
    Caused, Name, Op, Payload, PublicationId, Publish, Refusal, Register, Reply, RunId, RunState,
    Start, Subscribe, Target, limits,
};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{A, B, NS, child_of, claimant, lane, offering, signal, value};
use crate::{Answer, Error, Page, Query, RunFilter, RunView};

fn filter() -> RunFilter {
    RunFilter::of(NS, 100)
}

fn runs(desk: &Desk, filter: RunFilter) -> (Vec<RunId>, bool) {
    match desk.read(Query::Runs(filter)) {
        Ok(Answer::Looked(found)) => {
            let ids = found.items.iter().map(|view| view.row.id);
            (ids.collect(), found.next.is_some())
        }
        other => panic!("{other:?}"),
    }
}

fn ids(page: &Page<RunView>) -> (Vec<RunId>, bool) {
    (
        page.items.iter().map(|view| view.row.id).collect(),
        page.more,
    )
}

pub fn ro_04_starting_twice_with_a_key_gives_the_first(make: &Make) {
    let mut desk = Desk::new(make);
    let mut keyed = || Start {
        key: Some(Name::constant("k")),
        ..desk.starting()
    };
    let (first, second) = (keyed(), keyed());
    let other = Start {
        input: value(1),
        ..keyed()
    };
    let replies = desk.batch(vec![Op::Start(first.clone()), Op::Start(second)]);
    for (reply, new) in replies.into_iter().zip([true, false]) {
        let Ok(Reply::Started(started)) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!((started.run, started.new), (first.run, new));
    }
    let conflict = Refusal::Conflict {
        key: Name::constant("k"),
    };
    assert_eq!(desk.refused(Op::Start(other)), conflict);
    let again = desk.started(first.clone());
    assert!(
        !again.new,
        "RO-03: a start whose answer was lost is recognised"
    );
}

pub fn e20_an_id_used_for_something_else_is_a_conflict(make: &Make) {
    let mut desk = Desk::new(make);
    let start = desk.starting();
    desk.started(start.clone());
    for other in [
        Start {
            workflow: Name::constant("other"),
            ..start.clone()
        },
        Start {
            namespace: Name::constant("other"),
            ..start.clone()
        },
        Start {
            key: Some(Name::constant("k")),
            ..start
        },
    ] {
        assert!(matches!(
            desk.refused(Op::Start(other)),
            Refusal::Conflict { .. }
        ));
    }
}

pub fn ro_50_runs_are_listed_newest_first_in_exact_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let mut all: Vec<_> = (0..7).map(|_| desk.start()).collect();
    all.reverse();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let (page, more) = runs(
            &desk,
            RunFilter {
                before,
                limit: 3,
                ..filter()
            },
        );
        before = page.last().copied();
        seen.extend(page);
        assert_eq!(more, seen.len() < all.len());
        if !more {
            break;
        }
    }
    assert_eq!(seen, all);
    assert_eq!(
        runs(
            &desk,
            RunFilter {
                limit: 7,
                ..filter()
            }
        ),
        (all.clone(), false)
    );
    let unknown = desk.new_id();
    assert_eq!(
        runs(
            &desk,
            RunFilter {
                before: Some(unknown),
                ..filter()
            }
        )
        .0,
        all
    );
}

pub fn ro_50_runs_are_filtered(make: &Make) {
    let mut desk = Desk::new(make);
    let (city, ulm) = (Name::constant("city"), "Ulm".to_owned());
    let plain = desk.start();
    let labels = vec![
        (city.clone(), ulm.clone()),
        (Name::constant("size"), "XL".to_owned()),
    ];
    let start = Start {
        labels: labels.clone(),
        ..desk.starting()
    };
    let labelled = desk.started(start).run;
    let start = Start {
        workflow: Name::constant("other"),
        ..desk.starting()
    };
    let other = desk.started(start).run;
    let owned = desk.owned(A);
    let start = Start {
        namespace: Name::constant("elsewhere"),
        ..desk.starting()
    };
    desk.started(start);
    let by = |filter| runs(&desk, filter).0;
    assert_eq!(
        by(filter()),
        [owned, other, labelled, plain],
        "INV25: not those of others"
    );
    let workflow = Some(Name::constant("other"));
    assert_eq!(
        by(RunFilter {
            workflow,
            ..filter()
        }),
        [other]
    );
    let state = Some(RunState::Running);
    assert_eq!(by(RunFilter { state, ..filter() }), [owned]);
    assert_eq!(
        by(RunFilter {
            label: Some((city.clone(), ulm)),
            ..filter()
        }),
        [labelled]
    );
    assert_eq!(
        by(RunFilter {
            label: Some((city, "Bonn".into())),
            ..filter()
        }),
        []
    );
    let view = desk.view(labelled).expect("it is there");
    assert_eq!(view.labels, labels);
    assert_eq!(view.lane, lane(&NS, "w", 1));
}

pub fn ro_50_a_run_is_found_by_id_and_by_key_in_its_namespace(make: &Make) {
    let mut desk = Desk::new(make);
    let key = Name::constant("order-7");
    let start = Start {
        key: Some(key.clone()),
        ..desk.starting()
    };
    let run = desk.started(start).run;
    let find = |namespace: Name, target: Target| match desk.read(Query::Run(namespace, target)) {
        Ok(Answer::Run(view)) => view.map(|view| view.row.id),
        other => panic!("{other:?}"),
    };
    let elsewhere = Name::constant("elsewhere");
    assert_eq!(find(NS, Target::Run(run)), Some(run));
    assert_eq!(find(NS, Target::Key(key.clone())), Some(run));
    assert_eq!(find(elsewhere.clone(), Target::Run(run)), None);
    assert_eq!(find(elsewhere, Target::Key(key)), None);
}

pub fn ro_50_unknown_ids_give_errors_not_empty_answers(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.new_id();
    let (execution, after, limit) = (1, 0, 9);
    for query in [
        Query::Journal {
            run,
            execution,
            after,
            limit,
        },
        Query::Mail(run, 0, 9),
        Query::State(run),
        Query::Children(run, None, 9),
    ] {
        let shown = format!("{query:?}");
        let unknown = Err(Error::Refused(Refusal::UnknownRun { run }));
        assert_eq!(desk.read(query), unknown, "{shown}");
    }
    let known = desk.start();
    assert_eq!(desk.read(Query::State(known)), Ok(Answer::State(None)));
}

pub fn ro_50_children_are_listed_oldest_first_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let parent = desk.owned(A);
    let row = desk.run(parent);
    let mut round = desk.round(parent);
    let mut children = Vec::new();
    for call in 1..=5 {
        let start = desk.starting();
        children.push(start.run);
        round
            .caused
            .push(Caused::Child(call, Box::new(child_of(&row, call, start))));
    }
    desk.commit(round);
    let page = |after, limit| match desk.read(Query::Children(parent, after, limit)) {
        Ok(Answer::Runs(page)) => ids(&page),
        other => panic!("{other:?}"),
    };
    assert_eq!(page(None, 2), (children[..2].to_vec(), true));
    assert_eq!(page(Some(children[1]), 3), (children[2..].to_vec(), false));
    assert_eq!(page(None, 5), (children, false));
}

pub fn ro_50_mail_is_listed_in_order_of_arrival_in_pages(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.start();
    for (name, value) in [("b", 1), ("a", 2), ("b", 3), ("c", 4)] {
        desk.signal(run, name, value);
    }
    let page = |after, limit| match desk.read(Query::Mail(run, after, limit)) {
        Ok(Answer::Mail(mail)) => mail.iter().map(|(id, _)| id.number).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(page(0, 2), [1, 2]);
    assert_eq!(page(2, 9), [3, 4]);
    let names: Vec<String> = desk.mail(run).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["b", "a", "b", "c"]);
}

pub fn ro_50_counts_are_right(make: &Make) {
    let mut desk = Desk::new(make);
    let (one, _two, owned) = (desk.start(), desk.start(), desk.owned(A));
    let ended = desk.owned(A);
    desk.end(ended);
    desk.signal(one, "go", 1);
    desk.signal(owned, "go", 1);
    desk.offer("@job", 1);
    desk.offer("@job", 2);
    desk.waiting(A, &[(1, "@job")]);
    let elsewhere = Name::constant("elsewhere");
    let start = Start {
        namespace: elsewhere.clone(),
        ..desk.starting()
    };
    desk.started(start);
    let mut offer = offering("@job", 1);
    offer.namespace = elsewhere;
    desk.must(Op::Offer(offer));
    let Ok(Answer::Stats(stats)) = desk.read(Query::Stats(NS)) else {
        panic!("counts")
    };
    let count = |state| {
        let of = stats
            .runs
            .iter()
            .filter(|(_, version, found, _)| *version == 1 && *found == state);
        of.map(|(.., count)| *count).sum::<u64>()
    };
    assert_eq!(count(RunState::Ready), 2);
    assert_eq!(count(RunState::Running), 2);
    assert_eq!(count(RunState::Completed), 1);
    assert_eq!(count(RunState::Waiting), 0);
    assert_eq!(stats.offers, [(Name::constant("@job"), 1)], "one is taken");
    assert_eq!(stats.mail, 2);
    assert_eq!(stats.leases, [(A, 2)]);
}

pub fn ro_50_topics_are_listed_with_who_subscribes_and_what_was_unheard(make: &Make) {
    let mut desk = Desk::new(make);
    let subscribe = |desk: &Desk, namespace, topic, workflow: &'static str| {
        desk.must(Op::Subscribe(Subscribe {
            namespace,
            topic: Name::constant(topic),
            workflow: Name::constant(workflow),
            on: true,
        }));
    };
    let publish = |desk: &mut Desk, topic| {
        let publish = Publish {
            namespace: NS,
            id: PublicationId(desk.new_id().0),
            topic: Name::constant(topic),
            payload: Payload::null(),
            deadlines: roundel_core::Deadlines::default(),
            context: roundel_core::Context::default(),
            window: None,
        };
        desk.must(Op::Publish(publish));
        desk.now()
    };
    let unheard = publish(&mut desk, "placed");
    let since = desk.now();
    subscribe(&desk, NS, "placed", "stock");
    subscribe(&desk, NS, "placed", "mail");
    subscribe(&desk, NS, "quiet", "mail");
    subscribe(&desk, Name::constant("elsewhere"), "far", "mail");
    desk.pass(Duration::from_secs(1));
    let last = publish(&mut desk, "placed");
    publish(&mut desk, "unknown");
    let Ok(Answer::Topics(topics)) = desk.read(Query::Topics(NS, 100)) else {
        panic!("topics")
    };
    let shown: Vec<_> = topics
        .iter()
        .map(|topic| {
            let names = topic.subscribers.iter().map(|(name, _)| name.as_str());
            let names = names.collect::<Vec<_>>().join(" ");
            let counts = (topic.publications, topic.unheard);
            (topic.topic.as_str(), names, counts)
        })
        .collect();
    let of = |topic, names: &str, counts| (topic, names.to_owned(), counts);
    assert_eq!(
        shown,
        [
            of("placed", "mail stock", (2, 1)),
            of("quiet", "mail", (0, 0)),
            of("unknown", "", (1, 1)),
        ]
    );
    assert!(unheard < last && topics[0].last_at == Some(last));
    assert_eq!(topics[0].subscribers[0].1, since);
    assert_eq!(topics[1].last_at, None);
    let one = |id| match desk.read(Query::Publication(id)) {
        Ok(Answer::Publications(page)) => page.items,
        other => panic!("{other:?}"),
    };
    let all = desk.dump().publications;
    assert_eq!(one(all[0].0), all[..1]);
    assert_eq!(one(PublicationId::from_bytes([0; 16])), []);
}

pub fn ro_50_workers_are_listed(make: &Make) {
    let mut desk = Desk::new(make);
    let workers = |desk: &Desk| match desk.read(Query::Workers) {
        Ok(Answer::Workers(workers)) => workers,
        other => panic!("{other:?}"),
    };
    let listed = workers(&desk);
    assert_eq!(listed.len(), 2);
    assert!(
        listed
            .iter()
            .any(|worker| worker.id == A && worker.seen_at == desk.now())
    );
    assert!(listed.iter().all(|worker| worker.lanes == [desk.lane]));
    // Who can run more says so, and a renewal changes nothing of it.
    let second = desk.version(B, 2);
    let run = desk.owned(B);
    desk.renew(B, run);
    let lanes: Vec<_> = workers(&desk).into_iter().map(|row| row.lanes).collect();
    assert_eq!(lanes, [vec![desk.lane], vec![desk.lane, second]]);
    let Ok(Answer::Lanes(known)) = desk.read(Query::Lanes) else {
        panic!("lanes")
    };
    assert_eq!(known, desk.dump().lanes, "by number");
    assert_eq!(known[second.0 as usize - 1].version, 2);
}

pub fn e12_a_text_that_one_store_cannot_keep_none_takes(make: &Make) {
    let mut desk = Desk::new(make);
    let label = |text: &str| (Name::constant("note"), text.to_owned());
    for (text, at) in [("\0", 0), ("half\0way", 4)] {
        let start = Start {
            labels: vec![label("fine"), label(text)],
            ..desk.starting()
        };
        let what = "a label's value";
        assert_eq!(desk.refused(Op::Start(start)), Refusal::Nul { what, at });
        let register = Register {
            worker: B,
            name: text.into(),
            lanes: Vec::new(),
        };
        let what = "a worker's name";
        assert_eq!(
            desk.refused(Op::Register(register)),
            Refusal::Nul { what, at }
        );
        let label = Some(label(text));
        let found = runs(&desk, RunFilter { label, ..filter() });
        assert_eq!(found, (Vec::new(), false));
    }
    let register = Register {
        worker: B,
        name: "x".repeat(limits::NAME_BYTES + 1),
        lanes: Vec::new(),
    };
    assert!(matches!(
        desk.refused(Op::Register(register)),
        Refusal::Limit { .. }
    ));
    // All else that is text is kept to the byte.
    let odd = "\u{1}\u{7f}\u{ffff}\u{10ffff}\n'\"\\";
    let start = Start {
        labels: vec![label(odd)],
        ..desk.starting()
    };
    let run = desk.started(start).run;
    assert_eq!(
        desk.dump().labels,
        [(run, Name::constant("note"), odd.to_owned())]
    );
}

pub fn a_dump_has_every_row_in_order(make: &Make) {
    let mut desk = Desk::new(make);
    let start = Start {
        claimant: Some(claimant(A)),
        ..desk.starting()
    };
    let run = desk.started(start).run;
    desk.signal(run, "go", 1);
    let other = desk.start();
    let dump = desk.dump();
    assert_eq!(
        dump.runs.iter().map(|row| row.id).collect::<Vec<_>>(),
        [run, other]
    );
    assert_eq!(
        (dump.journal.len(), dump.mail.len(), dump.lanes.len()),
        (2, 1, 1)
    );
    assert_eq!(dump.workers.len(), 2);
    desk.must(deleting(other, true));
    assert_eq!(desk.dump().runs.len(), 1);
    assert_eq!(desk.send(signal(run, "go", 2)), roundel_core::Sent::Queued);
}

pub fn a_closed_store_says_so_and_closing_twice_is_fine(make: &Make) {
    let mut desk = Desk::new(make);
    let start = desk.starting();
    desk.store.close();
    desk.store.close();
    assert_eq!(desk.op(Op::Start(start)), Err(Error::Closed));
    assert_eq!(desk.read(Query::Workers), Err(Error::Closed));
}
