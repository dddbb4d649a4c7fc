//! A place to ask a store from, with short ways to say things.

use std::sync::{Arc, mpsc};

use roundel_core::{Op, Reply};

use crate::{Answer, Answered, Ask, Dump, Error, Query, Request, Sink, Store};

struct Tray(mpsc::Sender<Answered>);

impl Sink for Tray {
    fn deliver(&self, answers: Vec<Answered>) {
        for answer in answers {
            let _ = self.0.send(answer);
        }
    }
}

/// Submits requests together and waits for their answers, in the order of the requests.
pub(super) fn submit_all(store: &dyn Store, asks: Vec<Ask>) -> Vec<Answered> {
    let (sender, receiver) = mpsc::channel();
    let sink: Arc<dyn Sink> = Arc::new(Tray(sender));
    let count = asks.len();
    let request = |(tag, ask): (usize, Ask)| Request {
        ask,
        tag: tag as u64,
        sink: Arc::clone(&sink),
    };
    store.submit(asks.into_iter().enumerate().map(request).collect());
    let mut answers: Vec<Answered> = receiver.iter().take(count).collect();
    assert_eq!(answers.len(), count, "every request is answered once");
    answers.sort_by_key(|answer| answer.tag);
    answers
}

/// Submits operations together and waits for their replies.
pub(super) fn submit(store: &dyn Store, ops: Vec<Op>) -> Vec<Result<Reply, Error>> {
    let answers = submit_all(store, ops.into_iter().map(Ask::Op).collect());
    answers.into_iter().map(|answer| answer.result).collect()
}

/// Reads and waits.
pub(super) fn read(store: &dyn Store, query: Query) -> Result<Answer, Error> {
    let mut future = store.read(query);
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => return answer,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Every row.
pub(super) fn dump(store: &dyn Store) -> Dump {
    match read(store, Query::Dump) {
        Ok(Answer::Dump(dump)) => *dump,
        other => panic!("no dump: {other:?}"),
    }
}
