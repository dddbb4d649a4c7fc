//! Limits: exact at the boundary, with errors that name them.

use roundel::future::join_all;
use roundel::{Cx, Error, Failure, Payload, Refusal, Result, Sent, Signal, Workflow, limits};

use super::sound::assert_sound;
use crate::support::{Db, Process, all, sizes_differ, soon, until};

const ECHO: Workflow<String, usize> = Workflow::named("echo");
const MAKE: Workflow<(String, usize), usize> = Workflow::named("make");
const COUNT: Workflow<usize, usize> = Workflow::named("count");
const DEEP: Workflow<u32, u32> = Workflow::named("deep");
const TEXT: Signal<String> = Signal::named("text").offerable();
const NUMBER: Signal<u32> = Signal::named("number");

all![
    ro_41_payloads_from_outside,
    ro_41_payloads_of_a_workflow,
    ro_41_a_round_of_many_large_payloads_is_split,
    ro_41_the_mailbox,
    ro_41_the_fan_out,
    ro_41_the_depth_of_a_tree,
    ro_41_names_and_labels,
    ro_41_the_length_of_a_journal,
];

/// A text that has so many bytes as JSON.
fn text(size: usize) -> String {
    "x".repeat(size - 2)
}

fn is_limit<T: std::fmt::Debug>(result: Result<T, Error>, limit: u64) -> bool {
    match result {
        Err(Error::Refused(Refusal::Limit {
            limit: said, found, ..
        })) => (said, found) == (limit, limit + 1),
        Err(Error::Value(text)) => {
            let (limit, found) = (
                format!("at most {limit} are"),
                format!("has {} b", limit + 1),
            );
            text.contains(&limit) && text.contains(&found)
        }
        other => panic!("{other:?}"),
    }
}

async fn echo(cx: Cx, text: String) -> Result<usize> {
    if text.is_empty() {
        return Ok(cx.wait(TEXT).await?.len());
    }
    Ok(text.len())
}

async fn ro_41_payloads_from_outside(db: Db) {
    if sizes_differ() {
        return;
    }
    let process = db.start(|engine| engine.register(ECHO, echo)).await;
    let (fits, exceeds) = (text(limits::PAYLOAD_BYTES), text(limits::PAYLOAD_BYTES + 1));
    let limit = limits::PAYLOAD_BYTES as u64;
    let mut run = process.start(ECHO, &fits).await.unwrap();
    let length = limits::PAYLOAD_BYTES - 2;
    assert_eq!(soon("its length", run.result()).await.unwrap(), length);
    assert!(is_limit(process.start(ECHO, &exceeds).await, limit));
    let waiting = process.start(ECHO, &String::new()).await.unwrap();
    let sent = process.signal(&waiting, TEXT, &exceeds).await;
    assert!(is_limit(sent, limit));
    assert!(is_limit(process.offer(TEXT, &exceeds).await, limit));
    let patched = process.patch_state(&waiting, &exceeds, None).await;
    assert!(is_limit(patched, limit));
    let patched = process.patch_state(&waiting, &fits, None).await;
    patched.unwrap();
    let sent = process.signal(&waiting, TEXT, &fits).await.unwrap();
    assert_eq!(sent, Sent::Delivered(waiting.id()));
    // Also for those who bring the JSON ready-made.
    let raw = Payload::parse(&format!("\"{exceeds}\"")).unwrap();
    let name = roundel::Name::constant("echo");
    let started = process.start_named(name, raw).await;
    assert!(is_limit(started, limit));
    assert_sound(&db).await;
}

/// Makes a payload of that size, in the way that is asked for.
async fn make(cx: Cx, (how, size): (String, usize)) -> Result<usize> {
    let made = text(size);
    match how.as_str() {
        "effect" => {
            let made = &made;
            let effect = cx.effect(
                "make",
                move |_| async move { Ok::<_, Failure>(made.clone()) },
            );
            effect.await.map(|made| made.len())
        }
        "step" => {
            let made = &made;
            let step = cx.step(
                "make",
                move |_| async move { Ok::<_, Failure>(made.clone()) },
            );
            step.await.map(|made| made.len())
        }
        "state" => cx.set_state(&made).await.map(|()| made.len()),
        "child" => cx.child(ECHO, &made).await,
        "spawn" => cx.spawn(ECHO, &made).await.map(|_| made.len()),
        "offer" => cx.offer(TEXT, &made).await.map(|_| made.len()),
        other => panic!("{other}"),
    }
}

