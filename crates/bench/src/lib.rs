//! Workloads that measure Roundel, and the raw limit of the machine to measure it against.

pub mod idle;
pub mod limit;
pub mod percentile;
pub mod w1;
