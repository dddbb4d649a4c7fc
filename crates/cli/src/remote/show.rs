//! What a server answered, for people and for programs. Nothing of it is trusted: control
//! characters are shown as text.

use serde_json::{Value, json};

use super::table::Shown;
use crate::retention;
use crate::show::table::{self, flexible, plain};
use crate::show::{Output, Screen, Style, clean, time};

/// Characters of a value in a line of its own.
const VALUE: usize = 200;
/// Levels of a tree that are drawn.
const LEVELS: usize = 64;

pub(super) fn list(output: &Output, screen: &mut Screen, shown: Shown, items: &[Value]) {
    if output.json {
        items.iter().for_each(|item| screen.json(item));
        return;
    }
    let Shown::List(fields) = shown else {
        unreachable!("a list is shown as one")
    };
    if items.is_empty() {
        output.note("there are none");
        return;
    }
    let heads: Vec<String> = fields.iter().map(|field| field.replace('_', " ")).collect();
    let columns: Vec<_> = heads.iter().map(|head| flexible(head)).collect();
    let rows = items.iter().map(|item| {
        let cells = fields.iter().map(|field| plain(text(field, &item[*field])));
        cells.collect()
    });
    table::show(screen, &columns, &rows.collect::<Vec<_>>());
}

pub(super) fn one(output: &Output, screen: &mut Screen, shown: Shown, answer: &Value) {
    match shown {
        Shown::Count => return count(output, screen, answer),
        Shown::Times => return times(output, screen, answer),
        _ => {}
    }
    if output.json {
        screen.json(answer);
        return;
    }
    match shown {
        Shown::Run => run(screen, answer),
        Shown::Tree => {
            tree(screen, &answer["top"], 0);
            let left = answer["left_out"].as_u64().unwrap_or_default();
            if left > 0 || answer["more"] == true {
                screen.line(&format!("… {left} more"));
            }
        }
        Shown::Retention => screen.line(&retention::told(answer)),
        Shown::Set => screen.line(&clean(&set(answer))),
        Shown::Field(name) if !answer[name].is_null() => {
            screen.line(&clean(&text(name, &answer[name])));
        }
        _ if is_empty(answer) => screen.line("done"),
        _ => fields(screen, answer, &[]),
    }
}

/// There is nothing to say of it but that it was done.
fn is_empty(answer: &Value) -> bool {
    let fields = answer.as_object();
    fields.is_none_or(|fields| fields.values().all(Value::is_null))
}

/// How many there are in all groups.
fn count(output: &Output, screen: &mut Screen, answer: &Value) {
    let groups = answer["items"].as_array().into_iter().flatten();
    let count: u64 = groups.filter_map(|group| group["count"].as_u64()).sum();
    // A server counts the newest, and says how far back it looked.
    let more = !answer["looked_to"].is_null();
    match (output.json, more) {
        (true, false) => screen.json(&json!({ "parked": count })),
        (true, true) => screen.json(&json!({ "parked": count, "more": true })),
        (false, false) => screen.line(&count.to_string()),
        (false, true) => screen.line(&format!("more than {count}")),
    }
}

fn times(output: &Output, screen: &mut Screen, answer: &Value) {
    let times = answer["times"].as_array().map_or(&[][..], Vec::as_slice);
    for at in times {
        match output.json {
            true => screen.json(&json!({ "at": at })),
            false => screen.line(&clean(&text("", at))),
        }
    }
    if times.is_empty() {
        output.note("it starts nothing by itself: it is paused, or its times are over");
    }
}

/// What became of a schedule, and when it starts something next.
fn set(answer: &Value) -> String {
    let schedule = &answer["schedule"];
    let (name, set) = (text("", &schedule["name"]), text("", &answer["set"]));
    match &schedule["next"] {
        Value::String(next) => format!("`{name}` is {set}; next: {next}"),
        _ => format!("`{name}` is {set}; it has no next time"),
    }
}

fn fields(screen: &mut Screen, answer: &Value, but: &[&str]) {
    for (name, value) in answer.as_object().into_iter().flatten() {
        let empty = value.is_null() || *value == Value::Array(Vec::new());
        if empty || but.contains(&name.as_str()) {
            continue;
        }
        let head = screen.paint(
            Style::Dim,
            &format!("{:<14}", clean(&name.replace('_', " "))),
        );
        let value = crate::show::cut(&clean(&text(name, value)), VALUE);
        screen.line(&format!("{head}{value}"));
    }
}

