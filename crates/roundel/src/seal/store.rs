//! A store whose values are sealed: it stands in front of another.

use std::any::Any;
use std::sync::Arc;

use roundel_core::{Fence, Hint, Name, Round, RunId, WorkerId};
use roundel_store::{
    Answer, Answered, Ask, Boxed, Clock, Error, Listener, News, Query, Request, Sink, Store, Tx,
    TxError, Work, Worked,
};

use super::answers::Opener;
use super::keys::Keys;
use super::ops::Sealer;

/// A store in front of which values are sealed, and behind which they are stored so.
pub(crate) struct Sealed {
    store: Arc<dyn Store>,
    with: With,
}

/// With which keys, and in which namespace.
#[derive(Clone)]
struct With {
    keys: Keys,
    namespace: Name,
}

impl With {
    fn sealer(&self) -> Sealer<'_> {
        let With { keys, namespace } = self;
        Sealer { keys, namespace }
    }

    fn opener(&self) -> Opener<'_> {
        let With { keys, namespace } = self;
        Opener { keys, namespace }
    }
}

impl Sealed {
    /// What goes to this store and comes from it, by a client of this namespace.
    pub(crate) fn over(store: Arc<dyn Store>, keys: Keys, namespace: Name) -> Sealed {
        let with = With { keys, namespace };
        Sealed { store, with }
    }
}

impl Store for Sealed {
    fn submit(&self, mut requests: Vec<Request>) {
        let mut sinks: Vec<(Arc<dyn Sink>, Arc<dyn Sink>)> = Vec::new();
        for request in &mut requests {
            match &mut *request.ask {
                Ask::Op(op) => self.with.sealer().op(op),
                Ask::Work(work) => {
                    let inner = std::mem::replace(work, Box::new(Nothing));
                    let with = self.with.clone();
                    *work = Box::new(SealedWork { inner, with });
                }
            }
            let known = sinks.iter().find(|(to, _)| Arc::ptr_eq(to, &request.sink));
            let opening = match known {
                Some((_, opening)) => opening.clone(),
                None => {
                    let (to, with) = (request.sink.clone(), self.with.clone());
                    let opening: Arc<dyn Sink> = Arc::new(Opening { to, with });
                    sinks.push((request.sink.clone(), opening.clone()));
                    opening
                }
            };
            request.sink = opening;
        }
        self.store.submit(requests);
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let mut answer = self.store.read(query).await?;
            self.with.opener().answer(&mut answer);
            Ok(answer)
        })
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        let with = self.with.clone();
        self.store.listen(Arc::new(Hearing { listener, with }));
    }

    fn watch_closely(&self, closely: bool) {
        self.store.watch_closely(closely);
    }

    fn close(&self) {
        self.store.close();
    }
}

/// Opens answers on their way.
struct Opening {
    to: Arc<dyn Sink>,
    with: With,
}

impl Sink for Opening {
    fn deliver(&self, mut answers: Vec<Answered>) {
        for answered in &mut answers {
            if let Ok(reply) = &mut answered.result {
                self.with.opener().reply(reply);
            }
        }
        self.to.deliver(answers);
    }
}

/// Opens hints on their way.
struct Hearing {
    listener: Arc<dyn Listener>,
    with: With,
}

impl Listener for Hearing {
    fn hints(&self, mut hints: Vec<Hint>) {
        let mut opener = self.with.opener();
        hints.iter_mut().for_each(|hint| opener.hint(hint));
        self.listener.hints(hints);
    }

    fn others_committed(&self) {
        self.listener.others_committed();
    }

    fn others_brought(&self, news: &News) {
        self.listener.others_brought(news);
    }
}

/// A step whose round is sealed where it is made: in the store's transaction.
struct SealedWork {
    inner: Box<dyn Work>,
    with: With,
}

impl Work for SealedWork {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        self.inner.lease()
    }

    fn run(&mut self, tx: Tx) -> Worked {
        let mut worked = self.inner.run(tx);
        self.with.sealer().round(&mut worked.round);
        worked
    }

    fn refused(&mut self, error: TxError) -> Round {
        let mut round = self.inner.refused(error);
        self.with.sealer().round(&mut round);
        round
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self.inner.into_any()
    }
}

/// Stands where a step was that is being wrapped.
struct Nothing;

impl Work for Nothing {
    fn lease(&self) -> (RunId, WorkerId, Fence) {
        unreachable!("it is replaced at once")
    }

    fn run(&mut self, _: Tx) -> Worked {
        unreachable!("it is replaced at once")
    }

    fn refused(&mut self, _: TxError) -> Round {
        unreachable!("it is replaced at once")
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
