//! Rounds, leases, journal, replay (RO).

mod first;
