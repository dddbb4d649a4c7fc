//! Ids that are counted, so that each play of a test has the same.

use std::cell::Cell;

use uuid::Uuid;

/// Where ids begin: like those that are made by time.
const FIRST: u128 = 0x019b_77a0_0000_7000_8000_0000_0000_0000;

thread_local! {
    static COUNT: Cell<Option<u128>> = const { Cell::new(None) };
}

/// While it lives, ids made on this thread are counted.
pub(super) struct Counting;

pub(super) fn count() -> Counting {
    COUNT.set(Some(0));
    Counting
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNT.set(None);
    }
}

/// The next id, if they are counted on this thread.
pub(crate) fn counted_id() -> Option<Uuid> {
    let next = COUNT.get()? + 1;
    COUNT.set(Some(next));
    Some(Uuid::from_u128(FIRST + next))
}