async fn ro_41_payloads_of_a_workflow(db: Db) {
    if sizes_differ() {
        return;
    }
    let process = db
        .start(|engine| engine.register(ECHO, echo).register(MAKE, make))
        .await;
    for how in ["effect", "step", "child", "state", "spawn", "offer"] {
        if ["effect", "step", "child"].contains(&how) {
            let fits = (how.to_owned(), limits::PAYLOAD_BYTES);
            let mut run = process.start(MAKE, &fits).await.unwrap();
            let made = soon(how, run.result()).await.unwrap();
            assert_eq!(made, limits::PAYLOAD_BYTES - 2, "{how}");
        }
        let exceeds = (how.to_owned(), limits::PAYLOAD_BYTES + 1);
        let mut run = process.start(MAKE, &exceeds).await.unwrap();
        let result = soon(how, run.result()).await;
        let Err(Error::Parked { reason, .. }) = result else {
            panic!("{how}: {result:?}")
        };
        assert_eq!(reason.code, "too_large", "{how}");
        let said = format!("at most {} are allowed", limits::PAYLOAD_BYTES);
        assert!(reason.message.contains(&said), "{how}: {reason}");
    }
    assert_sound(&db).await;
}

async fn ro_41_a_round_of_many_large_payloads_is_split(db: Db) {
    let count = |cx: Cx, n: usize| async move {
        let effects = (0..n).map(|_| {
            let large = |_| async { Ok::<_, Failure>(text(limits::PAYLOAD_BYTES)) };
            cx.effect("make", large)
        });
        let made = join_all(effects).await;
        Ok(made.into_iter().filter_map(Result::ok).count())
    };
    let process = db.start(|engine| engine.register(COUNT, count)).await;
    let mut run = process.start(COUNT, &5).await.unwrap();
    assert_eq!(soon("all", run.result()).await.unwrap(), 5);
    assert_sound(&db).await;
}

async fn waits(cx: Cx, n: usize) -> Result<usize> {
    let mut last = 0;
    for _ in 0..n {
        last = cx.wait(NUMBER).await?;
    }
    Ok(last as usize)
}

async fn ro_41_the_mailbox(db: Db) {
    let client = db.start(|engine| engine).await;
    let run = client.start(COUNT, &2).await.unwrap();
    let limit = limits::MAILBOX;
    let send = |n: u32| client.signal(&run, NUMBER, &n).op().unwrap();
    let replies = client.at_once((0..=limit).map(send).collect()).await;
    for (n, reply) in (0..).zip(replies) {
        match reply {
            Ok(_) => assert!(n < limit, "{n} was one too many"),
            refused => assert!(n == limit && is_limit(refused, limit.into()), "{n}"),
        }
    }
    let worker = db.start(|engine| engine.register(COUNT, waits)).await;
    let mut handle = worker.handle(COUNT, &run).await.unwrap();
    assert_eq!(soon("the second", handle.result()).await.unwrap(), 1);
    assert_sound(&db).await;
}

