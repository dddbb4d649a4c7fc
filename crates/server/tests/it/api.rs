//! What is asked for is done, once, in the name of whoever asks; and answers have the shapes that
//! the OpenAPI document says.

use roundel_server::Role;
use serde_json::{Value, json};

use crate::support::{BROKEN, DOUBLE, Place, WAITS};

const RUNS: &str = "/api/v1/default/runs";

async fn start(place: &Place, key: &str, body: &Value) -> crate::support::Answer {
    let token = place.token(Role::Submitter);
    let headers = format!("Authorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n");
    place
        .send(&format!("POST {RUNS}"), &headers, Some(body))
        .await
}

#[tokio::test]
async fn n20_what_is_asked_twice_under_a_key_is_done_once() {
    let place = Place::new().await;
    let body = json!({"workflow": "double", "input": 21, "labels": {"shop": "bern"}});
    let first = start(&place, "order-7", &body).await.ok().json();
    let again = start(&place, "order-7", &body).await.ok().json();
    assert_eq!(first["run"], again["run"]);
    assert_eq!(
        (&first["new"], &again["new"]),
        (&json!(true), &json!(false))
    );
    let other = json!({"workflow": "double", "input": 22});
    start(&place, "order-7", &other).await.is(409, "key_reused");
    let twice = json!({"workflow": "double", "input": 21, "key": "order-8"});
    start(&place, "order-7", &twice)
        .await
        .is(400, "bad_request");

    let body = json!({"workflow": "waits", "input": 1});
    let run = start(&place, "waits-1", &body).await.ok().json()["run"].clone();
    let run = run.as_str().unwrap();
    let signal = json!({"signal": "word", "payload": "hello", "key": "s-1"});
    let line = format!("POST {RUNS}/{run}/signals");
    let sent = place
        .ask(Role::Submitter, &line, Some(&signal))
        .await
        .ok()
        .json();
    assert!(
        ["delivered", "queued"].contains(&sent["sent"].as_str().unwrap()),
        "{sent}"
    );
    place.ask(Role::Submitter, &line, Some(&signal)).await.ok();
    let handle = place
        .engine
        .handle(WAITS, run.parse::<roundel::RunId>().unwrap());
    let result = handle_result(&mut handle.await.unwrap()).await;
    assert_eq!(result, "hello");
    let missing = format!("POST {RUNS}/nobody/signals");
    place
        .ask(Role::Submitter, &missing, Some(&signal))
        .await
        .is(404, "not_found");
    place.engine.shutdown().await;
}

async fn handle_result(handle: &mut roundel::Handle<String>) -> String {
    handle.result().await.expect("it completes")
}

