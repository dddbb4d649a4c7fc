//! A proxy before the server, which loses, delays and cuts what goes through it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// What is done to those who are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// The next who commits is cut off, and the server never hears of it.
    BeforeCommit,
    /// The next who commits is cut off once the server has answered.
    AfterCommit,
    /// The next who commits is cut off while the server commits.
    InCommit,
    /// Nothing goes through, in both directions, and then all are cut off.
    Silence,
    /// Everything takes its time.
    Slow,
    /// All are cut off, and nobody is let in for a while.
    Closed,
}

impl Scenario {
    pub(crate) const ALL: [Scenario; 6] = [
        Scenario::BeforeCommit,
        Scenario::AfterCommit,
        Scenario::InCommit,
        Scenario::Silence,
        Scenario::Slow,
        Scenario::Closed,
    ];
}

/// Longer than a lease.
const SILENCE: Duration = Duration::from_millis(600);
const SLOW: Duration = Duration::from_millis(300);
const DELAY: Duration = Duration::from_millis(15);
const CLOSED: Duration = Duration::from_millis(200);
/// How long somebody may take to commit something.
const A_COMMIT: Duration = Duration::from_secs(5);

/// What goes on for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fair,
    Slow,
    Silent,
    Closed,
}

struct State {
    server: u16,
    weather: watch::Sender<Weather>,
    /// Rises when all are to be cut off.
    cut: watch::Sender<u32>,
    /// For the next who commits.
    trap: Mutex<Option<Scenario>>,
    sprung: Notify,
    connections: AtomicU32,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) async fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            server,
            weather: watch::channel(Weather::Fair).0,
            cut: watch::channel(0).0,
            trap: Mutex::new(None),
            sprung: Notify::new(),
            connections: AtomicU32::new(0),
        });
        tokio::spawn(accept(listener, state.clone()));
        Proxy { port, state }
    }

    /// Plays a scenario to its end; false if nobody was there to suffer it.
    pub(crate) async fn play(&self, scenario: Scenario) -> bool {
        let state = &self.state;
        let there = state.connections.load(Ordering::Relaxed) > 0;
        match scenario {
            Scenario::BeforeCommit | Scenario::AfterCommit | Scenario::InCommit => {
                *state.trap.lock().expect("a trap") = Some(scenario);
                let sprung = state.sprung.notified();
                let sprung = tokio::time::timeout(A_COMMIT, sprung).await.is_ok();
                *state.trap.lock().expect("a trap") = None;
                return sprung;
            }
            Scenario::Silence => {
                state.pass(Weather::Silent, SILENCE).await;
                state.cut();
            }
            Scenario::Slow => state.pass(Weather::Slow, SLOW).await,
            Scenario::Closed => {
                state.cut();
                state.pass(Weather::Closed, CLOSED).await;
            }
        }
        there
    }
}

impl State {
    async fn pass(&self, weather: Weather, time: Duration) {
        self.weather.send_replace(weather);
        tokio::time::sleep(time).await;
        self.weather.send_replace(Weather::Fair);
    }

    fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Whoever commits first springs the trap: with `COMMIT`, or by a statement that is a
    /// transaction by itself.
    fn trap_for(&self, sent: &[u8], idle: bool) -> Option<Scenario> {
        let commits = sent.windows(COMMIT.len()).any(|window| window == COMMIT)
            || idle && sent.first() == Some(&BIND);
        let mut trap = self.trap.lock().expect("a trap");
        trap.take_if(|_| commits)
    }
}

const COMMIT: &[u8] = b"COMMIT";
/// What a statement that the server knows already begins with.
const BIND: u8 = b'B';
/// What the server says last, when it is in no transaction.
const IDLE: &[u8] = b"Z\0\0\0\x05I";

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if *state.weather.borrow() != Weather::Closed {
            tokio::spawn(connect(client, state.clone()));
        }
    }
}

/// Both directions, until one ends or is cut.
async fn connect(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", state.server)).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut cut = state.cut.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (answers, answered) = watch::channel(Answers::Pass);
    let idle = AtomicBool::new(false);
    state.connections.fetch_add(1, Ordering::Relaxed);
    tokio::select! {
        () = requests(from_client, to_server, (&state, &idle), answers) => {}
        () = replies(from_server, to_client, (&state, &idle), answered) => {}
        _ = cut.changed() => {}
    }
    state.connections.fetch_sub(1, Ordering::Relaxed);
}

/// What becomes of the server's answers on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Pass,
    /// The first one is waited for, and lost.
    Lost,
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (state, idle): (&State, &AtomicBool),
    answers: watch::Sender<Answers>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        wait(state).await;
        let trap = state.trap_for(&buffer[..length], idle.load(Ordering::Relaxed));
        match trap {
            Some(Scenario::BeforeCommit) => {
                state.sprung.notify_one();
                return;
            }
            Some(Scenario::AfterCommit) => {
                answers.send_replace(Answers::Lost);
            }
            _ => {}
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        if trap == Some(Scenario::InCommit) {
            state.sprung.notify_one();
            return;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (state, idle): (&State, &AtomicBool),
    answers: watch::Receiver<Answers>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        idle.store(buffer[..length].ends_with(IDLE), Ordering::Relaxed);
        if *answers.borrow() == Answers::Lost {
            state.sprung.notify_one();
            return;
        }
        wait(state).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// As long as the weather says.
async fn wait(state: &State) {
    let mut weather = state.weather.subscribe();
    let now = *weather.borrow_and_update();
    match now {
        Weather::Slow => tokio::time::sleep(DELAY).await,
        Weather::Silent => {
            let _ = weather.changed().await;
        }
        Weather::Fair | Weather::Closed => {}
    }
}
