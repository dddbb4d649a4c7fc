//! A browser for tests: Chromium without a window, driven over its DevTools protocol, through a
//! pipe. It goes when the test goes.
//!
//! `ROUNDEL_TEST_BROWSER` names the program; otherwise one of this machine's is taken. A test that
//! finds none says so and is counted as untested; where `CI` is set it fails.
//!
//! A page remembers everything that it had to complain about: errors on its console, exceptions,
//! what its content security policy forbade, dialogs that a script opened. A test asks for that at
//! its end ([`Page::is_sound`]).
//!
//! Absent on purpose: other browsers, and whatever of the protocol no test here needs.

mod find;
mod page;
mod wire;

pub use find::{ADVICE, Unavailable, VARIABLE, find, install};
pub use page::{Browser, Page};

/// Says that a test proved nothing, for want of a browser.
///
/// # Panics
/// Where `CI` is set: there, what is not tested has failed.
pub fn untested(test: &str, why: &Unavailable) {
    assert!(
        !roundel_testpg::is_ci(),
        "{test} needs a browser: {why}; {ADVICE}"
    );
    roundel_testpg::note(&format!("{test}{MARK}"), why);
}

/// Ends the line of a test that wanted a browser, among those that wanted something.
pub const MARK: &str = " (browser)";
