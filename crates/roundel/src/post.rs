//! Asking the store and getting the answer: one wake-up for a batch of answers, not one for each.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use roundel_core::{Name, Op, Reply};
use roundel_store::{Answered, Ask, Error, Request, Sink, Store};
use tokio::sync::{Notify, oneshot};

use crate::metrics::Counters;
use crate::seal::{Keys, Sealed};

/// Batches up to this size are answered by the store's own thread, for latency.
const DIRECT: usize = 4;

pub(crate) struct Post {
    store: Arc<dyn Store>,
    /// The same, if values are sealed in front of it.
    plain: Option<(Arc<dyn Store>, Keys)>,
    sink: Arc<Pending>,
    task: Arc<Task>,
}

/// Hands out large batches, for whoever shares it.
struct Task(tokio::task::AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Pending {
    counters: Arc<Counters>,
    waiting: Mutex<Waiting>,
    /// Batches that the task hands out; bounded by what was asked.
    batches: Mutex<Vec<Vec<Answered>>>,
    arrived: Notify,
}

/// Who waits for an answer, by tag. Places are used again.
#[derive(Default)]
struct Waiting {
    places: Vec<Option<Place>>,
    free: Vec<usize>,
}

/// What came of asking, and what was asked, unless the store has closed.
pub(crate) type Asked = Result<(Reply, Box<Ask>), (Error, Option<Box<Ask>>)>;

/// Who waits, and since when.
type Place = (oneshot::Sender<Answered>, Instant);

impl Post {
    /// Must be called inside the runtime: a task there hands out large batches.
    pub(crate) fn new(store: Arc<dyn Store>, counters: Arc<Counters>) -> Post {
        let sink = Arc::new(Pending {
            counters,
            waiting: Mutex::default(),
            batches: Mutex::default(),
            arrived: Notify::new(),
        });
        let pending = sink.clone();
        let task = tokio::spawn(async move {
            loop {
                pending.arrived.notified().await;
                let batches = std::mem::take(&mut *lock(&pending.batches));
                batches
                    .into_iter()
                    .for_each(|answers| pending.hand_out(answers));
            }
        });
        Post {
            store,
            plain: None,
            sink,
            task: Arc::new(Task(task.abort_handle())),
        }
    }

    /// The same, where values are sealed with these keys for this namespace.
    fn sealed(self, keys: Keys, namespace: Name) -> Post {
        let store = Sealed::over(self.store.clone(), keys.clone(), namespace);
        Post {
            plain: Some((self.store, keys)),
            store: Arc::new(store),
            ..self
        }
    }

    /// The same, if there are keys.
    pub(crate) fn sealed_by(self, keys: Option<Keys>, namespace: &Name) -> Post {
        match keys {
            Some(keys) => self.sealed(keys, namespace.clone()),
            None => self,
        }
    }

    /// The same for another namespace.
    pub(crate) fn in_namespace(self: &Arc<Self>, namespace: Name) -> Arc<Post> {
        let Some((store, keys)) = self.plain.clone() else {
            return self.clone();
        };
        let post = Post {
            store,
            plain: None,
            sink: self.sink.clone(),
            task: self.task.clone(),
        };
        Arc::new(post.sealed(keys, namespace))
    }

    /// What seals and opens values, if anything does.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.plain.as_ref().map(|(_, keys)| keys)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Asks for these things, in this order.
    pub(crate) fn ask_all(&self, asks: Vec<Ask>) -> Vec<oneshot::Receiver<Answered>> {
        let (requests, receivers) = asks
            .into_iter()
            .map(|ask| self.request(Box::new(ask)))
            .unzip();
        self.store.submit(requests);
        receivers
    }

    fn request(&self, ask: Box<Ask>) -> (Request, oneshot::Receiver<Answered>) {
        let (sender, receiver) = oneshot::channel();
        let tag = lock(&self.sink.waiting).put(sender) as u64;
        let sink = self.sink.clone();
        (Request { ask, tag, sink }, receiver)
    }

    pub(crate) async fn ask(&self, ask: Box<Ask>) -> Asked {
        let (request, receiver) = self.request(ask);
        self.store.submit(vec![request]);
        Post::answer(receiver).await
    }

    /// What comes of something that was asked for.
    pub(crate) async fn answer(receiver: oneshot::Receiver<Answered>) -> Asked {
        match receiver.await {
            Ok(Answered {
                result: Ok(reply),
                ask,
                ..
            }) => Ok((reply, ask)),
            Ok(Answered {
                result: Err(error),
                ask,
                ..
            }) => Err((error, Some(ask))),
            Err(_) => Err((Error::Closed, None)),
        }
    }

    pub(crate) async fn op(&self, op: Op) -> Result<Reply, Error> {
        self.ask(Box::new(Ask::Op(op)))
            .await
            .map(|(reply, _)| reply)
            .map_err(|(error, _)| error)
    }
}

impl Waiting {
    fn put(&mut self, sender: oneshot::Sender<Answered>) -> usize {
        let waits = Some((sender, Instant::now()));
        if let Some(place) = self.free.pop() {
            self.places[place] = waits;
            return place;
        }
        self.places.push(waits);
        self.places.len() - 1
    }

    fn take(&mut self, place: usize) -> Option<Place> {
        let waits = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(waits)
    }
}

impl Pending {
    fn hand_out(&self, answers: Vec<Answered>) {
        let mut waiting = lock(&self.waiting);
        let place = |tag: u64| usize::try_from(tag).unwrap_or(usize::MAX);
        let senders: Vec<_> = answers
            .into_iter()
            .map(|answer| (waiting.take(place(answer.tag)), answer))
            .collect();
        drop(waiting);
        let now = Instant::now();
        for (waits, answer) in senders {
            if let Some((sender, since)) = waits {
                self.counters.store_waits.note(now.duration_since(since));
                let _ = sender.send(answer);
            }
        }
    }
}

impl Sink for Pending {
    fn deliver(&self, answers: Vec<Answered>) {
        if answers.len() <= DIRECT {
            self.hand_out(answers);
        } else {
            lock(&self.batches).push(answers);
            self.arrived.notify_one();
        }
    }
}
