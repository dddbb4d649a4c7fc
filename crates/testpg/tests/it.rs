//! Servers come, and go with whoever asked for them.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use roundel_testpg::{Binaries, Schema, Server, Sync, schema, untested};
use sqlx::{Connection, PgConnection, Row};

/// Set for a process that starts a server, says where, and waits to be killed.
const HOLDER: &str = "ROUNDEL_TESTPG_HOLDER";

fn binaries(test: &str) -> Option<Binaries> {
    match Binaries::find() {
        Ok(binaries) => Some(binaries),
        Err(why) => {
            untested(test, &why);
            None
        }
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn goes_within(port: u16, limit: Duration) -> bool {
    let begin = Instant::now();
    while answers(port) {
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_server_is_killed_starts_again_and_goes_with_its_value() {
    let Some(binaries) = binaries("a server that starts again") else {
        return;
    };
    let server = Server::start(&binaries, Sync::On).expect("a server");
    let port = server.port();
    assert!(answers(port));
    server.stop_at_once().expect("it stops");
    assert!(!answers(port));
    server.start_again().expect("it starts");
    assert!(answers(port));
    drop(server);
    assert!(!answers(port), "the server outlives its value");
}

#[test]
fn a_server_goes_when_its_process_is_killed() {
    if std::env::var_os(HOLDER).is_some() {
        let binaries = Binaries::find().expect("binaries");
        let server = Server::start(&binaries, Sync::Off).expect("a server");
        println!("port {}", server.port());
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    if binaries("a server whose process is killed").is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["a_server_goes_when_its_process_is_killed", "--nocapture"])
        .env(HOLDER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = child.stdout.take().expect("a pipe");
    let port = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split("port ").nth(1)?.parse().ok())
        .expect("a port");
    assert!(answers(port));
    child.kill().expect("it is killed");
    let _ = child.wait();
    assert!(goes_within(port, Duration::from_secs(10)), "it stays");
}

#[tokio::test]
async fn a_schema_is_its_tests_own_and_goes_with_it() {
    let Some(own) = schema() else { return };
    let other = Schema::on(roundel_testpg::address().expect("a server"));
    let mut connection = PgConnection::connect(&own.address()).await.expect("in");
    sqlx::raw_sql("CREATE TABLE parcel (item TEXT)")
        .execute(&mut connection)
        .await
        .expect("a table");
    assert_eq!(tables(&mut connection, own.name()).await, 1);
    assert_eq!(tables(&mut connection, other.name()).await, 0);
    let name = own.name().to_owned();
    drop(own);
    assert_eq!(tables(&mut connection, &name).await, 0);
}

async fn tables(connection: &mut PgConnection, schema: &str) -> i64 {
    sqlx::query("SELECT count(*) FROM pg_tables WHERE schemaname = $1")
        .bind(schema)
        .fetch_one(connection)
        .await
        .expect("a count")
        .get(0)
}
