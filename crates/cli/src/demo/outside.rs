//! The world outside: a card company and a carrier, played by the demo's own process and reached
//! over a socket, so that they do not die with the worker.
//!
//! They do what such services do: say that they are busy, decline a card, refuse a parcel, take
//! back what they did, and answer a request that they have already carried out with what they did
//! the first time, if it has the same key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roundel::{Failure, Result};
use serde::{Deserialize, Serialize};

use super::plan::{MIRROR, Random};
use super::shop::{Order, Parcel};

const PATIENCE: Duration = Duration::from_secs(5);
/// No request and no answer is longer.
const LINE_BYTES: u64 = 4096;
/// How long an answer is under way. Who is killed meanwhile does not know that it was done.
const ANSWER_TRAVELS: Duration = Duration::from_millis(40);
/// A key finds the service busy at most so often.
const BUSY_TIMES: u32 = 3;
/// One card in so many is no good.
const BAD_CARDS: u32 = 25;

/// Is this card no good?
pub(super) fn declines(card: u32) -> bool {
    card.is_multiple_of(BAD_CARDS)
}

/// Does the carrier refuse this piece? It takes two mirrors at a time.
pub(super) fn refuses(item: u32, parcel: u32) -> bool {
    item == MIRROR && parcel > 2
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    key: String,
    order: u32,
    what: What,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum What {
    Charge { card: u32, cents: u32 },
    Label { item: u32, parcel: u32 },
    Refund,
    Void,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Done(String),
    Refused(String),
    Busy,
}

/// The way to the services, for a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside(pub(super) SocketAddr);

impl Outside {
    pub(super) async fn charge(self, key: String, order: &Order) -> Result<String> {
        let (card, cents) = (order.card, order.cents);
        let what = What::Charge { card, cents };
        let order = order.number;
        self.ask(Request { key, order, what }).await
    }

    pub(super) async fn label(self, key: String, parcel: &Parcel) -> Result<String> {
        let (order, item, parcel) = (parcel.order, parcel.item, parcel.number);
        let what = What::Label { item, parcel };
        self.ask(Request { key, order, what }).await
    }

    /// Takes back what was charged under this key, if something was.
    pub(super) async fn refund(self, key: String) -> Result<()> {
        let (order, what) = (0, What::Refund);
        self.ask(Request { key, order, what }).await.map(drop)
    }

    /// Takes back the label that was given out under this key, if one was.
    pub(super) async fn void(self, key: String) -> Result<()> {
        let (order, what) = (0, What::Void);
        self.ask(Request { key, order, what }).await.map(drop)
    }

    async fn ask(self, request: Request) -> Result<String> {
        let exchange = tokio::task::spawn_blocking(move || exchange(self.0, &request));
        let answer = exchange.await??;
        tokio::time::sleep(ANSWER_TRAVELS).await;
        match answer {
            Answer::Done(said) => Ok(said),
            Answer::Refused(why) => Err(Failure::business(why).did_not_happen()),
            Answer::Busy => Err(Failure::transient("the service is busy")),
        }
    }
}

fn exchange(address: SocketAddr, request: &Request) -> io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    send(&stream, request)?;
    Ok(serde_json::from_str(&receive(&stream)?)?)
}

fn send<T: Serialize>(mut stream: &TcpStream, value: &T) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn receive(stream: &TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line)?;
    Ok(line)
}

/// What the services have done, by key.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    seed: u64,
    asked: HashMap<String, u32>,
    /// Key to order, cents and receipt.
    pub(super) charges: BTreeMap<String, (u32, u32, String)>,
    /// Key to order, parcel and label.
    pub(super) labels: BTreeMap<String, (u32, u32, String)>,
    /// Keys of charges that were taken back, and of labels.
    pub(super) refunds: BTreeSet<String>,
    pub(super) voids: BTreeSet<String>,
    pub(super) calls: u64,
    pub(super) busy: u64,
    /// Asked for once more under the same key, and not done once more.
    pub(super) again: u64,
}

