//! Projections from outside: how far they are, built anew, and past what they cannot fold in.

use std::borrow::Cow;

use roundel_core::{Name, Op, Position, ProjectionId, ProjectionRow, Rebuild, Reply, SkipFact};

use super::Client;
use crate::Error;

/// A projection, as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct ProjectionStatus {
    /// Its name.
    pub name: Name,
    /// What is known of it.
    pub row: ProjectionRow,
    /// Where the last fact stands.
    pub head: Position,
    /// How many facts there are, of all kinds and tenants.
    pub facts: u64,
}

impl Client {
    /// All projections that processes have declared, by name.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn projections(&self) -> Result<Vec<ProjectionStatus>, Error> {
        let all = self.inner.projected(true).await?;
        let (head, facts) = (all.head, all.facts.unwrap_or_default());
        let status = |(id, row): (ProjectionId, ProjectionRow)| ProjectionStatus {
            name: id.name,
            row,
            head,
            facts,
        };
        Ok(all.projections.into_iter().map(status).collect())
    }

    /// Has all documents of a projection made anew, from all facts, by a process that has it. Those
    /// that are there are read until the new ones have every fact; then these take their place at
    /// once. If this process has the projection, it is done when this returns; otherwise another
    /// does it, and [`projections`](Client::projections) says how far it is.
    ///
    /// # Errors
    /// When there is no such projection, or the database cannot be used.
    pub async fn rebuild(
        &self,
        projection: impl Into<Cow<'static, str>>,
    ) -> Result<ProjectionRow, Error> {
        let projection = self.projection_id(projection)?;
        let mine = self.inner.projections.all.iter();
        let mut mine = mine.map(|registered| &registered.declared.projection);
        let is_mine = mine.any(|mine| *mine == projection);
        let row = self.projected(Op::Rebuild(Rebuild { projection })).await?;
        if is_mine {
            self.catch_up().await?;
        }
        Ok(row)
    }

    /// Lets a projection pass over a fact that it cannot fold in.
    ///
    /// # Errors
    /// When the projection does not stand before that fact, or the database cannot be used.
    pub async fn skip_fact(
        &self,
        projection: impl Into<Cow<'static, str>>,
        fact: impl Into<Cow<'static, str>>,
    ) -> Result<ProjectionRow, Error> {
        let (projection, fact) = (self.projection_id(projection)?, Name::new(fact.into())?);
        self.projected(Op::SkipFact(SkipFact { projection, fact }))
            .await
    }

    fn projection_id(&self, name: impl Into<Cow<'static, str>>) -> Result<ProjectionId, Error> {
        Ok(ProjectionId {
            namespace: self.inner.namespace.clone(),
            name: Name::new(name.into())?,
        })
    }

    async fn projected(&self, op: Op) -> Result<ProjectionRow, Error> {
        match self.act(op).await? {
            Reply::Projected(row) => Ok(row),
            _ => unreachable!("a projection answers as one"),
        }
    }
}
