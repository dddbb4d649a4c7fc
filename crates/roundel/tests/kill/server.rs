//! A server that is not left alone: its connections are ended, its processes killed, it is stopped
//! as by a crash and started again, and what goes to it goes through a proxy.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use roundel::{Engine, EngineBuilder};
use roundel_testpg::Server;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

use crate::ground::InHand;
use crate::harness::Random;
use crate::proxy::{Proxy, Scenario};

/// Which connections are the engine's, of workers and of the harness alike.
const BACKENDS: &str = "SELECT pid FROM pg_stat_activity \
     WHERE application_name LIKE 'roundel%' AND pid <> pg_backend_pid() ORDER BY backend_start";
const TERMINATE: &str = "SELECT pg_terminate_backend($1)";
/// How long the server may be away.
const PATIENCE: u32 = 1500;
const A_MOMENT: Duration = Duration::from_millis(20);

/// A schema on a server.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Past the proxy, and through it.
    pub(crate) direct: String,
    pub(crate) through: String,
    pub(crate) schema: String,
    /// A file that is not there; others are made beside it.
    pub(crate) beside: PathBuf,
}

impl Site {
    pub(crate) fn engine(&self, address: &str) -> EngineBuilder {
        Engine::open(address).schema(self.schema.clone())
    }

    async fn connect(&self) -> PgConnection {
        for _ in 0..PATIENCE {
            if let Ok(connection) = PgConnection::connect(&self.direct).await {
                return connection;
            }
            tokio::time::sleep(A_MOMENT).await;
        }
        panic!("the server does not come back");
    }

    /// Asks again if the connection is lost, as it may be at any time.
    async fn ask(&self, sql: &'static str, value: Option<&str>) -> Vec<PgRow> {
        loop {
            let mut connection = self.connect().await;
            let mut query = sqlx::query(sql);
            if let Some(value) = value {
                query = query.bind(value);
            }
            match query.fetch_all(&mut connection).await {
                Ok(rows) => return rows,
                Err(error) if is_passing(&error) => tokio::time::sleep(A_MOMENT).await,
                Err(error) => panic!("{sql}: {error}"),
            }
        }
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        self.ask(sql, None).await[0].get(0)
    }

    pub(crate) async fn in_hand(&self, sql: &'static str, process: &str) -> Vec<InHand> {
        let rows = self.ask(sql, Some(process)).await;
        let pair = |row: &PgRow| (id(row), row.get(1));
        rows.iter().map(pair).collect()
    }

    pub(crate) async fn make(&self, table: &'static str) {
        self.ask(table, None).await;
    }

    async fn backends(&self) -> Vec<i32> {
        let rows = self.ask(BACKENDS, None).await;
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Bytes, or what stands for them.
fn id(row: &PgRow) -> Vec<u8> {
    let raw = row.try_get_raw(0).expect("a column");
    raw.as_bytes().expect("an id").to_vec()
}

fn is_passing(error: &sqlx::Error) -> bool {
    match error.as_database_error().and_then(|error| error.code()) {
        Some(state) => state.starts_with("57") || state.starts_with("53"),
        None => true,
    }
}

/// What is done to the server, how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) kills: u32,
    pub(crate) terminated: u32,
    pub(crate) backends: u32,
    pub(crate) restarts: u32,
    pub(crate) scenarios: u32,
}

impl Plan {
    /// Five numbers, as `500,500,100,40,300`.
    pub(crate) fn parse(text: &str) -> Option<Plan> {
        let numbers: Vec<u32> = text
            .split(',')
            .map(|number| number.trim().parse().ok())
            .collect::<Option<_>>()?;
        let [kills, terminated, backends, restarts, scenarios] = numbers[..] else {
            return None;
        };
        Some(Plan {
            kills,
            terminated,
            backends,
            restarts,
            scenarios,
        })
    }

    fn left(&self) -> u32 {
        self.kills + self.terminated + self.backends + self.restarts + self.scenarios
    }
}

/// One thing to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    Kill,
    Terminate,
    Backend,
    Restart,
    Proxy(Scenario),
}

/// Deals blows in a random order until all that was planned is done.
pub(crate) struct Tormentor {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    pub(crate) site: Site,
    pub(crate) left: Plan,
    pub(crate) done: Plan,
}

impl Tormentor {
    /// What comes next; nothing once all is done.
    pub(crate) fn next(&mut self, random: &mut Random) -> Option<Blow> {
        let all = u64::from(self.left.left());
        if all == 0 {
            return None;
        }
        let mut at = u32::try_from(random.below(all)).expect("few");
        for (left, blow) in [
            (self.left.kills, Blow::Kill),
            (self.left.terminated, Blow::Terminate),
            (self.left.backends, Blow::Backend),
            (self.left.restarts, Blow::Restart),
        ] {
            if at < left {
                return Some(blow);
            }
            at -= left;
        }
        let which = random.below(Scenario::ALL.len() as u64);
        let scenario = Scenario::ALL[usize::try_from(which).expect("few")];
        Some(Blow::Proxy(scenario))
    }

    /// Does it; false if there was nothing to be hit, and it has to be done again.
    pub(crate) async fn strike(&mut self, blow: Blow, random: &mut Random) {
        let (left, done) = (&mut self.left, &mut self.done);
        let (left, done) = match blow {
            Blow::Kill => (&mut left.kills, &mut done.kills),
            Blow::Terminate => (&mut left.terminated, &mut done.terminated),
            Blow::Backend => (&mut left.backends, &mut done.backends),
            Blow::Restart => (&mut left.restarts, &mut done.restarts),
            Blow::Proxy(_) => (&mut left.scenarios, &mut done.scenarios),
        };
        let struck = match blow {
            Blow::Kill => true,
            Blow::Terminate => terminate(&self.site, random).await,
            Blow::Backend => kill_backend(&self.site, random).await,
            Blow::Restart => restart(&self.server),
            Blow::Proxy(scenario) => self.proxy.play(scenario).await,
        };
        if struck {
            *left -= 1;
            *done += 1;
        }
    }
}

async fn some_backend(site: &Site, random: &mut Random) -> Option<i32> {
    let backends = site.backends().await;
    if backends.is_empty() {
        return None;
    }
    let which = random.below(backends.len() as u64);
    Some(backends[usize::try_from(which).expect("few")])
}

/// Ends one connection from the server's side.
async fn terminate(site: &Site, random: &mut Random) -> bool {
    let Some(backend) = some_backend(site, random).await else {
        return false;
    };
    let mut connection = site.connect().await;
    let query = sqlx::query_scalar(TERMINATE).bind(backend);
    query.fetch_one(&mut connection).await.unwrap_or(false)
}

/// Kills one process of the server, which then ends all its connections and recovers.
async fn kill_backend(site: &Site, random: &mut Random) -> bool {
    let Some(backend) = some_backend(site, random).await else {
        return false;
    };
    let id = backend.to_string();
    let killed = Command::new("kill").args(["-s", "KILL", &id]).status();
    killed.is_ok_and(|killed| killed.success())
}

/// Stops the server as a crash does, and starts it.
fn restart(server: &Server) -> bool {
    tokio::task::block_in_place(|| {
        server.stop_at_once().expect("the server stops");
        // A server that recovers from a kill at this moment may need a second start.
        let started = server.start_again().or_else(|_| server.start_again());
        started.expect("the server starts");
    });
    true
}
