//! Packages of the distribution that tests need.

use std::path::Path;
use std::process::{Command, Stdio};

/// What a machine must have for packages to be installed.
#[derive(Clone, Copy, Debug)]
struct Machine {
    root: bool,
    apt: bool,
}

/// The commands that install these packages, or why not: only the administrator may, and nobody is
/// asked for a password.
fn plan<'a>(machine: Machine, packages: &[&'a str]) -> Result<Vec<Vec<&'a str>>, &'static str> {
    match machine {
        Machine { apt: false, .. } => Err("it is not known how this system installs packages"),
        Machine { root: false, .. } => Err("only the administrator can install packages"),
        _ => {
            let install = ["apt-get", "install", "-q", "-y", "--no-install-recommends"];
            let install = [&install[..], packages].concat();
            Ok(vec![vec!["apt-get", "update", "-q"], install])
        }
    }
}

/// Installs these packages, where this process may, and says what for.
///
/// # Errors
/// When it may not, or when that failed.
pub fn install(what: &str, packages: &[&str]) -> Result<(), String> {
    let machine = Machine {
        root: crate::keep::is_root(),
        apt: Path::new("/usr/bin/apt-get").exists(),
    };
    let commands = plan(machine, packages);
    let none = |why| format!("there is no {what} on this machine, and {why}");
    for command in commands.map_err(none)? {
        let said = command.join(" ");
        eprintln!("      {what} is needed for tests: {said}");
        let status = Command::new(command[0])
            .args(&command[1..])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(format!("`{said}` failed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_installed_by_the_administrator_only_and_without_questions() {
        let may = |root, apt| plan(Machine { root, apt }, &["postgresql"]);
        let commands = may(true, true).expect("commands");
        assert_eq!(commands[0], ["apt-get", "update", "-q"]);
        assert!(commands[1].contains(&"-y") && commands[1].contains(&"postgresql"));
        let refused = may(false, true).unwrap_err();
        assert!(refused.contains("only the administrator"), "{refused}");
        assert!(may(true, false).is_err());
    }
}
