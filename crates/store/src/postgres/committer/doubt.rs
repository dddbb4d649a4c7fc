//! A commit whose outcome is open: asked of the server, on a fresh connection, never guessed.

use roundel_core::Op;
use tokio::time::timeout;

use super::{Committer, RECONNECT};
use crate::Error;
use crate::answers::answer_all;
use crate::cells::Cells;
use crate::postgres::batch::Came;
use crate::postgres::link::values;
use crate::postgres::locks::Patience;
use crate::postgres::shared::Shared;
use crate::postgres::trouble::Trouble;
use crate::postgres::{open, steps};
use crate::queue::Item;

/// Locking waits for a process of the server that may still be at it.
const LAST: &str = "SELECT batch FROM roundel_committer WHERE incarnation = $1 FOR UPDATE";

/// A batch whose commit was sent and not answered.
pub(super) struct Doubt {
    pub(super) batch: Vec<Item>,
    pub(super) came: Came,
    pub(super) message: String,
}

impl Committer {
    /// Learns whether a batch was committed, on a fresh connection: never guessed, and before
    /// anything is tried again.
    pub(super) fn resolve(&mut self, doubt: Doubt) {
        let mut why = String::new();
        loop {
            if self.shared.is_too_late(&doubt.batch) {
                let message = format!("{}; and then: {why}", doubt.message);
                return answer_all(doubt.batch, &Error::Unknown(message));
            }
            let asked = self.runtime.block_on(async {
                timeout(self.shared.flight(), was_committed(&self.shared, &doubt)).await
            });
            match asked {
                Ok(Ok(true)) => {
                    return self.succeed(doubt.batch, doubt.came);
                }
                Ok(Ok(false)) => {
                    // What is alone may be so because it has to wait.
                    let patience = match doubt.batch.len() {
                        1 => Patience::Wait,
                        _ => Patience::Skip,
                    };
                    self.again.push_front((doubt.batch, patience));
                    return;
                }
                Ok(Err(message)) => why = message,
                Err(_) => why = "the server does not answer".into(),
            }
            std::thread::sleep(RECONNECT);
        }
    }
}

async fn was_committed(shared: &Shared, doubt: &Doubt) -> Result<bool, String> {
    let first = doubt.batch.first().map(Item::op);
    if let (true, Some(Op::Commit(round))) = (doubt.came.lone, first) {
        let round = (round.run, round.fence(), round.count == 0);
        let known = steps::was_committed(shared, round).await;
        return known.map_err(Trouble::message);
    }
    let link = open::connect(&shared.connect, shared.keeps).await;
    let mut link = link.map_err(|error| error.to_string())?;
    let asked = async {
        link.run(&shared.begin.write).await?;
        let rows = link.all(LAST, values![shared.incarnation]).await?;
        let last = rows.first().map_or(Ok(None), |row| row.int(0))?;
        link.run("ROLLBACK").await?;
        Ok::<_, Trouble>(last == Some(crate::cells::number(doubt.came.number)))
    };
    let known = asked.await.map_err(Trouble::message);
    link.close().await;
    known
}
