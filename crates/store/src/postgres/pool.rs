//! A few connections for reading, and for steps. One goes back only after its transaction has
//! ended; a connection that anything went wrong with is dropped, and with it whatever was open.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::link::Link;
use super::open;
use super::shared::Shared;
use crate::Error;

pub(super) struct Pool {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    idle: Mutex<Vec<Link>>,
}

/// A connection, lent.
pub(super) struct Lent {
    pub(super) link: Link,
    room: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(shared: Arc<Shared>, size: usize) -> Pool {
        Pool {
            shared,
            room: Arc::new(Semaphore::new(size)),
            idle: Mutex::default(),
        }
    }

    /// One that is idle, or a new one. Waits, within bounds, while all are in use.
    pub(super) async fn lend(&self) -> Result<Lent, Error> {
        let within = self.shared.options.answer_within;
        let lent = timeout(within, async {
            let room = Arc::clone(&self.room).acquire_owned().await;
            let room = room.map_err(|_| Error::Closed)?;
            let idle = self.lock().pop();
            let link = match idle {
                Some(link) => link,
                None => open::connect(&self.shared.connect, self.shared.keeps).await?,
            };
            Ok(Lent { link, room })
        });
        lent.await.unwrap_or_else(|_| {
            let message = format!("no connection has become free within {within:?}");
            Err(Error::Unavailable(message))
        })
    }

    /// Takes one apart, for code that needs the connection itself.
    pub(super) fn part(lent: Lent) -> (Link, OwnedSemaphorePermit) {
        (lent.link, lent.room)
    }

    /// Puts it together again.
    pub(super) fn whole(link: Link, room: OwnedSemaphorePermit) -> Lent {
        Lent { link, room }
    }

    /// Takes one back whose transaction has ended.
    pub(super) fn take_back(&self, lent: Lent) {
        let Lent { link, room } = lent;
        self.lock().push(link);
        drop(room);
    }

    /// Forgets all that are idle: the server may have gone.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn close(&self) {
        self.room.close();
        self.clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