impl Book {
    fn answer(&mut self, request: Request) -> Answer {
        self.calls += 1;
        let Request { key, order, what } = request;
        let done = match what {
            What::Charge { .. } => self.charges.get(&key),
            What::Label { .. } => self.labels.get(&key),
            What::Refund | What::Void => return self.take_back(key, what),
        };
        if let Some((_, _, said)) = done {
            self.again += 1;
            return Answer::Done(said.clone());
        }
        if self.is_busy(&key, order) {
            self.busy += 1;
            return Answer::Busy;
        }
        match what {
            What::Refund | What::Void => unreachable!("taken above"),
            What::Charge { card, .. } if declines(card) => {
                Answer::Refused("the card was declined".into())
            }
            What::Charge { cents, .. } => {
                let receipt = format!("receipt {}", self.charges.len() + 1);
                self.charges.insert(key, (order, cents, receipt.clone()));
                Answer::Done(receipt)
            }
            What::Label { item, parcel } if refuses(item, parcel) => {
                Answer::Refused("the carrier takes two mirrors at a time".into())
            }
            What::Label { parcel, .. } => {
                let label = format!("label {}", self.labels.len() + 1);
                self.labels.insert(key, (order, parcel, label.clone()));
                Answer::Done(label)
            }
        }
    }

    /// Only what was done can be taken back, and once.
    fn take_back(&mut self, key: String, what: What) -> Answer {
        let (done, back) = match what {
            What::Refund => (self.charges.contains_key(&key), &mut self.refunds),
            _ => (self.labels.contains_key(&key), &mut self.voids),
        };
        if done && !back.insert(key) {
            self.again += 1;
        }
        Answer::Done(String::new())
    }

    /// One request in four finds the service busy.
    fn is_busy(&mut self, key: &str, order: u32) -> bool {
        let times = self.asked.entry(key.to_owned()).or_default();
        *times += 1;
        let seed = self.seed ^ (u64::from(order) << 8) ^ u64::from(*times);
        *times <= BUSY_TIMES && Random::new(seed).below(4) == 0
    }
}

/// The services themselves.
pub(super) struct Services {
    pub(super) address: SocketAddr,
    book: Arc<Mutex<Book>>,
}

impl Services {
    /// Opens them, on a port of this machine only, until this process ends.
    pub(super) fn open(seed: u64) -> io::Result<Services> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let book = Arc::new(Mutex::new(Book {
            seed,
            ..Book::default()
        }));
        let served = book.clone();
        std::thread::Builder::new()
            .name("outside".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A worker that was killed meanwhile does not hear the answer.
                    let _ = serve(&stream, &served);
                }
            })?;
        Ok(Services { address, book })
    }

    /// What they have done so far.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

fn serve(stream: &TcpStream, book: &Mutex<Book>) -> io::Result<()> {
    let request = serde_json::from_str(&receive(stream)?)?;
    let answer = lock(book).answer(request);
    send(stream, &answer)
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(key: &str, card: u32) -> Request {
        let what = What::Charge { card, cents: 5 };
        let key = key.into();
        Request {
            key,
            order: 1,
            what,
        }
    }

    /// Asks until the service is not busy.
    fn ask(book: &mut Book, key: &str, card: u32) -> Answer {
        let mut answers = (0..=BUSY_TIMES).map(|_| book.answer(charge(key, card)));
        let answer = answers.find(|answer| *answer != Answer::Busy);
        answer.expect("never busy for longer")
    }

    #[test]
    fn the_same_key_is_charged_once() {
        let mut book = Book::default();
        let first = ask(&mut book, "a", 1);
        assert_eq!(book.answer(charge("a", 1)), first);
        assert_ne!(ask(&mut book, "b", 1), first);
        assert_eq!((book.charges.len(), book.again), (2, 1));
    }

    #[test]
    fn what_was_done_is_taken_back_once() {
        let mut book = Book::default();
        ask(&mut book, "a", 1);
        let (order, what) = (0, What::Refund);
        for key in ["a", "a", "b"] {
            let key = key.into();
            book.answer(Request { key, order, what });
        }
        assert_eq!(book.refunds, BTreeSet::from(["a".to_owned()]));
        assert_eq!(book.again, 1);
    }

    #[test]
    fn a_bad_card_is_declined_and_not_charged() {
        let mut book = Book::default();
        let answer = ask(&mut book, "a", BAD_CARDS);
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
        assert!(book.charges.is_empty());
    }
}
