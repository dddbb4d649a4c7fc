//! What must be true of rows at rest, whichever store holds them: the invariants that can be seen
//! without knowing what went before. A violation is a value, so that a command can show it, a test
//! can expect it, and a simulator can count it.
//!
//! Two parts, because two parties keep the promises. [`rows`] checks what `decide` guarantees for
//! any list of operations. [`run`] also checks what the journal says, which a worker guarantees.
//!
//! Absent on purpose: anything that needs the clock, user code or what clients were told.

mod entries;
mod gather;
mod projections;
mod reader;
mod retention;
mod rows;
mod schedules;

pub use projections::ProjectionReader;
pub use reader::Reader;

use std::sync::Arc;

use crate::{
    Entry, GateId, GateRow, JournalRow, KeyId, KeyRow, Lane, LatchId, LatchRow, MailId, MailRow,
    Name, OfferId, OfferRow, RunId, RunRow, StateRow, WaitId, WaitRow, WatchId, decode_entries,
};

/// What is promised. The numbers are those of the project's list of invariants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Invariant {
    /// A call completes once, after it began.
    OneEffect,
    /// Counters say what is there, so that no message is overlooked.
    NoLostMessage,
    /// A run ends once, and its journal and its row say the same.
    OneEnd,
    /// Nothing comes after the end.
    NothingAfterEnd,
    /// A run ends after all that are below it.
    ParentAfterChildren,
    /// What was done is undone in reverse.
    RollbackOrder,
    /// What could be undone was undone once, if the run says so.
    RollbackComplete,
    /// Every row belongs to a run, every run to a tree and a lane.
    NoOrphan,
    /// Entries are numbered without gaps from 1, and can be read.
    GapFree,
    /// Epochs only rise, and none is above the run's.
    Fencing,
    /// A run that something waits for can be claimed.
    Liveness,
    /// A message goes to one call; a message and a wait do not pass each other.
    Delivery,
    /// Numbers come from the counter of their run or gate.
    Order,
    /// One key, one run.
    OneKey,
    /// Facts of a stream are numbered without gaps, in the order of all; documents are what they
    /// come to.
    Projections,
    /// A run that keeps stopping its worker is parked.
    Attempts,
    /// After a request to end is taken up, nothing begins.
    Cancel,
    /// Nothing is above its limit.
    Limits,
    /// A run at rest holds no lease and no timer.
    NoLeak,
    /// The file itself is sound.
    Storage,
    /// Nothing reaches across namespaces.
    Isolation,
    /// What was done in somebody's name is there, in order, as it was written.
    Audit,
    /// What a schedule says of its times fits together.
    Schedules,
    /// What is said of how long things are kept can be read.
    Retention,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 24] = [
        Invariant::OneEffect,
        Invariant::NoLostMessage,
        Invariant::OneEnd,
        Invariant::NothingAfterEnd,
        Invariant::ParentAfterChildren,
        Invariant::RollbackOrder,
        Invariant::RollbackComplete,
        Invariant::NoOrphan,
        Invariant::GapFree,
        Invariant::Fencing,
        Invariant::Liveness,
        Invariant::Delivery,
        Invariant::Order,
        Invariant::OneKey,
        Invariant::Projections,
        Invariant::Attempts,
        Invariant::Cancel,
        Invariant::Limits,
        Invariant::NoLeak,
        Invariant::Storage,
        Invariant::Isolation,
        Invariant::Audit,
        Invariant::Schedules,
        Invariant::Retention,
    ];

    /// The word that is shown, with its number.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::OneEffect => "inv1_one_effect",
            Invariant::NoLostMessage => "inv2_no_lost_message",
            Invariant::OneEnd => "inv5_one_end",
            Invariant::NothingAfterEnd => "inv6_nothing_after_end",
            Invariant::ParentAfterChildren => "inv7_parent_after_children",
            Invariant::RollbackOrder => "inv8_rollback_order",
            Invariant::RollbackComplete => "inv9_rollback_complete",
            Invariant::NoOrphan => "inv10_no_orphan",
            Invariant::GapFree => "inv11_gap_free",
            Invariant::Fencing => "inv13_fencing",
            Invariant::Liveness => "inv14_liveness",
            Invariant::Delivery => "inv16_delivery",
            Invariant::Order => "inv17_order",
            Invariant::OneKey => "inv18_one_key",
            Invariant::Projections => "inv19_projections",
            Invariant::Attempts => "inv20_attempts",
            Invariant::Cancel => "inv21_cancel",
            Invariant::Limits => "inv22_limits",
            Invariant::NoLeak => "inv23_no_leak",
            Invariant::Storage => "inv24_storage",
            Invariant::Isolation => "inv25_isolation",
            Invariant::Audit => "inv26_audit",
            Invariant::Schedules => "inv31_schedules",
            Invariant::Retention => "inv32_retention",
        }
    }
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that should not be. Payloads are never part of it: they may hold secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which promise is broken.
    pub invariant: Invariant,
    /// Of which run, if it is one's.
    pub run: Option<RunId>,
    /// What is there.
    pub found: String,
    /// What should be.
    pub expected: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.invariant)?;
        if let Some(run) = self.run {
            write!(f, "run {run}: ")?;
        }
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

