//! The SQLite store, from outside: what it keeps, what it refuses, and what it survives.

mod basics;
mod tools;
