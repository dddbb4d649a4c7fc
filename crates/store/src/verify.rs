//! Checks all rows of a store, page by page, so that any file is checked in bounded memory, also
//! while others work on it: a page is read at one moment.

use roundel_core::check::{self, ProjectionReader, Violation};
use roundel_core::{AuditReader, DocumentId, FactReader, Name, RunId};

use crate::{Answer, AuditFilter, DocumentFilter, Error, FactFilter, Position, Query, Store};

/// Runs in a page, and offers.
const PAGE: usize = 500;

/// How much is checked: of what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// The rows: what holds after any list of operations.
    Rows,
    /// The rows, and what journals say: what holds if workers wrote them.
    Entries,
}

/// What has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Runs.
    pub runs: u64,
    /// Rows of journals.
    pub rounds: u64,
    /// Messages that wait.
    pub messages: u64,
    /// Offers that wait.
    pub offers: u64,
    /// Rows of the audit.
    pub audited: u64,
    /// Facts.
    pub facts: u64,
    /// What should not be.
    pub violations: u64,
}

/// Checks every run, every offer, the audit and the facts. After each page, what was found in it is
/// told, with what has been looked at so far.
///
/// # Errors
/// When rows cannot be read.
pub async fn verify(
    store: &dyn Store,
    depth: Depth,
    mut told: impl FnMut(&Checked, Vec<Violation>),
) -> Result<Checked, Error> {
    let mut verifying = Verifying::new(depth);
    while let Some(query) = verifying.next() {
        let found = verifying.take(store.read(query).await?);
        told(&verifying.checked, found);
    }
    Ok(verifying.checked)
}

/// A check under way: what it asks for next, and what it has seen.
pub(crate) struct Verifying {
    depth: Depth,
    pub(crate) checked: Checked,
    audit: AuditReader,
    facts: FactReader,
    /// A fact that is there and that somebody waited for; looked at again once all is read.
    doubt: Option<(RunId, Name)>,
    projections: ProjectionReader,
    facts_read: bool,
    next: Option<Query>,
}

impl Verifying {
    pub(crate) fn new(depth: Depth) -> Verifying {
        Verifying {
            depth,
            checked: Checked::default(),
            audit: AuditReader::default(),
            facts: FactReader::default(),
            doubt: None,
            projections: ProjectionReader::default(),
            facts_read: false,
            next: Some(Query::Records(None, PAGE)),
        }
    }

    /// What to ask for; nothing once all is checked.
    pub(crate) fn next(&mut self) -> Option<Query> {
        self.next.take()
    }

    fn audit_page(&self) -> Query {
        Query::Audit(AuditFilter {
            after: self.audit.last().map(|(id, _)| id.clone()),
            limit: PAGE,
            ..AuditFilter::default()
        })
    }

    /// Who waited for a fact that is there is looked at again: it may have been recorded meanwhile.
    fn doubts(&mut self) -> Option<Query> {
        self.doubt = self.facts.doubt();
        let (mark, _) = self.doubt.as_ref()?;
        let before = mark.0.as_u128().checked_sub(1)?;
        let before = RunId(uuid::Uuid::from_u128(before));
        Some(Query::Records(Some(before), 1))
    }

    /// Checks an answer. Returns what should not be.
    pub(crate) fn take(&mut self, answer: Answer) -> Vec<Violation> {
        let mut found = Vec::new();
        match answer {
            Answer::Records(page) if self.doubt.is_some() => {
                let (mark, id) = self.doubt.take().expect("asked for");
                let its = page.items.iter().filter(|(run, _)| *run == mark);
                let watches = its.flat_map(|(_, record)| &record.watches);
                found.extend(watches.map(|watch| FactReader::overlooked(&id, watch.1)));
                self.next = self.doubts();
            }
            Answer::Records(page) => {
                for (run, record) in &page.items {
                    self.checked.runs += u64::from(record.row.is_some());
                    self.checked.rounds += record.journal.len() as u64;
                    self.checked.messages += record.mail.len() as u64;
                    if run.is_mark() && !record.watches.is_empty() {
                        self.facts.watched(*run);
                    }
                    match self.depth {
                        Depth::Rows => check::rows(*run, record, &mut found),
                        Depth::Entries => check::run(*run, record, &mut found),
                    }
                }
                let after = page.items.last().map(|(run, _)| *run);
                self.next = Some(match page.more {
                    true => Query::Records(after, PAGE),
                    false => Query::Offers(None, PAGE),
                });
            }
            Answer::Offers(page) => {
                for record in &page.items {
                    self.checked.offers += 1;
                    check::offer(record, &mut found);
                }
                let after = page.items.last().map(|record| record.id.clone());
                self.next = Some(match page.more {
                    true => Query::Offers(after, PAGE),
                    false => self.audit_page(),
                });
            }
            Answer::Audit(page) => {
                for (id, row) in &page.items {
                    self.checked.audited += 1;
                    self.audit.read(id, row, &mut found);
                }
                self.next = Some(match page.next {
                    Some(_) => self.audit_page(),
                    None => PROJECTIONS,
                });
            }
            of_facts => self.take_facts(of_facts, &mut found),
        }
        self.checked.violations += found.len() as u64;
        found
    }

    /// Projections, then facts, then documents, then projections again.
    fn take_facts(&mut self, answer: Answer, found: &mut Vec<Violation>) {
        match answer {
            Answer::Facts(page) => {
                for view in &page.items {
                    self.checked.facts += 1;
                    self.facts.read(&view.id, &view.row, found);
                    self.projections.fact(view.position);
                }
                self.next = Some(match page.next {
                    Some(after) => facts_page(Some(after)),
                    None => documents_page(None),
                });
            }
            Answer::Documents(page) => {
                for (id, row) in &page.items {
                    self.projections.document(id, row);
                }
                let after = page.items.last().map(|(id, _)| id.clone());
                self.facts_read = !page.more;
                self.next = Some(match page.more {
                    true => documents_page(after),
                    false => PROJECTIONS,
                });
            }
            Answer::Projections(all) => {
                for (id, row) in &all.projections {
                    match self.facts_read {
                        false => self.projections.begin(id, row),
                        true => self.projections.end(id, row, found),
                    }
                }
                self.next = match self.facts_read {
                    false => Some(facts_page(None)),
                    true => self.doubts(),
                };
            }
            _ => unreachable!("nothing else was asked for"),
        }
    }
}

/// Of all tenants: before facts and documents are read, and after that.
const PROJECTIONS: Query = Query::Projections {
    namespace: None,
    count: false,
};

/// Documents of all tenants and generations.
fn documents_page(after: Option<DocumentId>) -> Query {
    Query::Documents(DocumentFilter {
        removed: true,
        after,
        limit: PAGE,
        ..DocumentFilter::default()
    })
}

/// Facts, in the order of all. On a server, those are left out before which others may still come.
fn facts_page(after: Option<Position>) -> Query {
    Query::Facts(FactFilter {
        after,
        settled: true,
        limit: PAGE,
        ..FactFilter::default()
    })
}
