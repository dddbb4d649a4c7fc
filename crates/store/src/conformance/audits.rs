//! What is done in somebody's name: written down in the same commit, once, in order; and what steps
//! send.

use roundel_core::{
    AuditRow, Audited, Cancel, Cancelled, Caused, Claim, Context, Entry, Failure, IfParked, Name,
    Offer, Op, Outcome, Park, Patch, Patched, Refusal, Reply, Resume, RunId, RunState, Start,
    Subscribe, Target, Then, limits,
};

use super::Make;
use super::desk::{Desk, deleting, dump, sound};
use super::words::{A, NS, recording, suspending, value};
use crate::{Answer, AuditFilter, AuditOrder, Query};

fn by(who: &'static str, reason: &str, op: Op) -> Op {
    Op::Audited(Box::new(Audited {
        operator: Name::constant(who),
        reason: reason.to_owned(),
        op,
    }))
}

fn cancelling(run: RunId) -> Op {
    Op::Cancel(Cancel {
        namespace: NS,
        target: Target::Run(run),
        keep: false,
        claimant: None,
    })
}

fn patching(run: RunId, number: u32) -> Op {
    Op::Patch(Patch {
        namespace: NS,
        target: Target::Run(run),
        patch: value(number),
        expected: None,
    })
}

fn audit(desk: &Desk, filter: AuditFilter) -> Vec<AuditRow> {
    match desk.read(Query::Audit(filter)) {
        Ok(Answer::Audit(page)) => page.items.into_iter().map(|(_, row)| row).collect(),
        other => panic!("{other:?}"),
    }
}

fn all() -> AuditFilter {
    AuditFilter {
        limit: 100,
        ..AuditFilter::default()
    }
}

pub fn co_12_what_is_done_in_somebodys_name_is_written_down_in_order(make: &Make) {
    let mut desk = Desk::new(make);
    let (one, other) = (desk.start(), desk.start());
    let replies = desk.batch(vec![
        by("anna", "ticket 7", cancelling(one)),
        by("bert", "", patching(other, 5)),
        cancelling(other),
        by("anna", "again", cancelling(one)),
    ]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    assert_eq!(
        replies[0],
        Ok(Reply::Cancelled(Cancelled::Requested, Vec::new())),
        "the answer is that of what was asked for"
    );
    let rows = audit(&desk, all());
    let said = |row: &AuditRow| {
        let who = row.operator.to_string();
        (who, row.reason.clone(), row.action.clone(), row.run)
    };
    let expected = [
        ("anna", "ticket 7", "cancel", Some(one)),
        ("bert", "", "patch", Some(other)),
        ("anna", "again", "cancel", Some(one)),
    ];
    let expected = expected.map(|(who, why, what, run)| {
        let texts = [who, why, what].map(str::to_owned);
        let [who, why, what] = texts;
        (who, why, what, run)
    });
    assert_eq!(rows.iter().map(said).collect::<Vec<_>>(), expected);
    assert_eq!(rows[0].at, desk.now());
    assert_eq!(rows[1].detail, Some(value(5)));
    assert_eq!(rows[2].answer, "had ended: cancelled");
    let ids: Vec<u64> = desk.dump().audit.iter().map(|(id, _)| id.number).collect();
    assert_eq!(ids, [1, 2, 3]);
}

pub fn co_12_the_audit_names_what_is_no_run(make: &Make) {
    let desk = Desk::new(make);
    let subscribe = |on| {
        Op::Subscribe(Subscribe {
            namespace: NS,
            topic: Name::constant("placed"),
            workflow: Name::constant("stock"),
            on,
        })
    };
    let offer = Op::Offer(Offer {
        namespace: NS,
        name: Name::constant("go"),
        payload: value(3),
        key: None,
        claimant: None,
    });
    for op in [subscribe(true), subscribe(false), offer] {
        desk.batch(vec![by("anna", "", op)])[0].as_ref().unwrap();
    }
    let rows = audit(&desk, all());
    let said = rows.iter().map(|row| (&*row.action, &*row.target));
    let expected = [
        ("subscribe", "placed: stock"),
        ("unsubscribe", "placed: stock"),
        ("offer", "go"),
    ];
    assert_eq!(said.collect::<Vec<_>>(), expected);
}

pub fn co_12_the_audit_is_filtered_and_paged(make: &Make) {
    let mut desk = Desk::new(make);
    let runs: Vec<RunId> = (0..5).map(|_| desk.start()).collect();
    for (at, run) in runs.iter().enumerate() {
        let who = ["anna", "bert"][at % 2];
        desk.must(by(who, "", patching(*run, 1)));
    }
    let of = AuditFilter {
        run: Some(runs[3]),
        ..all()
    };
    assert_eq!(audit(&desk, of).len(), 1);
    let whose = AuditFilter {
        operator: Some(Name::constant("anna")),
        namespace: Some(NS),
        ..all()
    };
    assert_eq!(audit(&desk, whose).len(), 3);
    let elsewhere = AuditFilter {
        namespace: Some(Name::constant("elsewhere")),
        ..all()
    };
    assert_eq!(audit(&desk, elsewhere), []);
    let listed = |order, of: Option<RunId>| {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let filter = AuditFilter {
                after: after.take(),
                limit: 2,
                run: of,
                order,
                ..all()
            };
            let Ok(Answer::Audit(page)) = desk.read(Query::Audit(filter)) else {
                panic!("no audit")
            };
            after = page.next.clone();
            seen.extend(page.items.into_iter().filter_map(|(_, row)| row.run));
            let more = page.next.is_some();
            assert_eq!(more, of.is_none() && seen.len() < runs.len());
            if !more {
                return seen;
            }
        }
    };
    assert_eq!(listed(AuditOrder::OldestFirst, None), runs);
    let back: Vec<RunId> = runs.iter().rev().copied().collect();
    assert_eq!(listed(AuditOrder::NewestFirst, None), back);
    assert_eq!(
        listed(AuditOrder::NewestFirst, Some(runs[2])),
        [runs[2]],
        "of one run"
    );
}

