//! Many operations at once are the same as one after the other (SI-13, SI-14, SI-22).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use roundel::{
    Client, Cx, EngineBuilder, Entry, Failure, Name, Op, Payload, Refusal, Reply, Result, RunId,
    RunState, Sent, Timestamp, Workflow, limits,
};
use roundel_core::{
    Call, Claimant, Delete, Lane, OpenWait, Register, Resume, Round, Signal, Start, Target, Then,
    WorkerId, encode_entries,
};
use roundel_store::{Ask, Error as StoreError};
use uuid::Uuid;

use super::{GO, JOB, NEWS, Received, until_is, until_waits};
use crate::rounds::sound::assert_sound;
use crate::support::{Db, Fault, all, soon};

all![
    si_13_a_batch_gives_the_replies_of_the_operations_one_by_one,
    si_13_several_signals_in_one_batch_the_first_is_delivered_the_others_wait_in_order,
    si_13_offers_in_one_batch_find_one_waiter_each,
    si_13_a_suspend_and_a_signal_in_one_batch_have_no_suspended_state_between_them,
    si_14_a_refused_operation_refuses_alone,
];

const TAKE: Received = Received::named("take");

async fn take(cx: Cx, n: u32) -> Result<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..n {
        taken.push(cx.wait(NEWS).await?);
    }
    Ok(taken)
}

/// A worker that has no engine, and a run of it.
#[derive(Clone, Copy)]
struct Raw {
    worker: WorkerId,
    run: RunId,
}

impl Raw {
    fn new() -> Raw {
        Raw {
            worker: WorkerId(Uuid::now_v7()),
            run: RunId(Uuid::now_v7()),
        }
    }

    fn register(self, namespace: &Name) -> Op {
        Op::Register(Register {
            worker: self.worker,
            name: "raw".into(),
            lanes: vec![Lane {
                namespace: namespace.clone(),
                workflow: Name::constant("raw"),
                version: 1,
            }],
        })
    }

    fn claimant(self) -> Claimant {
        Claimant {
            worker: self.worker,
            lease: Duration::from_secs(30),
        }
    }

    fn start(self, namespace: &Name) -> Start {
        Start {
            version: Some(1),
            claimant: Some(self.claimant()),
            ..Start::new(
                namespace.clone(),
                self.run,
                Name::constant("raw"),
                Payload::null(),
            )
        }
    }

    /// A round that waits for this signal and suspends.
    fn wait(self, signal: &'static str, epoch: u64) -> Round {
        let name = Name::constant(signal);
        let what = Call::Wait {
            signal: name.clone(),
            until: None,
        };
        let mut round = Round::new(self.run, self.worker, epoch);
        round.entries = encode_entries(&[Entry::Begun { call: 1, what }]);
        round.count = 1;
        round.opened.push(OpenWait {
            call: 1,
            name,
            offerable: false,
        });
        round.then = Then::Suspend;
        round
    }

    fn signal(self, namespace: &Name, value: &str) -> Signal {
        Signal {
            namespace: namespace.clone(),
            target: Target::Run(self.run),
            name: Name::constant("news"),
            payload: Payload::parse(value).expect("JSON"),
            policy: roundel_core::Policy::Keep,
            expires: None,
            key: None,
            claimant: None,
        }
    }
}

/// All kinds of requests, some of which are refused.
fn requests(client: &Client, namespace: &Name, raw: Raw) -> Vec<Op> {
    let key = |text: &'static str| Target::Key(Name::constant(text));
    let start = |input: u32, key: &'static str| client.start(TAKE, &input).key(key).op().unwrap();
    let keyed = |value: u32| client.signal("a", NEWS, &value).key("once").op().unwrap();
    let mut waiting = raw.start(namespace);
    waiting.first = Some(Box::new(raw.wait("news", 1)));
    let (namespace, nobody) = (namespace.clone(), RunId(Uuid::from_u128(1)));
    vec![
        start(1, "a"),
        start(1, "a"),
        start(2, "a"),
        keyed(1),
        keyed(1),
        keyed(2),
        client.signal(nobody, NEWS, &1).op().unwrap(),
        client.offer(JOB, &1).op().unwrap(),
        raw.register(&namespace),
        Op::Start(waiting),
        Op::Signal(raw.signal(&namespace, "1")),
        Op::Signal(raw.signal(&namespace, "2")),
        Op::Commit(raw.wait("news", 7)),
        Op::Resume(Resume {
            namespace: namespace.clone(),
            target: key("a"),
            skip: false,
            anew: None,
        }),
        Op::Delete(Delete {
            namespace: namespace.clone(),
            target: key("a"),
            force: false,
        }),
        Op::Delete(Delete {
            namespace,
            target: key("a"),
            force: true,
        }),
        client.signal("a", NEWS, &1).op().unwrap(),
    ]
}

