//! One side of a move: a database in one transaction, which nobody else writes beside.

use roundel_core::check::RunRecord;
use roundel_core::{
    AuditId, Changes, DocumentId, GateId, KeyId, OfferId, ProjectionRow, PublicationId, Rows,
    RunChange, RunId, RunRow, Timestamp, WorkerRow, Write,
};

use super::Place;
use crate::{
    Answer, AuditFilter, DocumentFilter, Error, FactFilter, Page, Position, Query, sqlite,
};

/// Rows of the audit, facts or documents in a page.
const AUDIT: usize = 500;

/// Where a page begins: after this row of this kind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum At {
    Lanes,
    /// And all that hangs under them.
    Runs(Option<RunId>),
    Gates(Option<GateId>),
    Offers(Option<OfferId>),
    /// Those that belong to no run.
    Keys(Option<KeyId>),
    Publications(Option<PublicationId>),
    /// And the limits of queues.
    Subscriptions,
    Workers,
    Audit(Option<AuditId>),
    Facts(Option<Position>),
    Documents(Option<DocumentId>),
    Projections,
}

impl At {
    /// Where the next page begins. None after the last.
    pub(crate) fn next(&self, changes: &Changes, more: bool) -> Option<At> {
        fn last<K: Clone, V>(writes: &[(K, V)]) -> Option<K> {
            writes.last().map(|(key, _)| key.clone())
        }
        Some(match self {
            At::Lanes => At::Runs(None),
            At::Runs(_) if more => unreachable!("their pages say where they end"),
            At::Runs(_) => At::Gates(None),
            At::Gates(_) if more => At::Gates(last(&changes.gates)),
            At::Gates(_) => At::Offers(None),
            At::Offers(_) if more => At::Offers(last(&changes.offers)),
            At::Offers(_) => At::Keys(None),
            At::Keys(_) if more => At::Keys(last(&changes.keys)),
            At::Keys(_) => At::Publications(None),
            At::Publications(_) if more => At::Publications(last(&changes.publications)),
            At::Publications(_) => At::Subscriptions,
            At::Subscriptions => At::Workers,
            At::Workers => At::Audit(None),
            At::Audit(_) if more => At::Audit(last(&changes.audit)),
            At::Audit(_) => At::Facts(None),
            At::Facts(_) if more => unreachable!("their pages say where they end"),
            At::Facts(_) => At::Documents(None),
            At::Documents(_) if more => At::Documents(last(&changes.documents)),
            At::Documents(_) => At::Projections,
            At::Projections => return None,
        })
    }
}

/// A page, and where the next begins.
pub(crate) type Step = (Changes, Option<At>);

/// A page of runs, with all that hangs under them.
pub(crate) fn of_records(page: Page<(RunId, RunRecord)>) -> Step {
    let mut changes = Changes::default();
    let last = page.items.last().map(|(run, _)| *run);
    for (run, record) in page.items {
        changes.runs.extend(record.row.map(RunChange::Insert));
        changes.journal.extend(record.journal);
        let labels = record.labels.into_iter();
        changes
            .labels
            .extend(labels.map(|(name, value)| (run, name, value)));
        changes.mail.extend(put(record.mail));
        changes.waits.extend(put(record.waits));
        let watches = record.watches.into_iter().map(|watch| (watch, ()));
        changes.watches.extend(put(watches));
        changes
            .states
            .extend(put(record.state.map(|row| (run, row))));
        changes.keys.extend(put(record.keys));
        changes.latches.extend(put(record.latches));
    }
    let next = match page.more {
        true => Some(At::Runs(last)),
        false => At::Runs(None).next(&changes, false),
    };
    (changes, next)
}

/// Rows that the other side does not have.
pub(crate) fn put<K, V>(
    rows: impl IntoIterator<Item = (K, V)>,
) -> impl Iterator<Item = (K, Write<V>)> {
    rows.into_iter().map(|(key, row)| (key, Write::Insert(row)))
}

impl Place {
    /// How it is shown, and told from others: without a password.
    pub(super) fn address(&self) -> Result<String, Error> {
        match self {
            Place::File(path) => sqlite::Side::address(path),
            #[cfg(feature = "postgres")]
            Place::Server { url, schema } => crate::postgres::Side::address(url, schema),
        }
    }
}

/// One side.
// There are two of them.
#[allow(clippy::large_enum_variant)]
pub(super) enum Side {
    File(sqlite::Side),
    #[cfg(feature = "postgres")]
    Server(crate::postgres::Side),
}

/// The same of either kind; what goes over a network is waited for.
macro_rules! either {
    ($side:expr, $method:ident ( $($argument:expr),* )) => {
        match $side {
            Side::File(file) => file.$method($($argument),*),
            #[cfg(feature = "postgres")]
            Side::Server(server) => server.$method($($argument),*).await,
        }
    };
}

impl Side {
    /// What is moved: it must be there.
    pub(super) async fn source(place: &Place) -> Result<Side, Error> {
        match place {
            Place::File(path) => sqlite::Side::source(path).map(Side::File),
            #[cfg(feature = "postgres")]
            Place::Server { url, schema } => {
                let server = crate::postgres::Side::open(url, schema, false).await?;
                Ok(Side::Server(server))
            }
        }
    }

