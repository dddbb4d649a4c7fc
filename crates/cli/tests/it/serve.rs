//! `serve` and `tokens`, as they are called.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, said};

/// The server, which goes with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) told: Value,
}

impl Server {
    pub(crate) fn start(place: &Place, more: &[&str]) -> Server {
        let db = place.db();
        let db = db.to_str().expect("a path");
        let args = ["--db", db, "serve", "--json", "--listen", "127.0.0.1:0"];
        let mut command = place.command(&[&args[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let told = serde_json::from_str(&line).expect("JSON");
        Server { child, told }
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> String {
        let address = self.told["address"].as_str().expect("an address");
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a time-out");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}");
        let head = head + "Connection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_link_that_serve_prints_lets_in_once() {
    let place = Place::new().await;
    let server = Server::start(&place, &[]);
    let link = server.told["login"].as_str().expect("a link").to_owned();
    let path = &link[link.find("/login").expect("a path")..];
    let entered = server.get(path, "");
    assert!(entered.starts_with("HTTP/1.1 200"), "{entered}");
    let cookie = entered
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie
        .and_then(|cookie| cookie.split(';').next())
        .expect("a cookie");
    let me = server.get("/api/v1/me", &format!("Cookie: {cookie}\r\n"));
    assert!(me.contains("\"role\":\"admin\""), "{me}");
    assert!(server.get(path, "").starts_with("HTTP/1.1 401"));
    assert!(server.get("/readyz", "").starts_with("HTTP/1.1 200"));
    assert!(server.get("/api/v1/me", "").starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn n10_tokens_are_made_listed_and_revoked_while_the_server_runs() {
    let place = Place::new().await;
    let db = place.db();
    let open = [
        "--db",
        db.to_str().expect("a path"),
        "serve",
        "--listen",
        "0.0.0.0:0",
    ];
    said(&mut place.command(&open)).fails(2, &["tokens add", "127.0.0.1"]);
    let server = Server::start(&place, &[]);
    let add = [
        "tokens",
        "add",
        "ada",
        "--role",
        "viewer",
        "--expires",
        "1d",
        "--json",
    ];
    let added = said(&mut place.command(&add)).ok().json();
    let token = added["token"].as_str().expect("a token").to_owned();
    said(&mut place.command(&add)).fails(2, &["`ada`"]);
    let list = said(&mut place.command(&["tokens", "list"])).ok();
    assert!(
        list.out.contains("ada") && list.out.contains("viewer"),
        "{list:?}"
    );
    assert!(!list.out.contains(&token[8..]), "{list:?}");
    let header = format!("Authorization: Bearer {token}\r\n");
    // The file is looked at once in a second.
    let becomes = |status: &str| {
        let begin = std::time::Instant::now();
        while !server.get("/api/v1/me", &header).starts_with(status) {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "it does not become {status}"
            );
        }
    };
    becomes("HTTP/1.1 200");
    said(&mut place.command(&["tokens", "revoke", "ada"])).ok();
    becomes("HTTP/1.1 401");
    said(&mut place.command(&["tokens", "revoke", "ada"])).fails(2, &["`ada`"]);
}

#[tokio::test]
async fn where_traces_go_and_who_signs_are_looked_at_before_anything_is_served() {
    let place = Place::new().await;
    let db = place.db();
    let serve = ["--db", db.to_str().expect("a path"), "serve"];
    let refused = |more: &[&str], words: &[&str]| {
        let args = [&serve[..], &["--listen", "127.0.0.1:0"], more].concat();
        said(&mut place.command(&args)).fails(2, words);
    };
    refused(&["--traces", "ftp://here"], &["ftp://here"]);
    refused(&["--traces-part", "0.5"], &["--traces"]);
    refused(&["--tls-client-ca", "ca.pem"], &["--tls-cert"]);
}
