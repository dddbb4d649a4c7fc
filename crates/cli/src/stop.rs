//! Commands that last until somebody stops them: Ctrl-C, or the system.

use crate::exit::Result;

/// From when it is made on, this process can be asked to stop, and is not simply ended.
pub(crate) struct Stop {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 2],
}

#[cfg(unix)]
impl Stop {
    pub(crate) fn listen() -> Result<Stop> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ];
        Ok(Stop { signals })
    }

    /// Returns when this process is asked to stop.
    pub(crate) async fn asked(&mut self) {
        let [interrupt, terminate] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Stop {
    pub(crate) fn listen() -> Result<Stop> {
        Ok(Stop {})
    }

    /// Returns when this process is asked to stop.
    pub(crate) async fn asked(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