/// Replies as text, with places instead of ids.
fn shown<E: std::fmt::Debug>(ops: &[Op], replies: &[Result<Reply, E>]) -> Vec<String> {
    let ids: Vec<String> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Start(start) => Some(start.run.to_string()),
            _ => None,
        })
        .collect();
    let name = |text: String| {
        let ids = ids.iter().enumerate();
        ids.fold(text, |text, (at, id)| text.replace(id, &format!("#{at}")))
    };
    let replies = replies.iter().map(|reply| format!("{reply:?}"));
    replies.map(name).collect()
}

async fn si_13_a_batch_gives_the_replies_of_the_operations_one_by_one(db: Db) {
    let db = db.with_manual_clock();
    let mut told = Vec::new();
    for namespace in ["batch", "single"] {
        let process = db.start(|engine| engine.namespace(namespace)).await;
        let ops = requests(&process, &Name::constant(namespace), Raw::new());
        let replies = if namespace == "batch" {
            process.at_once(ops.clone()).await
        } else {
            let mut replies = Vec::new();
            for op in ops.clone() {
                replies.extend(process.at_once(vec![op]).await);
            }
            replies
        };
        told.push(shown(&ops, &replies));
    }
    let lane = |text: &String| !text.contains("Registered");
    let told: Vec<Vec<&String>> = told
        .iter()
        .map(|told| told.iter().filter(|text| lane(text)).collect())
        .collect();
    assert_eq!(told[0], told[1]);
    let refused = told[0]
        .iter()
        .filter(|text| text.starts_with("Err"))
        .count();
    assert_eq!(refused, 5, "{:#?}", told[0]);
}

async fn si_13_several_signals_in_one_batch_the_first_is_delivered_the_others_wait_in_order(
    db: Db,
) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let client = db.start(|engine| engine).await;
    for from in [&process, &client] {
        let mut run = process.start(TAKE, &3).await.unwrap();
        until_waits(&process, run.id()).await;
        let ops = (0..3).map(|value| from.signal(&run, NEWS, &value).op().unwrap());
        let sent: Vec<Sent> = from
            .at_once(ops.collect())
            .await
            .into_iter()
            .map(|reply| match reply.unwrap() {
                Reply::Sent(sent, _) => sent,
                other => panic!("{other:?}"),
            })
            .collect();
        let first = Sent::Delivered(run.id());
        assert_eq!(sent, [first, Sent::Queued, Sent::Queued]);
        let taken = soon("all of them", run.result()).await.unwrap();
        assert_eq!(taken, [0, 1, 2]);
    }
    assert_sound(&db).await;
}

async fn si_13_offers_in_one_batch_find_one_waiter_each(db: Db) {
    const WORK: Workflow<(), u32> = Workflow::named("work");
    let work = |cx: Cx, (): ()| async move { cx.wait(JOB).await };
    let process = db.start(|engine| engine.register(WORK, work)).await;
    let client = db.start(|engine| engine).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run = process.start(WORK, &()).await.unwrap();
        until_waits(&process, run.id()).await;
        runs.push(run);
    }
    let ops = (0..6).map(|value| client.offer(JOB, &value).op().unwrap());
    let replies = client.at_once(ops.collect()).await;
    for (place, reply) in replies.into_iter().enumerate() {
        let expected = runs.get(place);
        let expected = expected.map_or(Sent::Queued, |run| Sent::Delivered(run.id()));
        assert_eq!(reply.unwrap(), Reply::Sent(expected, Vec::new()));
    }
    for (run, value) in runs.iter_mut().zip(0..) {
        assert_eq!(soon("the offer", run.result()).await.unwrap(), value);
    }
    assert_sound(&db).await;
}

async fn si_13_a_suspend_and_a_signal_in_one_batch_have_no_suspended_state_between_them(db: Db) {
    let process = db.start(|engine| engine).await;
    let namespace = Name::constant("default");
    for _ in 0..20 {
        let raw = Raw::new();
        let mut signal = raw.signal(&namespace, "7");
        signal.claimant = Some(raw.claimant());
        let start = vec![raw.register(&namespace), Op::Start(raw.start(&namespace))];
        process.at_once(start).await;
        let client = process.client();
        let watch = tokio::spawn(async move {
            let mut states = Vec::new();
            while states.last() != Some(&(RunState::Running, 2)) {
                let row = client.run(raw.run).await.unwrap().row;
                states.push((row.state, row.head));
            }
            states
        });
        let both = vec![Op::Commit(raw.wait("news", 1)), Op::Signal(signal)];
        let replies = process.at_once(both).await;
        let [
            Ok(Reply::Committed(committed)),
            Ok(Reply::Sent(sent, claimed)),
        ] = &replies[..]
        else {
            panic!("{replies:?}")
        };
        assert!(!committed.kept, "it was suspended");
        assert_eq!(*sent, Sent::Delivered(raw.run));
        assert_eq!(claimed.len(), 1, "and taken up again");
        assert_eq!(claimed[0].inbox.len(), 1);
        let states = soon("the new state", watch).await.unwrap();
        let suspended = states.iter().any(|(state, _)| *state != RunState::Running);
        assert!(!suspended, "nobody saw it suspended: {states:?}");
    }
}

