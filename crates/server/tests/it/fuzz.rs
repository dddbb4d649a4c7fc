//! Requests made up from the server's own description: every route, with paths, queries and bodies
//! that are nearly right, wrong, or meant ill. Nothing that does not fit its schema is taken,
//! nothing breaks, and no answer tells what the server is made of.

use roundel::Engine;
use roundel_server::{Limits, Role};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Place};

/// Requests for each route; `ROUNDEL_REQUESTS` says another number.
const EACH: usize = 40;

/// Texts that mean no good, where a text is asked for.
const TEXTS: [&str; 24] = [
    "",
    "x",
    "default",
    "' OR 1=1 --",
    "'; DROP TABLE runs; --",
    "\" OR \"\"=\"",
    "$1",
    "?1",
    "\0",
    "a\0b",
    "..",
    "../../etc/passwd",
    "%2e%2e%2f",
    "\u{202e}\u{200b}",
    "\u{fffd}",
    "=1+1",
    "{{7*7}}",
    "${7*7}",
    "\r\nX-Injected: 1",
    "-1",
    "1e999999",
    "01890000-0000-7000-8000-000000000000",
    "roundel.batch",
    "__proto__",
];

/// The same numbers for the same seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).expect("small")
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn text(&mut self) -> String {
        match self.below(12) {
            0 => "x".repeat(300),
            1 => "\u{1f40d}".repeat(self.below(100)),
            _ => (*self.one_of(&TEXTS)).to_owned(),
        }
    }

    /// Anything at all.
    fn nonsense(&mut self) -> Value {
        match self.below(9) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(1_u64 << 63),
            4 => json!(1.5e300),
            5 => json!([[[[[]]]]]),
            6 => json!({"a": {"b": "c"}}),
            _ => json!(self.text()),
        }
    }

    /// Something of this schema, more or less.
    fn like(&mut self, schema: &Value) -> Value {
        if self.below(8) == 0 {
            return self.nonsense();
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.one_of(words).clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.one_of(kinds).clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("string") => json!(self.text()),
            Some("integer") => match self.below(6) {
                0 => json!(-1),
                1 => json!(u64::MAX),
                _ => json!(self.below(70_000)),
            },
            Some("boolean") => json!(self.below(2) == 0),
            Some("array") => {
                let count = self.below(4);
                (0..count).map(|_| self.like(&schema["items"])).collect()
            }
            Some("object") => self.object(schema),
            _ => self.nonsense(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let needed = required.contains(&json!(name));
            if self.below(if needed { 12 } else { 2 }) != 0 {
                object.insert(name.clone(), self.like(schema));
            }
        }
        if self.below(10) == 0 {
            object.insert(self.text(), self.nonsense());
        }
        Value::Object(object)
    }
}

/// Does it fit the schema?
fn fits(value: &Value, schema: &Value) -> bool {
    if let Some(one_of) = schema["oneOf"].as_array() {
        return one_of.iter().any(|schema| fits(value, schema));
    }
    if let Some(only) = schema.get("const") {
        return value == only;
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|words| !words.contains(value))
    {
        return false;
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("null") => value.is_null(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is),
        Value::Null => true,
        kind => is(kind),
    };
    let length = value.as_str().map_or(0, str::len);
    let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
    let long = value.is_string() && u64::try_from(length).unwrap_or(0) > most;
    let short = value.is_string() && length == 0 && schema["minLength"] == 1;
    let low = value.as_i64().is_some_and(|number| number < 0) && schema["minimum"].is_u64();
    let items = match value.as_array().filter(|_| schema.get("items").is_some()) {
        Some(items) => items.iter().all(|item| fits(item, &schema["items"])),
        None => true,
    };
    kind && !long && !short && !low && items && fields_fit(value, schema)
}

fn fields_fit(value: &Value, schema: &Value) -> bool {
    let (Some(object), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return true;
    };
    let optional = |schema: &Value| match &schema["type"] {
        Value::Array(kinds) => kinds.contains(&json!("null")),
        _ => false,
    };
    let missing = schema["required"].as_array().into_iter().flatten();
    let missing = missing
        .filter_map(Value::as_str)
        .any(|name| !object.contains_key(name));
    let wrong = object.iter().any(|(name, value)| match known.get(name) {
        // Whatever may be left out may be null.
        Some(schema) if value.is_null() => !optional(schema) && schema.get("type").is_some(),
        Some(schema) => !fits(value, schema),
        None => schema["additionalProperties"] == json!(false),
    });
    !missing && !wrong
}

