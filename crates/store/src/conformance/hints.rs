//! Hints: what a commit tells those who listen. Losing one costs time, so none must be the only way
//! to learn something; but none may be missing in the normal case either.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use roundel_core::{Hint, Op, Outcome, RunState, Source, Start};

use super::Make;
use super::desk::{Desk, deleting};
use super::words::{A, ending, opening, signal, suspending, value, working};
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