    /// Where it is moved to: it is made, if it is not there.
    pub(super) async fn target(place: &Place) -> Result<Side, Error> {
        match place {
            Place::File(path) => sqlite::Side::target(path).map(Side::File),
            #[cfg(feature = "postgres")]
            Place::Server { url, schema } => {
                let server = crate::postgres::Side::open(url, schema, true).await?;
                Ok(Side::Server(server))
            }
        }
    }

    /// In which words it says that it was moved, if it was.
    pub(super) async fn moved(&mut self) -> Result<Option<String>, Error> {
        either!(self, moved())
    }

    pub(super) async fn holds(&mut self) -> Result<Vec<String>, Error> {
        either!(self, holds())
    }

    pub(super) async fn now(&mut self) -> Result<Timestamp, Error> {
        either!(self, now())
    }

    /// How many runs there are.
    pub(super) async fn count(&mut self) -> Result<u64, Error> {
        either!(self, count())
    }

    /// Some runs that workers have, or had.
    pub(super) async fn owned(&mut self) -> Result<Vec<RunRow>, Error> {
        either!(self, owned())
    }

    pub(super) async fn read(&mut self, query: Query) -> Result<Answer, Error> {
        either!(self, read(&query))
    }

    pub(super) async fn workers(&mut self) -> Result<Vec<WorkerRow>, Error> {
        match self.read(Query::Workers).await? {
            Answer::Workers(workers) => Ok(workers),
            _ => unreachable!("workers were asked for"),
        }
    }

    pub(super) async fn page(&mut self, at: At) -> Result<Step, Error> {
        match at {
            At::Audit(after) => self.audit(after).await,
            At::Facts(after) => self.facts(after).await,
            At::Documents(after) => self.documents(after).await,
            At::Projections => self.projections().await,
            at => either!(self, page(&at)),
        }
    }

    async fn audit(&mut self, after: Option<AuditId>) -> Result<Step, Error> {
        let filter = AuditFilter {
            after: after.clone(),
            limit: AUDIT,
            ..AuditFilter::default()
        };
        let Answer::Audit(page) = self.read(Query::Audit(filter)).await? else {
            unreachable!("the audit was asked for")
        };
        let changes = Changes {
            audit: put(page.items).collect(),
            ..Changes::default()
        };
        let next = At::Audit(after).next(&changes, page.next.is_some());
        Ok((changes, next))
    }

    async fn facts(&mut self, after: Option<Position>) -> Result<Step, Error> {
        let filter = FactFilter {
            after,
            limit: AUDIT,
            ..FactFilter::default()
        };
        let Answer::Facts(page) = self.read(Query::Facts(filter)).await? else {
            unreachable!("facts were asked for")
        };
        let changes = Changes {
            facts: put(page.items.into_iter().map(|view| (view.id, view.row))).collect(),
            ..Changes::default()
        };
        let next = match page.next {
            Some(next) => Some(At::Facts(Some(next))),
            None => At::Facts(None).next(&changes, false),
        };
        Ok((changes, next))
    }

    async fn documents(&mut self, after: Option<DocumentId>) -> Result<Step, Error> {
        let filter = DocumentFilter {
            removed: true,
            after: after.clone(),
            limit: AUDIT,
            ..DocumentFilter::default()
        };
        let Answer::Documents(page) = self.read(Query::Documents(filter)).await? else {
            unreachable!("documents were asked for")
        };
        let changes = Changes {
            documents: put(page.items).collect(),
            ..Changes::default()
        };
        let next = At::Documents(after).next(&changes, page.more);
        Ok((changes, next))
    }

    async fn projections(&mut self) -> Result<Step, Error> {
        let query = Query::Projections {
            namespace: None,
            count: false,
        };
        let Answer::Projections(all) = self.read(query).await? else {
            unreachable!("projections were asked for")
        };
        let changes = Changes {
            projections: put(all.projections).collect(),
            ..Changes::default()
        };
        Ok((changes, None))
    }

    /// Says where a projection is among the facts here, which stand elsewhere than where they came
    /// from: it has passed as many.
    pub(super) async fn place(&mut self, row: &mut ProjectionRow) -> Result<(), Error> {
        for build in [row.live.as_mut(), row.next.as_mut()].into_iter().flatten() {
            build.position = self.after(build.facts).await?;
            if let Some(stuck) = &mut build.stuck {
                stuck.position = self.after(build.facts + 1).await?;
            }
        }
        Ok(())
    }

    /// Where the fact of this number stands, from 1.
    async fn after(&mut self, facts: u64) -> Result<Position, Error> {
        let (mut at, mut passed) = (Position::default(), 0);
        while passed < facts {
            let left = usize::try_from(facts - passed).unwrap_or(AUDIT);
            let filter = FactFilter {
                after: Some(at),
                limit: left.min(AUDIT),
                ..FactFilter::default()
            };
            let Answer::Facts(page) = self.read(Query::Facts(filter)).await? else {
                unreachable!("facts were asked for")
            };
            let Some(last) = page.items.last() else { break };
            (at, passed) = (last.position, passed + page.items.len() as u64);
        }
        Ok(at)
    }

    pub(super) async fn write(&mut self, changes: &Changes, rows: &Rows) -> Result<(), Error> {
        either!(self, write(changes, rows))
    }

    /// All is written, and will be read.
    pub(super) async fn settle(&mut self) -> Result<(), Error> {
        either!(self, settle())
    }

    /// From the commit on, nobody opens it, and nobody who has it open commits.
    pub(super) async fn mark(&mut self, mark: &str) -> Result<(), Error> {
        either!(self, mark(mark))
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        either!(self, commit())
    }
}
