//! The dashboard in a browser, over names, keys, payloads, reasons and errors that mean no good.

use std::fmt::Write;

use roundel_server::{Limits, Role};
use roundel_testweb::{Browser, Page, untested};
use serde_json::{Value, json};

use crate::support::Place;

/// What has broken others, each as short as a name has to be.
const VECTORS: &[&str] = &[
    "<script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    "<svg/onload=hacked()>",
    "<svg><animate onbegin=hacked() attributeName=x>",
    "<iframe srcdoc='<script>parent.hacked()</script>'>",
    "<details open ontoggle=hacked()>",
    "<video><source onerror=hacked()></video>",
    "<a href=javascript:hacked()>a</a>",
    "<math><mi xlink:href='data:x,<script>hacked()</script>'>",
    "<style>@import'//evil.example';</style>",
    "<base href='//evil.example/'>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<form action=//evil.example><button>b</button></form>",
    "<object data='javascript:hacked()'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<template><script>hacked()</script></template>",
    "<textarea></textarea><script>hacked()</script>",
    "</title></textarea></style></script><script>hacked()</script>",
    "--><script>hacked()</script>",
    "\" onfocus=hacked() autofocus x=\"",
    "' onmouseover='hacked()",
    "`-hacked()-`",
    "javascript:hacked()",
    "jaVasCript:/*-/*`/*\\`/*'/*\"/**/(hacked())//",
    "data:text/html,<script>hacked()</script>",
    "{{constructor.constructor('hacked()')()}}",
    "${hacked()}",
    "<%= hacked() %>",
    "%3Cscript%3Ehacked()%3C/script%3E",
    "&lt;script&gt;hacked()&lt;/script&gt;",
    "&#x3c;script&#x3e;hacked()&#x3c;/script&#x3e;",
    "\\u003cscript\\u003ehacked()\\u003c/script\\u003e",
    "<scr<script>ipt>hacked()</scr</script>ipt>",
    "<ScRiPt >hacked()</sCrIpT >",
    "<img src=\"x` `<script>hacked()</script>\"` `>",
    "<xss style='animation-name:x' onanimationstart=hacked()>",
    "<input autofocus onfocus=hacked()>",
    "<body onload=hacked()>",
    "#/default/runs?state=<script>hacked()</script>",
    "__proto__",
    "constructor",
    "toString",
    "\u{202e}tpircs\u{200b}<script>hacked()</script>",
    "\r\n\r\n<script>hacked()</script>",
    "../../../etc/passwd",
    "%00<script>hacked()</script>",
];

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

/// There is nothing on the page but what the dashboard itself puts there.
fn is_clean(page: &Page, at: &str) {
    let strange = "[...document.querySelectorAll('#page *')].filter((one) => \
        !['h1', 'h2', 'p', 'div', 'span', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'a', 'b', \
          'ul', 'li', 'dl', 'dt', 'dd', 'time', 'form', 'input', 'select', 'option', 'button', \
          'svg', 'polyline', 'progress'].includes(one.localName) \
        || [...one.attributes].some((its) => its.name.startsWith('on')) \
        || (one.localName === 'a' && !one.getAttribute('href').startsWith('#/')) \
        || one.localName === 'form' && one.hasAttribute('action'))\
        .map((one) => one.outerHTML)";
    assert_eq!(page.value(strange), json!([]), "{at}");
    assert_eq!(page.value("window.was === undefined"), true, "{at}");
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
        ..Limits::default()
    };
    let place = Place::with(often).await;
    let mut runs = Vec::new();
    for text in VECTORS {
        runs.extend(plant(&place, text).await);
    }
    let page = browser.page((1280, 800), "dark");
    let (address, code) = (place.address(), place.server.login_code());
    page.go(&format!("http://{address}/login?code={}", code.reveal()));
    page.shows("Overview");
    page.value("window.hacked = () => { window.was = 1; alert(1); }");
    look_at_lists(&page);
    for run in runs.iter().rev().take(40) {
        go(&page, &format!("#/default/run/{run}"));
        page.until(&format!(
            "document.querySelector('h1')?.innerText.includes({}) \
             && document.body.innerText.includes('Journal')",
            Value::from(run.as_str())
        ));
        is_clean(&page, run);
    }
    look_at_addresses(&page);
    let complaints = page.complaints().into_iter();
    // What was not found, or is no label, was asked for.
    let asked = |said: &String| said.contains("the server responded with a status of 40");
    let unexpected: Vec<String> = complaints.filter(|said| !asked(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    place.serving.stop().await;
    place.engine.shutdown().await;
}

fn go(page: &Page, hash: &str) {
    page.value(&format!("location.hash = {}", Value::from(hash)));
}

/// Every list is there, and on it what others would have run.
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
    }
}

/// Filters and parts of such names, and addresses that were made up: one page for each, since a
/// browser does not follow more than 200 in ten seconds.
fn look_at_addresses(page: &Page) {
    let pages = [
        "queues/",
        "topics/",
        "batches/",
        "run/",
        "runs?workflow=",
        "runs?label=x=",
        "../",
    ];
    for (text, at) in VECTORS.iter().zip(pages.iter().cycle()) {
        go(page, &format!("#/default/{at}{}", part(text)));
        page.until("document.querySelector('#page h1, #page .wrong')");
        is_clean(page, text);
    }
    go(page, "#/default/queues");
    page.shows("Without limits");
    is_clean(page, "the end");
}
