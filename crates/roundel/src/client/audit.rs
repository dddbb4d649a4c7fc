//! What is done in somebody's name, and the list of it.

use std::borrow::Cow;
use std::sync::Arc;

use roundel_core::{AuditId, Audited, IfParked, Name, Op, Reply, RunId};
use roundel_store::{Answer, AuditFilter, AuditOrder, AuditView, Page, Query, Stretch};

use super::Client;
use crate::Error;
use crate::seal::opened;

/// In whose name a client acts.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    name: Name,
    reason: String,
}

impl Client {
    /// This client, acting in somebody's name: what it starts, sends and publishes, and what it
    /// asks of runs (cancel, retry, complete, undo, accept, patch, delete), topics and queues, is
    /// audited: who, why, what and when, in the commit of what is done. Batches are not.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn operator(&self, name: impl Into<Cow<'static, str>>) -> Result<Client, Error> {
        let operator = Operator {
            name: Name::new(name.into())?,
            reason: String::new(),
        };
        Ok(Client {
            operator: Some(Arc::new(operator)),
            ..self.clone()
        })
    }

    /// Why the [operator](Self::operator) of this client does what it does next.
    #[must_use]
    pub fn reason(&self, reason: impl Into<String>) -> Client {
        let operator = self.operator.as_ref().map(|operator| {
            Arc::new(Operator {
                name: operator.name.clone(),
                reason: reason.into(),
            })
        });
        Client {
            operator,
            ..self.clone()
        }
    }

    /// This client, for what somebody decided who looked at a run when it was at this epoch
    /// ([`RunRow::epoch`](roundel_core::RunRow::epoch)): what [`remedy`](Client::remedy) finds gone
    /// on since then is left alone, even if it is parked again.
    #[must_use]
    pub fn as_seen_at(&self, epoch: u64) -> Client {
        Client {
            seen: Some(epoch),
            ..self.clone()
        }
    }

    /// This client, leaving alone what is not parked.
    pub(super) fn if_parked(&self) -> Client {
        Client {
            if_parked: true,
            ..self.clone()
        }
    }

    /// Does it act in somebody's name?
    pub(super) fn is_signed(&self) -> bool {
        self.operator.is_some()
    }

    /// The operation, in the name of whoever acts.
    pub(super) fn signed(&self, op: Op) -> Op {
        let op = match self.if_parked {
            true => Op::IfParked(Box::new(IfParked {
                op,
                seen: self.seen,
            })),
            false => op,
        };
        match &self.operator {
            None => op,
            Some(operator) => Op::Audited(Box::new(Audited {
                operator: operator.name.clone(),
                reason: operator.reason.clone(),
                op,
            })),
        }
    }

    /// Asks for something that is audited, if somebody's name is known.
    pub(super) async fn act(&self, op: Op) -> Result<Reply, Error> {
        self.inner.op(self.signed(op)).await
    }

    /// A row of the audit with what was given, opened if this client has the key. The audit itself
    /// tells that as it was stored, since this is what its seals are over.
    #[must_use]
    pub fn opened(&self, (id, row): &AuditView) -> AuditView {
        let (mut row, keys) = (row.clone(), self.inner.post.keys());
        if let (Some(detail), Some(keys)) = (&mut row.detail, keys) {
            *detail = opened(keys, &self.inner.namespace, detail);
        }
        (id.clone(), row)
    }

    /// What was done in somebody's name, oldest first.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let filter = AuditFilter {
            namespace: Some(self.inner.namespace.clone()),
            limit: 100,
            ..AuditFilter::default()
        };
        Audit {
            client: self.clone(),
            filter,
        }
    }
}

/// A part of the audit, to be narrowed and then fetched page by page.
#[derive(Clone, Debug)]
pub struct Audit {
    client: Client,
    filter: AuditFilter,
}

impl Audit {
    /// About this run.
    #[must_use]
    pub fn of(mut self, run: RunId) -> Audit {
        self.filter.run = Some(run);
        self
    }

    /// By this operator.
    ///
    /// # Errors
    /// When that is not a name.
    pub fn by(mut self, operator: impl Into<Cow<'static, str>>) -> Result<Audit, Error> {
        self.filter.operator = Some(Name::new(operator.into())?);
        Ok(self)
    }

    /// What was done last comes first.
    #[must_use]
    pub fn newest_first(mut self) -> Audit {
        self.filter.order = AuditOrder::NewestFirst;
        self
    }

    /// So many at a time, 1 to 1,000.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Audit {
        self.filter.limit = limit.clamp(1, 1000);
        self
    }

    /// Those after this number, in that order: that of the last of the page before, or where the
    /// look before ended.
    #[must_use]
    pub fn after(mut self, number: u64) -> Audit {
        let namespace = self.client.inner.namespace.clone();
        self.filter.after = Some(AuditId { namespace, number });
        self
    }

    /// A [look](Audit::look) passes so many rows at most, 1 to [`LOOK`](crate::LOOK), which it is
    /// unless said.
    #[must_use]
    pub fn within(mut self, rows: usize) -> Audit {
        self.filter.look = Some(rows);
        self
    }

    /// A page: as many as were asked for if there are that many, however far off they are.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn fetch(&self) -> Result<Page<AuditView>, Error> {
        let (mut asked, mut items) = (self.clone(), Vec::new());
        loop {
            let found = asked.look().await?;
            asked.filter.limit -= found.items.len();
            items.extend(found.items);
            match found.next {
                Some(next) if asked.filter.limit > 0 => asked.filter.after = Some(next),
                next => {
                    let more = next.is_some();
                    return Ok(Page { items, more });
                }
            }
        }
    }

    /// One look, which passes a bounded number of rows: as [`Runs::look`](crate::Runs::look). Go on
    /// [after](Audit::after) the number of its `next`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look(&self) -> Result<Stretch<AuditView, AuditId>, Error> {
        let query = Query::Audit(self.filter.clone());
        match self.client.inner.read(query).await? {
            Answer::Audit(found) => Ok(found),
            _ => unreachable!("the audit was asked for"),
        }
    }
}
