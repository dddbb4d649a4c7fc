//! Values that are sealed: what is stored of them, where they open, and what becomes of runs that
//! cannot be read.

mod canary;
mod keyless;
mod lookalikes;
mod moves;
mod tampered;

use std::sync::LazyLock;

use roundel::Keys;

/// The same for all processes of a test.
fn keys() -> Keys {
    static KEYS: LazyLock<Keys> =
        LazyLock::new(|| Keys::parse(&Keys::generate("one")).expect("new keys"));
    KEYS.clone()
}
