//! The PostgreSQL server that all tests of a run share, and the pooler of some.
//!
//! One that is named in the environment, or else one of this machine's binaries, or else the
//! distribution's package, which is installed if this process is the administrator's. Where none of
//! these works, tests of PostgreSQL are counted as untested; on a build machine the run fails.

use std::path::Path;

use roundel_testpg::{ADVICE, Binaries, Pooler, Server, Sync, VARIABLE, install, is_ci};

/// A server for this run; none if there is one already, or if there can be none.
///
/// # Errors
/// When there must be one, and there is none: said.
pub(crate) fn start() -> Result<Option<Server>, ()> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(None);
    }
    let binaries = Binaries::find().or_else(|_| install());
    match binaries.and_then(|binaries| Server::start(&binaries, Sync::Off)) {
        Ok(server) => Ok(Some(server)),
        Err(why) => {
            println!("      without PostgreSQL: {why}; {ADVICE}");
            if is_ci() { Err(()) } else { Ok(None) }
        }
    }
}

/// Makes sure that there is a pooler, whoever brought the server.
///
/// # Errors
/// When there must be one, and there is none: said.
pub(crate) fn pooler_ready() -> Result<(), ()> {
    match Pooler::find().or_else(|_| Pooler::install()) {
        Ok(_) => Ok(()),
        Err(why) => {
            println!("      without PgBouncer: {why}; {}", Pooler::ADVICE);
            if is_ci() { Err(()) } else { Ok(()) }
        }
    }
}

/// What to say of tests that had no server, no pooler or no browser, if there were any.
pub(crate) fn missed(file: &Path) -> Option<String> {
    let lines = std::fs::read_to_string(file).ok()?;
    let (web, other): (Vec<&str>, Vec<&str>) = lines
        .lines()
        .partition(|line| line.ends_with(roundel_testweb::MARK));
    let (pooled, other): (Vec<&str>, Vec<&str>) = other
        .into_iter()
        .partition(|line| line.ends_with(Pooler::MARK));
    let of = |tests: &[&str], what: &str, advice: &str| {
        let count = tests.len();
        let text = format!("{count} tests proved nothing, for want of {what}: {advice}");
        (count > 0).then_some(text)
    };
    let said = [
        of(&other, "PostgreSQL", ADVICE),
        of(&pooled, "PgBouncer", Pooler::ADVICE),
        of(&web, "a browser", roundel_testweb::ADVICE),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join("\n      "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_without_a_server_are_counted_with_what_to_do() {
        let file = std::env::temp_dir().join(format!("untested-{}", std::process::id()));
        assert_eq!(missed(&file), None);
        std::fs::write(&file, "a: one\nb: two\nc (browser)\nd (pooler)\n").expect("a file");
        let said = missed(&file).expect("lines");
        assert!(said.starts_with("2 tests proved nothing"), "{said}");
        assert!(said.contains("install PostgreSQL"), "{said}");
        assert!(
            said.contains("1 tests proved nothing, for want of a browser"),
            "{said}"
        );
        assert!(
            said.contains("1 tests proved nothing, for want of PgBouncer: install PgBouncer"),
            "{said}"
        );
        let _ = std::fs::remove_file(&file);
    }
}
