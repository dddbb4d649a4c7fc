//! Questions about facts and documents.

use roundel_core::{
    DocumentId, DocumentRow, FactId, FactRow, Name, Position, ProjectionId, ProjectionRow, RunId,
};

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

/// A projection.
pub type ProjectionView = (ProjectionId, ProjectionRow);

/// Projections, and how far facts are.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Projected {
    /// By name.
    pub projections: Vec<ProjectionView>,
    /// Where the last fact stands.
    pub head: Position,
    /// How many facts there are, if that was asked for.
    pub facts: Option<u64>,
}

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
    /// Those after this one: where the look before ended.
    pub after: Option<Position>,
    /// Only those before which nothing can come any more: for whoever must not miss any.
    pub settled: bool,
    /// How many at most.
    pub limit: usize,
    /// How many of all facts are passed at most, whether they fit or not; [`LOOK`](crate::LOOK)
    /// unless said. Those of a run or a stream have a way of their own.
    pub look: Option<usize>,
}

/// Which documents.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct DocumentFilter {
    /// Of which tenant, those that are read; of all tenants and generations if none is said.
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
    /// The generation of the last of the page before.
    pub(crate) fn after_generation(&self) -> i64 {
        let after = self.after.as_ref();
        after.map_or(-1, |id| i64::from(id.generation))
    }

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

/// Where the facts stand that projections have passed differs between stores, and so do the numbers
/// of transactions: how many they have passed does not.
pub(crate) fn without_positions(mut views: Vec<ProjectionView>) -> Vec<ProjectionView> {
    views.iter_mut().for_each(|(_, row)| forget_positions(row));
    views
}

/// The same, of one.
pub(crate) fn forget_positions(row: &mut ProjectionRow) {
    for build in [row.live.as_mut(), row.next.as_mut()].into_iter().flatten() {
        build.position = Position::default();
        if let Some(stuck) = &mut build.stuck {
            stuck.position = Position::default();
        }
    }
}
