//! Requests that are too slow, too large, too deep, or nonsense.

use std::time::Duration;

use roundel_server::{Limits, Role};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Place};

#[tokio::test]
async fn n1_m4_there_are_so_many_connections_and_no_more() {
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        // Each is known to have its place: it was answered.
        let (answer, stream) = place
            .head(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await;
        assert_eq!(answer.status, 200);
        open.push(stream);
    }
    let refused = place
        .raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert!([0, 503].contains(&refused.status), "{refused:?}");
    drop(open);
    let begin = std::time::Instant::now();
    while place.send("GET /healthz", "", None).await.status != 200 {
        assert!(begin.elapsed() < PATIENCE, "places are not given back");
    }
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n3_heads_and_bodies_have_their_sizes() {
    let place = Place::new().await;
    let long = "x".repeat(40 << 10);
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nAuthorization: {long}\r\n\r\n");
    assert_eq!(place.raw(head.as_bytes()).await.status, 431);
    let many: String = (0..100)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(place.raw(head.as_bytes()).await.status, 431);
    let body = json!({"workflow": "double", "input": "x".repeat(3 << 20)});
    let answer = place
        .ask(Role::Admin, "POST /api/v1/default/runs", Some(&body))
        .await;
    answer.is(413, "too_large");
    // In pieces, without a length.
    let token = place.token(Role::Admin);
    let mut bytes = format!(
        "POST /api/v1/default/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..48 {
        bytes.extend_from_slice(b"10000\r\n");
        bytes.extend_from_slice(&[b' '; 0x10000]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    let (answer, _stream) = {
        let mut stream = TcpStream::connect(place.address()).await.unwrap();
        let (mut read, mut write) = stream.split();
        let mut said = Vec::new();
        let both = async {
            let sent = async { drop(write.write_all(&bytes).await) };
            let heard = async {
                let mut part = [0; 1024];
                while !said.ends_with(b"}") {
                    match read.read(&mut part).await {
                        Ok(0) | Err(_) => break,
                        Ok(count) => said.extend_from_slice(&part[..count]),
                    }
                }
            };
            tokio::join!(sent, heard);
        };
        tokio::time::timeout(PATIENCE, both)
            .await
            .expect("an answer in time");
        (String::from_utf8_lossy(&said).into_owned(), stream)
    };
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    place.engine.shutdown().await;
}

#[tokio::test]
async fn n4_n16_bodies_that_make_no_sense_are_refused() {
    let place = Place::new().await;
    let token = format!("Authorization: Bearer {}\r\n", place.token(Role::Admin));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let mut bad = vec![
        format!("{{\"workflow\": \"double\", \"input\": {deep}}}"),
        "{\"workflow\": \"double\", \"input\": 1e999999}".to_owned(),
        "{\"workflow\": \"double\", \"namespace\": \"other\"}".to_owned(),
        "{\"workflow\": \"\"}".to_owned(),
        "{\"workflow\": \"a\\u0000b\"}".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "{\"workflow\": \"double\",}".to_owned(),
        "{\"workflow\": \"double\", \"workflow\": \"waits\"}".to_owned(),
        "{\"workflow\": \"double\", \"priority\": 1e30}".to_owned(),
    ];
    bad.push(format!("{{\"workflow\": \"{}\"}}", "x".repeat(300)));
    for body in bad {
        let bytes = format!(
            "POST /api/v1/default/runs HTTP/1.1\r\nHost: localhost\r\n{token}\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
             {body}",
            body.len()
        );
        let answer = place.raw(bytes.as_bytes()).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    for query in [
        "limit=0",
        "limit=501",
        "limit=x",
        "nothing=1",
        "limit=1&limit=2",
        "state=no",
        "label=x",
        "cursor=00",
        "cursor=zz",
        "workflow=%ff",
        "workflow=%zz",
    ] {
        let line = format!("GET /api/v1/default/runs?{query}");
        let answer = place.ask(Role::Viewer, &line, None).await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
    let runs = place
        .ask(Role::Viewer, "GET /api/v1/default/runs", None)
        .await
        .ok();
    assert_eq!(runs.json()["items"], json!([]));
    // N5: what is compressed is not understood, and nothing is unpacked.
    let header = format!("{token}Content-Encoding: gzip\r\n");
    let body = json!({"workflow": "double", "input": 1});
    let answer = place
        .send("POST /api/v1/default/runs", &header, Some(&body))
        .await;
    assert_eq!(
        answer.status, 200,
        "the header is ignored, the body is read as it is"
    );
    place.engine.shutdown().await;
}

/// The same numbers for the same seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).expect("small")
    }
}

#[tokio::test]
async fn n9_nonsense_breaks_nothing() {
    const PARTS: [&str; 18] = [
        "GET ",
        "POST ",
        "/api/v1/",
        "default",
        "/runs",
        "/parked",
        "?limit=",
        "&cursor=",
        "%2e%2e/",
        "' OR 1=1 --",
        "\r\n",
        "Host: localhost",
        "Content-Length: 9",
        " HTTP/1.1",
        "\0",
        "{\"a\":",
        "\u{fffd}",
        "Authorization: Bearer ",
    ];
    let limits = Limits {
        head_time: Duration::from_millis(50),
        per_second: 1_000_000,
        burst: 1_000_000,
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let token = place.token(Role::Admin).to_owned();
    let mut chance = Chance(0x5EED_0009);
    for round in 0..400 {
        let mut bytes = String::new();
        match chance.below(2) {
            0 => {
                for _ in 0..chance.below(20) {
                    bytes.push_str(PARTS[chance.below(PARTS.len())]);
                }
                bytes.push_str("\r\n\r\n");
            }
            _ => {
                let mut path = String::new();
                for _ in 0..chance.below(6) {
                    let part = PARTS[2 + chance.below(8)];
                    path.push_str(&part.replace(' ', "%20"));
                }
                bytes = format!(
                    "GET /api/v1/default/runs/{path} HTTP/1.1\r\nHost: localhost\r\n\
                     Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
                );
            }
        }
        let answer = place.raw(bytes.as_bytes()).await;
        let fine = answer.status < 500;
        assert!(fine, "round {round}: {bytes:?}: {answer:?}");
    }
    place.ask(Role::Admin, "GET /api/v1/me", None).await.ok();
    place.engine.shutdown().await;
}
