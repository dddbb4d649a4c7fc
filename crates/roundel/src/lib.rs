//! Roundel.
