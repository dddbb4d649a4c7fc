//! Payloads are sealed before they leave the process, and opened when they come back, if somebody
//! gave the engine [`Keys`].
//!
//! There is one waist: [`Sealed`] stands in front of the store and lets nothing past by type. What
//! is asked is sealed in one walk over operations ([`ops`]), what is answered is opened in one over
//! answers ([`answers`]), and both know for each value at which [`place`] it lies, so that a value
//! that was moved to another does not open. Whoever decides, and whatever stores, never sees a key.
//!
//! What cannot be opened is left as it is, sealed: who shows it says so ([`masked`]), and who needs
//! it tells what is missing from what is broken ([`Unread`]). Absent on purpose: facts and
//! documents, which are folded by commits, and whatever is searched by: names, keys, labels.

mod answers;
mod envelope;
mod keys;
mod ops;
mod place;
mod store;
#[cfg(test)]
mod tests;
mod unread;
mod walk;

pub(crate) use answers::opened;
pub use keys::{BadKeys, Keys};
pub(crate) use store::Sealed;
pub use unread::masked;
pub(crate) use unread::{Unread, key_of, sealed_entries, sealed_outcome, sealed_state};
