//! The part on a server: several workers, and nothing that is left alone.

use std::time::Instant;

use roundel_testpg::{Binaries, Schema, Server, Sync, untested};

use crate::audit::audit;
use crate::figures;
use crate::ground::Ground;
use crate::harness::{Harness, Random, Tally};
use crate::proxy::Proxy;
use crate::server::{Plan, Site, Tormentor};
use crate::walk;

const WORKERS: usize = 3;
/// The blows of a test run.
const BLOWS: &str = "20,20,4,2,16";

/// A server of one's own, with a proxy before it.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) schema: Schema,
    pub(crate) proxy: Proxy,
    pub(crate) site: Site,
    /// It goes with the rest.
    _folder: tempfile::TempDir,
}

/// None if there is no server to be had, which is noted.
pub(crate) async fn stage(test: &str) -> Option<Stage> {
    let binaries = match Binaries::find() {
        Ok(binaries) => binaries,
        Err(why) => {
            untested(test, &why);
            return None;
        }
    };
    let server = tokio::task::block_in_place(|| Server::start(&binaries, Sync::On));
    let server = server.expect("a server");
    let schema = tokio::task::block_in_place(|| Schema::on(server.address()));
    let proxy = Proxy::before(server.port()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site {
        direct: schema.address(),
        through: schema.address_at(&server.address_at(proxy.port)),
        schema: schema.name().to_owned(),
        beside: folder.path().join("kill"),
    };
    Some(Stage {
        server,
        schema,
        proxy,
        site,
        _folder: folder,
    })
}

/// Returns whether all is well.
pub(crate) async fn part(seed: u64) -> bool {
    let Some(stage) = stage("kill: the part on a server").await else {
        return true;
    };
    let asked = std::env::var("ROUNDEL_BLOWS").unwrap_or_else(|_| BLOWS.into());
    let plan = Plan::parse(&asked).expect("ROUNDEL_BLOWS is five numbers, as 500,500,100,40,300");
    let site = stage.site.clone();
    site.make(walk::LEDGER).await;
    let ground = Ground::Server(site.clone());
    let engine = ground.engine().start().await.expect("a client");
    let mut harness = Harness {
        engine,
        ground,
        random: Random::new(seed),
        started: 0,
        signalled: 0,
        tally: Tally::default(),
    };
    let mut tormentor = Tormentor {
        server: stage.server,
        proxy: stage.proxy,
        site,
        left: plan,
        done: Plan::default(),
    };
    let begin = Instant::now();
    harness.torment(WORKERS, &mut tormentor).await;
    let found = audit(&harness).await;
    println!(
        "on a server: {:?}, resumed {}, runs: {} completed, ledger rows: {}, duplicates: {}, \
         {:.0} s, seed {seed}",
        tormentor.done,
        harness.tally.resumed,
        found.completed,
        found.rows,
        found.duplicates,
        begin.elapsed().as_secs_f64()
    );
    if found.wrong.is_empty() {
        hand_over(
            &tormentor.done,
            found.completed,
            found.rows,
            found.duplicates,
        );
    }
    for what in found.wrong.iter().take(20) {
        println!("  {what}");
    }
    tokio::task::block_in_place(|| drop(stage.schema));
    found.wrong.is_empty()
}

fn hand_over(done: &Plan, runs: u32, steps: i64, duplicates: i64) {
    let whole = |count: i64| u64::try_from(count).unwrap_or(0);
    figures::hand_over(
        "server",
        &[
            ("kills", done.kills.into()),
            ("terminated", done.terminated.into()),
            ("backends", done.backends.into()),
            ("restarts", done.restarts.into()),
            ("scenarios", done.scenarios.into()),
            ("runs", runs.into()),
            ("steps", whole(steps)),
            ("duplicates", whole(duplicates)),
        ],
    );
}
