//! Rounds, leases, journal, replay (RO).

mod branches;
mod cancels;
mod children;
mod commits;
mod retries;
pub mod sound;
