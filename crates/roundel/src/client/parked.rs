//! What an operator does about a run that is parked, beside letting it go on as it is.

use roundel_core::{Anew, Entry, Op, Payload, Resume, Target, encode_entries};
use serde::Serialize;

use super::{Client, To};
use crate::Error;
use crate::cx::{encode, own};
use crate::live::History;

impl Client {
    /// Lets a parked run begin anew with another input. What it did before stays in its journal,
    /// and is undone with the rest if it rolls back later.
    ///
    /// # Errors
    /// When there is no such run, or it is not parked, or something below it has not ended.
    pub async fn resume_with<I: Serialize>(
        &self,
        to: impl Into<To>,
        input: &I,
    ) -> Result<(), Error> {
        self.resume_with_payload(to, encode(input)?).await
    }

    /// As [`resume_with`](Self::resume_with), with any JSON.
    ///
    /// # Errors
    /// As there.
    pub async fn resume_with_payload(
        &self,
        to: impl Into<To>,
        input: Payload,
    ) -> Result<(), Error> {
        let input = own(input)?;
        let row = self.run(to).await?.row;
        let journal = self.journal_of(row.id, row.execution).await?;
        let anew = Anew {
            execution: row.execution,
            started: encode_entries(&[started_anew(&journal, row.execution, input)?]),
        };
        let resume = Resume {
            namespace: self.inner.namespace.clone(),
            target: Target::Run(row.id),
            skip: false,
            anew: Some(anew),
        };
        self.act(Op::Resume(resume)).await.map(drop)
    }
}

/// The beginning of the execution after this one.
fn started_anew(journal: &[Entry], execution: u32, input: Payload) -> Result<Entry, Error> {
    let mut history = History::default();
    for (at, entry) in (1..).zip(journal) {
        history.note(entry, at, execution);
    }
    let this = Some(execution).filter(|_| !history.plan().is_empty());
    match journal.first() {
        Some(Entry::Started {
            workflow,
            version,
            unsettled,
            context,
            ..
        }) => Ok(Entry::Started {
            workflow: workflow.clone(),
            version: *version,
            input,
            unsettled: unsettled.or(this),
            context: context.clone(),
            due: None,
        }),
        _ => Err(Error::Value("its journal does not say how it began".into())),
    }
}
