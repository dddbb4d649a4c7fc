//! `keys`: what payloads are sealed with. They are in a file of their own, which nobody but its
//! owner can read, and which is changed by writing a new one in its place.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use roundel::{BadKeys, Clock, Keys as Ring, SystemClock, instant};
use serde_json::json;

use crate::exit::{Exit, Failed, Result};
use crate::show::Output;

/// The keys that payloads are sealed with.
#[derive(Subcommand, Debug)]
pub enum Keys {
    /// Make a file with a new key.
    New(Named),
    /// Add a key that opens, and does not seal yet: for all processes to have it first.
    Add(Named),
    /// From now on this key seals; the others open.
    Use(Use),
    /// Their names: the first seals.
    List(At),
}

#[derive(Args, Debug)]
pub struct At {
    /// The file of keys.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub struct Named {
    #[command(flatten)]
    at: At,
    /// What the key is called; the day unless said.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Args, Debug)]
pub struct Use {
    #[command(flatten)]
    at: At,
    /// Which key.
    #[arg(value_name = "NAME")]
    name: String,
}

impl From<BadKeys> for Failed {
    fn from(error: BadKeys) -> Failed {
        Failed::usage(error.to_string())
    }
}

impl Keys {
    pub(crate) fn output(&self) -> &Output {
        match self {
            Keys::New(args) | Keys::Add(args) => &args.at.output,
            Keys::Use(args) => &args.at.output,
            Keys::List(args) => &args.output,
        }
    }

    pub(crate) fn run(&self) -> Result<Exit> {
        match self {
            Keys::New(args) => {
                let text = format!("{HEAD}{}", Ring::generate(&args.name()));
                Ring::parse(&text)?;
                write_new(&args.at.file, &text).map_err(|error| args.at.failed(&error))?;
                let note = "keep a copy where the database is not: without it, what was sealed \
                            is lost";
                args.at.output.note(note);
                args.at.list()
            }
            Keys::Add(args) => {
                let text = args.at.read()? + &Ring::line(&args.name());
                args.at.replace(&text)?;
                args.at.list()
            }
            Keys::Use(args) => {
                let text = args.at.read()?;
                args.at.replace(&first(&text, &args.name)?)?;
                args.at.list()
            }
            Keys::List(args) => args.list(),
        }
    }
}

/// What a file begins with.
const HEAD: &str = "\
# Keys of Roundel, for payloads. The first seals, all of them open. The line of `resends`
# is how what is sent again is known: never change it.
";

impl Named {
    /// What the key is called.
    fn name(&self) -> String {
        let today = || instant(SystemClock::default().now())[..10].to_owned();
        self.name.clone().unwrap_or_else(today)
    }
}

impl At {
    fn failed(&self, error: &io::Error) -> Failed {
        let file = self.file.display();
        Failed::usage(format!("the file {file} cannot be written: {error}"))
    }

    /// What is in the file, which must be one of keys.
    fn read(&self) -> Result<String> {
        Ring::read(&self.file)?;
        let text = std::fs::read_to_string(&self.file);
        let mut text = text.map_err(|error| self.failed(&error))?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text)
    }

    /// Writes a new file beside the old one, and puts it in its place.
    fn replace(&self, text: &str) -> Result<()> {
        Ring::parse(text)?;
        let number = std::process::id();
        let beside = self.file.with_extension(format!("{number}.new"));
        let replaced = write_new(&beside, text)
            .and_then(|()| std::fs::rename(&beside, &self.file))
            .inspect_err(|_| drop(std::fs::remove_file(&beside)));
        replaced.map_err(|error| self.failed(&error))
    }

    fn list(&self) -> Result<Exit> {
        let keys = Ring::read(&self.file)?;
        let mut screen = self.output.screen();
        for (number, name) in keys.names().enumerate() {
            let does = if number == 0 { "seals" } else { "opens" };
            match self.output.json {
                true => screen.json(&json!({"name": name, "seals": number == 0})),
                false => screen.line(&format!("{name}  {does}")),
            }
        }
        screen.flush()?;
        Ok(Exit::Done)
    }
}

/// The same keys, this one before the others.
fn first(text: &str, name: &str) -> Result<String> {
    let of = |line: &str| {
        let (key, _) = line.split_once(':')?;
        (!line.trim_start().starts_with('#')).then(|| key.trim().to_owned())
    };
    let lines: Vec<&str> = text.lines().collect();
    let found = lines
        .iter()
        .position(|line| of(line).as_deref() == Some(name));
    let Some(found) = found.filter(|_| name != "resends") else {
        return Err(Failed::usage(format!(
            "there is no key `{name}` in that file"
        )));
    };
    let before = lines
        .iter()
        .position(|line| of(line).is_some())
        .unwrap_or(0);
    let mut lines = lines;
    let line = lines.remove(found);
    lines.insert(before, line);
    Ok(lines.join("\n") + "\n")
}

/// Makes a file that nobody but its owner can read.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_key_that_is_used_comes_first_and_nothing_else_changes() {
        let text = format!("{HEAD}one: 1\nresends: 2\n# a: b\ntwo: 3\n");
        let after = first(&text, "two").expect("it is there");
        assert_eq!(after, format!("{HEAD}two: 3\none: 1\nresends: 2\n# a: b\n"));
        for name in ["resends", "three", "a", "# a"] {
            assert!(first(&text, name).is_err(), "{name}");
        }
    }
}
