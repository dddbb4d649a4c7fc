//! Which browser, and how it comes to be there.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

/// Names the program of the browser.
pub const VARIABLE: &str = "ROUNDEL_TEST_BROWSER";

/// What to do where there is none.
pub const ADVICE: &str = "install Chromium (Debian: apt-get install chromium-headless-shell; \
     Fedora: dnf install chromium-headless; macOS: brew install --cask chromium), \
     or name its program in ROUNDEL_TEST_BROWSER";

/// Programs that will do, the smallest first.
const PROGRAMS: &[&str] = &[
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// What distributions call it; letters have to look like something.
const PACKAGES: &[&str] = &["chromium-headless-shell", "fonts-dejavu-core"];

/// Why there is no browser.
#[derive(Clone, Debug)]
pub struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The program of a browser: the one that is named, or else one on the path.
///
/// # Errors
/// When there is none.
pub fn find() -> Result<PathBuf, Unavailable> {
    if let Some(named) = env::var_os(VARIABLE) {
        return Ok(named.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let none = || Unavailable("there is no Chromium on this machine".to_owned());
    first_of(PROGRAMS, &folders).ok_or_else(none)
}

/// The first of these programs that lies in one of those folders.
fn first_of(programs: &[&str], folders: &[PathBuf]) -> Option<PathBuf> {
    let places = programs
        .iter()
        .flat_map(|program| folders.iter().map(move |folder| folder.join(program)));
    places.into_iter().find(|place| Path::is_file(place))
}

/// Installs the distribution's package, where this process may, and says so.
///
/// # Errors
/// When it may not, or when that failed.
pub fn install() -> Result<PathBuf, Unavailable> {
    roundel_testpg::install_packages("a browser", PACKAGES).map_err(Unavailable)?;
    find()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_program_is_taken_wherever_it_lies() {
        let root = env::temp_dir().join(format!("testweb-{}", std::process::id()));
        let folders = ["a", "b"].map(|name| root.join(name));
        for folder in &folders {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        assert_eq!(first_of(PROGRAMS, &folders), None);
        std::fs::write(folders[0].join("chromium"), "").expect("a file");
        std::fs::write(folders[1].join("chromium-headless-shell"), "").expect("a file");
        let found = first_of(PROGRAMS, &folders).expect("one");
        assert_eq!(found, folders[1].join("chromium-headless-shell"));
        let _ = std::fs::remove_dir_all(&root);
    }
}
