//! The demo in a browser: what an operator sees and does.
//!
//! Where `ROUNDEL_PICTURES` names a folder, pictures of the pages are left there:
//! `cargo xtask pictures` takes those of the guide.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use roundel_testweb::{Browser, Page, untested};
use serde_json::Value;
use tempfile::TempDir;

/// The demo, which goes with this value.
struct Demo {
    child: Child,
    out: BufReader<ChildStdout>,
    _folder: TempDir,
}

impl Demo {
    fn start() -> Demo {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_roundel"));
        command.args(["demo", "--serve", "--orders", "12", "--seed", "11", "--dir"]);
        command.arg(folder.path()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Demo {
            child,
            out,
            _folder: folder,
        }
    }

    /// The first line with this in it.
    fn says(&mut self, part: &str) -> String {
        let mut line = String::new();
        while self.out.read_line(&mut line).expect("text") > 0 {
            if line.contains(part) {
                return line.trim().to_owned();
            }
            line.clear();
        }
        panic!("the demo never said `{part}`");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A picture of the page for the guide, if pictures are wanted.
fn picture(page: &Page, name: &str) {
    if let Some(folder) = std::env::var_os("ROUNDEL_PICTURES") {
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        page.picture(&folder.join(format!("{name}.png")));
    }
}

fn is_at(page: &Page, key: &str, title: &str) {
    page.press(key);
    page.until(&format!(
        "document.querySelector('h1')?.innerText === {}",
        Value::from(title)
    ));
}

const DIALOG: (&str, &str) = ("dialog", "");
const REASON: &str = "dialog input[name=reason]";

#[test]
fn o_an_operator_sees_and_mends_the_demo_in_a_browser() {
    let browser = match Browser::open() {
        Ok(browser) => browser,
        Err(why) => return untested("o_an_operator_sees_and_mends_the_demo", &why),
    };
    let mut demo = Demo::start();
    let link = demo.says("/login?code=");
    let page = browser.page((1280, 800), "light");
    page.go(&link);
    page.shows("Workflows");
    demo.says("The shop stays open");
    sees_a_tree(&page);
    sees_where_the_time_went(&page);
    watches_a_rollback(&page);
    mends_what_is_parked(&page);
    pauses_a_queue(&page);
    sees_the_rest(&page);
    page.is_sound();
    let home = link.replace(&link[link.find("login").expect("a path")..], "ui/");
    is_narrow(&browser.page((400, 800), "light"), &home);
    let dark = browser.page((1280, 800), "dark");
    dark.go(&home);
    dark.shows("Workflows");
    dark.until("document.querySelectorAll('.spark').length > 3");
    if std::env::var_os("ROUNDEL_PICTURES").is_some() {
        // A line with something in it: it gets a point in a second.
        dark.until("document.querySelector('.spark polyline').points.length > 20");
    }
    picture(&dark, "overview-dark");
    dark.is_sound();
}

/// On a telephone nothing is wider than the page, and a row says what its cells are.
fn is_narrow(page: &Page, home: &str) {
    page.go(home);
    page.shows("Workflows");
    let run = "(await (await fetch('../api/v1/default/runs?workflow=order')).json()).items[0].run";
    let run = page.value(&format!("(async () => `run/${{{run}}}`)()"));
    let pages = [
        "overview",
        "runs",
        "parked",
        "queues",
        "topics",
        "schedules",
        "batches",
        "facts",
        "workers",
        "audit",
        "sql",
    ];
    for at in pages.into_iter().chain(run.as_str()) {
        page.value(&format!("location.hash = '#/default/{at}'"));
        let title = match at.split_once('/') {
            Some(_) => "order",
            None => at,
        };
        page.until(&format!(
            "document.querySelector('h1')?.innerText.toLowerCase().startsWith('{title}')"
        ));
        page.until("document.querySelector('#page tbody tr, #page p.dim')");
        page.until("document.documentElement.scrollWidth <= 400");
    }
    let named = "getComputedStyle(document.querySelector('td[data-in=key]'), '::before').content";
    page.value("location.hash = '#/default/runs'");
    page.until(&format!("{named} === '\"key\"'"));
    page.is_sound();
}

/// All that an order set off, by whom.
fn sees_a_tree(page: &Page) {
    page.value("location.hash = '#/default/runs?workflow=order&state=completed'");
    page.until("document.querySelectorAll('tbody a').length > 2");
    // How many there are in each state, each a way to those, with the workflow.
    let of = "document.querySelector('.states a[aria-current]')";
    page.until(&format!("{of}?.innerText === 'completed'"));
    let count = format!("Number({of}.parentNode.innerText.split(' ')[1])");
    assert!(
        page.value(&count).as_i64() > Some(2),
        "{}",
        page.value(&count)
    );
    page.click((".states li", "rolled back"), "rolled back");
    page.until(&format!("{of}?.innerText === 'rolled back'"));
    assert_eq!(
        page.value("location.hash"),
        "#/default/runs?workflow=order&state=rolled_back"
    );
    page.value("location.hash = '#/default/runs?workflow=order&state=completed'");
    page.until(&format!("{of}?.innerText === 'completed'"));
    page.value("document.querySelector('tbody a').focus()");
    page.press("\r");
    page.until("document.querySelector('.tree')?.innerText.includes('shipping')");
    let tree = page.value("document.querySelector('.tree').innerText");
    for part in ["order", "stock", "payment", "shipping", "parcel"] {
        assert!(
            tree.as_str().is_some_and(|tree| tree.contains(part)),
            "{tree}"
        );
    }
}

/// A payment whose service was busy: its attempts, and the pauses between them.
fn sees_where_the_time_went(page: &Page) {
    let busy = "(async () => { for (;;) { \
        const at = '../api/v1/default/runs'; \
        const list = await (await fetch(`${at}?workflow=payment&limit=100`)).json(); \
        for (const { run } of list.items) { \
            const { timeline } = await (await fetch(`${at}/${run}`)).json(); \
            const failed = ({ parts }) => parts.filter((one) => one.failure).length > 1; \
            if (timeline.bars.some(failed)) return run; \
        } \
        await new Promise((told) => setTimeout(told, 200)); } })()";
    let run = page.value(busy);
    let run = run.as_str().expect("a run");
    page.value(&format!("location.hash = '#/default/run/{run}'"));
    page.until("document.querySelector('h1')?.innerText.startsWith('payment')");
    let of = "document.querySelector('.bars button.parts')";
    page.until(&format!("{of}.innerText.endsWith(' failed')"));
    page.value(&format!("{of}.focus()"));
    page.press("\r");
    page.shows("pause before attempt 2 (");
    page.shows("attempt 2, from when it may begin (");
    page.shows("failed: the service is busy");
    page.value("window.scrollTo(0, 0)");
    picture(page, "timeline");
}

/// An order of more mirrors than the carrier takes: from its begin to its end, on one page.
fn watches_a_rollback(page: &Page) {
    let coming = "(async () => { for (;;) { \
        const list = await (await fetch('../api/v1/default/runs?workflow=order&limit=3')).json(); \
        const mirrors = (run) => Number(run.key.slice(6)) % 3 === 0; \
        const going = (run) => ['ready', 'running', 'waiting'].includes(run.state); \
        const found = list.items.find((run) => mirrors(run) && going(run)); \
        if (found) return found.run; \
        await new Promise((told) => setTimeout(told, 50)); } })()";
    let state = "document.querySelector('dd')?.innerText";
    page.value("window.same = true");
    loop {
        let run = page.value(coming);
        let run = run.as_str().expect("a run");
        page.value(&format!("location.hash = '#/default/run/{run}'"));
        page.until(&format!(
            "document.querySelector('h1')?.innerText.includes('{run}')"
        ));
        let first = page.value(state);
        page.until(&format!("{state} === 'rolled back'"));
        // Where the machine was slow, it was over before it was seen; there will be another.
        if first != "rolled back" {
            break;
        }
    }
    assert_eq!(
        page.value("window.same"),
        true,
        "the page was not loaded again"
    );
    let tree = page.value("document.querySelector('.tree').innerText");
    let tree = tree.as_str().unwrap_or_default();
    assert!(
        tree.contains("parcel failed") && tree.contains("undone"),
        "{tree}"
    );
    let bars = page.value("document.querySelector('table.bars').innerText");
    let bars = bars.as_str().unwrap_or_default();
    for part in [
        "rolls back: it failed",
        "roll back what publish `placed` set off",
        "undo `open`",
    ] {
        assert!(bars.contains(part), "`{part}` is missing: {bars}");
    }
    page.value("window.scrollTo(0, 0)");
    picture(page, "rollback");
}

fn mends_what_is_parked(page: &Page) {
    is_at(page, "p", "Parked");
    page.shows("order 4 are held");
    picture(page, "parked");
    page.click(("tbody tr", "for order 4"), "Retry");
    page.fill(REASON, "released by the office");
    page.click(DIALOG, "Retry");
    page.until("!document.body.innerText.includes('for order 4')");
    page.click(("tbody tr", "refund-2"), "Edit and retry …");
    let asked = r#"{"order": 2, "account": "CH12 3456", "cents": 2350}"#;
    page.fill("dialog textarea", asked);
    page.fill(REASON, "the customer wrote again");
    page.click(DIALOG, "Retry with this");
    page.until("!document.body.innerText.includes('refund-2')");
    let came_to = "(async () => { for (;;) { \
        const at = '../api/v1/default/commands/refund/refund-2'; \
        const { command } = await (await fetch(at)).json(); \
        if (command.state === 'completed') return command.outcome.value; \
        await new Promise((told) => setTimeout(told, 50)); } })()";
    assert_eq!(page.value(came_to), "2350 cents to CH12 3456");
    // What is no JSON is not sent, and whoever typed it is told.
    page.click(("tbody tr", "refund-1"), "Edit and retry …");
    page.fill("dialog textarea", "DE00");
    page.click(DIALOG, "Retry with this");
    page.shows("This is not JSON");
    // Many at once only by their number.
    page.click(("tbody tr", "Cancel all"), "Cancel all …");
    page.fill("dialog input[name=count]", "77");
    page.click(DIALOG, "Cancel");
    page.shows("Nothing was done");
}

fn pauses_a_queue(page: &Page) {
    is_at(page, "q", "Queues");
    let letters = "[...document.querySelectorAll('tbody tr')]\
        .find((row) => row.innerText.startsWith('letter')).innerText";
    page.click(("tbody tr", "letter"), "Pause …");
    page.fill(REASON, "no paper");
    page.click(DIALOG, "Pause it");
    page.until(&format!("{letters}.includes('paused')"));
    // Nobody begins a letter any more, and they come in: seen without asking again.
    let ready = format!("Number({letters}.split('\\t')[2])");
    let in_hand = format!("Number({letters}.split('\\t')[3])");
    page.until(&format!("{ready} > 5 && {in_hand} === 0"));
    picture(page, "queues");
    page.click(("tbody tr", "letter"), "Limits …");
    page.fill("dialog input[name=concurrency]", "20");
    page.click(DIALOG, "Set them");
    page.until(&format!("{letters}.split('\\t')[4] === '20'"));
    page.click(("tbody tr", "letter"), "Resume");
    page.until(&format!("{letters}.includes('on') && {ready} < 5"));
}

fn sees_the_rest(page: &Page) {
    is_at(page, "t", "Topics");
    page.shows("shipping");
    is_at(page, "s", "Schedules");
    page.shows("at 03:30, Monday to Friday, in Europe/Zurich");
    page.click(("tbody tr", "Europe/Zurich"), "Run now …");
    page.fill(REASON, "somebody looked hungry");
    page.click(DIALOG, "Run it now");
    page.until("!document.querySelector('dialog')");
    is_at(page, "w", "Workers");
    page.shows("stocktaking v1");
    for (key, title) in [
        ("b", "Batches"),
        ("f", "Facts"),
        ("o", "Overview"),
        ("r", "Runs"),
    ] {
        is_at(page, key, title);
    }
    page.until("document.activeElement.id === 'page' && document.querySelector('tbody a')");
    page.press("j");
    page.until("document.activeElement.closest('tbody tr')");
    is_at(page, "a", "Audit");
    for reason in [
        "released by the office",
        "the customer wrote again",
        "no paper",
        "somebody looked hungry",
    ] {
        page.shows(reason);
    }
    page.press("?");
    page.shows("the next row");
    page.click(DIALOG, "Close");
}
