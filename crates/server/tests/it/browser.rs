//! The dashboard in a browser, over names, keys, payloads, reasons and errors that mean no good.

use std::fmt::Write;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use roundel_server::{Limits, Role};
use roundel_testweb::{Browser, Page, untested};
use serde_json::{Value, json};

use crate::support::{DOUBLE, PATIENCE, Place, STUBBORN, WAITS, WORD};
use crate::vectors::vectors;

/// As a part of an address.
fn part(text: &str) -> String {
    text.bytes().fold(String::new(), |mut said, byte| {
        let _ = write!(said, "%{byte:02X}");
        said
    })
}

/// Everything that can carry a text, carries this one. Some runs are told.
async fn plant(place: &Place, text: &str) -> Vec<String> {
    let mut runs = Vec::new();
    let ask = async |what: String, body: Value| {
        let answer = place.ask(Role::Admin, &what, Some(&body)).await;
        assert!([200, 400].contains(&answer.status), "{what}: {answer:?}");
        answer.json()
    };
    let base = "/api/v1/default";
    let labels = json!({"note": text});
    for (workflow, input, key) in [
        (text, json!(text), format!("a {text}")),
        ("echo", json!(text), format!("b {text}")),
        ("waits", json!(1), format!("c {text}")),
    ] {
        let body = json!({"workflow": workflow, "input": input, "key": key, "labels": labels});
        let started = ask(format!("POST {base}/runs"), body).await;
        runs.extend(started["run"].as_str().map(str::to_owned));
    }
    let waiting = runs.last().cloned().unwrap_or_default();
    let signal = json!({"signal": text, "payload": {text: text}});
    ask(format!("POST {base}/runs/{waiting}/signals"), signal).await;
    let (name, why) = (part(text), json!({"reason": text}));
    let said = json!({"payload": [text]});
    ask(format!("POST {base}/topics/{name}/publications"), said).await;
    ask(
        format!("PUT {base}/topics/{name}/subscribers/{name}"),
        why.clone(),
    )
    .await;
    ask(format!("POST {base}/queues/{name}/pause"), why).await;
    let command = json!({"payload": text, "id": text, "flow_key": text});
    ask(format!("POST {base}/commands/{name}"), command).await;
    let timed = json!({"workflow": text, "input": text, "every_ms": 3_600_000, "reason": text});
    ask(format!("PUT {base}/schedules/{name}"), timed).await;
    runs
}

/// What is on the page that the dashboard itself did not put there, as an expression.
const STRANGE: &str = "[...document.querySelectorAll('#page *')].filter((one) => \
    !['h1', 'h2', 'p', 'div', 'span', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'a', 'b', \
      'ul', 'li', 'dl', 'dt', 'dd', 'time', 'form', 'input', 'select', 'option', 'button', \
      'svg', 'polyline', 'progress'].includes(one.localName) \
    || [...one.attributes].some((its) => its.name.startsWith('on')) \
    || (one.localName === 'a' && !one.getAttribute('href').startsWith('#/')) \
    || one.localName === 'form' && one.hasAttribute('action'))\
    .map((one) => one.outerHTML)";

/// There is nothing on the page but what the dashboard itself puts there.
fn is_clean(page: &Page, at: &str) {
    assert_eq!(page.value(STRANGE), json!([]), "{at}");
    assert_eq!(page.value("window.was === undefined"), true, "{at}");
}

/// One run that has all of them: as names of its calls and what they came to, in its input, in its
/// journal, and as names and payloads of its mail.
async fn plant_crowd(place: &Place, texts: &[String]) -> String {
    let names: Vec<&String> = texts.iter().filter(|text| is_name(text)).collect();
    let body = json!({"workflow": "crowd", "input": names});
    let ask = async |what: String, body: Value| {
        place.ask(Role::Admin, &what, Some(&body)).await.ok().json()
    };
    let run = ask("POST /api/v1/default/runs".to_owned(), body).await;
    let run = run["run"].as_str().unwrap().to_owned();
    for text in names {
        let signal = json!({"signal": text, "payload": {text: text}});
        ask(format!("POST /api/v1/default/runs/{run}/signals"), signal).await;
    }
    let begin = std::time::Instant::now();
    let line = format!("GET /api/v1/default/runs/{run}");
    let waits = async || {
        let seen = place.ask(Role::Viewer, &line, None).await;
        seen.ok().json()["state"] == "waiting"
    };
    while !waits().await {
        assert!(begin.elapsed() < PATIENCE, "it has not come to its wait");
    }
    run
}

