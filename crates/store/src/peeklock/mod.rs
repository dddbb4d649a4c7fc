//! Stores that know no transactions: a folder, a bucket, anything that can make one object at a
//! time, whole or not at all. What a commit changed is one object, so it is there or it is not;
//! rows are worked on in memory, and read again from the objects by whoever comes next.
//!
//! A round is peeked at, locked, appended, and acknowledged last; a crash after any single call
//! leaves nothing half done, and whatever was not appended comes back.
//!
//! Absent on purpose: speed. A commit costs a few calls, one after the other, and all rows have to
//! fit into memory. Where there is a database, use it.

mod book;
mod content;
mod objects;
mod record;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use roundel_core::{Hint, Reply};
use tokio::sync::oneshot;

pub use objects::{Folder, Objects};

use self::book::{Appended, Book};
use crate::{
    Answer, Answered, Boxed, Clock, Error, Listener, Query, Request, Sink, Store, SystemClock,
};

/// How often it looks for commits of other processes, while somebody waits for them and otherwise.
const CLOSELY: Duration = Duration::from_millis(20);
const AT_REST: Duration = Duration::from_secs(1);
/// Requests in one commit.
const BATCH: usize = 256;
/// A record that cannot be made, or not be seen to be there, is tried for this long.
const TRIES_FOR: Duration = Duration::from_secs(30);
/// Between two tries, at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How it is opened.
#[derive(Clone)]
pub struct PeekLockOptions {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// A process that said it makes the next record is waited for this long. Nothing depends on it
    /// but that work is not done in vain.
    pub patience: Duration,
    /// After so many bytes of commits, and as many as everything there was before them, everything
    /// is written once more, and what came before is removed.
    pub volume: usize,
}

impl Default for PeekLockOptions {
    fn default() -> Self {
        PeekLockOptions {
            clock: Arc::new(SystemClock::default()),
            patience: Duration::from_secs(2),
            volume: 1 << 20,
        }
    }
}

impl fmt::Debug for PeekLockOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PeekLockOptions");
        shown
            .field("patience", &self.patience)
            .field("volume", &self.volume)
            .finish_non_exhaustive()
    }
}

/// A store over objects.
pub struct PeekLock {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
    closely: AtomicBool,
    closed: AtomicBool,
}

enum Job {
    Submit(Vec<Request>),
    Read(Query, oneshot::Sender<Result<Answer, Error>>),
    /// Something changed about how it should wait.
    Wake,
}

