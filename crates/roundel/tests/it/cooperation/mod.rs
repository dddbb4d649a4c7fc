//! Structured cooperation: a step is done when everything that it set off is done, and a failure
//! rolls back through all of it.

mod executions;
mod ledger;
mod publishing;
mod rollback;
mod trace;
mod windows;
