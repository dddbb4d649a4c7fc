//! One list of tests for all stores: what each must answer and keep, seen through the port alone.
//!
//! A store's own tests say `roundel_store::conformance!(make)`, where `make` gives a fresh store
//! and the clock that it runs on. Each line becomes a test of its own, so that what fails has a
//! name.

mod desk;
pub mod lists;

use std::sync::Arc;

use crate::{ManualClock, Store};

/// Gives a fresh, empty store and its clock.
pub type Make = dyn Fn() -> (Arc<dyn Store>, Arc<ManualClock>);
