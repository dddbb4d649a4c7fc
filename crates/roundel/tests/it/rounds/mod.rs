//! Rounds, leases, journal, replay (RO).

mod ahead;
mod anew;
mod branches;
mod cancels;
mod children;
mod commits;
mod deletes;
mod diverged;
mod journal;
mod leases;
mod limits;
mod line;
mod lists;
mod metrics;
mod queues;
mod recorded;
mod replayed;
mod retention;
mod retries;
mod shutdown;
pub mod sound;
mod suspects;
mod versions;
