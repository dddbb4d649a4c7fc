//! What the engine promises, seen from outside.

// The helpers of one module are public to the others.
#![allow(unreachable_pub)]

mod bad_input;
mod check;
#[cfg(feature = "testkit")]
mod command_flows;
mod commands;
mod cooperation;
mod elsewhere;
mod ends;
mod examples;
#[cfg(feature = "testkit")]
mod explore;
#[cfg(feature = "testkit")]
mod fact_flows;
mod facts;
#[cfg(feature = "testkit")]
mod flows;
mod incoming;
mod moving;
mod objects;
#[cfg(feature = "postgres")]
mod pooled;
mod projections;
mod rounds;
mod schedules;
mod sealed;
mod signals;
mod smoke;
mod support;
#[cfg(feature = "testkit")]
mod testkit;
#[cfg(feature = "testkit")]
mod tree_flows;
