//! What is done for those who ask: one file for each kind of thing.

pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod commands;
pub(crate) mod counts;
pub(crate) mod facts;
pub(crate) mod login;
pub(crate) mod me;
pub(crate) mod parked;
pub(crate) mod queues;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod sql;
pub(crate) mod submit;
pub(crate) mod topics;
pub(crate) mod work;

use roundel::{RunId, To};

use crate::auth::{Cap, Namespace, actions};
use crate::problem::Problem;
use crate::shape::input;

pub(crate) type See = Cap<actions::See, Namespace>;
pub(crate) type SeeAudit = Cap<actions::SeeAudit, Namespace>;
pub(crate) type Submit = Cap<actions::Submit, Namespace>;
pub(crate) type Operate = Cap<actions::Operate, Namespace>;
pub(crate) type Work = Cap<actions::Work, Namespace>;
pub(crate) type Delete = Cap<actions::Delete, Namespace>;

/// Items of a page unless more are asked for.
const PAGE: usize = 50;

input! {
    /// Why, for the audit.
    pub(crate) struct Because {
        /// Why, for the audit.
        reason: Option<String>,
    }
}

input! {
    /// A page.
    pub(crate) struct Paged {
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

/// Which run: by its id, or by the key that it was started with.
pub(crate) fn to(text: &str) -> To {
    let id = text.parse::<RunId>();
    id.map_or_else(|_| To::Key(text.to_owned()), To::Run)
}

/// How many to a page.
pub(crate) fn limit<A, P>(cap: &Cap<A, P>, asked: Option<usize>) -> Result<usize, Problem> {
    let most = cap.server.limits.page;
    match asked.unwrap_or(PAGE) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(Problem::bad(format!("a page has 1 to {most} items"))),
    }
}

/// `name=value`.
pub(crate) fn label(text: &str) -> Result<(String, String), Problem> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or_else(|| Problem::bad("write a label as name=value"))?;
    Ok((name.to_owned(), value.to_owned()))
}
