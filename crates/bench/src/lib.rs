//! Workloads that measure Roundel, and the raw limit of the machine to measure it against.
//!
//! Every figure stands beside the limit of the machine at that time: slices of the workload and of
//! the limit are taken in turn, and their medians compared. They need a runtime with more than one
//! thread, as the `roundel` command has it.

mod beside;
mod error;
pub mod facts;
mod ground;
pub mod growth;
pub mod held;
mod helper;
pub mod idle;
pub mod limit;
mod others;
pub mod percentile;
mod process;
pub mod retention;
mod tasks;
#[cfg(test)]
mod tests;
pub mod w1;
pub mod w2;
pub mod w3;
pub mod w4;
pub mod w5;

pub use beside::Raw;
pub use error::Error;
pub use ground::Target;
pub use helper::{Role, help};
pub use process::others_running;