/// As a part of an address.
fn part(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => (byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// One request: its line, its body, and whether it may be taken.
fn request(chance: &mut Chance, (method, path): (&str, &str), route: &Value) -> Request {
    let mut expected = true;
    let path = path.split('/').map(|piece| match piece {
        "{namespace}" => match chance.below(10) {
            0 => {
                expected = false;
                part(&chance.text())
            }
            _ => "default".to_owned(),
        },
        piece if piece.starts_with('{') => part(&chance.text()),
        piece => piece.to_owned(),
    });
    let mut line = format!(
        "{} {}",
        method.to_uppercase(),
        path.collect::<Vec<_>>().join("/")
    );
    // The namespace may have come out right by chance.
    expected |= line.contains("/default/") || !line.contains("/api/v1/");
    let mut query = Vec::new();
    for parameter in route["parameters"].as_array().into_iter().flatten() {
        if parameter["in"] == "query" && chance.below(3) == 0 {
            let value = match chance.like(&parameter["schema"]) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            query.push(format!(
                "{}={}",
                parameter["name"].as_str().unwrap(),
                part(&value)
            ));
        }
    }
    if chance.below(20) == 0 {
        query.push("nothing=1".to_owned());
        expected = false;
    }
    if !query.is_empty() {
        line = format!("{line}?{}", query.join("&"));
    }
    let schema = &route["requestBody"]["content"]["application/json"]["schema"];
    let body = schema.is_object().then(|| chance.like(schema));
    if let Some(body) = &body {
        expected &= fits(body, schema);
    }
    Request {
        line,
        body,
        expected,
    }
}

struct Request {
    line: String,
    body: Option<Value>,
    /// It fits its description, so that it may be taken.
    expected: bool,
}

/// What no answer to somebody outside says.
const INSIDE: [&str; 14] = [
    "roundel_run",
    "roundel_journal",
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "sqlite",
    "SQLite",
    "SQLITE",
    "sqlx",
    "panicked",
    ".rs:",
    "crates/",
    "shop.db",
    "RUST_BACKTRACE",
];

/// None of the texts above has one of these: what says so is the server's own.
fn leaks(answer: &Answer) -> Option<&'static str> {
    let told = answer.status >= 400;
    let inside = INSIDE.iter().copied();
    inside
        .into_iter()
        .find(|word| told && answer.body.contains(word))
}

async fn place() -> (Place, TempDir) {
    let often = Limits {
        per_second: 1_000_000,
        burst: 1_000_000,
        streams: 100_000,
        poll_time: std::time::Duration::from_millis(20),
        ..Limits::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(folder.path().join("shop.db"));
    (Place::over(engine, often).await, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n9_n17_n23_requests_from_the_description_are_taken_only_if_they_fit_it() {
    let (place, _folder) = place().await;
    let document = place
        .ask_as_root("GET /api/v1/openapi.json", None)
        .await
        .ok()
        .json();
    let each = std::env::var("ROUNDEL_REQUESTS")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut chance = Chance(0x5EED_0013);
    let (mut taken, mut asked) = (0, 0);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, route) in methods.as_object().unwrap() {
            let action = route["x-roundel-action"].as_str().unwrap();
            for _ in 0..each.unwrap_or(EACH) {
                let request = request(&mut chance, (method, path), route);
                let role = *chance.one_of(&Role::ALL);
                let all = path.starts_with("/api/v1/sql");
                let may = role.may(action) && !all;
                let answer = ask(&place, role, &request).await;
                let sent = format!("{} {:?}", request.line, request.body);
                let by = role.as_str();
                asked += 1;
                assert!(
                    answer.status < 500 && answer.status > 0,
                    "{by} {sent}: {answer:?}"
                );
                if answer.status < 300 {
                    taken += 1;
                    assert!(may, "{by} {sent}: {answer:?}");
                    assert!(request.expected, "{by} {sent}: {answer:?}");
                }
                assert_eq!(leaks(&answer), None, "{by} {sent}: {answer:?}");
            }
        }
    }
    assert!(asked > 2000 && taken > 100, "{taken} of {asked}");
    place.ask_as_root("GET /api/v1/me", None).await.ok();
    // What was taken left nothing that is not sound.
    let mut broken = Vec::new();
    let checked = place.engine.verify(|_, found| broken.extend(found)).await;
    checked.unwrap();
    assert!(broken.is_empty(), "{broken:?}");
    place.engine.shutdown().await;
}

/// The answer; of streams, the head alone.
async fn ask(place: &Place, role: Role, request: &Request) -> Answer {
    let body = request
        .body
        .as_ref()
        .map(Value::to_string)
        .unwrap_or_default();
    let bytes = format!(
        "{} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        request.line,
        place.token(role),
        body.len()
    );
    match request.line.contains("/events") {
        true => place.head(bytes.as_bytes()).await.0,
        false => place.raw(bytes.as_bytes()).await,
    }
}
