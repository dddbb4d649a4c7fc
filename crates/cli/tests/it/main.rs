//! The `roundel` command, as it is typed.

mod demo;
