//! Rounds, leases, journal, replay (RO).

mod commits;
pub mod sound;
