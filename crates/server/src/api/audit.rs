//! What was done in somebody's name.

use super::{SeeAudit, limit, to};
use crate::cursor;
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Looked, input};
use crate::view::Audited;

input! {
    /// Which part of it.
    pub(crate) struct AuditAsked {
        /// About this run, by its id or key.
        run: Option<String>,
        /// By this operator.
        by: Option<String>,
        /// What was done last comes first, if true.
        newest_first: Option<bool>,
        /// So many at most; 50 unless said.
        limit: Option<usize>,
        /// Where the page before ended: its `next`.
        cursor: Option<String>,
    }
}

pub(crate) async fn list(
    cap: SeeAudit,
    ask: Ask<AuditAsked>,
) -> Result<Json<Looked<Audited>>, Problem> {
    let (asked, client) = (&ask.query, cap.client());
    let mut audit = client.audit().limit(limit(&cap, asked.limit)?);
    audit = audit.within(cap.server.limits.look);
    if let Some(run) = &asked.run {
        // A run may be gone: its id still says what was done to it.
        audit = audit.of(match run.parse() {
            Ok(id) => id,
            Err(_) => client.run(to(run)).await?.row.id,
        });
    }
    if let Some(operator) = &asked.by {
        audit = audit.by(operator.clone())?;
    }
    if asked.newest_first == Some(true) {
        audit = audit.newest_first();
    }
    if let Some(word) = &asked.cursor {
        audit = audit.after(cursor::read::<u64>("audit", word)?);
    }
    let found = audit.look().await?;
    let next = found.next.map(|id| cursor::write("audit", &id.number));
    let shown = |row| Audited::from(&client.opened(row));
    let items = found.items.iter().map(shown).collect();
    Ok(Json(Looked::of(items, next, None)))
}
