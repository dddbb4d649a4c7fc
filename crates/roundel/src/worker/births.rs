//! What runs were started with that began nowhere yet: whoever claims one here reads no journal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use roundel_core::{Payload, RunId};
use rustc_hash::FxHashMap;

/// Bytes of inputs that are kept.
const ROOM: usize = 16 << 20;
/// What an input costs beyond its own size.
const EACH: usize = 128;

#[derive(Default)]
pub(super) struct Births {
    inputs: FxHashMap<RunId, Payload>,
    /// By age. Some of these have been taken.
    order: VecDeque<(RunId, Instant)>,
    bytes: usize,
}

impl Births {
    /// Keeps an input while there is room. In a queue that is longer than that, those that came
    /// first are also needed first; so the newest is the one that is not kept.
    pub(super) fn put(&mut self, run: RunId, input: &Payload, kept_for: Duration) {
        while let Some((oldest, since)) = self.order.front() {
            let oldest = *oldest;
            if self.inputs.contains_key(&oldest) && since.elapsed() < kept_for {
                break;
            }
            self.order.pop_front();
            self.take(oldest);
        }
        let size = cost(input);
        if self.bytes + size > ROOM || kept_for.is_zero() {
            return;
        }
        self.bytes += size;
        self.order.push_back((run, Instant::now()));
        if let Some(before) = self.inputs.insert(run, input.clone()) {
            self.bytes -= cost(&before);
        }
    }

    pub(super) fn take(&mut self, run: RunId) -> Option<Payload> {
        let input = self.inputs.remove(&run)?;
        self.bytes -= cost(&input);
        Some(input)
    }
}

fn cost(input: &Payload) -> usize {
    input.size() + EACH
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn input(bytes: usize) -> Payload {
        Payload::encode(&"x".repeat(bytes)).expect("a text")
    }

    #[test]
    fn what_was_put_is_taken_once() {
        let mut births = Births::default();
        births.put(run(1), &input(5), LONG);
        assert_eq!(births.take(run(1)), Some(input(5)));
        assert_eq!(births.take(run(1)), None);
        assert_eq!(births.bytes, 0);
    }

    #[test]
    fn the_newest_is_not_kept_when_there_is_no_room() {
        let mut births = Births::default();
        for number in 0..100 {
            births.put(run(number), &input(1 << 20), LONG);
        }
        assert!(births.bytes <= ROOM);
        assert!(births.take(run(0)).is_some());
        assert!(births.take(run(99)).is_none());
        births.put(run(100), &input(1 << 20), LONG);
        assert!(births.take(run(100)).is_some(), "there is room again");
    }

    #[test]
    fn the_old_make_room() {
        let mut births = Births::default();
        births.put(run(1), &input(5), LONG);
        std::thread::sleep(Duration::from_millis(2));
        births.put(run(2), &input(5), Duration::from_millis(1));
        assert!(births.take(run(1)).is_none());
        assert!(births.take(run(2)).is_some());
        assert!(births.order.len() <= 1);
    }
}
