//! A PostgreSQL server for tests.
//!
//! `ROUNDEL_TEST_POSTGRES` names a server that runs already; otherwise one is made of the binaries
//! on this machine, in a temporary folder, as a user without rights, and it goes when the process
//! that asked for it goes, however that ends. A test that finds none says so and is counted as
//! untested; where `CI` is set it fails.
//!
//! Absent on purpose: anything that a server outside tests would need.

mod find;
mod keep;
mod packages;
mod pooler;
#[cfg(feature = "schema")]
mod schema;

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;

pub use find::{Binaries, install};
pub use keep::{Server, Sync};
pub use packages::install as install_packages;
pub use pooler::Pooler;
#[cfg(feature = "schema")]
pub use schema::{Schema, pooler, schema};

/// Names the server to test with, as `postgres://user:password@host:port/database`.
pub const VARIABLE: &str = "ROUNDEL_TEST_POSTGRES";

/// Names the file that takes a line for each test that had no server.
pub const UNTESTED: &str = "ROUNDEL_UNTESTED";

/// What to do where there is no server.
pub const ADVICE: &str = "install PostgreSQL 14 or later (Debian: apt-get install postgresql; \
     Fedora: dnf install postgresql-server; macOS: brew install postgresql), \
     or name a server for tests in ROUNDEL_TEST_POSTGRES";

/// Why there is no server, or no pooler.
#[derive(Clone, Debug)]
pub struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The address of the server that all tests of this process share.
///
/// # Errors
/// When there is none, and none could be started.
pub fn address() -> Result<&'static str, Unavailable> {
    static SHARED: OnceLock<Result<Shared, Unavailable>> = OnceLock::new();
    match SHARED.get_or_init(shared) {
        Ok(Shared::Named(address)) => Ok(address),
        Ok(Shared::Started(server)) => Ok(server.address()),
        Err(why) => Err(why.clone()),
    }
}

enum Shared {
    Named(String),
    Started(Server),
}

fn shared() -> Result<Shared, Unavailable> {
    if let Ok(named) = env::var(VARIABLE) {
        return Ok(Shared::Named(named));
    }
    Server::start(&Binaries::find()?, Sync::Off).map(Shared::Started)
}

/// Says that a test proved nothing, for want of a server.
///
/// # Panics
/// Where `CI` is set: there, what is not tested has failed.
pub fn untested(test: &str, why: &Unavailable) {
    assert!(!is_ci(), "{test} needs PostgreSQL: {why}; {ADVICE}");
    note(test, why);
}

/// The same, for want of a pooler.
///
/// # Panics
/// Where `CI` is set.
pub fn unpooled(test: &str, why: &Unavailable) {
    assert!(
        !is_ci(),
        "{test} needs PgBouncer: {why}; {}",
        Pooler::ADVICE
    );
    note(&format!("{test}{}", Pooler::MARK), why);
}

/// Writes down that a test proved nothing, and why.
pub fn note(test: &str, why: &dyn fmt::Display) {
    eprintln!("{test} was not tested: {why}");
    let Some(file) = env::var_os(UNTESTED) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(file);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{test}");
    }
}

/// Is this the machine that decides what may be merged?
#[must_use]
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}
