//! What tests of rollback write and take away again, and how their runs end.

use roundel::{Cx, Failure, Result, RunId, RunState, Tx};

use super::trace::Trace;
use crate::support::{Process, until};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY)";

/// A step that writes a row and, if undone, takes it away again.
pub async fn reserve(cx: &Cx, trace: &Trace, item: String) -> Result<String> {
    let traced = trace.clone();
    cx.step("reserve", |tx: Tx| {
        let item = item.clone();
        async move {
            tx.execute(TABLE, ()).await?;
            tx.execute("INSERT INTO stock VALUES ($1)", (item.as_str(),))
                .await?;
            Ok::<_, Failure>(item)
        }
    })
    .undo(move |tx: Tx, item: String| {
        let trace = traced.clone();
        async move {
            let gone = tx.execute("DELETE FROM stock WHERE item = $1", (item.as_str(),));
            if gone.await? != 1 {
                return Err(Failure::permanent(format!("{item} is not there")));
            }
            trace.add(format!("undo {item}"));
            Ok(())
        }
    })
    .await
}

pub async fn state(process: &Process, run: RunId) -> RunState {
    process.run(run).await.unwrap().row.state
}

pub async fn ends(process: &Process, run: RunId) -> RunState {
    until("it has ended", async || {
        let row = process.run(run).await.unwrap().row;
        assert_ne!(row.state, RunState::Parked, "{:?}", row.outcome);
        row.state.has_ended()
    })
    .await;
    state(process, run).await
}

/// Waits until the run has ended, or its process is dead: who asks that is told nothing.
pub async fn over_or_dead(process: &Process, run: RunId) {
    until("it is over, or dead", async || {
        let row = process.run(run).await;
        process.store.is_cut() || row.unwrap().row.state.has_ended()
    })
    .await;
}