fn is_name(text: &str) -> bool {
    roundel::Name::new(text.to_owned()).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o1_o2_whatever_things_are_called_the_dashboard_shows_it_as_text() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("o1_o2_whatever_things_are_called", &why),
    };
    let often = Limits {
        per_second: 1_000_000,
        burst: 1_000_000,
        streams: 1000,
        ..Limits::default()
    };
    let place = Place::with(often).await;
    let texts = vectors();
    let crowd = plant_crowd(&place, &texts).await;
    let planted = texts.iter().map(|text| plant(&place, text));
    let planted = stream::iter(planted).buffered(16).collect::<Vec<_>>().await;
    let page = browser.page((1280, 800), "dark");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    page.value("window.hacked = () => { window.was = 1; alert(1); }");
    look_at_lists(&page);
    go(&page, &format!("#/default/run/{crowd}"));
    page.until("document.body.innerText.includes('Mailbox')");
    is_clean(&page, "the crowd");
    // Each call failed once, with its own name: that is listed too.
    let shut = "document.querySelector('button.parts[aria-expanded=false]')";
    page.value(&format!("for (let one; (one = {shut});) one.click()"));
    assert!(
        page.value("document.querySelectorAll('li .runs.fails').length")
            .as_u64()
            > Some(190)
    );
    is_clean(&page, "the crowd, and what failed in it");
    let shown = page.value("document.getElementById('page').innerText");
    let named = texts.iter().filter(|text| is_name(text));
    let told = named
        .filter(|text| shown.as_str().unwrap().contains(text.trim()))
        .count();
    assert!(told >= 190, "{told} of {} are on its page", texts.len());
    look_at_runs(&page, &planted.concat());
    look_at_addresses(&page, &texts);
    let complaints = page.complaints().into_iter();
    // What was not found, or is no label, was asked for.
    let asked = |said: &String| said.contains("the server responded with a status of 40");
    let unexpected: Vec<String> = complaints.filter(|said| !asked(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    place.serving.stop().await;
    place.engine.shutdown().await;
}

/// Every run, on its own page: by the dashboard's own code, but without an address for each, since
/// a browser does not follow more than 200 in ten seconds.
fn look_at_runs(page: &Page, runs: &[String]) {
    assert!(runs.len() >= 400, "{}", runs.len());
    // Some at a time: whoever asks the browser waits for an answer, but not for ever.
    runs.chunks(40).for_each(|runs| look_at_some(page, runs));
    is_clean(page, "runs");
}

fn look_at_some(page: &Page, runs: &[String]) {
    let bad = page.value(&format!(
        "(async () => {{
            const {{ run }} = await import('./run.js');
            const page = document.getElementById('page');
            const bad = [];
            for (const id of {}) {{
                const left = await run(page, {{ namespace: 'default', rest: [id], asked: {{}},
                    me: {{ may: ['operate'] }}, current: () => true, go: () => {{}} }});
                left?.();
                const text = page.innerText;
                if (!text.includes(id) || !text.includes('Journal')) bad.push(id);
                bad.push(...{STRANGE});
            }}
            return bad;
        }})()",
        Value::from(runs.to_vec())
    ));
    assert_eq!(bad, json!([]));
}

fn go(page: &Page, hash: &str) {
    page.value(&format!("location.hash = {}", Value::from(hash)));
}

/// Every list is there, and on it, page by page, what others would have run.
fn look_at_lists(page: &Page) {
    for (at, shown) in [
        ("overview", true),
        ("runs", true),
        ("runs?state=ready", true),
        ("parked", true),
        ("queues", true),
        ("topics", true),
        ("schedules", true),
        ("audit", true),
        ("workers", false),
        ("batches", false),
        ("facts", false),
        ("facts/documents", false),
    ] {
        go(page, &format!("#/default/{at}"));
        let name = at.split(['?', '/']).next().unwrap_or_default();
        page.until(&format!(
            "document.querySelector('h1')?.innerText.toLowerCase().includes({})",
            Value::from(name)
        ));
        if shown {
            page.shows("hacked()");
        }
        is_clean(page, at);
        for number in 2..=PAGES {
            if page.value(&format!("{NEXT} === undefined")) == true {
                break;
            }
            page.value(&format!("window.before = location.hash; {NEXT}.click()"));
            let other = "location.hash !== window.before && document.querySelector('tbody tr')";
            page.until(other);
            is_clean(page, &format!("{at}, page {number}"));
        }
    }
}

/// Pages of a list that are looked at: more than 200 of each kind are on them.
const PAGES: usize = 10;
const NEXT: &str = "[...document.querySelectorAll('#page button')]\
    .find((one) => one.innerText === 'Next page')";

