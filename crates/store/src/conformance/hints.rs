//! Hints: what a commit tells those who listen. Losing one costs time, so none must be the only way
//! to learn something; but none may be missing in the normal case either.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use roundel_core::{Hint, Limit, Name, Op, Outcome, QueueId, RunState, Source, Start};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{A, NS, claimant, ending, opening, signal, suspending, value, working};
use crate::Listener;

/// Long enough for a thread that has nothing else to do.
const SOON: Duration = Duration::from_secs(10);

struct Ears(Mutex<mpsc::Sender<Hint>>);

impl Listener for Ears {
    fn hints(&self, hints: Vec<Hint>) {
        let sender = self.0.lock().expect("ears");
        hints.into_iter().for_each(|hint| drop(sender.send(hint)));
    }

    fn others_committed(&self) {}
}

fn listen(desk: &Desk) -> mpsc::Receiver<Hint> {
    let (sender, receiver) = mpsc::channel();
    desk.store.listen(Arc::new(Ears(Mutex::new(sender))));
    receiver
}

/// The next hint.
fn heard(hints: &mpsc::Receiver<Hint>) -> Hint {
    hints.recv_timeout(SOON).expect("a hint")
}

pub fn c1_a_start_a_timer_and_a_release_say_when_a_run_is_ready(make: &Make) {
    let mut desk = Desk::new(make);
    let hints = listen(&desk);
    let (lane, now) = (desk.lane, desk.now());
    desk.start();
    assert_eq!(heard(&hints), Hint::Ready(lane, now));
    let later = now.after(Duration::from_secs(60));
    let start = Start {
        at: Some(later),
        ..desk.starting()
    };
    desk.started(start);
    assert_eq!(heard(&hints), Hint::Ready(lane, later));
    let run = desk.claim(A, 1)[0].run;
    let mut round = suspending(desk.round(run));
    round.timer_at = Some(later);
    desk.commit(round);
    assert_eq!(heard(&hints), Hint::Ready(lane, later));
    let owned = desk.owned(A);
    desk.release(A, &[owned]);
    assert_eq!(heard(&hints), Hint::Ready(lane, now));
}

fn limit_to(desk: &Desk, most: u32) {
    let mut limit = Limit::of(QueueId {
        namespace: NS,
        queue: Name::constant("w"),
    });
    limit.concurrency = Some(Some(most));
    desk.must(Op::Limit(limit));
}

pub fn c1_co_30_whose_end_makes_room_in_a_full_queue_says_so(make: &Make) {
    let mut desk = Desk::new(make);
    limit_to(&desk, 2);
    let waiting = [desk.start(), desk.start(), desk.start()];
    assert_eq!(desk.claimed_ids(A, 9), waiting[..2]);
    let hints = listen(&desk);
    desk.end(waiting[0]);
    assert_eq!(ready(&hints), Hint::Ready(desk.lane, desk.now()));
}

pub fn co_30_where_there_is_room_nobody_is_told_of_more(make: &Make) {
    let mut desk = Desk::new(make);
    limit_to(&desk, 10);
    let starting = |desk: &mut Desk| {
        let claimant = Some(claimant(A));
        let start = Start {
            claimant,
            ..desk.starting()
        };
        (start.run, Op::Start(start))
    };
    let (first, start) = starting(&mut desk);
    desk.must(start);
    let hints = listen(&desk);
    // The permits are counted, for whoever is started.
    let end = Op::Commit(ending(desk.round(first), RunState::Completed));
    let (second, start) = starting(&mut desk);
    for reply in desk.batch(vec![start, end]) {
        reply.expect("both are done");
    }
    assert_eq!(desk.run(second).owner, Some(A));
    let later = desk.now().after(Duration::from_secs(60));
    let mut start = desk.starting();
    start.at = Some(later);
    desk.started(start);
    assert_eq!(ready(&hints), Hint::Ready(desk.lane, later));
}

/// The next hint that something is ready.
fn ready(hints: &mpsc::Receiver<Hint>) -> Hint {
    loop {
        let hint = heard(hints);
        if matches!(hint, Hint::Ready(..)) {
            return hint;
        }
    }
}

pub fn c1_a_message_is_told_to_the_owner_or_wakes_the_run(make: &Make) {
    let mut desk = Desk::new(make);
    let (owned, waiting) = (desk.owned(A), desk.waiting(A, &[(1, "go")]));
    desk.commit(opening(desk.round(owned), &[(4, "go")]));
    let hints = listen(&desk);
    desk.signal(owned, "go", 9);
    let Hint::Mail(run, owner, delivery) = heard(&hints) else {
        panic!("mail")
    };
    assert_eq!((run, owner, delivery.call), (owned, desk.owner(owned), 4));
    assert_eq!(delivery.body, Outcome::Value(value(9)));
    assert!(matches!(delivery.source, Source::Wait(_)));
    desk.signal(waiting, "go", 1);
    assert_eq!(heard(&hints), Hint::Ready(desk.lane, desk.now()));
}

pub fn c10_a_cancel_is_told_to_the_owner(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let hints = listen(&desk);
    desk.cancel(run);
    assert_eq!(heard(&hints), Hint::Cancel(run, desk.owner(run)));
}

pub fn a_run_at_rest_is_told_with_what_came_of_it(make: &Make) {
    let mut desk = Desk::new(make);
    let (run, gone) = (desk.owned(A), desk.owned(A));
    let hints = listen(&desk);
    desk.commit(ending(desk.round(run), RunState::Completed));
    let outcome = Some(Outcome::Value(value(7)));
    assert_eq!(
        heard(&hints),
        Hint::AtRest(run, RunState::Completed, outcome)
    );
    desk.must(deleting(gone, true));
    assert_eq!(heard(&hints), Hint::AtRest(gone, RunState::Running, None));
}

pub fn a_refused_operation_gives_no_hint(make: &Make) {
    let mut desk = Desk::new(make);
    let run = desk.owned(A);
    let late = working(desk.round(run));
    desk.commit(late.clone());
    let hints = listen(&desk);
    desk.refused(Op::Commit(late));
    desk.refused(deleting(run, false));
    desk.send(signal(run, "go", 1));
    desk.cancel(run);
    assert_eq!(
        heard(&hints),
        Hint::Cancel(run, desk.owner(run)),
        "the first thing to be heard"
    );
}
