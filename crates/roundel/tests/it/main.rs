//! What the engine promises, seen from outside.

mod rounds;
mod signals;
mod smoke;
mod support;
