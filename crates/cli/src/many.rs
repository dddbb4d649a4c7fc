//! What commands about many runs have in common: pages of them, and that somebody agrees.

use std::io::{BufRead, IsTerminal, Write};
use std::str::FromStr;

use clap::Args;

use crate::exit::{Failed, Result};

/// A page of a list.
#[derive(Args, Clone, Debug)]
pub(crate) struct Paging<I>
where
    I: FromStr + Clone + Send + Sync + 'static,
    I::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// So many at most, 1 to 1,000.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after this one: the last of the page before.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<I>,
}

impl<I> Paging<I>
where
    I: FromStr + Clone + Send + Sync + 'static,
    I::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(crate) fn limit(&self) -> usize {
        self.limit.into()
    }
}

/// About all that fit.
#[derive(Args, Debug)]
pub(crate) struct Many {
    /// All of the namespace.
    #[arg(long)]
    all: bool,
    /// Do it without asking.
    #[arg(long, short)]
    yes: bool,
    /// Only say how many there are.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Many {
    /// They are named one by one.
    pub(crate) fn named(&self) -> Result<()> {
        match self.dry_run {
            false => Ok(()),
            true => Err(Failed::usage(
                "--dry-run is for a filter; named runs are simply shown",
            )),
        }
    }

    /// Does whoever is there agree?
    pub(crate) fn agree(&self, question: &str) -> Result<()> {
        match self.yes || agreed(question)? {
            true => Ok(()),
            false => Err(Failed::usage("nothing was done")),
        }
    }
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Asks whoever sits there; without anybody there, it needs to be said beforehand.
pub(crate) fn agreed(question: &str) -> Result<bool> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Failed::usage(format!(
            "{question} nobody is there to be asked; say --yes, or --dry-run to look first"
        )));
    }
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
