//! Rounds, leases, journal, replay (RO).

mod branches;
mod cancels;
mod commits;
pub mod sound;
