//! Rounds, leases, journal, replay (RO).

mod anew;
mod branches;
mod cancels;
mod children;
mod commits;
mod diverged;
mod journal;
mod leases;
mod limits;
mod recorded;
mod replayed;
mod retries;
pub mod sound;
mod suspects;
mod versions;
