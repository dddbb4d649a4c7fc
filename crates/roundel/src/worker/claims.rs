//! Claiming: when something is due, and when there is room. At rest nothing is asked; a slow sweep
//! stands behind the hints.

use std::sync::Arc;

use roundel_core::{Claim, Op, Reply, Timestamp, limits};

use super::Worker;

/// Runs one claim may take: enough to fill a batch, few enough to share with other processes.
const AT_ONCE: usize = 256;

pub(super) async fn run(worker: Arc<Worker>) {
    let mut pause = std::time::Duration::from_millis(10);
    while !worker.is_stopping() {
        wait_until_due(&worker).await;
        if worker.is_stopping() {
            return;
        }
        drop_idle(&worker);
        let room = worker.config.max_live.saturating_sub(worker.ports().len());
        if room == 0 {
            worker.room.notified().await;
            worker.claim_at(Timestamp(0));
            continue;
        }
        let claim = Claim {
            worker: worker.id,
            lanes: worker.lane_ids(),
            limit: room.min(AT_ONCE).min(limits::CLAIM),
            lease: worker.config.lease,
        };
        match worker.post.op(Op::Claim(claim)).await {
            Ok(Reply::Claimed { runs, next }) => {
                pause = std::time::Duration::from_millis(10);
                let counters = &worker.counters;
                if runs.is_empty() {
                    &counters.claims_empty
                } else {
                    &counters.claims_with_runs
                }
                .one();
                worker.adopt_all(runs);
                if let Some(next) = next {
                    worker.claim_at(next);
                }
            }
            Ok(_) => unreachable!("a claim answers with runs"),
            Err(roundel_store::Error::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "claim failed");
                worker.counters.claims_failed.one();
                let store = worker.store();
                worker.claim_at(store.now().after(pause));
                pause = (pause * 2).min(std::time::Duration::from_secs(5));
            }
        }
    }
}

async fn wait_until_due(worker: &Worker) {
    loop {
        let notified = worker.wake_claims.notified();
        let now = worker.store().now();
        let at = {
            let mut due = worker
                .due
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match *due {
                Some(at) if at <= now => {
                    *due = None;
                    return;
                }
                Some(at) => at.min(now.after(worker.config.sweep)),
                None => now.after(worker.config.sweep),
            }
        };
        if worker.is_stopping() {
            return;
        }
        tokio::select! {
            () = notified => {}
            () = worker.store().clock().sleep_until(at) => worker.claim_at(Timestamp(0)),
        }
    }
}

fn drop_idle(worker: &Worker) {
    let idle = worker.cache().take_idle(worker.config.cached_for);
    drop(idle);
}
