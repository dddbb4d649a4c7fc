//! Structured cooperation: a step is done when everything that it set off is done, and a failure
//! rolls back through all of it.

mod absent;
mod again;
mod branches;
mod context;
mod deadlines;
mod executions;
mod finally;
mod found;
mod kept;
mod late;
mod ledger;
mod named;
mod publishing;
mod readable;
mod resumed;
mod rollback;
mod sagas;
pub mod trace;
mod windows;