pub fn e5_a_run_that_nobody_has_is_parked_by_request_as_it_was_seen(make: &Make) {
    let mut desk = Desk::new(make);
    let park = |run, seen| {
        let park = Park {
            namespace: NS,
            target: Target::Run(run),
            seen,
            failure: Failure::permanent("it would not go on"),
        };
        by("anna", "", Op::Park(Box::new(park)))
    };
    let run = desk.owned(A);
    let not_waiting = |desk: &Desk, op: Op, state| {
        assert_eq!(desk.refused(op), Refusal::NotWaiting { run, state });
    };
    not_waiting(&desk, park(run, desk.run(run).epoch), RunState::Running);
    desk.commit(suspending(desk.round(run)));
    let (epoch, state) = (desk.run(run).epoch, desk.run(run).state);
    assert_eq!(state, RunState::Waiting);
    let refused = desk.refused(park(run, epoch - 1));
    let seen = epoch - 1;
    assert_eq!(refused, Refusal::MovedOn { run, seen, epoch });
    assert_eq!(desk.must(park(run, epoch)), Reply::Parked);
    let row = desk.run(run);
    assert_eq!((row.state, row.ready_at), (RunState::Parked, None));
    assert!(matches!(row.outcome, Some(Outcome::Failure(_))));
    assert!(
        row.epoch > epoch,
        "what rests on an earlier look is refused"
    );
    not_waiting(&desk, park(run, row.epoch), RunState::Parked);
    // It goes on as any that is parked.
    desk.must(Op::Resume(Resume {
        namespace: NS,
        target: Target::Run(run),
        skip: false,
        anew: None,
    }));
    assert_eq!(desk.claimed_ids(A, 1), [run]);
    let context = Context::default();
    let begun = recording(desk.round(run), &[Entry::ContextSet { context }]);
    desk.commit(suspending(begun));
    desk.must(cancelling(run));
    not_waiting(&desk, park(run, desk.run(run).epoch), RunState::Ready);
    let run = desk.owned(A);
    desk.end(run);
    let state = RunState::Completed;
    let refused = desk.refused(park(run, desk.run(run).epoch));
    assert_eq!(refused, Refusal::NotWaiting { run, state });
    assert_eq!(
        audit(&desk, all()).len(),
        1,
        "what was refused is not there"
    );
}

pub fn o5_what_rests_on_an_earlier_look_is_refused(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let park = |desk: &Desk| {
        let mut round = desk.round(run);
        round.then = Then::Park(Box::new(Failure::permanent("no")));
        desk.commit(round);
        desk.run(run).epoch
    };
    let first = park(&desk);
    let if_seen = |seen, op| {
        let parked = IfParked { op, seen };
        by("anna", "", Op::IfParked(Box::new(parked)))
    };
    let resume = Op::Resume(Resume {
        namespace: NS,
        target: Target::Run(run),
        skip: false,
        anew: None,
    });
    assert_eq!(desk.must(if_seen(Some(first), resume)), Reply::Resumed);
    let state = RunState::Ready;
    let refused = desk.refused(if_seen(Some(first), cancelling(run)));
    assert_eq!(refused, Refusal::NotParked { run, state });
    // It is parked again, for another reason: who saw the first one decided about that.
    assert_eq!(desk.claimed_ids(A, 1), [run]);
    let epoch = park(&desk);
    let refused = desk.refused(if_seen(Some(first), cancelling(run)));
    let seen = first;
    assert_eq!(refused, Refusal::MovedOn { run, seen, epoch });
    assert_eq!(desk.run(run).state, RunState::Parked);
    desk.must(if_seen(Some(epoch), cancelling(run)));
    assert_eq!(desk.run(run).state, RunState::Cancelled);
    assert_eq!(
        audit(&desk, all()).len(),
        2,
        "what was refused is not there"
    );
}

