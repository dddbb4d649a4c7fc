//! Panics of plays are told once, in the report, not by each play: while a thread explores, what
//! they say is kept instead of printed.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static HUSHED: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Panics that are kept.
const KEPT: usize = 20;

/// While it lives, this thread's panics are kept.
pub(super) struct Hushed;

/// From now on, this thread's panics are kept. Those of other threads are printed as ever.
pub(super) fn hush() -> Hushed {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if HUSHED.get() {
                let place = info.location().map(|place| format!("{place}: "));
                let payload = info.payload();
                let text = payload.downcast_ref::<&str>().copied();
                let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                let said = text.unwrap_or("it panicked");
                let said = format!("{}{said}", place.unwrap_or_default());
                SAID.with_borrow_mut(|all| {
                    if all.len() < KEPT {
                        all.push(said);
                    }
                });
            } else {
                before(info);
            }
        }));
    });
    HUSHED.set(true);
    Hushed
}

impl Drop for Hushed {
    fn drop(&mut self) {
        HUSHED.set(false);
    }
}

/// What the panics of this thread said since the last time, and where they were.
pub(super) fn said() -> Vec<String> {
    SAID.take()
}
