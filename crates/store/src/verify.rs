//! Checks all rows of a store, page by page, so that any file is checked in bounded memory, also
//! while others work on it: a page is read at one moment.

use roundel_core::check::{self, Violation};

use crate::{Answer, Error, Query, Store};

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
    /// What should not be.
    pub violations: u64,
}

/// Checks every run and every offer. After each page, what was found in it is told, with what has
/// been looked at so far.
///
/// # Errors
/// When rows cannot be read.
pub async fn verify(
    store: &dyn Store,
    depth: Depth,
    mut told: impl FnMut(&Checked, Vec<Violation>),
) -> Result<Checked, Error> {
    let mut checked = Checked::default();
    let mut after = None;
    loop {
        let Answer::Records(page) = store.read(Query::Records(after, PAGE)).await? else {
            unreachable!("records were asked for")
        };
        let mut found = Vec::new();
        for (run, record) in &page.items {
            checked.runs += u64::from(record.row.is_some());
            checked.rounds += record.journal.len() as u64;
            checked.messages += record.mail.len() as u64;
            match depth {
                Depth::Rows => check::rows(*run, record, &mut found),
                Depth::Entries => check::run(*run, record, &mut found),
            }
        }
        checked.violations += found.len() as u64;
        told(&checked, found);
        after = page.items.last().map(|(run, _)| *run);
        if !page.more {
            break;
        }
    }
    let mut after = None;
    loop {
        let Answer::Offers(page) = store.read(Query::Offers(after, PAGE)).await? else {
            unreachable!("offers were asked for")
        };
        let mut found = Vec::new();
        for record in &page.items {
            checked.offers += 1;
            check::offer(record, &mut found);
        }
        checked.violations += found.len() as u64;
        told(&checked, found);
        after = page.items.last().map(|record| record.id.clone());
        if !page.more {
            return Ok(checked);
        }
    }
}
