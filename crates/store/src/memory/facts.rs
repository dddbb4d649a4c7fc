//! Facts and documents, as they are read.

use roundel_core::{DocumentId, FactId, FactRow, Name, Passing, Tail};

use super::read::page;
use super::state::Tables;
use crate::query::look;
use crate::{
    Answer, DocumentFilter, DocumentView, FactFilter, FactView, LOOK, Page, Position, Projected,
    Query, Stretch,
};

impl Tables {
    /// A question about facts or documents.
    pub(super) fn of_facts(&self, query: &Query) -> Answer {
        match query {
            Query::Fact(id) => Answer::Facts(Stretch::of(self.fact(id), |fact| fact.position)),
            Query::Facts(filter) => Answer::Facts(self.facts(filter)),
            Query::Document(id) => Answer::Documents(self.document(id)),
            Query::Documents(filter) => Answer::Documents(self.documents(filter)),
            Query::Projections { namespace, count } => {
                Answer::Projections(self.projections(namespace.as_ref(), *count))
            }
            _ => unreachable!("a question about something else"),
        }
    }

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

    fn fact(&self, id: &FactId) -> Page<FactView> {
        page(self.views(Position::default(), |of, _| of == id), 1)
    }

    fn facts(&self, filter: &FactFilter) -> Stretch<FactView, Position> {
        let after = filter.after.unwrap_or_default();
        let fits = |id: &FactId, row: &FactRow| {
            let its_namespace = filter.namespace.as_ref();
            let its_kind = filter.kind.as_ref();
            its_namespace.is_none_or(|name| *name == id.namespace)
                && its_kind.is_none_or(|kind| *kind == row.kind)
        };
        let on_the_way = |_: &FactId, row: &FactRow| {
            let its_run = |run| row.cause.is_some_and(|cause| cause.run == run);
            filter.run.is_none_or(its_run)
                && filter.stream.as_ref().is_none_or(|(stream, after)| {
                    let its = row.stream.as_ref();
                    its.is_some_and(|(name, version)| name == stream && version > after)
                })
        };
        let limit = filter.limit.clamp(1, 1_000);
        let rows = self.views(after, on_the_way).map(|view| {
            let found = fits(&view.id, &view.row);
            (view.position, found.then_some(view))
        });
        if filter.run.is_some() || filter.stream.is_some() {
            let found = page(rows.filter_map(|(_, found)| found), limit);
            return Stretch::of(found, |fact| fact.position);
        }
        look::stretch(rows, limit, filter.look.unwrap_or(LOOK))
    }

    fn document(&self, id: &DocumentId) -> Page<DocumentView> {
        let found = self.rows.live_document(id).map(|(generation, row)| {
            let id = DocumentId {
                generation,
                ..id.clone()
            };
            (id, row.clone())
        });
        page(found.into_iter(), 1)
    }

    fn is_live(&self, id: &DocumentId) -> bool {
        let live = self.rows.live_document(id);
        live.is_some_and(|(generation, _)| generation == id.generation)
    }

    /// The facts after this position.
    pub(super) fn tail(&self, after: Position, limit: usize) -> Tail {
        let all = self.views(after, |_, _| true).take(limit);
        Tail {
            facts: all
                .map(|view| Passing::new(view.position, view.id, view.row))
                .collect(),
            unsettled: false,
        }
    }

    /// Documents from this path on, of whatever generation.
    pub(super) fn swept(&self, namespace: &Name, from: &str, limit: usize) -> Vec<DocumentId> {
        let all = self.rows.documents.iter().map(|(id, _)| id);
        let its = all.filter(|id| id.namespace == *namespace && id.path.as_str() >= from);
        its.take(limit).cloned().collect()
    }

    fn projections(&self, namespace: Option<&Name>, count: bool) -> Projected {
        let all = self.rows.projections.iter();
        let its = all.filter(|(id, _)| namespace.is_none_or(|name| *name == id.namespace));
        let number = self.rest.facts.len() as u64;
        Projected {
            projections: its.map(|(id, row)| (id.clone(), row.clone())).collect(),
            head: Position { batch: 0, number },
            facts: count.then_some(number),
        }
    }

    fn documents(&self, filter: &DocumentFilter) -> Page<DocumentView> {
        let asked = |(id, row): &DocumentView| {
            let named = filter.namespace.as_ref();
            named.is_none_or(|name| *name == id.namespace)
                && (named.is_none() || id.path.as_str().starts_with(&filter.prefix))
                && (filter.removed || row.value.is_some())
                && filter.after.as_ref().is_none_or(|after| match named {
                    None => id > after,
                    Some(_) => id.path > after.path,
                })
                && (named.is_none() || self.is_live(id))
        };
        let all = self.rows.documents.iter();
        let all = all.map(|(id, row)| (id.clone(), row.clone()));
        page(all.filter(asked), filter.limit)
    }
}
