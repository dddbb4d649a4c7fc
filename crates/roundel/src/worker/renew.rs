//! Renewal, on a thread of its own, so that busy user code cannot stop it: one operation for all
//! leases of the process, every third of a lease. It also brings what other processes sent.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use roundel_core::{Lease, Op, Renew, Reply, RunId};

use super::{Note, Port, Worker};

/// Looks for mail from other processes are this far apart at least.
const LOOKS: Duration = Duration::from_millis(50);
/// A worker at rest says this often that it is there.
const SIGN: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct Renewals {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default, Clone, Copy)]
struct State {
    stop: bool,
    look: bool,
}

impl Renewals {
    pub(super) fn look(&self) {
        self.change(|state| state.look = true);
    }

    pub(super) fn stop(&self) {
        self.change(|state| state.stop = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let (state, changed) = &*self.state;
        change(
            &mut state
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        changed.notify_all();
    }
}

pub(super) fn start(worker: &Arc<Worker>) {
    let state = worker.renewals.state.clone();
    let every = worker.config.lease / 3;
    let worker = Arc::downgrade(worker);
    let run = move || renew_until_stopped(&worker, &state, every);
    std::thread::Builder::new()
        .name("roundel-renew".into())
        .spawn(run)
        .expect("a thread can be started");
}

fn renew_until_stopped(worker: &Weak<Worker>, state: &(Mutex<State>, Condvar), every: Duration) {
    let (state, changed) = state;
    let mut last = Instant::now();
    let mut seen = last;
    loop {
        let mut now = state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        while !now.stop && !now.look && last.elapsed() < every {
            let left = every.saturating_sub(last.elapsed());
            let waited = changed.wait_timeout(now, left);
            now = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        if now.stop {
            return;
        }
        now.look = false;
        drop(now);
        let Some(worker) = worker.upgrade() else {
            return;
        };
        if renew(&worker, seen.elapsed() >= SIGN) {
            seen = Instant::now();
        }
        drop(worker);
        let since = last.elapsed();
        last = Instant::now();
        if since < LOOKS {
            std::thread::sleep(LOOKS - since);
        }
    }
}

impl Worker {
    /// Renews now, by the clock of a test.
    #[cfg(feature = "testkit")]
    pub(crate) fn renew(&self) {
        renew(self, false);
    }
}

/// Keeps what it has; if that is nothing, it says so when it is time to. Returns whether it was
/// heard.
fn renew(worker: &Worker, sign: bool) -> bool {
    // Who waited for a result may have left since the last run was let go.
    if worker.ports().is_empty() {
        worker.store().watch_closely(worker.rests.anybody_waits());
    }
    let leased = |port: &Port| port.leased.load(Ordering::Acquire);
    let (runs, ports): (Vec<RunId>, Vec<Arc<Port>>) = worker
        .ports()
        .iter()
        .filter(|(_, port)| leased(port))
        .map(|(run, port)| (*run, port.clone()))
        .unzip();
    if runs.is_empty() && !sign {
        return false;
    }
    let renew = Renew {
        worker: worker.id,
        runs,
        lease: worker.config.lease,
    };
    let renewed = match roundel_store::ask(&**worker.store(), Op::Renew(renew)) {
        Ok(Reply::Renewed(renewed)) => renewed,
        Ok(_) => unreachable!("a renewal answers for each lease"),
        Err(error) => {
            tracing::warn!(%error, "renewal failed");
            return false;
        }
    };
    // To those who were asked for: a run that was let go and claimed again meanwhile has heard all
    // this from its claim, and may have consumed it since.
    for (one, port) in renewed.into_iter().zip(ports) {
        match one.lease {
            Lease::Kept {
                fence,
                cancel,
                inbox,
            } => {
                if cancel {
                    port.post(Note::Cancel(fence));
                }
                inbox
                    .into_iter()
                    .for_each(|delivery| port.post(Note::Mail(fence, delivery)));
            }
            Lease::Lost => port.post(Note::Lost),
        }
    }
    true
}
