//! Questions about facts and documents.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use roundel_core::{DocumentId, DocumentRow, FactId, FactRow, Name, RunId};

/// Where a fact stands among all. Only PostgreSQL has more than one batch: its transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The transaction.
    pub batch: u64,
    /// The number in it.
    pub number: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            0 => write!(f, "{}", self.number),
            batch => write!(f, "{batch}.{}", self.number),
        }
    }
}

impl FromStr for Position {
    type Err = ParseIntError;

    /// As it is shown.
    fn from_str(text: &str) -> Result<Position, ParseIntError> {
        let (batch, number) = text.split_once('.').unwrap_or(("0", text));
        Ok(Position {
            batch: batch.parse()?,
            number: number.parse()?,
        })
    }
}

/// A fact, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct FactView {
    /// Among all.
    pub position: Position,
    /// Its id.
    pub id: FactId,
    /// What it says.
    pub row: FactRow,
}

/// A document.
pub type DocumentView = (DocumentId, DocumentRow);

/// Which facts.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct FactFilter {
    /// Of which tenant; of all if none is said, but streams have one.
    pub namespace: Option<Name>,
    /// Of which kind.
    pub kind: Option<Name>,
    /// Recorded by which run.
    pub run: Option<RunId>,
    /// Of which stream, those after this number, in the stream's order.
    pub stream: Option<(Name, u64)>,
    /// Those after this one: the last of the page before.
    pub after: Option<Position>,
    /// Only those before which nothing can come any more: for whoever must not miss any.
    pub settled: bool,
    /// How many at most.
    pub limit: usize,
}

/// Which documents.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct DocumentFilter {
    /// Of which tenant; of all if none is said.
    pub namespace: Option<Name>,
    /// Whose path begins like this; looked at only if a tenant is said.
    pub prefix: String,
    /// Also those that a fact has removed.
    pub removed: bool,
    /// Those after this one: the last of the page before.
    pub after: Option<DocumentId>,
    /// How many at most.
    pub limit: usize,
}

impl DocumentFilter {
    /// Namespace and path of the last of the page before.
    pub(crate) fn after_names(&self) -> (&str, &str) {
        let after = self.after.as_ref();
        after.map_or(("", ""), |id| (id.namespace.as_str(), id.path.as_str()))
    }

    /// Paths from this one to before that one begin so, and come after the page before.
    pub(crate) fn range(&self) -> (String, String) {
        let from = self.prefix.as_str().max(self.after_names().1);
        (from.to_owned(), [&self.prefix, "\u{10FFFF}"].concat())
    }
}
