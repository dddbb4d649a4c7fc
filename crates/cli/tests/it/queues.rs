//! Commands from the shell: sent once, shown with what they were given, listed by queue.

use roundel::{Attempt, Batch, Command, Engine, Failure, Retry};
use serde_json::{Value, json};

use crate::support::{Place, Said};

const CHARGE: Command<u64, String> = Command::named("charge").retry(Retry::none());

async fn charge(_: Attempt, amount: u64) -> Result<String, Failure> {
    match amount {
        0 => Err(Failure::business("nothing to charge")),
        13 => Err(Failure::permanent("no such card").with_code("card")),
        amount => Ok(format!("charged {amount}")),
    }
}

async fn handler(place: &Place) -> Engine {
    let engine = Engine::open(place.db()).handle(CHARGE, charge);
    engine.start().await.expect("an engine")
}

fn lines(said: &Said) -> Vec<Value> {
    let parsed = said.out.lines().map(serde_json::from_str);
    parsed.map(|line| line.expect("JSON")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn co_01_a_command_is_sent_once_from_the_shell_and_answered() {
    let place = Place::new().await;
    let engine = handler(&place).await;
    let send = ["commands", "send", "charge", "5", "--id", "a", "--wait"];
    assert_eq!(place.run(&send).ok().out, "\"charged 5\"\n");
    let again = place.run(&[&send[..], &["--json"]].concat()).ok().json();
    assert_eq!(
        (&again["new"], &again["value"]),
        (&json!(false), &json!("charged 5"))
    );
    let other = ["commands", "send", "charge", "6", "--id", "a"];
    place.run(&other).fails(1, &["charge:a", "another request"]);
    let refused = place.run(&["commands", "send", "charge", "0", "--wait"]);
    refused.fails(1, &["nothing to charge"]);
    let parked = place.run(&["commands", "send", "charge", "13", "--id", "b", "--wait"]);
    parked.fails(1, &["no such card"]);
    engine.shutdown().await;

    let shown = place.run(&["commands", "show", "charge", "a"]).ok().out;
    for part in [
        "charge",
        "completed",
        "payload   5",
        "reply     \"charged 5\"",
    ] {
        assert!(shown.contains(part), "`{part}` is missing:\n{shown}");
    }
    let shown = place.run(&["commands", "show", "charge", "b", "--json"]);
    let shown = shown.ok().json();
    assert_eq!(
        (&shown["queue"], &shown["id"]),
        (&json!("charge"), &json!("b"))
    );
    assert_eq!(
        (&shown["state"], &shown["payload"]),
        (&json!("parked"), &json!(13))
    );
    assert!(shown["why"].to_string().contains("no such card"), "{shown}");
    let run = shown["run"].as_str().expect("an id");
    let by_run = place.run(&["commands", "show", run, "--json"]).ok().json();
    assert_eq!(by_run["id"], "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn co_30_commands_wait_for_their_time_and_are_listed_by_queue_and_state() {
    let place = Place::new().await;
    for amount in ["1", "2", "3"] {
        let send = ["commands", "send", "charge", amount, "--id", amount];
        place.run(&send).ok();
    }
    let later = ["commands", "send", "charge", "4", "--delay", "2h"];
    let said = place
        .run(&[&later[..], &["--label", "of=me"]].concat())
        .ok();
    assert!(!said.err.contains("is the first"), "{said:?}");
    let said = place.run(&["commands", "send", "chrage", "1"]).ok();
    assert!(
        said.err.contains("is the first command in queue `chrage`"),
        "{said:?}"
    );

    let all = lines(&place.run(&["commands", "list", "charge", "--json"]).ok());
    let payloads: Vec<&Value> = all.iter().map(|sent| &sent["payload"]).collect();
    assert_eq!(payloads, [&json!(4), &json!(3), &json!(2), &json!(1)]);
    assert!(all[0]["not_before"].is_number(), "{all:?}");
    assert_eq!(all[0]["id"], Value::Null);
    assert!(all[1]["not_before"].is_null(), "{all:?}");
    assert_eq!(all[1]["id"], "3");

    let page = place
        .run(&["commands", "list", "charge", "--limit", "2"])
        .ok();
    assert!(page.out.contains("in 1"), "when the first is due: {page:?}");
    let after = page
        .err
        .split("--after ")
        .nth(1)
        .expect("there are more")
        .trim();
    let rest = place.run(&["commands", "list", "charge", "--after", after, "--json"]);
    assert_eq!(lines(&rest.ok()).len(), 2);
    let mine = ["commands", "list", "charge", "--label", "of=me", "--json"];
    assert_eq!(lines(&place.run(&mine).ok()).len(), 1);
    let parked = place
        .run(&["commands", "list", "charge", "--state", "parked"])
        .ok();
    assert!(
        parked
            .err
            .contains("no commands like that in queue `charge`"),
        "{parked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named() {
    let place = Place::new().await;
    let which = place.run(&["commands", "list"]);
    which.fails(2, &["say which queue", "nothing was sent here yet"]);
    place.run(&["commands", "send", "mail"]).ok();
    place.run(&["commands", "list"]).fails(2, &["runs of mail"]);
    let absent = place.run(&["commands", "show", "mail", "7"]);
    absent.fails(3, &["no command `7` in queue `mail`", "commands list mail"]);
    place
        .run(&["commands", "list", "mail", "--state", "happy"])
        .fails(2, &["the states are"]);
    place
        .run(&["commands", "send", "mail", "{"])
        .fails(2, &["JSON"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co_11_a_batch_says_how_far_it_is_and_that_it_waits_for_an_operator() {
    let place = Place::new().await;
    let engine = handler(&place).await;
    let none = place.run(&["batches", "list"]).ok();
    assert!(
        none.err.contains("no batches in namespace `default`"),
        "{none:?}"
    );
    for (key, amounts) in [("well", [1, 2, 0]), ("stuck", [3, 4, 13])] {
        let batch: Batch = amounts.iter().map(|amount| CHARGE.member(amount)).collect();
        engine.batch(batch.key(key)).await.expect("it is sent");
    }
    let at_rest = || {
        let list = lines(&place.run(&["batches", "list", "--json"]).ok());
        let rests = list[0]["ended"] == 2 && list[0]["parked"] == 1;
        (rests && list[1]["state"] == "finished").then_some(list)
    };
    let list = loop {
        if let Some(list) = at_rest() {
            break list;
        }
        tokio::task::yield_now().await;
    };
    engine.shutdown().await;
    assert_eq!(
        (&list[0]["key"], &list[1]["key"]),
        (&json!("stuck"), &json!("well"))
    );
    assert_eq!(list[0]["state"], "awaiting_operator");
    assert_eq!(
        (&list[1]["commands"], &list[1]["failed"]),
        (&json!(3), &json!(1))
    );
    let shown = place.run(&["batches", "show", "stuck"]).ok();
    for part in [
        "awaiting_operator",
        "2 of 3",
        "1 parked",
        "2 completed",
        "charge",
    ] {
        assert!(shown.out.contains(part), "`{part}` is missing: {shown:?}");
    }
    assert!(shown.err.contains("parked list"), "{shown:?}");
    let page = place.run(&["batches", "show", "well", "--limit", "2", "--json"]);
    assert_eq!(page.ok().json()["page"].as_array().map(Vec::len), Some(2));
    let command = list[0]["run"].as_str().expect("an id");
    place.run(&["batches", "show", command]).ok();
    place.run(&["start", "greet", "1", "--key", "other"]).ok();
    let other = place.run(&["batches", "show", "other"]);
    other.fails(3, &["is no batch", "batches list"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co_30_one_stands_for_several_from_the_shell() {
    let place = Place::new().await;
    let send = |payload: &str, flags: &[&str]| {
        let alike = ["commands", "send", "charge", payload, "--window", "1h"];
        place.run(&[&alike[..], flags].concat())
    };
    let run = |payload: &str, flags: &[&str]| {
        let told = send(payload, &[flags, &["--json"]].concat()).ok().json();
        (told["run"].clone(), told["new"].clone())
    };
    let (first, new) = run("5", &["--dedupe", "anna"]);
    assert_eq!(new, true);
    assert_eq!(
        run("6", &["--dedupe", "anna"]),
        (first.clone(), json!(false))
    );
    assert_ne!(run("7", &["--dedupe", "bert"]).0, first, "another key");
    let told = send("6", &["--dedupe", "anna"]).ok();
    assert!(told.err.contains("stands for it too"), "{told:?}");
    let (last, _) = run("1", &["--debounce", "anna"]);
    assert_eq!(
        run("2", &["--debounce", "anna"]),
        (last.clone(), json!(false))
    );
    let last = last.as_str().expect("an id");
    let shown = place.run(&["commands", "show", last, "--json"]).ok().json();
    assert_eq!(shown["payload"], 2, "the last takes the place of the first");
    let why = place.run(&["runs", "why", last]).ok().out;
    assert!(why.contains("not before"), "{why}");
    for wrong in [
        &["--dedupe", "anna", "--id", "one"][..],
        &["--debounce", "anna", "--id", "one"],
        &["--dedupe", "anna", "--debounce", "anna"],
        &["--dedupe", ""],
    ] {
        assert_eq!(send("1", wrong).code, 2, "{wrong:?}");
    }
    let no_window = ["commands", "send", "charge", "1", "--dedupe", "anna"];
    place.run(&no_window).fails(2, &["--window"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co_11_why_names_the_batch_that_a_held_command_follows() {
    let place = Place::new().await;
    let engine = handler(&place).await;
    let members = [13, 5].map(|amount| CHARGE.member(&amount).key(amount.to_string()));
    let batch = members.into_iter().collect::<Batch>().key("night");
    let batch = batch.then(CHARGE.member(&7).key("after"));
    let mut sent = engine.batch(batch).await.expect("a batch");
    let parked = ["runs", "why", "night", "--json"];
    while !place.run(&parked).ok().out.contains("no such card") {
        tokio::task::yield_now().await;
    }
    let why = place.run(&["runs", "why", "charge:after"]).ok().out;
    let follows = format!("for the end of batch {}, which it follows", sent.id());
    for part in [follows.as_str(), "no such card", "charge:13"] {
        assert!(why.contains(part), "`{part}` is missing:\n{why}");
    }
    let shown = place.run(&["runs", "show", "charge:after", "--json"]);
    let shown = shown.ok().json();
    assert!(shown["why"].to_string().contains(&follows), "{shown}");
    place.run(&["runs", "complete", "charge:13"]).ok();
    assert_eq!(sent.result().await.expect("an end").failed, 0);
    let mut after = engine.sent(CHARGE, "after").await.expect("it is there");
    assert_eq!(after.result().await.expect("a reply"), "charged 7");
    let why = place.run(&["runs", "why", "charge:after"]).ok().out;
    assert!(why.contains("it has ended"), "{why}");
    engine.shutdown().await;
}