async fn ro_41_the_fan_out(db: Db) {
    let count = |cx: Cx, n: usize| async move {
        let offers = join_all((0..n).map(|_| cx.offer(TEXT, &String::new()))).await;
        Ok(offers
            .into_iter()
            .filter(|sent| *sent == Ok(Sent::Queued))
            .count())
    };
    let process = db.start(|engine| engine.register(COUNT, count)).await;
    let mut run = process.start(COUNT, &limits::FAN_OUT).await.unwrap();
    let sent = soon("all", run.result()).await.unwrap();
    assert_eq!(sent, limits::FAN_OUT);
    let mut run = process.start(COUNT, &(limits::FAN_OUT + 1)).await.unwrap();
    let result = soon("it parks", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    let said = "what one round sets off is limited to 10000, and this has 10001";
    assert!(reason.message.contains(said), "{reason}");
    let stats = process.stats().await.unwrap();
    assert_eq!(stats.offers[0].1, limits::FAN_OUT as u64, "nothing of it");
}

async fn deep(cx: Cx, level: u32) -> Result<u32> {
    match cx.child(DEEP, &(level + 1)).await {
        Ok(depth) => Ok(depth),
        Err(failure) => {
            let said = "a tree's depth is limited to 64, and this has 65";
            assert!(failure.message.contains(said), "{failure}");
            Ok(level)
        }
    }
}

async fn ro_41_the_depth_of_a_tree(db: Db) {
    let process = db.start(|engine| engine.register(DEEP, deep)).await;
    let mut run = process.start(DEEP, &0).await.unwrap();
    let depth = soon("the deepest", run.result()).await.unwrap();
    assert_eq!(depth, u32::from(limits::DEPTH));
    let dump = assert_sound(&db).await;
    assert_eq!(dump.runs.len(), usize::from(limits::DEPTH) + 1);
}

async fn ro_41_names_and_labels(db: Db) {
    const STEP: Workflow<String, u32> = Workflow::named("step");
    let step = |cx: Cx, name: String| async move {
        cx.step(name, |_| async { Ok::<_, Failure>(1) }).await
    };
    let process = db
        .start(|engine| engine.register(ECHO, echo).register(STEP, step))
        .await;
    let start = |process: &Process| process.start(ECHO, &"x".to_owned());
    let (fits, exceeds) = ("n".repeat(256), "n".repeat(257));
    start(&process).key(fits.clone()).await.unwrap();
    start(&process).label(fits.clone(), "v").await.unwrap();
    start(&process).label("n", "v".repeat(256)).await.unwrap();
    for bad in [exceeds.clone(), String::new(), "a\nb".into(), "..".into()] {
        let refused = start(&process).key(bad.clone()).await;
        assert!(matches!(refused, Err(Error::BadName(_))), "{bad:?}");
        let refused = start(&process).label(bad, "v").await;
        assert!(matches!(refused, Err(Error::BadName(_))));
    }
    assert!(is_limit(
        start(&process).label("n", "v".repeat(257)).await,
        256
    ));
    let labels = |count: usize| {
        let names = (0..count).map(|n| format!("label {n}"));
        names.fold(start(&process), |start, name| start.label(name, "v"))
    };
    labels(limits::LABELS).await.unwrap();
    assert!(is_limit(labels(limits::LABELS + 1).await, 32));
    let mut run = process.start(STEP, &fits).await.unwrap();
    assert_eq!(soon("a long name", run.result()).await.unwrap(), 1);
    let mut run = process.start(STEP, &exceeds).await.unwrap();
    let error = soon("it parks", run.result()).await.unwrap_err();
    assert!(error.to_string().contains("at most 256"), "{error}");
    assert_sound(&db).await;
}

async fn ro_41_the_length_of_a_journal(db: Db) {
    let count = |cx: Cx, n: usize| async move {
        for _ in 0..n {
            cx.set_state(&0).await?;
        }
        // One entry more, in a round that does not end the run.
        cx.wait(NUMBER).await?;
        Ok(n)
    };
    let process = db.start(|engine| engine.register(COUNT, count)).await;
    let most = usize::try_from(limits::JOURNAL_ENTRIES).unwrap() - 2;
    let mut run = process.start(COUNT, &most).await.unwrap();
    until("it waits", || async {
        process.run(&run).await.unwrap().row.head == limits::JOURNAL_ENTRIES
    })
    .await;
    // What ends the run still fits.
    process.signal(&run, NUMBER, &1).await.unwrap();
    assert_eq!(soon("the end", run.result()).await.unwrap(), most);
    let mut run = process.start(COUNT, &(most + 1)).await.unwrap();
    let result = soon("it parks", run.result()).await;
    let Err(Error::Parked { reason, .. }) = result else {
        panic!("{result:?}")
    };
    let said = "a journal's entries is limited to 100000, and this has 100001";
    assert!(reason.message.contains(said), "{reason}");
    assert_sound(&db).await;
}
