//! What is in memory of what operations need, and what of it could not be had.
//!
//! A list that was loaded from its beginning up to some place is known up to there: what operations
//! add to it and take from it afterwards, they do in memory. So one loading serves a whole batch.

use std::collections::{BTreeMap, BTreeSet};

use roundel_core::{
    Caused, GateId, KeyId, KeyKind, LatchId, LockId, MailId, Name, Need, OfferId, Op,
    PublicationId, QueueId, Round, Rows, RunId, Start, Taken, WorkerId,
};

/// How far a list is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpTo {
    Place(u64),
    All,
}

impl UpTo {
    fn covers(self, place: u64) -> bool {
        match self {
            UpTo::Place(last) => place <= last,
            UpTo::All => true,
        }
    }
}

/// Namespace and topic.
pub(super) type Topic = (Name, Name);

/// An audit is held as a topic is, by one alone. A topic of that name would only wait for it.
pub(super) fn audit_of(namespace: &Name) -> Topic {
    (namespace.clone(), Name::constant("roundel audit"))
}

/// Which projections there are is held as a topic is: by those who record together, by one who
/// changes them alone.
pub(super) fn projections_of(namespace: &Name) -> Topic {
    (namespace.clone(), Name::constant("roundel projections"))
}

/// How a topic is held: by those who publish together, by one who subscribes alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Hold {
    Shared,
    Alone,
}

/// What one transaction has loaded.
#[derive(Default)]
pub(super) struct Known {
    /// Keys that nobody else can use before this transaction ends.
    pub(super) claimed: BTreeSet<KeyId>,
    /// Those of them for which a row was made that says nothing yet.
    pub(super) empty: BTreeSet<KeyId>,
    pub(super) topics: BTreeMap<Topic, Hold>,
    /// What this transaction holds that has no row.
    pub(super) locks: BTreeSet<LockId>,
    /// Lists that are in memory whole.
    pub(super) whole: BTreeSet<Need>,
    /// Runs all of whose waits are in memory.
    pub(super) all_waits: BTreeSet<RunId>,
    pub(super) mail: BTreeMap<(RunId, Name), UpTo>,
    pub(super) offers: BTreeMap<GateId, UpTo>,
    pub(super) waiters: BTreeMap<GateId, UpTo>,
    pub(super) missed: Missed,
}

/// What somebody else has.
#[derive(Default)]
pub(super) struct Missed {
    pub(super) keys: BTreeSet<KeyId>,
    pub(super) gates: BTreeSet<GateId>,
    pub(super) topics: BTreeSet<Topic>,
    pub(super) runs: BTreeSet<RunId>,
    pub(super) workers: BTreeSet<WorkerId>,
    pub(super) publications: BTreeSet<PublicationId>,
    pub(super) latches: BTreeSet<LatchId>,
    pub(super) queues: BTreeSet<QueueId>,
    pub(super) locks: BTreeSet<LockId>,
}

impl Missed {
    /// Could this not be had?
    pub(super) fn has(&self, need: &Need) -> bool {
        match need {
            Need::Key(key) => self.keys.contains(key),
            Need::Gate(gate) | Need::Offers(gate, _) | Need::Waiters(gate, _) => {
                self.gates.contains(gate)
            }
            Need::Worker(worker) => self.workers.contains(worker),
            Need::Publication(id) | Need::Heard(id) => self.publications.contains(id),
            Need::Latch(id) => self.latches.contains(id),
            Need::Queue(id) | Need::Permits(id) => self.queues.contains(id),
            Need::Subscribers(namespace, topic) | Need::OpenPublications(namespace, topic) => {
                self.topics.contains(&(namespace.clone(), topic.clone()))
            }
            Need::Audit(namespace) => self.topics.contains(&audit_of(namespace)),
            Need::Projections(namespace) => self.topics.contains(&projections_of(namespace)),
            Need::Run(run)
            | Need::Subtree(run, _)
            | Need::Waits(run, _)
            | Need::AllWaits(run, _)
            | Need::Mail(run, ..)
            | Need::Letter(MailId { run, .. })
            | Need::Unread(run)
            | Need::Inbox(run)
            | Need::Watchers(run)
            | Need::State(run)
            | Need::Scope(run, ..) => self.runs.contains(run),
            Need::Lock(lock) => self.locks.contains(lock),
            Need::Due(..)
            | Need::Unseen(_)
            | Need::Fact(_)
            | Need::Stream(_)
            | Need::Document(_)
            | Need::Tail(..)
            | Need::Sweep(..) => false,
        }
    }

