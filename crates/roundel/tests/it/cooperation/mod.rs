//! Structured cooperation: a step is done when everything that it set off is done, and a failure
//! rolls back through all of it.

mod branches;
mod context;
mod deadlines;
mod executions;
mod finally;
mod found;
mod ledger;
mod named;
mod publishing;
mod resumed;
mod rollback;
mod sagas;
mod trace;
mod windows;
