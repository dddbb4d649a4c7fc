//! Many starts in one call: asked for together, answered each.
//!
//! Nothing is all or none here, unlike in a [`Batch`](crate::Batch): each start is decided alone,
//! and only shares its way to the database.

use std::future::IntoFuture;
use std::sync::Arc;

use roundel_core::{Op, Reply, Started};
use roundel_store::{Ask, Error as StoreError};
use tokio::sync::oneshot;

use super::{Boxed, Client, Handle, StartRun};
use crate::Error;
use crate::rests::Resting;

/// The next are asked for when so many are answered.
const AT_ONCE: usize = 1_000;

/// What has been done about a start.
enum Placed<O> {
    /// It begins in this process.
    Here(
        Client,
        Resting,
        oneshot::Receiver<Result<Started, StoreError>>,
    ),
    /// It is among those that are asked for together.
    Among(Client, Resting),
    /// It is another client's, which has its own way.
    Elsewhere(Boxed<Result<Handle<O>, Error>>),
    Wrong(Error),
}

impl Client {
    /// Starts runs, or sends commands, together: written in one commit where possible, and answered
    /// each, in the order given. One that is refused, because its key is in use with another input
    /// say, is refused alone. For all or none, see [`batch`](Client::batch).
    ///
    /// ```
    /// # async fn send(client: roundel::Client) -> Result<(), roundel::Error> {
    /// use roundel::Command;
    /// const MAIL: Command<u64, ()> = Command::named("mail");
    /// let mails = (1..=500).map(|to| client.send(MAIL, &to).key(to.to_string()));
    /// for sent in client.start_all(mails).await {
    ///     println!("{}", sent?.id());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_all<O: Send + 'static>(
        &self,
        starts: impl IntoIterator<Item = StartRun<O>>,
    ) -> Vec<Result<Handle<O>, Error>> {
        let mut starts = starts.into_iter();
        let mut handles = Vec::new();
        loop {
            let mut asks = Vec::new();
            let part = starts.by_ref().take(AT_ONCE);
            let part: Vec<_> = part.map(|start| self.place(start, &mut asks)).collect();
            if part.is_empty() {
                return handles;
            }
            let mut coming = self.inner.ask_all(asks).into_iter();
            for placed in part {
                let handle = match placed {
                    Placed::Here(client, rest, started) => self
                        .inner
                        .in_time(started)
                        .await
                        .and_then(|started| Ok(Handle::of(client, &started?, rest))),
                    Placed::Among(client, rest) => {
                        let coming = coming.next().expect("an answer for each that is asked for");
                        match self.inner.reply(coming).await {
                            Ok(Reply::Started(started)) => Ok(Handle::of(client, &started, rest)),
                            Ok(_) => unreachable!("a start answers as one"),
                            Err(error) => Err(error),
                        }
                    }
                    Placed::Elsewhere(start) => start.await,
                    Placed::Wrong(error) => Err(error),
                };
                handles.push(handle);
            }
        }
    }

    /// Begins it here, if that can be, or puts it among those that are asked for.
    fn place<O: Send + 'static>(&self, start: StartRun<O>, asks: &mut Vec<Ask>) -> Placed<O> {
        let inner = &self.inner;
        if !Arc::ptr_eq(inner, &start.client.inner) {
            return Placed::Elsewhere(start.into_future());
        }
        let (client, start) = match start.start {
            Ok(begun) => (start.client, *begun),
            Err(error) => return Placed::Wrong(error),
        };
        let rest = inner.rests.await_rest(start.run);
        if !client.is_signed()
            && let Some((worker, lane, port)) = inner.local(&start)
        {
            let (sender, receiver) = oneshot::channel();
            worker.start_here(start, (lane, port), sender);
            return Placed::Here(client, rest, receiver);
        }
        if let Some(worker) = &inner.worker {
            worker.expect(&start);
        }
        asks.push(Ask::Op(client.signed(Op::Start(start))));
        Placed::Among(client, rest)
    }
}
