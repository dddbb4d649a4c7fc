//! Rounds, leases, journal, replay (RO).

mod anew;
mod branches;
mod cancels;
mod children;
mod commits;
mod recorded;
mod retries;
pub mod sound;
