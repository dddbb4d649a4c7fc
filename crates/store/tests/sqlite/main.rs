//! The SQLite store, from outside: what it keeps, what it refuses, and what it survives.

mod basics;
mod disk;
mod due;
mod figures;
mod io;
mod opening;
mod processes;
mod reading;
mod sql;
mod steps;
mod tools;
mod troubles;
mod verify;