/// Filters and parts of such names, and addresses that were made up: one page for some.
fn look_at_addresses(page: &Page, texts: &[String]) {
    let pages = [
        "queues/",
        "topics/",
        "batches/",
        "run/",
        "runs?workflow=",
        "runs?label=x=",
        "../",
    ];
    for (text, at) in texts.iter().step_by(3).zip(pages.iter().cycle()) {
        go(page, &format!("#/default/{at}{}", part(text)));
        page.until("document.querySelector('#page h1, #page .wrong')");
        is_clean(page, text);
    }
    go(page, "#/default/queues");
    page.shows("Without limits");
    is_clean(page, "the end");
}

/// A run that lies ready for 2 s, works for 10 ms, fails, pauses for 1 s, works for 2 s, sleeps for
/// 10 s, and works for 20 ms.
fn worker_and_sleeper() -> Value {
    let part = |kind: &str, from: u64, to: u64, text: &str| {
        let failure = text.ends_with('1').then_some("no answer");
        json!({"kind": kind, "from": from * 1000, "to": to * 1000, "text": text,
            "failure": failure})
    };
    let bar = |call: Option<u32>, text: &str, parts: Vec<Value>| {
        let (from, to) = (
            parts[0]["from"].clone(),
            parts[parts.len() - 1]["to"].clone(),
        );
        json!({"call": call, "text": text, "run": null, "from": from, "to": to, "ended": true,
            "failed": false, "parts": parts})
    };
    let bars = [
        bar(None, "queue delay", vec![part("queued", 0, 2000, "ready")]),
        bar(
            Some(1),
            "effect `one`",
            vec![
                part("runs", 2000, 2010, "attempt 1"),
                part("pauses", 2010, 3010, "pause"),
                part("runs", 3010, 5010, "attempt 2"),
            ],
        ),
        bar(
            Some(2),
            "sleep",
            vec![part("waits", 5010, 15_010, "sleeps")],
        ),
        bar(
            Some(3),
            "effect `two`",
            vec![part("runs", 15_010, 15_030, "runs")],
        ),
    ];
    json!({"run": "x", "timeline": {"from": 0, "to": 15_030_000, "left_out": 7, "bars": bars}})
}

/// Where each part stands, in hundredths of the lane, and how wide it is.
fn places(page: &Page) -> Vec<(f64, f64)> {
    let all = "[...document.querySelectorAll('.lane .bar')].map((bar) => \
        [parseFloat(bar.style.left), parseFloat(bar.style.width)])";
    let all = page.value(all);
    let number = |value: &Value| value.as_f64().expect("a number");
    let all = all.as_array().expect("bars").iter();
    all.map(|place| (number(&place[0]), number(&place[1])))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_a_timeline_is_to_scale_and_leaves_out_what_is_idle_if_asked() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("o_a_timeline_is_to_scale", &why),
    };
    let place = Place::new().await;
    let page = browser.page((1280, 800), "light");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    page.value(&format!(
        "(async () => {{ const {{ timeline }} = await import('./timeline.js'); \
         document.getElementById('page').replaceChildren(timeline({}, 'default')); }})()",
        worker_and_sleeper()
    ));
    page.shows("The last 4 of 11.");
    let whole = places(&page);
    let expected = [
        (0, 2000),
        (2000, 10),
        (2010, 1000),
        (3010, 2000),
        (5010, 10_000),
        (15_010, 20),
    ];
    assert_eq!(whole.len(), expected.len(), "{whole:?}");
    for ((left, width), (from, took)) in whole.iter().zip(expected) {
        let share = |ms: i32| 100.0 * f64::from(ms) / 15_030.0;
        assert!((left - share(from)).abs() < 0.01, "{whole:?}");
        assert!((width - share(took)).abs() < 0.01, "{whole:?}");
    }
    // What is ready, paused or asleep for long is left out; what is worked on stays to scale.
    let press = "document.querySelector('#page button').click()";
    page.shows("Leave out 13.0 s of waiting");
    page.value(press);
    let brief = places(&page);
    assert!(brief[3].1 > 75.0 && brief[4].1 < 8.0, "{brief:?}");
    assert!((brief[3].1 / brief[5].1 - 100.0).abs() < 1.0, "{brief:?}");
    page.value(press);
    assert_eq!(places(&page), whole);
    page.is_sound();
    place.serving.stop().await;
    place.engine.shutdown().await;
}

