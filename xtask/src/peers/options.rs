//! What the command line asks for.

use std::path::{Path, PathBuf};

use super::catalogue::PEERS;

/// Beside the project, where nothing else is said.
const PROGRAMS: &str = "../shared/peers";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The folder of the others' programs.
    pub(super) programs: PathBuf,
    /// How often everything is measured.
    pub(super) turns: usize,
    /// Names of peers; empty for all.
    pub(super) only: Vec<String>,
    /// A tenth of the work, to see whether everything runs.
    pub(super) quick: bool,
}

impl Options {
    pub(super) fn parse(root: &Path, arguments: &[String]) -> Result<Options, String> {
        let mut options = Options {
            programs: root.join(PROGRAMS),
            turns: 2,
            only: Vec::new(),
            quick: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let missing = || format!("error: `{argument}` needs a value");
                rest.next().ok_or_else(missing)
            };
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--programs" => options.programs = PathBuf::from(value()?),
                "--turns" => options.turns = turns(value()?)?,
                "--only" => options.only = names(value()?)?,
                unknown => {
                    return Err(format!(
                        "error: `peers` does not know `{unknown}`; it takes --programs FOLDER, \
                         --turns N, --only NAME,NAME and --quick"
                    ));
                }
            }
        }
        Ok(options)
    }

    pub(super) fn asks_for(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|asked| asked == name)
    }

    /// Whether the page may be written of it.
    pub(super) fn whole(&self) -> bool {
        self.only.is_empty() && !self.quick && self.turns > 1
    }
}

fn turns(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(turns @ 1..=20) => Ok(turns),
        _ => Err(format!("error: --turns takes 1 to 20, not `{value}`")),
    }
}

fn names(value: &str) -> Result<Vec<String>, String> {
    let known = |name: &str| PEERS.iter().any(|peer| peer.name == name);
    let asked: Vec<String> = value.split(',').map(str::to_owned).collect();
    match asked.iter().find(|name| !known(name)) {
        None => Ok(asked),
        Some(name) => {
            let all: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
            Err(format!(
                "error: there is no peer `{name}`; there are {}",
                all.join(", ")
            ))
        }
    }
}
