//! The worker process: this same program, started again with a hidden command, so that it can
//! really be killed.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::outside::Outside;
use super::place::{Place, Told};
use super::shop;

/// After a kill, runs in hand wait so long for another worker. Short, for people who watch.
const LEASE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    told: Told,
    /// Where the card company and the carrier are.
    #[arg(long)]
    outside: SocketAddr,
}

/// Works until its standard input ends: when it is told to stop, or when the demo is gone.
pub(super) async fn work(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let engine = args.told.engine()?.lease(LEASE);
    let engine = shop::register(engine, Outside(args.outside))
        .start()
        .await?;
    tokio::task::spawn_blocking(|| io::stdin().read(&mut [0])).await??;
    engine.shutdown().await;
    Ok(())
}

/// A worker process, seen from the demo. It does not outlive this value.
pub(super) struct Worker(Child);

impl Worker {
    pub(super) fn start(place: &Place, outside: SocketAddr) -> io::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["demo", "worker"]);
        place.tell(&mut command);
        command.args(["--outside", &outside.to_string()]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Worker(command.spawn()?))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it ended by itself.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Kills it where it stands: SIGKILL.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(|_| ())
    }

    /// Asks it to stop, and waits until it has.
    pub(super) fn stop(mut self) -> io::Result<ExitStatus> {
        drop(self.0.stdin.take());
        self.0.wait()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing is lost if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