impl PeekLock {
    /// The store that these objects hold; a new one, if there are none.
    ///
    /// # Errors
    /// When they cannot be read, or hold something else.
    pub fn open(objects: Arc<dyn Objects>, options: PeekLockOptions) -> Result<PeekLock, Error> {
        let PeekLockOptions {
            clock,
            patience,
            volume,
        } = options;
        let mut book = Book::new(objects, patience, volume);
        book.catch_up().map_err(|error| unavailable(&error))?;
        let shared = Arc::new(Shared {
            clock,
            listeners: Mutex::default(),
            closely: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let (jobs, receiver) = mpsc::channel();
        let clerk = Clerk {
            book,
            shared: shared.clone(),
        };
        let thread = thread::Builder::new().name("roundel-objects".into());
        let thread = thread.spawn(move || clerk.work(&receiver));
        let thread = thread.map_err(|error| unavailable(&error))?;
        Ok(PeekLock {
            jobs: Mutex::new(Some(jobs)),
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Gives it back when the store is closed.
    fn send(&self, job: Job) -> Option<Job> {
        match lock(&self.jobs).as_ref() {
            Some(sender) => sender.send(job).err().map(|failed| failed.0),
            None => Some(job),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Damage is not passing.
fn unavailable(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::Unusable(error.to_string()),
        _ => Error::Unavailable(error.to_string()),
    }
}

impl Store for PeekLock {
    fn submit(&self, requests: Vec<Request>) {
        if let Some(Job::Submit(requests)) = self.send(Job::Submit(requests)) {
            answer(requests, || Err(Error::Closed));
        }
    }

    fn read(&self, query: Query) -> Boxed<'_, Result<Answer, Error>> {
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            if self.send(Job::Read(query, sender)).is_some() {
                return Err(Error::Closed);
            }
            receiver.await.unwrap_or(Err(Error::Closed))
        })
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    fn listen(&self, listener: Arc<dyn Listener>) {
        lock(&self.shared.listeners).push(listener);
    }

    fn watch_closely(&self, closely: bool) {
        if self.shared.closely.swap(closely, Ordering::Relaxed) != closely {
            let _ = self.send(Job::Wake);
        }
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        drop(lock(&self.jobs).take());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
        lock(&self.shared.listeners).clear();
    }
}

impl Drop for PeekLock {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for PeekLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekLock").finish_non_exhaustive()
    }
}

/// Answers requests in order, each sink once.
fn answer(requests: Vec<Request>, mut next: impl FnMut() -> Result<Reply, Error>) {
    let mut out: Vec<(Arc<dyn Sink>, Vec<Answered>)> = Vec::new();
    for Request { ask, tag, sink } in requests {
        let result = next();
        let answered = Answered { tag, result, ask };
        match out.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &sink)) {
            Some((_, answers)) => answers.push(answered),
            None => out.push((sink, vec![answered])),
        }
    }
    for (sink, answers) in out {
        sink.deliver(answers);
    }
}

/// The one thread of a process that reads and makes objects.
struct Clerk {
    book: Book,
    shared: Arc<Shared>,
}

/// What became of requests that were decided together, one by one, and what others should hear.
type Decided = (Vec<Result<Reply, Error>>, Vec<Hint>);

impl Clerk {
    fn work(mut self, jobs: &mpsc::Receiver<Job>) {
        loop {
            let closely = self.shared.closely.load(Ordering::Relaxed);
            let job = match jobs.recv_timeout(if closely { CLOSELY } else { AT_REST }) {
                Ok(job) => Some(job),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            match job {
                // What fails now is seen by the next who asks for something.
                None => drop(self.book.catch_up()),
                Some(Job::Wake) => {}
                Some(Job::Read(query, sender)) => {
                    let _ = sender.send(self.read(query));
                }
                Some(Job::Submit(requests)) => self.fuse(requests, jobs),
            }
            self.tell_of_others();
        }
    }

    /// Takes what else was submitted meanwhile into the same commit.
    fn fuse(&mut self, mut requests: Vec<Request>, jobs: &mpsc::Receiver<Job>) {
        let mut reads = Vec::new();
        while requests.len() < BATCH {
            match jobs.try_recv() {
                Ok(Job::Submit(more)) => requests.extend(more),
                Ok(Job::Read(query, sender)) => reads.push((query, sender)),
                Ok(Job::Wake) => {}
                Err(_) => break,
            }
        }
        while !requests.is_empty() {
            let rest = requests.split_off(requests.len().min(BATCH));
            self.commit(requests);
            requests = rest;
        }
        for (query, sender) in reads {
            let _ = sender.send(self.read(query));
        }
    }

    fn tell_of_others(&mut self) {
        if self.book.take_news() {
            for listener in lock(&self.shared.listeners).clone() {
                listener.others_committed();
            }
        }
    }

    fn read(&mut self, query: Query) -> Result<Answer, Error> {
        self.book.catch_up().map_err(|error| unavailable(&error))?;
        self.book.content().state().read(query)
    }

    fn commit(&mut self, mut requests: Vec<Request>) {
        match self.decide(&mut requests) {
            Err(error) => answer(requests, || Err(error.clone())),
            Ok((results, hints)) => {
                let mut results = results.into_iter();
                answer(requests, || results.next().expect("one for each request"));
                let listeners = lock(&self.shared.listeners).clone();
                for listener in listeners.iter().filter(|_| !hints.is_empty()) {
                    listener.hints(hints.clone());
                }
            }
        }
    }

    /// Peeks, locks, decides, appends, acknowledges; again, if somebody else was faster.
    fn decide(&mut self, requests: &mut [Request]) -> Result<Decided, Error> {
        loop {
            self.book.catch_up().map_err(|error| unavailable(&error))?;
            self.book.lock().map_err(|error| unavailable(&error))?;
            let lock = self.book.lock_key();
            let decided = self.decide_once(requests);
            self.book.unlock(&lock);
            if let Some(decided) = decided? {
                // A volume that cannot be closed now is closed with the next commit.
                let _ = self.book.close_if_long();
                return Ok(decided);
            }
        }
    }

    /// None if somebody else was faster, and nothing happened.
    fn decide_once(&mut self, requests: &mut [Request]) -> Result<Option<Decided>, Error> {
        let content = self.book.content();
        let clock = &*self.shared.clock;
        let decide = |request: &mut Request| content.decide(&mut request.ask, clock);
        let results = requests.iter_mut().map(decide).collect();
        let content = self.book.content();
        let hints = content.take_hints();
        let appended = match content.take() {
            Ok(None) => Ok(Appended::Yes),
            Ok(Some(record)) => self.append(&record),
            Err(error) => Err(error),
        };
        if appended != Ok(Appended::Yes) {
            // What was decided is in memory, and not known to be anywhere else.
            self.book.forget();
        }
        match appended? {
            Appended::Yes => Ok(Some((results, hints))),
            Appended::No => Ok(None),
            Appended::Perhaps => {
                let why = "this process slept while others committed";
                Err(Error::Unknown(why.into()))
            }
        }
    }

    /// Until it is known to be there, or not to be.
    fn append(&mut self, record: &record::Record) -> Result<Appended, Error> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(5);
        loop {
            match self.book.append(record) {
                Ok(appended) => return Ok(appended),
                Err(error) => {
                    let closed = self.shared.closed.load(Ordering::Relaxed);
                    if closed || began.elapsed() > TRIES_FOR {
                        return Err(Error::Unknown(error.to_string()));
                    }
                    tracing::warn!(%error, "a record cannot be made; trying again");
                }
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