/// The texts of all that the selector finds.
fn texts(page: &Page, selector: &str, of: &str) -> Vec<String> {
    let all = format!("[...document.querySelectorAll('{selector}')].map((one) => {of})");
    let all = page.value(&all);
    let all = all.as_array().expect("texts").iter();
    all.map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o_a_timeline_tells_delay_attempts_pauses_and_waits_each_in_form_and_words() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("o_a_timeline_tells_delay_attempts", &why),
    };
    let place = Place::new().await;
    let start = place.engine.start(STUBBORN, &3);
    let run = start.delay(Duration::from_millis(60)).await.unwrap();
    let id = run.id();
    let line = format!("GET /api/v1/default/runs/{id}");
    let begin = std::time::Instant::now();
    let entries = async || {
        let seen = place.ask(Role::Viewer, &line, None).await.ok().json();
        (seen["state"].clone(), seen["entries"].clone())
    };
    // Delay, two attempts that fail, a third, a sleep; then it waits to be told.
    while entries().await != (json!("waiting"), json!(8)) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", entries().await);
    }
    let page = browser.page((1280, 800), "light");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    go(&page, &format!("#/default/run/{id}"));
    page.until("document.querySelectorAll('.lane .track').length === 4");
    let classes = texts(&page, ".lane .bar", "one.className.replace(\"bar \", \"\")");
    let late = |word: &&String| *word != "queued";
    let told: Vec<&String> = classes.iter().filter(late).collect();
    let tries = ["runs fails", "pauses", "runs fails", "pauses", "runs"];
    let expected = [&["waits"], &tries[..], &["waits", "waits"]].concat();
    assert_eq!(told, expected, "{classes:?}");
    // Read out, and told beside the bars, whoever has no mouse.
    let read = texts(&page, ".lane .track", "one.getAttribute(\"aria-label\")").join("\n");
    for part in [
        "waits until it may begin (",
        "attempt 1 (",
        "failed: no answer, 1",
        "pause before attempt 3 (",
        "attempt 3, from when it may begin",
        "sleeps (",
        "waits for the signal (",
    ] {
        assert!(read.contains(part), "`{part}` is missing: {read}");
    }
    let legend = texts(&page, ".legend li", "one.innerText.trim()").join("; ");
    let words = "worked on; pause before another attempt; waits; ends in a failure";
    assert!(legend.contains(words), "{legend}");
    page.value("document.querySelector('[data-of$=\" 1\"]').focus()");
    page.press("\r");
    page.shows("no answer, 2");
    // It stays open, and in focus, when the run goes on.
    place
        .engine
        .signal(id, WORD, &"so be it".to_owned())
        .await
        .unwrap();
    page.until("document.querySelector('dd').innerText === 'completed'");
    page.shows("no answer, 2");
    assert_eq!(
        page.value("document.activeElement.getAttribute('aria-expanded')"),
        "true"
    );
    page.is_sound();
    place.serving.stop().await;
    place.engine.shutdown().await;
}

/// What is found of a list, and what is said about how far it was looked through.
const ROWS: &str = "document.querySelectorAll('#page tbody tr').length";
const FAR: &str = "document.querySelector('#page .note[role=status]')";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ro_50_a_list_goes_on_by_itself_until_all_was_looked_at_or_somebody_stops_it() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("ro_50_a_list_goes_on_by_itself", &why),
    };
    let few = Limits {
        look: 1,
        ..Limits::default()
    };
    let place = Place::with(few).await;
    let oldest = place.engine.start(WAITS, &1).await.unwrap().id();
    for _ in 0..30 {
        place.engine.start(DOUBLE, &1).await.unwrap();
    }
    place.engine.start(WAITS, &1).await.unwrap();
    let page = browser.page((1280, 800), "light");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    go(&page, "#/default/runs?workflow=waits");
    // The newest is there at once, and it is told that it goes on, and how far it came.
    page.until(&format!("{FAR} && !{FAR}.hidden && {ROWS} === 1"));
    page.until(&format!(
        "{FAR}.innerText.includes('1 found so far, looked back to')"
    ));
    let click = format!("{FAR}.querySelector('button').click()");
    page.value(&click);
    page.until(&format!("{FAR}.innerText.includes('Go on')"));
    assert_eq!(page.value(ROWS), 1);
    page.value(&click);
    page.until(&format!("{ROWS} === 2 && {FAR}.hidden"));
    let shown = page.value("document.getElementById('page').innerText");
    assert!(shown.as_str().unwrap().contains(&oldest.to_string()));
    // A page without any is told as such once all was looked at, and not before.
    go(&page, "#/default/runs?workflow=double&state=failed");
    page.until(&format!("{FAR} && {FAR}.innerText.includes('Nothing yet')"));
    assert_eq!(
        page.value("document.body.innerText.includes('No runs like that')"),
        false
    );
    page.shows("No runs like that");
    assert_eq!(page.complaints(), [""; 0]);
    place.serving.stop().await;
    place.engine.shutdown().await;
}
