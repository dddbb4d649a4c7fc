//! What the engine promises, seen from outside.

// The helpers of one module are public to the others.
#![allow(unreachable_pub)]

mod rounds;
mod signals;
mod smoke;
mod support;