/// Everything that is stored under one run's id, as it was at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunRecord {
    /// The run; none if only rows that refer to it are there.
    pub row: Option<RunRow>,
    /// Its lane, if there is one of that number.
    pub lane: Option<Lane>,
    /// Its parent and the parent's namespace, if it names one and that is there.
    pub parent: Option<(RunRow, Option<Name>)>,
    /// Its journal, all executions, in order.
    pub journal: Vec<JournalRow>,
    /// Its labels.
    pub labels: Vec<(Name, String)>,
    /// Its messages, by name and number.
    pub mail: Vec<(MailId, MailRow)>,
    /// Its open waits.
    pub waits: Vec<(WaitId, WaitRow)>,
    /// The gates of those waits that take offers, with the first offer that nobody has.
    pub gates: Vec<GateSeen>,
    /// Those offers that its waits are matched to and that are there.
    pub offers: Vec<(OfferId, OfferRow)>,
    /// Who waits for its end.
    pub watches: Vec<WatchId>,
    /// Its own state.
    pub state: Option<StateRow>,
    /// Keys that say they are its own.
    pub keys: Vec<(KeyId, KeyRow)>,
    /// The latches at which it waits for what it set off.
    pub latches: Vec<(LatchId, LatchRow)>,
    /// The latch at which its own end is waited for, if it names one; none if that is not there.
    pub told_by: Option<Option<LatchRow>>,
}

/// A gate, as one who waits there sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct GateSeen {
    /// Which.
    pub gate: GateId,
    /// Its counters, if it is there.
    pub row: Option<GateRow>,
    /// The first offer that nobody has.
    pub free: Option<u64>,
}

/// An offer and what it hangs on, as it was at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct OfferRecord {
    /// Which.
    pub id: OfferId,
    /// The offer.
    pub row: OfferRow,
    /// Its gate, if it is there.
    pub gate: Option<GateRow>,
    /// How many waits of the run that has it say so.
    pub waits: u32,
}

/// Where violations go.
struct Report<'a> {
    run: Option<RunId>,
    out: &'a mut Vec<Violation>,
}

impl Report<'_> {
    fn add(&mut self, invariant: Invariant, found: impl Into<String>, expected: impl Into<String>) {
        self.out.push(Violation {
            invariant,
            run: self.run,
            found: found.into(),
            expected: expected.into(),
        });
    }

    /// Two numbers that must be the same.
    fn same(&mut self, invariant: Invariant, what: &str, found: u64, expected: u64) {
        if found != expected {
            self.add(invariant, format!("{what} {found}"), expected.to_string());
        }
    }
}

/// The rounds of a journal, each with its entries, or why they cannot be read.
type Read<'a> = Vec<(&'a JournalRow, Result<Arc<Vec<Entry>>, serde_json::Error>)>;

fn read(record: &RunRecord) -> Read<'_> {
    let rounds = record.journal.iter();
    let decoded = rounds.map(|round| (round, decode_entries(&round.entries).map(Arc::new)));
    decoded.collect()
}

/// Checks one run: its rows, and what its journal says.
pub fn run(id: RunId, record: &RunRecord, out: &mut Vec<Violation>) {
    of_run(id, record, &read(record), out);
}

fn of_run(id: RunId, record: &RunRecord, read: &Read<'_>, out: &mut Vec<Violation>) {
    let mut report = Report { run: Some(id), out };
    rows::run(record, read, &mut report);
    entries::run(record, read, &mut report);
    schedules::run(record, &mut report);
    retention::run(record, &mut report);
}

/// Checks the rows of one run: what holds after any list of operations.
pub fn rows(id: RunId, record: &RunRecord, out: &mut Vec<Violation>) {
    rows::run(record, &read(record), &mut Report { run: Some(id), out });
}

/// Checks one offer.
pub fn offer(record: &OfferRecord, out: &mut Vec<Violation>) {
    let run = record.row.taken_by;
    rows::offer(record, &mut Report { run, out });
}