async fn si_14_a_refused_operation_refuses_alone(db: Db) {
    let process = db.start(|engine| engine.register(TAKE, take)).await;
    let client = db.start(|engine| engine).await;
    let mut run = process.start(TAKE, &3).key("a").await.unwrap();
    until_waits(&process, run.id()).await;
    let signal = |value: u32| client.signal(&run, NEWS, &value).op().unwrap();
    let mut large = signal(0);
    if let Op::Signal(signal) = &mut large {
        let text = "x".repeat(limits::PAYLOAD_BYTES - 1);
        signal.payload = Payload::encode(&text).unwrap();
    }
    let conflict = client.start(TAKE, &9).key("a").op().unwrap();
    let mut zombie = Round::new(run.id(), WorkerId(Uuid::nil()), 1);
    zombie.then = Then::End(
        RunState::Failed,
        roundel_core::Outcome::Failure(Box::new(Failure::business("no"))),
    );
    let ops = vec![
        signal(1),
        large,
        signal(2),
        conflict,
        Op::Commit(zombie),
        signal(3),
    ];
    let replies = client.at_once(ops).await;
    let refusal = |place: usize| match &replies[place] {
        Err(roundel::Error::Refused(refusal)) => refusal.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(1), Refusal::Limit { .. }));
    assert!(matches!(refusal(3), Refusal::Conflict { .. }));
    assert!(matches!(refusal(4), Refusal::Fenced { .. }));
    for place in [0, 2, 5] {
        assert!(replies[place].is_ok(), "{:?}", replies[place]);
    }
    let taken = soon("all of them", run.result()).await.unwrap();
    assert_eq!(taken, [1, 2, 3]);
}

// On one thread, so that operations are decided in the order in which they are recorded.
#[tokio::test]
async fn si_22_operations_recorded_on_memory_give_the_same_database_again() {
    si_22_recorded_operations_give_the_same_database_again(Db::memory()).await;
}

#[tokio::test]
async fn si_22_operations_recorded_on_sqlite_give_the_same_database_again() {
    si_22_recorded_operations_give_the_same_database_again(Db::sqlite()).await;
}

/// Operations with the time at which each was decided.
type Recorded = Arc<Mutex<Vec<(Timestamp, Op)>>>;

const PARENT: Workflow<u32, u32> = Workflow::named("parent");

/// A bit of everything but steps, which are not operations before they have run.
async fn parent(cx: Cx, n: u32) -> Result<u32> {
    cx.set_state(&n).await?;
    let taken = cx.child(TAKE, &n).key("child");
    let (taken, ()) = roundel::future::join(taken, cx.sleep(Duration::from_secs(5))).await;
    cx.offer(JOB, &1).await?;
    cx.wait(GO).within(Duration::from_secs(60)).await?;
    Ok(taken?.into_iter().sum())
}

async fn record(db: &Db) -> Recorded {
    let set_up = |engine: EngineBuilder| engine.register(TAKE, take).register(PARENT, parent);
    let recorded = Recorded::default();
    let process = db.start(|engine| engine).await;
    let (list, clock) = (recorded.clone(), process.store.clone());
    process.store.rule(move |ask| {
        if let Ask::Op(op) = ask {
            let now = roundel_store::Store::now(&*clock);
            list.lock().unwrap().push((now, op.clone()));
        }
        Fault::Pass
    });
    let engine = set_up(roundel::Engine::over(process.store.clone()));
    let engine = engine.start().await.unwrap();
    let mut run = engine.start(PARENT, &3).key("parent").await.unwrap();
    until_waits(&engine, run.id()).await;
    for value in 1..=3 {
        engine.signal("child", NEWS, &value).await.unwrap();
    }
    engine.signal("child", NEWS, &9).key("late").await.unwrap();
    let child = engine.run("child").await.unwrap().row.id;
    until_is(&engine, child, RunState::Completed).await;
    until_waits(&engine, run.id()).await;
    db.advance(Duration::from_secs(5));
    engine.signal(&run, GO, &()).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), 6);
    engine.cancel("nobody").await.unwrap();
    engine.shutdown().await;
    recorded
}

async fn si_22_recorded_operations_give_the_same_database_again(db: Db) {
    let db = db.with_manual_clock();
    let recorded = record(&db).await;
    let original = assert_sound(&db).await;
    let recorded = recorded.lock().unwrap().clone();
    assert!(recorded.len() > 10, "{recorded:?}");
    for again in [Db::memory(), Db::sqlite()] {
        let again = again.with_manual_clock();
        let store = again.open();
        for (at, op) in &recorded {
            again.advance(at.since(again.now()));
            match roundel_store::ask(&*store, op.clone()) {
                Ok(_) | Err(StoreError::Refused(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(again.dump().await, original);
    }
}