/// A run without what happened in it.
pub(super) fn head(screen: &mut Screen, answer: &Value) {
    fields(
        screen,
        answer,
        &[
            "journal", "timeline", "why", "children", "mailbox", "labels",
        ],
    );
    why(screen, answer);
    screen.line("");
}

/// Where it stands, what it came to, and what keeps it.
pub(super) fn state(screen: &mut Screen, answer: &Value) {
    screen.line("");
    let of = |name: &str| (name.to_owned(), answer[name].clone());
    let shown: Value = ["state", "outcome"].map(of).into_iter().collect();
    fields(screen, &shown, &[]);
    why(screen, answer);
}

fn why(screen: &mut Screen, answer: &Value) {
    for reason in answer["why"].as_array().into_iter().flatten() {
        let head = screen.paint(Style::Dim, "why           ");
        screen.line(&format!("{head}{}", clean(&text("", reason))));
    }
}

/// An entry of a journal that began then.
pub(super) fn moment(screen: &mut Screen, moment: &Value, begin: i64) {
    let at = moment["at"].as_i64().unwrap_or_default();
    let since = std::time::Duration::from_micros(at.abs_diff(begin));
    let number = moment["number"].as_u64().unwrap_or_default();
    let front = format!("{number:>5}  {:>12}  ", format!("+{}", time::span(since)));
    let front = screen.paint(Style::Dim, &front);
    let style = match moment["style"].as_str() {
        Some("good") => Style::Good,
        Some("bad") => Style::Bad,
        Some("look") => Style::Look,
        Some("busy") => Style::Busy,
        Some("dim") => Style::Dim,
        _ => Style::Plain,
    };
    let said = screen.paint(style, &clean(&text("", &moment["text"])));
    let value = crate::show::cut(&clean(&text("", &moment["value"])), VALUE);
    let value = screen.paint(Style::Dim, &format!("  {value}"));
    screen.line(format!("{front}{said}{value}").trim_end());
}

fn run(screen: &mut Screen, answer: &Value) {
    head(screen, answer);
    let begin = answer["journal"][0]["at"].as_i64().unwrap_or_default();
    for of in answer["journal"].as_array().into_iter().flatten() {
        moment(screen, of, begin);
    }
    for (name, of) in [("children", "run"), ("mailbox", "signal")] {
        let items = answer[name].as_array().map_or(&[][..], Vec::as_slice);
        if !items.is_empty() {
            screen.line("");
            screen.line(&screen.paint(Style::Head, name));
        }
        for item in items {
            let state = text("", &item["state"]);
            screen.line(clean(&format!("  {}  {state}", text("", &item[of]))).trim_end());
        }
    }
}

fn tree(screen: &mut Screen, node: &Value, level: usize) {
    let (state, workflow) = (text("", &node["state"]), text("", &node["workflow"]));
    let by = match &node["set_off_by"] {
        Value::String(by) => format!("  by {by}"),
        _ => String::new(),
    };
    let line = format!("{workflow}  {state}  {}{by}", text("", &node["run"]));
    screen.line(&format!("{}{}", "  ".repeat(level), clean(&line)));
    if level >= LEVELS {
        return;
    }
    for child in node["children"].as_array().into_iter().flatten() {
        tree(screen, child, level + 1);
    }
}

/// A value as people read it; times as times.
fn text(name: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if is_time(name) => {
            let at = number.as_i64().map(roundel::Timestamp);
            at.map_or_else(|| number.to_string(), time::utc)
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| text("", item)).collect();
            items.join(", ")
        }
        Value::Object(fields) => match fields.get("message") {
            Some(message) => text("", message),
            None => {
                let pairs = fields.iter();
                let pairs = pairs.map(|(name, value)| format!("{name}={}", text(name, value)));
                pairs.collect::<Vec<_>>().join(" ")
            }
        },
        other => other.to_string(),
    }
}

fn is_time(name: &str) -> bool {
    name.ends_with("_at") || matches!(name, "at" | "since" | "now" | "lease_until")
}
