//! Facts and documents, as they are read.

use roundel_core::{DocumentId, FactId, FactRow};

use super::read::page;
use super::state::Tables;
use crate::{DocumentFilter, DocumentView, FactFilter, FactView, Page, Position};

impl Tables {
    /// All facts, in the order in which they were recorded.
    pub(super) fn facts_in_order(&self) -> impl Iterator<Item = (&FactId, &FactRow)> {
        let row = |id| self.rows.facts.get(id).expect("a recorded fact is here");
        self.rest.facts.iter().map(move |id| (id, row(id)))
    }

    /// Those after this position for which that holds.
    fn views(
        &self,
        after: Position,
        asked: impl Fn(&FactId, &FactRow) -> bool,
    ) -> impl Iterator<Item = FactView> {
        let number = usize::try_from(after.number).unwrap_or(usize::MAX);
        let facts = self.facts_in_order().skip(number);
        let numbered = (after.number + 1..).zip(facts);
        let found = numbered.filter(move |(_, (id, row))| asked(id, row));
        found.map(|(number, (id, row))| FactView {
            position: Position { batch: 0, number },
            id: id.clone(),
            row: row.clone(),
        })
    }

    pub(super) fn fact(&self, id: &FactId) -> Page<FactView> {
        page(self.views(Position::default(), |of, _| of == id), 1)
    }

    pub(super) fn facts(&self, filter: &FactFilter) -> Page<FactView> {
        let after = filter.after.unwrap_or_default();
        let asked = |id: &FactId, row: &FactRow| {
            let its_namespace = filter.namespace.as_ref();
            let its_kind = filter.kind.as_ref();
            let its_run = |run| row.cause.is_some_and(|cause| cause.run == run);
            its_namespace.is_none_or(|name| *name == id.namespace)
                && its_kind.is_none_or(|kind| *kind == row.kind)
                && filter.run.is_none_or(its_run)
                && filter.stream.as_ref().is_none_or(|(stream, after)| {
                    let its = row.stream.as_ref();
                    its.is_some_and(|(name, version)| name == stream && version > after)
                })
        };
        page(self.views(after, asked), filter.limit)
    }

    pub(super) fn document(&self, id: &DocumentId) -> Page<DocumentView> {
        let found = self.rows.documents.get(id);
        page(found.map(|row| (id.clone(), row.clone())).into_iter(), 1)
    }

    pub(super) fn documents(&self, filter: &DocumentFilter) -> Page<DocumentView> {
        let asked = |(id, row): &DocumentView| {
            let named = filter.namespace.as_ref();
            named.is_none_or(|name| *name == id.namespace)
                && (named.is_none() || id.path.as_str().starts_with(&filter.prefix))
                && (filter.removed || row.value.is_some())
                && filter.after.as_ref().is_none_or(|after| id > after)
        };
        let all = self.rows.documents.iter();
        let all = all.map(|(id, row)| (id.clone(), row.clone()));
        page(all.filter(asked), filter.limit)
    }
}
