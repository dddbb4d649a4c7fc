//! The PostgreSQL server that all tests of a run share.
//!
//! One that is named in the environment, or else one of this machine's binaries, or else the
//! distribution's package, which is installed if this process is the administrator's. Where none of
//! these works, tests of PostgreSQL are counted as untested; on a build machine the run fails.

use std::path::Path;

use roundel_testpg::{Binaries, Server, Sync, VARIABLE, install, is_ci};

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
            println!("      without PostgreSQL: {why}");
            if is_ci() { Err(()) } else { Ok(None) }
        }
    }
}

/// What to say of tests that had no server, if there were any.
pub(crate) fn missed(file: &Path) -> Option<String> {
    let lines = std::fs::read_to_string(file).ok()?;
    let count = lines.lines().count();
    (count > 0).then(|| {
        format!(
            "{count} tests proved nothing, for want of PostgreSQL: {}",
            roundel_testpg::ADVICE
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_without_a_server_are_counted_with_what_to_do() {
        let file = std::env::temp_dir().join(format!("untested-{}", std::process::id()));
        assert_eq!(missed(&file), None);
        std::fs::write(&file, "a: one\nb: two\n").expect("a file");
        let said = missed(&file).expect("a line");
        assert!(said.starts_with("2 tests proved nothing"), "{said}");
        assert!(said.contains("install PostgreSQL"), "{said}");
        let _ = std::fs::remove_file(&file);
    }
}