    /// An operation is set aside: what it needs is not for those behind it either.
    pub(super) fn note(&mut self, need: &Need) {
        match need {
            Need::Key(key) => drop(self.keys.insert(key.clone())),
            Need::Gate(gate) | Need::Offers(gate, _) | Need::Waiters(gate, _) => {
                self.gates.insert(gate.clone());
            }
            Need::Publication(id) => drop(self.publications.insert(*id)),
            Need::Queue(id) => drop(self.queues.insert(id.clone())),
            Need::Lock(lock) => drop(self.locks.insert(lock.clone())),
            Need::Subscribers(namespace, topic) | Need::OpenPublications(namespace, topic) => {
                self.topics.insert((namespace.clone(), topic.clone()));
            }
            Need::Audit(namespace) => drop(self.topics.insert(audit_of(namespace))),
            Need::Projections(namespace) => {
                self.topics.insert(projections_of(namespace));
            }
            Need::Run(run) => drop(self.runs.insert(*run)),
            _ => {}
        }
    }
}

/// Searches whose answer is for one operation only, and of one moment.
pub(super) fn is_search(need: &Need) -> bool {
    matches!(
        need,
        Need::Due(..)
            | Need::Unseen(_)
            | Need::Subtree(..)
            | Need::OpenPublications(..)
            | Need::Heard(_)
            | Need::Tail(..)
            | Need::Sweep(..)
            | Need::Scope(..)
    )
}

impl Known {
    /// Is this in memory? Of a search that is not known here.
    pub(super) fn has(&self, op: &Op, need: &Need, rows: &Rows) -> bool {
        match need {
            Need::Key(key) => match claims(op, key) {
                true => self.claimed.contains(key) && rows.keys.is_loaded(key),
                false => rows.keys.is_loaded(key),
            },
            Need::Gate(gate) => rows.gates.is_loaded(gate),
            Need::Run(run) => rows.run_is_loaded(*run),
            Need::Worker(worker) => rows.workers.is_loaded(worker),
            Need::State(run) => rows.states.is_loaded(run),
            Need::Publication(id) => rows.publications.is_loaded(id),
            Need::Latch(id) => rows.latches.is_loaded(id),
            Need::Queue(id) => rows.queues.is_loaded(id),
            Need::Lock(lock) => self.locks.contains(lock),
            Need::Fact(id) => rows.facts.is_loaded(id),
            Need::Stream(id) => rows.streams.is_loaded(id),
            Need::Document(id) => rows.documents.is_loaded(id),
            Need::Waits(run, _) => self.all_waits.contains(run) || self.whole.contains(need),
            Need::Letter(id) => rows.mail.is_loaded(id),
            Need::Unread(_)
            | Need::Inbox(_)
            | Need::Watchers(_)
            | Need::Audit(_)
            | Need::Permits(_) => self.whole.contains(need),
            Need::Subscribers(namespace, topic) => {
                let held = self.topics.get(&(namespace.clone(), topic.clone()));
                self.whole.contains(need) && held.is_some_and(|hold| *hold >= hold_of(op))
            }
            Need::Projections(namespace) => {
                let held = self.topics.get(&projections_of(namespace));
                self.whole.contains(need) && held.is_some_and(|hold| *hold >= hold_of(op))
            }
            Need::Mail(run, name, limit) => self.has_mail(*run, name, *limit, rows),
            Need::Offers(gate, limit) => self.has_offers(gate, *limit, rows),
            Need::Waiters(gate, limit) => self.has_waiters(gate, *limit, rows),
            Need::AllWaits(run, waiters) => self.has_all_waits(*run, *waiters, rows),
            Need::Due(..)
            | Need::Unseen(_)
            | Need::Subtree(..)
            | Need::OpenPublications(..)
            | Need::Heard(_)
            | Need::Tail(..)
            | Need::Sweep(..)
            | Need::Scope(..) => false,
        }
    }

    fn has_mail(&self, run: RunId, name: &Name, limit: usize, rows: &Rows) -> bool {
        let key = (run, name.clone());
        let Some(up_to) = self.mail.get(&key) else {
            return false;
        };
        let at = |number| MailId {
            run,
            name: Some(name.clone()),
            number,
        };
        let mail = rows.mail.range(at(0), at(u64::MAX));
        let known = mail.filter(|(id, _)| up_to.covers(id.number));
        let known = known.filter(|(_, row)| row.expires_at.is_none() && row.parked_at.is_none());
        *up_to == UpTo::All || known.take(limit).count() == limit
    }