pub fn co_12_what_is_refused_is_not_written_down(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.start();
    let resume = Op::Resume(Resume {
        namespace: NS,
        target: Target::Run(run),
        skip: false,
        anew: None,
    });
    let refused = desk.refused(by("anna", "", resume));
    assert!(matches!(refused, Refusal::NotParked { .. }), "{refused}");
    let long = "x".repeat(limits::REASON_BYTES + 1);
    let refused = desk.refused(by("anna", &long, cancelling(run)));
    assert!(matches!(refused, Refusal::Limit { .. }), "{refused}");
    let refused = desk.refused(by("anna", "a\0b", cancelling(run)));
    assert!(matches!(refused, Refusal::BadName(_)), "{refused}");
    let claim = Op::Claim(Claim {
        worker: A,
        lanes: vec![desk.lane],
        limit: 1,
        lease: std::time::Duration::from_secs(30),
    });
    assert_eq!(desk.refused(by("anna", "", claim)), Refusal::NotAudited);
    let twice = by("anna", "", by("bert", "", cancelling(run)));
    assert_eq!(desk.refused(twice), Refusal::NotAudited);
    assert_eq!(audit(&desk, all()), []);
    assert_eq!(desk.state(run), RunState::Ready);
}

pub fn co_23_a_patch_that_comes_too_late_is_kept_in_the_audit(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    desk.end(run);
    let late = desk.must(by("anna", "", patching(run, 9)));
    assert_eq!(
        late,
        Reply::Patched(Patched::TargetEnded(RunState::Completed))
    );
    let rows = audit(&desk, all());
    assert_eq!(rows[0].detail, Some(value(9)));
    assert!(desk.dump().states.is_empty());
}

pub fn co_12_the_audit_of_a_run_that_is_gone_stays(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.start();
    desk.must(by("anna", "by mistake", deleting(run, true)));
    assert_eq!(desk.view(run), None);
    let rows = audit(&desk, all());
    assert_eq!(
        (rows[0].run, rows[0].answer.as_str()),
        (Some(run), "1 runs")
    );
}

pub fn inv26_many_who_act_at_once_make_one_chain(make: &Make) {
    let mut desk = Desk::new(make);
    let store = desk.store.clone();
    let runs: Vec<RunId> = (0..40).map(|_| desk.start()).collect();
    std::thread::scope(|scope| {
        for part in runs.chunks(10) {
            let store = store.clone();
            scope.spawn(move || {
                for run in part {
                    let op = by("anna", "", patching(*run, 1));
                    let replies = super::desk::submit(&*store, vec![op]);
                    assert!(replies[0].is_ok(), "{replies:?}");
                }
            });
        }
    });
    let numbers: Vec<u64> = dump(&*store)
        .audit
        .iter()
        .map(|(id, _)| id.number)
        .collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
    sound(&*store);
}

pub fn co_01_what_a_round_sends_is_there_with_it_or_refuses_it(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let keyed = |desk: &mut Desk, number| Start {
        key: Some(Name::constant("charge:1")),
        input: value(number),
        ..desk.starting()
    };
    let (first, again, other) = (
        keyed(&mut desk, 1),
        keyed(&mut desk, 1),
        keyed(&mut desk, 2),
    );
    let sending = |desk: &Desk, starts: &[&Start]| {
        let mut round = desk.round(run);
        let caused = starts
            .iter()
            .map(|start| Caused::Send(Box::new((*start).clone())));
        round.caused = caused.collect();
        round
    };
    // Two payloads under one key refuse each other, and the round.
    let before = desk.dump();
    let refused = desk.refused(Op::Commit(sending(&desk, &[&first, &other])));
    assert!(matches!(refused, Refusal::Conflict { .. }), "{refused}");
    assert_eq!(desk.dump(), before);
    desk.commit(sending(&desk, &[&first, &again]));
    assert_eq!(desk.state(first.run), RunState::Ready);
    assert_eq!(desk.view(again.run), None, "it was sent");
    desk.commit(sending(&desk, &[&again]));
    let before = desk.dump();
    let refused = desk.refused(Op::Commit(sending(&desk, &[&other])));
    assert!(matches!(refused, Refusal::Conflict { .. }), "{refused}");
    assert_eq!(desk.dump(), before);
}
