//! Is the database ready? Only a commit says so, so one is made: the server makes itself known as a
//! worker that runs nothing, and leaves again.
//!
//! Whoever asks needs no token, so the answer is kept for a moment: asking more often costs the
//! database nothing.

use std::time::{Duration, Instant};

use roundel::{Client, Error, Op};
use roundel_core::{Register, Release, WorkerId};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::problem::{Code, Problem};

/// For so long an answer is good.
const KEPT: Duration = Duration::from_secs(1);
/// A database that takes longer is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// When it was last looked, and what was found.
#[derive(Default)]
pub(crate) struct Ready(Mutex<Option<(Instant, bool)>>);

impl Ready {
    pub(crate) async fn look(&self, client: &Client) -> Result<(), Problem> {
        let mut last = self.0.lock().await;
        let ready = match last.filter(|(at, _)| at.elapsed() < KEPT) {
            Some((_, ready)) => ready,
            None => {
                let asked = tokio::time::timeout(PATIENCE, commit(client)).await;
                let ready = matches!(asked, Ok(Ok(())));
                *last = Some((Instant::now(), ready));
                ready
            }
        };
        match ready {
            true => Ok(()),
            false => {
                let text = "the database takes no commits at the moment";
                Err(Problem::new(Code::Unavailable, text))
            }
        }
    }
}

/// Two commits, which leave nothing behind.
async fn commit(client: &Client) -> Result<(), Error> {
    let worker = WorkerId(Uuid::new_v4());
    let (lanes, runs, leave) = (Vec::new(), Vec::new(), true);
    let name = format!("server, process {}", std::process::id());
    let come = Op::Register(Register {
        worker,
        name,
        lanes,
    });
    let go = Op::Release(Release {
        worker,
        runs,
        leave,
    });
    for op in [come, go] {
        for reply in client.at_once(vec![op]).await {
            reply?;
        }
    }
    Ok(())
}