#[tokio::test]
async fn inv26_every_change_is_audited_with_who_made_it() {
    let place = Place::new().await;
    let runs = format!("POST {RUNS}");
    let body = json!({"workflow": "waits", "input": 1, "key": "audited"});
    place.ask(Role::Submitter, &runs, Some(&body)).await.ok();
    let offer = json!({"signal": "nobody waits"});
    place
        .ask(Role::Submitter, "POST /api/v1/default/offers", Some(&offer))
        .await
        .ok();
    let line = "POST /api/v1/default/topics/news/publications";
    place
        .ask(Role::Operator, line, Some(&json!({"payload": 1})))
        .await
        .ok();
    let line = "PUT /api/v1/default/topics/news/subscribers/double";
    place.ask(Role::Operator, line, None).await.ok();
    let line = "POST /api/v1/default/queues/double/pause";
    place
        .ask(Role::Operator, line, Some(&json!({"reason": "ticket 7"})))
        .await
        .ok();
    let line = format!("POST {RUNS}/audited/cancel");
    place
        .ask(Role::Operator, &line, Some(&json!({"reason": "ticket 8"})))
        .await
        .ok();
    let audit = place
        .ask(Role::Admin, "GET /api/v1/default/audit", None)
        .await
        .ok()
        .json();
    let rows = audit["items"].as_array().unwrap();
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            format!("{} {} {}", row["operator"], row["action"], row["reason"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        told,
        [
            "submitter start ",
            "submitter offer ",
            "operator publish ",
            "operator subscribe ",
            "operator pause ticket 7",
            "operator cancel ticket 8",
        ]
    );
    place.engine.shutdown().await;
}

#[tokio::test]
async fn o5_o6_what_is_no_longer_parked_and_how_many_there_are_is_told() {
    let place = Place::new().await;
    for number in 0..3 {
        let run = place
            .engine
            .start(BROKEN, &number)
            .await
            .unwrap()
            .result()
            .await;
        assert!(run.is_err());
    }
    let list = place
        .ask(Role::Viewer, "GET /api/v1/default/parked?limit=2", None)
        .await
        .ok()
        .json();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let next = list["next"].as_str().unwrap();
    let line = format!("GET /api/v1/default/parked?limit=2&cursor={next}");
    let rest = place.ask(Role::Viewer, &line, None).await.ok().json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert_eq!(rest["next"], Value::Null);
    let groups = place
        .ask(Role::Viewer, "GET /api/v1/default/parked/groups", None)
        .await
        .ok()
        .json();
    assert_eq!(groups["items"][0]["count"], 3);

    let id = items[0]["id"].as_str().unwrap();
    let line = format!("POST /api/v1/default/parked/{id}/cancel");
    place
        .ask(Role::Viewer, &line, None)
        .await
        .is(403, "forbidden");
    let seven = json!({"reason": "ticket 9"});
    assert_eq!(
        place
            .ask(Role::Operator, &line, Some(&seven))
            .await
            .ok()
            .json()["done"],
        1
    );
    place
        .ask(Role::Operator, &line, Some(&seven))
        .await
        .is(409, "conflict");

    act_on_many(&place).await;
    place.engine.shutdown().await;
}

#[tokio::test]
async fn o5_what_was_decided_on_an_earlier_look_is_not_done() {
    let place = Place::new().await;
    let run = place.engine.start(BROKEN, &1).await.unwrap().id();
    let parked = async |after: u64| loop {
        let line = format!("GET /api/v1/default/parked/{run}");
        let seen = place.ask(Role::Viewer, &line, None).await;
        match seen.status {
            200 if seen.json()["epoch"].as_u64() > Some(after) => break seen.json(),
            _ => tokio::task::yield_now().await,
        }
    };
    let first = parked(0).await["epoch"].as_u64().unwrap();
    let act = async |word: &str, seen: u64| {
        let line = format!("POST /api/v1/default/parked/{run}/{word}");
        let body = json!({"seen": seen});
        place.ask(Role::Operator, &line, Some(&body)).await
    };
    act("retry", first).await.ok();
    // It fails again, and who still sees the first failure wants it cancelled.
    let second = parked(first).await["epoch"].as_u64().unwrap();
    act("cancel", first).await.is(409, "stale");
    act("cancel", second).await.ok();
    place.engine.shutdown().await;
}

/// Two are left: they are counted first, and nothing is done if there are others.
async fn act_on_many(place: &Place) {
    let many = "POST /api/v1/default/parked";
    let ask = |more: Value| {
        let mut body = json!({"remedy": "cancel", "workflow": "broken"});
        let (all, more) = (
            body.as_object_mut().unwrap(),
            more.as_object().unwrap().clone(),
        );
        all.extend(more);
        body
    };
    let dry = place
        .ask(Role::Operator, many, Some(&ask(json!({"dry_run": true}))))
        .await;
    assert_eq!(dry.ok().json()["found"], 2);
    place
        .ask(Role::Operator, many, Some(&ask(json!({}))))
        .await
        .is(400, "bad_request");
    let stale = place
        .ask(Role::Operator, many, Some(&ask(json!({"expect": 3}))))
        .await;
    stale.is(409, "conflict");
    let done = place
        .ask(Role::Operator, many, Some(&ask(json!({"expect": 2}))))
        .await;
    assert_eq!(done.ok().json()["done"], 2);
}

/// Does the value have this schema? As much of it as the document uses.
fn fits(value: &Value, schema: &Value, at: &str) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match &schema["type"] {
        Value::Null => {}
        Value::Array(kinds) => assert!(kinds.iter().any(|word| word == kind), "{at}: {value}"),
        word => assert_eq!(word, kind, "{at}: {value}"),
    }
    if let Value::Array(words) = &schema["enum"] {
        assert!(words.contains(value), "{at}: {value}");
    }
    if let (Value::Array(items), schema @ Value::Object(_)) = (value, &schema["items"]) {
        items.iter().for_each(|item| fits(item, schema, at));
    }
    let (Value::Object(fields), Value::Object(known)) = (value, &schema["properties"]) else {
        return;
    };
    for (name, field) in fields {
        let schema = known
            .get(name)
            .unwrap_or_else(|| panic!("{at}: `{name}` is not described"));
        fits(field, schema, &format!("{at}.{name}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(
            fields.contains_key(name.as_str().unwrap()),
            "{at}: {name} is missing"
        );
    }
}

/// What is asked for: the path in the document, and the one that is sent.
fn asked(run: roundel::RunId) -> Vec<(&'static str, String)> {
    vec![
        ("/api/v1/me", "/api/v1/me".to_owned()),
        (
            "/api/v1/{namespace}/runs",
            format!("{RUNS}?label=shop%3Dbern&state=completed"),
        ),
        ("/api/v1/{namespace}/runs", format!("{RUNS}?state=parked")),
        ("/api/v1/{namespace}/runs/{run}", format!("{RUNS}/four")),
        (
            "/api/v1/{namespace}/runs/{run}/tree",
            format!("{RUNS}/{run}/tree"),
        ),
        (
            "/api/v1/{namespace}/runs/{run}/why",
            format!("{RUNS}/waits/why"),
        ),
        (
            "/api/v1/{namespace}/runs/{run}/undo",
            format!("{RUNS}/four/undo"),
        ),
        (
            "/api/v1/{namespace}/counts",
            "/api/v1/default/counts".to_owned(),
        ),
        (
            "/api/v1/{namespace}/workers",
            "/api/v1/default/workers".to_owned(),
        ),
        (
            "/api/v1/{namespace}/parked",
            "/api/v1/default/parked".to_owned(),
        ),
        (
            "/api/v1/{namespace}/parked/groups",
            "/api/v1/default/parked/groups".to_owned(),
        ),
        (
            "/api/v1/{namespace}/commands/{queue}",
            "/api/v1/default/commands/double".to_owned(),
        ),
        (
            "/api/v1/{namespace}/queues",
            "/api/v1/default/queues".to_owned(),
        ),
        (
            "/api/v1/{namespace}/topics",
            "/api/v1/default/topics".to_owned(),
        ),
        (
            "/api/v1/{namespace}/schedules",
            "/api/v1/default/schedules".to_owned(),
        ),
        (
            "/api/v1/{namespace}/batches",
            "/api/v1/default/batches".to_owned(),
        ),
        (
            "/api/v1/{namespace}/facts",
            "/api/v1/default/facts".to_owned(),
        ),
        (
            "/api/v1/{namespace}/documents",
            "/api/v1/default/documents".to_owned(),
        ),
    ]
}

#[tokio::test]
async fn answers_have_the_shapes_that_the_document_describes() {
    let place = Place::new().await;
    let document = place
        .ask(Role::Viewer, "GET /api/v1/openapi.json", None)
        .await
        .ok()
        .json();
    assert_eq!(document["openapi"], "3.1.0");
    let run = place
        .engine
        .start(DOUBLE, &4)
        .key("four")
        .label("shop", "bern")
        .await
        .unwrap()
        .id();
    assert_eq!(
        place
            .engine
            .handle(DOUBLE, run)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        8
    );
    let _ = place.engine.start(BROKEN, &1).await.unwrap().result().await;
    place.engine.start(WAITS, &1).key("waits").await.unwrap();
    for (path, line) in asked(run) {
        let answer = place
            .ask(Role::Viewer, &format!("GET {line}"), None)
            .await
            .ok()
            .json();
        let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
        let schema = &content["application/json"]["schema"];
        assert!(schema.is_object(), "{path} is not described");
        fits(&answer, schema, &line);
    }
    let why = place
        .ask(Role::Viewer, &format!("GET {RUNS}/waits/why"), None)
        .await
        .ok()
        .json();
    assert!(
        why["sentence"].as_str().unwrap().contains("signal `word`"),
        "{why}"
    );
    place.engine.shutdown().await;
}

#[tokio::test]
async fn ro_51_who_may_delete_sets_how_long_things_are_kept_and_nobody_else() {
    let place = Place::new().await;
    let line = "/api/v1/default/retention";
    let shown = async || {
        let get = format!("GET {line}");
        place.ask(Role::Viewer, &get, None).await.ok().json()
    };
    assert_eq!(shown().await, json!({"ended": null, "workflows": {}}));
    let put = format!("PUT {line}");
    let set = async |role, body: Value| place.ask(role, &put, Some(&body)).await;
    set(Role::Admin, json!({"keep": "ever", "reason": "law"}))
        .await
        .ok();
    let one = json!({"keep": 60_000, "workflow": "double"});
    let now = json!({"ended": "ever", "workflows": {"double": 60_000}});
    assert_eq!(set(Role::Admin, one.clone()).await.ok().json(), now);
    assert_eq!(shown().await, now);
    set(Role::Operator, one).await.is(403, "forbidden");
    // Not by another way: its state is not to be patched, nor is it another's.
    let patch = format!("POST {RUNS}/roundel.retention/patch");
    let soon = json!({"patch": {"ended": {"millis": 0}}});
    for role in [Role::Operator, Role::Admin] {
        place
            .ask(role, &patch, Some(&soon))
            .await
            .is(403, "forbidden");
    }
    assert_eq!(shown().await, now);
    for bad in [json!("soon"), json!(-1), json!(0.5), json!(null)] {
        let asked = set(Role::Admin, json!({"keep": bad})).await;
        asked.is(400, "bad_request");
    }
    let back = set(
        Role::Admin,
        json!({"keep": "program", "workflow": "double"}),
    )
    .await;
    assert_eq!(back.ok().json(), json!({"ended": "ever", "workflows": {}}));
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n9_a_list_of_values_is_no_body_whatever_their_order() {
    let place = Place::new().await;
    let publish = "POST /api/v1/default/topics/news/publications";
    let listed = place
        .ask(Role::Operator, publish, Some(&json!([{"a": 1}])))
        .await;
    listed.is(400, "bad_request");
    let named = json!({"payload": {"a": 1}});
    place.ask(Role::Operator, publish, Some(&named)).await.ok();
    let inner = json!({"commands": [["mail", 1]]});
    let batch = place.ask(Role::Operator, "POST /api/v1/default/batches", Some(&inner));
    batch.await.is(400, "bad_request");
    place.engine.shutdown().await;
}
