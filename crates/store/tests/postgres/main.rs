//! The PostgreSQL store, from outside: what it refuses, what processes hear of each other, and what
//! it survives.

mod confine;
mod facts;
mod faults;
mod kept;
mod marks;
mod moving;
mod opening;
mod processes;
mod removals;
mod sql;
mod tools;
