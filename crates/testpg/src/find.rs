//! Where the binaries are, and how they come to be there.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Unavailable, packages};

/// Where distributions put what is not on the path: a folder with one folder a version.
const FOLDERS: &[&str] = &[
    "/usr/lib/postgresql",
    "/usr/local/lib/postgresql",
    "/opt/homebrew/opt",
    "/usr/local/opt",
    "/usr",
];

/// What has to lie in one folder.
const PROGRAMS: &[&str] = &["postgres", "initdb", "pg_ctl"];

/// The oldest server that is supported.
const OLDEST: u32 = 14;

/// The programs of a server.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Those on the path, or else the newest where distributions put them.
    ///
    /// # Errors
    /// When there are none of version 14 or later.
    pub fn find() -> Result<Binaries, Unavailable> {
        let path = env::var_os("PATH").unwrap_or_default();
        let all = candidates(&path, FOLDERS);
        let usable = |folder: &&PathBuf| version(folder).is_some_and(|found| found >= OLDEST);
        match all.iter().find(usable) {
            Some(folder) => Ok(Binaries {
                folder: folder.clone(),
            }),
            None => Err(Unavailable(
                "there is no PostgreSQL on this machine".to_owned(),
            )),
        }
    }

    /// Where one of the programs is.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Folders with all programs, best first: the path in its order, then the highest versions.
fn candidates(path: &OsStr, folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in env::split_paths(path) {
        // Links to single programs: the others lie where they point to.
        let Ok(program) = folder.join(PROGRAMS[0]).canonicalize() else {
            continue;
        };
        found.extend(program.parent().map(Path::to_path_buf));
    }
    for folder in folders {
        let mut versions: BTreeSet<(u32, PathBuf)> = BTreeSet::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if let Some(version) = version_in(&entry.file_name().to_string_lossy()) {
                versions.insert((version, entry.path().join("bin")));
            }
        }
        found.extend(versions.into_iter().rev().map(|(_, folder)| folder));
    }
    found.retain(|folder| PROGRAMS.iter().all(|name| folder.join(name).is_file()));
    found
}

/// The number in `15`, `postgresql@15` or `pgsql-15`.
fn version_in(name: &str) -> Option<u32> {
    let number = ["postgresql@", "pgsql-", ""]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    number.parse().ok()
}

/// What the server says of itself.
fn version(folder: &Path) -> Option<u32> {
    let mut command = Command::new(folder.join("postgres"));
    let output = command
        .arg("--version")
        .stderr(Stdio::null())
        .output()
        .ok()?;
    major(&String::from_utf8_lossy(&output.stdout))
}

/// The number in `postgres (PostgreSQL) 15.12 (Debian 15.12-0+deb12u2)`, `17beta1` included.
fn major(said: &str) -> Option<u32> {
    let number = said.split("(PostgreSQL)").nth(1)?.trim_start();
    let digits = number.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Installs the distribution's package, where this process may, and says so.
///
/// # Errors
/// When it may not, or when that failed.
pub fn install() -> Result<Binaries, Unavailable> {
    packages::install("PostgreSQL", &["postgresql"]).map_err(Unavailable)?;
    Binaries::find()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(root: &Path, name: &str, programs: &[&str]) -> PathBuf {
        let folder = root.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        for program in programs {
            fs::write(folder.join(program), "").expect("a file");
        }
        folder
    }

    fn scratch(name: &str) -> PathBuf {
        let root = env::temp_dir().join(format!("testpg-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder");
        root.canonicalize().expect("a path")
    }

    #[test]
    fn the_path_comes_before_the_distributions_folder_and_high_versions_before_low() {
        let root = scratch("order");
        let on_path = folder_with(&root, "here", PROGRAMS);
        let old = folder_with(&root, "lib/9/bin", PROGRAMS);
        let new = folder_with(&root, "lib/16/bin", PROGRAMS);
        let lib = root.join("lib");
        let found = candidates(on_path.as_os_str(), &[lib.to_str().expect("text")]);
        assert_eq!(found, [on_path, new, old]);
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn a_link_on_the_path_leads_to_the_folder_with_all_programs() {
        let root = scratch("links");
        let real = folder_with(&root, "lib/15/bin", PROGRAMS);
        let links = folder_with(&root, "bin", &[]);
        std::os::unix::fs::symlink(real.join("postgres"), links.join("postgres")).expect("a link");
        assert_eq!(candidates(links.as_os_str(), &[]), [real]);
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn a_folder_that_lacks_a_program_is_passed_over() {
        let root = scratch("lacks");
        let half = folder_with(&root, "here", &["postgres", "initdb"]);
        assert!(candidates(half.as_os_str(), &[]).is_empty());
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn versions_are_read_from_what_servers_and_folders_say() {
        let debian = "postgres (PostgreSQL) 15.12 (Debian 15.12-0+deb12u2)\n";
        assert_eq!(major(debian), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 17beta1\n"), Some(17));
        assert_eq!(major("something else"), None);
        assert_eq!(version_in("postgresql@16"), Some(16));
        assert_eq!(version_in("pgsql-14"), Some(14));
        assert_eq!(version_in("13"), Some(13));
        assert_eq!(version_in("share"), None);
    }
}
