//! Many who mean no good, at once: thousands of slow heads, thousands of idle streams, a system
//! without files, requests that two servers would read in two ways, and requests made up from the
//! server's own description.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use roundel_server::{Limits, Role};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{DOUBLE, PATIENCE, Place};

/// How many mean no good.
const MANY: usize = 2000;

/// The engine does not notice: a hundred runs, one after the other, while all that goes on.
async fn works(place: &Place) {
    let begin = Instant::now();
    for number in 0..100 {
        let mut run = place.engine.start(DOUBLE, &number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), number * 2);
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

/// Until it answers those again who mean well.
async fn well_again(place: &Place) {
    let begin = Instant::now();
    while place.send("GET /healthz", "", None).await.status != 200 {
        assert!(begin.elapsed() < PATIENCE, "it is not well again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_two_thousand_slow_heads_are_let_go_in_time_and_nobody_notices() {
    let limits = Limits {
        head_time: Duration::from_secs(1),
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let mut slow = Vec::new();
    for number in 0..MANY {
        let mut stream = TcpStream::connect(place.address()).await.unwrap();
        // Some say nothing at all, some begin, and go on byte by byte.
        let part: &[u8] = [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nHost: local"][number % 3];
        let _ = stream.write_all(part).await;
        slow.push(stream);
    }
    works(&place).await;
    let begin = Instant::now();
    let trickle = async {
        for _ in 0..5 {
            for stream in &mut slow {
                let _ = stream.try_write(b"x");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    trickle.await;
    for mut stream in slow {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "it was left open");
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    well_again(&place).await;
    place.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m7_of_two_thousand_idle_streams_some_are_let_in_and_the_engine_does_not_notice() {
    let limits = Limits {
        connections: 2 * MANY,
        per_second: 1_000_000,
        burst: 1_000_000,
        ..Limits::default()
    };
    let cap = limits.streams;
    let place = Place::with(limits).await;
    let token = place.token(Role::Viewer);
    let request = format!(
        "GET /api/v1/default/events HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    let (mut let_in, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..MANY {
        let (answer, stream) = place.head(request.as_bytes()).await;
        match answer.status {
            200 => let_in.push(stream),
            503 => refused.push(stream),
            _ => panic!("{answer:?}"),
        }
    }
    assert_eq!((let_in.len(), refused.len()), (cap, MANY - cap));
    // None of them reads. Runs end meanwhile, and each is told of them.
    works(&place).await;
    place
        .ask(Role::Viewer, "GET /api/v1/default/runs", None)
        .await
        .ok();
    drop((let_in, refused));
    let begin = Instant::now();
    while place.head(request.as_bytes()).await.0.status != 200 {
        assert!(begin.elapsed() < PATIENCE, "places are not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_two_hundred_bodies_that_trickle_are_not_waited_for() {
    let limits = Limits {
        body_time: Duration::from_millis(500),
        ..Limits::default()
    };
    let place = Place::with(limits).await;
    let token = place.token(Role::Admin);
    let mut slow = Vec::new();
    for number in 0..200 {
        let length = ["Content-Length: 1000", "Transfer-Encoding: chunked"][number % 2];
        let part = ["{", "3e8\r\n{"][number % 2];
        let head = format!(
            "POST /api/v1/default/runs HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\
             Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n{part}"
        );
        let mut stream = TcpStream::connect(place.address()).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    works(&place).await;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        for stream in &slow {
            let _ = stream.try_write(b" ");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for mut stream in slow {
        let said = crate::support::until(&mut stream, b"\r\n\r\n").await;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    }
    let runs = place
        .ask(Role::Viewer, "GET /api/v1/default/runs?workflow=none", None)
        .await;
    assert_eq!(runs.ok().json()["items"], json!([]));
    place.engine.shutdown().await;
}

/// What it is, how it says how long it is, and what follows.
const AMBIGUOUS: &[(&str, &str, &str)] = &[
    (
        "both",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "0\r\n\r\n",
    ),
    (
        "both, turned",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "0\r\n\r\n",
    ),
    ("two lengths", "Content-Length: 0\r\nContent-Length: 9", ""),
    ("two in one", "Content-Length: 0, 9", ""),
    ("a sign", "Content-Length: +0", ""),
    ("below nothing", "Content-Length: -1", ""),
    ("in hex", "Content-Length: 0x0", ""),
    ("too large", "Content-Length: 99999999999999999999", ""),
    (
        "not the last",
        "Transfer-Encoding: chunked, identity",
        "0\r\n\r\n",
    ),
    ("unknown", "Transfer-Encoding: xchunked", "0\r\n\r\n"),
    ("a space before", "Transfer-Encoding : chunked", "0\r\n\r\n"),
    ("a tab before", "Transfer-Encoding\t: chunked", "0\r\n\r\n"),
    ("folded", "Transfer-Encoding:\r\n chunked", "0\r\n\r\n"),
    (
        "a line feed",
        "X: 1\nTransfer-Encoding: chunked\r\nContent-Length: 3",
        "0\r\n\r\n",
    ),
    (
        "no length in a chunk",
        "Transfer-Encoding: chunked",
        "\r\n\r\n",
    ),
    ("a signed chunk", "Transfer-Encoding: chunked", "-1\r\n\r\n"),
    (
        "a huge chunk",
        "Transfer-Encoding: chunked",
        "ffffffffffffffffff\r\n\r\n",
    ),
];

#[tokio::test]
async fn n7_no_request_is_read_in_two_ways() {
    let place = Place::new().await;
    let token = place.token(Role::Admin);
    // Behind each there is a second request, for whoever would take it for one.
    let hidden = format!(
        "PUT /api/v1/default/schedules/hidden HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    for (what, lengths, body) in AMBIGUOUS {
        let bytes = format!(
            "POST /api/v1/default/runs HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             {lengths}\r\n\r\n{body}{hidden}"
        );
        let mut stream = TcpStream::connect(place.address()).await.unwrap();
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut said = Vec::new();
        let reading = stream.read_to_end(&mut said);
        // It closes, for who began like this may go on like this.
        let closed = tokio::time::timeout(PATIENCE, reading).await;
        assert!(closed.is_ok(), "{what}: it was left open");
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(
            said.matches("HTTP/1.1 ").count(),
            usize::from(!said.is_empty()),
            "{what}: {said}"
        );
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 400"),
            "{what}: {said}"
        );
    }
    place.engine.shutdown().await;
}

/// Says to the child that it is one.
const CHILD: &str = "ROUNDEL_TEST_FEW_FILES";

/// Not a test, but what the next one starts: a server that has few files.
#[tokio::test]
async fn a_server_with_few_files() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let place = Place::new().await;
    println!("\nserving {}", place.address());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let _ = ended.await;
}

/// The time that a process has had of the processor, in hundredths of a second.
#[cfg(target_os = "linux")]
fn spent(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let rest = text.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u64>().unwrap();
    number(11) + number(12)
}

#[cfg(target_os = "linux")]
#[test]
fn m4_without_files_it_waits_and_is_well_again() {
    use std::net::TcpStream;
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "hardening::a_server_with_few_files",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
    let address = address.expect("it serves");
    let healthy = || {
        use std::io::Write;
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(ask).ok()?;
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said.starts_with("HTTP/1.1 200").then_some(())
    };
    healthy().expect("it is well at first");
    let open: Vec<TcpStream> = (0..100)
        .filter_map(|_| TcpStream::connect(&address).ok())
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let before = spent(child.id());
    std::thread::sleep(Duration::from_secs(1));
    // Somebody who does not wait between two tries would have had all of that second.
    let busy = spent(child.id()) - before;
    assert!(busy < 30, "{busy} hundredths of a second");
    assert!(healthy().is_none(), "there were files left");
    drop(open);
    let begin = Instant::now();
    while healthy().is_none() {
        assert!(begin.elapsed() < PATIENCE, "it is not well again");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}
