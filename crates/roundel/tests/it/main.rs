//! What the engine promises, seen from outside.

mod rounds;
mod smoke;
mod support;