    fn has_offers(&self, gate: &GateId, limit: usize, rows: &Rows) -> bool {
        let Some(up_to) = self.offers.get(gate) else {
            return false;
        };
        let at = |place| OfferId {
            gate: gate.clone(),
            place,
        };
        let offers = rows.offers.range(at(0), at(u64::MAX));
        let free = offers.filter(|(_, row)| row.taken_by.is_none());
        let known = free.filter(|(id, _)| up_to.covers(id.place));
        *up_to == UpTo::All || known.take(limit).count() == limit
    }

    fn has_waiters(&self, gate: &GateId, limit: usize, rows: &Rows) -> bool {
        let Some(up_to) = self.waiters.get(gate) else {
            return false;
        };
        let place = |wait| rows.waits.get(wait).and_then(|row| row.place);
        let waiters = rows.waiters_at(gate).filter_map(place);
        let known = waiters.filter(|place| up_to.covers(*place));
        *up_to == UpTo::All || known.take(limit).count() == limit
    }

    fn has_all_waits(&self, run: RunId, waiters: usize, rows: &Rows) -> bool {
        if !self.all_waits.contains(&run) {
            return false;
        }
        rows.run(run).is_none()
            || offers_of(run, rows).into_iter().all(|offer| {
                rows.offers.is_loaded(&offer) && self.has_waiters(&offer.gate, waiters, rows)
            })
    }
}

/// The offers that waits of a run have.
pub(super) fn offers_of(run: RunId, rows: &Rows) -> Vec<OfferId> {
    let Some(row) = rows.run(run) else {
        return Vec::new();
    };
    let namespace = &rows.lane(row.lane).namespace;
    let offer = |(id, wait): (&roundel_core::WaitId, &roundel_core::WaitRow)| match wait.taken {
        Some(Taken::Offer(place)) => Some(OfferId {
            gate: GateId {
                namespace: namespace.clone(),
                name: id.name.clone(),
            },
            place,
        }),
        _ => None,
    };
    rows.waits_of(run).filter_map(offer).collect()
}

/// The messages that waits of a run have.
pub(super) fn mail_of(run: RunId, rows: &Rows) -> Vec<MailId> {
    let mail = |(id, wait): (&roundel_core::WaitId, &roundel_core::WaitRow)| match wait.taken {
        Some(Taken::Mail(number)) => Some(MailId {
            run,
            name: Some(id.name.clone()),
            number,
        }),
        _ => None,
    };
    rows.waits_of(run).filter_map(mail).collect()
}

/// How an operation holds the topics that it asks about.
pub(super) fn hold_of(op: &Op) -> Hold {
    match op.asked() {
        Op::Subscribe(_) | Op::Declare(_) | Op::Rebuild(_) | Op::SkipFact(_) => Hold::Alone,
        Op::Follow(follow) if follow.alone => Hold::Alone,
        _ => Hold::Shared,
    }
}

/// May the operation put something under this key? Otherwise it only looks it up.
pub(super) fn claims(op: &Op, key: &KeyId) -> bool {
    match (key.kind, op.asked()) {
        (KeyKind::Sender, _) => true,
        // A batch looks nothing up.
        (KeyKind::Run, Op::Start(start)) => start.batch.is_some() || starts(start, key),
        (KeyKind::Run, Op::Commit(round)) => causes(round, key),
        // Not the keys of items: who makes one holds its fact.
        (KeyKind::Run, Op::Record(record)) => record.sent.iter().any(|start| starts(start, key)),
        (KeyKind::Run, _) => false,
    }
}

fn starts(start: &Start, key: &KeyId) -> bool {
    let own = |start: &Start| {
        start
            .key
            .as_ref()
            .is_some_and(|own| own.as_str() == key.key)
    };
    let batch = start.batch.as_ref();
    own(start)
        || batch.is_some_and(|batch| batch.starts().any(own))
        || start.first.as_ref().is_some_and(|first| causes(first, key))
}

fn causes(round: &Round, key: &KeyId) -> bool {
    round.caused.iter().any(|caused| match caused {
        Caused::Child(_, start) | Caused::Spawn(_, start) | Caused::Send(start) => {
            starts(start, key)
        }
        Caused::Children(_, all) => all.iter().any(|start| starts(start, key)),
        _ => false,
    })
}
