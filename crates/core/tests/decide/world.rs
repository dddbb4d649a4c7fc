//! A small world to try rules in: all rows, a clock, two workers, and short ways to say things.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use roundel_core::check::{self, OfferRecord, RunRecord};
use roundel_core::{
    AuditId, AuditRow, Call, Claim, Claimant, Claimed, Committed, Consumed, Context, DocumentId,
    Due, Entry, FactId, Flow, GateId, JournalRow, KeyId, KeyRow, Keyed, Lane, LaneId, LatchId,
    LatchRow, MailId, MailRow, Name, Need, Offer, OfferId, OfferRow, Op, OpenWait, Outcome, Parent,
    Passing, Payload, Policy, Position, PublicationId, PublicationRow, QueueId, QueueRow, Refusal,
    Register, Release, Renew, Reply, Round, Rows, RunId, RunRow, RunState, Sent, Signal, Stage,
    Start, Started, StateRow, SubscriptionId, SubscriptionRow, Tail, Target, Then, Timestamp,
    WaitId, WaitRow, WorkerId, WorkerRow, decide, encode_entries, needs,
};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const NS: Name = Name::constant("default");
pub(crate) const A: WorkerId = WorkerId(uuid::Uuid::from_u128(0xA));
pub(crate) const B: WorkerId = WorkerId(uuid::Uuid::from_u128(0xB));

/// Everything there is, to be compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dump {
    runs: Vec<RunRow>,
    lanes: Vec<Lane>,
    journal: Vec<JournalRow>,
    mail: Vec<(MailId, MailRow)>,
    waits: Vec<(WaitId, WaitRow)>,
    gates: Vec<(GateId, roundel_core::GateRow)>,
    offers: Vec<(OfferId, OfferRow)>,
    keys: Vec<(KeyId, KeyRow)>,
    watches: Vec<(RunId, RunId, u32, u32)>,
    states: Vec<(RunId, StateRow)>,
    workers: Vec<WorkerRow>,
    subscriptions: Vec<(SubscriptionId, SubscriptionRow)>,
    publications: Vec<(PublicationId, PublicationRow)>,
    latches: Vec<(LatchId, LatchRow)>,
    audit: Vec<(AuditId, AuditRow)>,
    queues: Vec<(QueueId, QueueRow)>,
}

/// All rows and the time.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) rows: Rows,
    pub(crate) now: Timestamp,
    pub(crate) journal: Vec<JournalRow>,
    /// In the order in which they were recorded.
    pub(crate) facts: Vec<FactId>,
    pub(crate) lane: LaneId,
    last: u128,
}

/// One of each flow key that is due, from the one after the last.
fn in_turn<'a>(asked: &Keyed, due: &[&'a &'a RunRow]) -> Vec<&'a &'a RunRow> {
    let mut keys: BTreeMap<&Name, VecDeque<&&RunRow>> = BTreeMap::new();
    for run in due.iter().filter(|run| run.lane == asked.lane) {
        let key = run.flow_key.as_ref();
        let key = key.filter(|key| !asked.full.contains(key));
        keys.extend(
            key.filter(|key| !keys.contains_key(key))
                .map(|key| (key, VecDeque::new())),
        );
        if let Some(key) = key {
            keys.get_mut(key).expect("just made").push_back(run);
        }
    }
    let mut keys: Vec<_> = keys.into_iter().collect();
    let first = keys.partition_point(|(key, _)| Some(*key) <= asked.after.as_ref());
    keys.rotate_left(first);
    let mut order = Vec::new();
    while keys.iter().any(|(_, runs)| !runs.is_empty()) {
        order.extend(keys.iter_mut().filter_map(|(_, runs)| runs.pop_front()));
    }
    order.truncate(asked.limit);
    order
}

impl World {
    /// Nothing in it.
    pub(crate) fn empty() -> World {
        World {
            rows: Rows::default(),
            now: Timestamp(1_000_000_000),
            journal: Vec::new(),
            facts: Vec::new(),
            lane: LaneId(1),
            last: 0,
        }
    }

    /// One lane, two workers.
    pub(crate) fn new() -> World {
        let mut world = World::empty();
        for worker in [A, B] {
            let lanes = vec![lane(&NS, "w", 1)];
            let name = worker.to_string();
            world.must(Op::Register(Register {
                worker,
                name,
                lanes,
            }));
        }
        world
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }

    /// Takes an operation through search, decision and writing.
    pub(crate) fn op(&mut self, op: &Op) -> Result<Reply, Refusal> {
        let reply = self.decide(op);
        self.write();
        reply
    }

    /// As `op`, without writing: more operations can follow in the same transaction.
    pub(crate) fn decide(&mut self, op: &Op) -> Result<Reply, Refusal> {
        let mut wanted = Vec::new();
        self.rows.searched_at = self.now;
        for stage in Stage::ALL {
            needs(op, &self.rows, stage, &mut wanted);
            for need in wanted.drain(..) {
                match need {
                    Need::Due(due) => {
                        (self.rows.found, self.rows.found_next) = self.due(&due);
                    }
                    Need::Permits(queue) => {
                        let count = self.permits(&queue);
                        self.rows.permits.insert(queue, count);
                    }
                    Need::Subtree(run, limit) => self.rows.found = self.subtree(run, limit),
                    Need::Heard(id) => self.rows.found = self.heard(id),
                    Need::Unseen(limit) => self.rows.unseen = self.unseen(limit),
                    Need::Tail(after, limit, _) => {
                        // A store writes before it searches.
                        self.write();
                        self.rows.tail = Arc::new(self.tail(after, limit));
                    }
                    Need::Sweep(namespace, from, limit) => {
                        self.rows.swept = self.swept(&namespace, &from, limit);
                    }
                    Need::OpenPublications(namespace, topic) => {
                        self.rows.open_publications = self.open_publications(&namespace, &topic);
                    }
                    Need::Scope(run, execution, call) => {
                        let found = self.scope(run, execution, call);
                        self.rows.scopes.insert((run, execution, call), found);
                    }
                    _ => {}
                }
            }
        }
        decide(op, &mut self.rows, self.now)
    }

    /// Those after this one.
    pub(crate) fn tail(&self, after: Position, limit: usize) -> Tail {
        let numbered = self.facts.iter().zip(1..).skip(after.number as usize);
        let facts = numbered.take(limit).map(|(id, number)| {
            let row = self.rows.facts.get(id).expect("it was recorded");
            Passing::new(Position { batch: 0, number }, id.clone(), row.clone())
        });
        Tail {
            facts: facts.collect(),
            unsettled: false,
        }
    }

    /// Documents from this path on.
    pub(crate) fn swept(&self, namespace: &Name, from: &str, limit: usize) -> Vec<DocumentId> {
        let all = self.rows.documents.iter().map(|(id, _)| id);
        let its = all.filter(|id| id.namespace == *namespace && id.path.as_str() >= from);
        its.take(limit).cloned().collect()
    }

    pub(crate) fn write(&mut self) {
        let changes = self.rows.take_changes();
        self.keep(changes);
    }

    pub(crate) fn keep(&mut self, changes: roundel_core::Changes) {
        self.journal.extend(changes.journal);
        self.facts
            .extend(changes.facts.into_iter().map(|(id, _)| id));
        self.journal
            .retain(|row| !changes.deleted.contains(&row.run));
        self.journal
            .sort_by_key(|row| (row.run, row.execution, row.first));
    }

    pub(crate) fn due(&self, asked: &Due) -> (Vec<RunId>, Option<Timestamp>) {
        let now = self.now;
        let far = now.after(roundel_core::limits::LEASE);
        let mut ready: Vec<_> = self
            .rows
            .runs()
            .filter(|run| {
                let ahead = run.flow != Flow::Free && asked.ahead.contains(&run.lane);
                ahead || asked.lanes.iter().any(|(lane, _)| *lane == run.lane)
            })
            .collect();
        ready.sort_by_key(|run| (run.priority, run.ready_at, run.id));
        let is_due = |run: &&&RunRow| {
            let lease = run.lease_until;
            run.ready_at.is_some_and(|at| at <= now) || lease.is_some_and(|end| end > far)
        };
        let due = ready.iter().filter(is_due);
        let (suspects, others): (Vec<&&RunRow>, Vec<_>) = due.partition(|run| run.suspect);
        let mut room: BTreeMap<LaneId, usize> = asked.lanes.iter().copied().collect();
        let fits = |run: &&&&RunRow| {
            let left = room.get_mut(&run.lane).filter(|_| run.flow_key.is_none());
            left.is_some_and(|left| std::mem::replace(left, left.saturating_sub(1)) > 0)
        };
        let mut keyed = Vec::new();
        for asked in &asked.keyed {
            keyed.extend(in_turn(asked, &others));
        }
        let ahead = |run: &&&&RunRow| run.flow != Flow::Free;
        let (others, ahead) = (others.iter().filter(fits), others.iter().filter(ahead));
        let found = others
            .take(asked.limit)
            .chain(&keyed)
            .chain(suspects.iter().take(1))
            .chain(ahead);
        let next = ready.iter().filter_map(|run| run.ready_at);
        let next = next.filter(|at| *at > now).min();
        let found = found.map(|run| run.id).collect();
        (found, next)
    }

    pub(crate) fn permits(&self, queue: &QueueId) -> BTreeMap<Option<Name>, u32> {
        let lanes: Vec<LaneId> = self.rows.lanes_of(queue).collect();
        let its = |run: &&RunRow| lanes.contains(&run.lane) && run.flow == Flow::Permit;
        let mut held = BTreeMap::new();
        for run in self.rows.runs().filter(its) {
            *held.entry(run.flow_key.clone()).or_default() += 1;
        }
        held
    }

    pub(crate) fn open_publications(&self, namespace: &Name, topic: &Name) -> Vec<PublicationId> {
        let all = self.rows.publications.iter();
        let open = all.filter(|(_, row)| {
            let its = (&row.namespace, &row.topic) == (namespace, topic);
            its && row.closes_at.is_some_and(|at| at > self.now)
        });
        open.map(|(id, _)| *id).collect()
    }

    pub(crate) fn unseen(&self, limit: usize) -> Vec<WorkerId> {
        let long_ago = self.now.before(roundel_core::limits::UNSEEN);
        let all = self.rows.workers.iter();
        let unseen = all.filter(|(_, row)| row.seen_at < long_ago);
        unseen.map(|(id, _)| *id).take(limit).collect()
    }

    pub(crate) fn heard(&self, id: PublicationId) -> Vec<RunId> {
        let mut runs = self.rows.runs().filter(|row| row.publication == Some(id));
        runs.next().map(|row| row.id).into_iter().collect()
    }

    pub(crate) fn scope(&self, run: RunId, execution: u32, call: u32) -> Vec<RunId> {
        let parent = Parent {
            run,
            execution,
            call,
        };
        let runs = self.rows.runs().filter(|row| row.parent == Some(parent));
        let mut runs: Vec<_> = runs.filter_map(|row| Some((row.number?, row.id))).collect();
        runs.sort_unstable();
        runs.into_iter().map(|(_, run)| run).collect()
    }

    pub(crate) fn subtree(&self, run: RunId, limit: usize) -> Vec<RunId> {
        let mut found = Vec::new();
        self.find_below(run, &mut found);
        found.truncate(limit);
        found
    }

    fn find_below(&self, run: RunId, found: &mut Vec<RunId>) {
        let below = |row: &&RunRow| row.parent.is_some_and(|parent| parent.run == run);
        let mut below: Vec<_> = self.rows.runs().filter(below).map(|row| row.id).collect();
        below.sort();
        below
            .iter()
            .for_each(|child| self.find_below(*child, found));
        found.push(run);
    }

    /// Takes an operation that must not be refused.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn must(&mut self, op: Op) -> Reply {
        let shown = format!("{op:?}");
        self.op(&op)
            .unwrap_or_else(|refusal| panic!("{refusal}: {shown}"))
    }

    pub(crate) fn dump(&self) -> Dump {
        fn all<K: Clone + Ord, V: Clone>(table: &roundel_core::Table<K, V>) -> Vec<(K, V)> {
            table
                .iter()
                .map(|(key, row)| (key.clone(), row.clone()))
                .collect()
        }
        let mut runs: Vec<_> = self.rows.runs().cloned().collect();
        runs.sort_by_key(|run| run.id);
        Dump {
            runs,
            lanes: self.rows.lanes().to_vec(),
            journal: self.journal.clone(),
            mail: all(&self.rows.mail),
            waits: all(&self.rows.waits),
            gates: all(&self.rows.gates),
            offers: all(&self.rows.offers),
            keys: all(&self.rows.keys),
            watches: self.rows.watches.iter().map(|(watch, ())| *watch).collect(),
            states: all(&self.rows.states),
            subscriptions: all(&self.rows.subscriptions),
            publications: all(&self.rows.publications),
            latches: all(&self.rows.latches),
            audit: all(&self.rows.audit),
            queues: all(&self.rows.queues),
            workers: self
                .rows
                .workers
                .iter()
                .map(|(_, row)| row.clone())
                .collect(),
        }
    }

    pub(crate) fn new_id(&mut self) -> RunId {
        self.last += 1;
        RunId(uuid::Uuid::from_u128(self.last))
    }

    /// A start that says nothing special.
    pub(crate) fn starting(&mut self) -> Start {
        Start::new(NS, self.new_id(), Name::constant("w"), Payload::null())
    }

    pub(crate) fn started(&mut self, start: Start) -> Started {
        match self.must(Op::Start(start)) {
            Reply::Started(started) => started,
            other => panic!("{other:?}"),
        }
    }

    /// A run that nobody has.
    pub(crate) fn start(&mut self) -> RunId {
        let start = self.starting();
        self.started(start).run
    }

    /// A run that this worker has.
    pub(crate) fn owned(&mut self, worker: WorkerId) -> RunId {
        let start = Start {
            claimant: Some(claimant(worker)),
            ..self.starting()
        };
        self.started(start).run
    }

    /// A run that this worker suspended after beginning these waits.
    pub(crate) fn waiting(&mut self, worker: WorkerId, waits: &[(u32, &'static str)]) -> RunId {
        let run = self.owned(worker);
        let round = opening(self.round(run), waits);
        self.commit(suspending(round));
        run
    }

    pub(crate) fn claim(&mut self, worker: WorkerId, limit: usize) -> Vec<Claimed> {
        self.claim_next(worker, limit).0
    }

    pub(crate) fn claim_next(
        &mut self,
        worker: WorkerId,
        limit: usize,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        let lanes = (1..=self.rows.lanes().len())
            .map(|at| LaneId(at as u32))
            .collect();
        let claim = Claim {
            worker,
            lanes,
            limit,
            lease: LEASE,
        };
        match self.must(Op::Claim(claim)) {
            Reply::Claimed { runs, next } => (runs, next),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn claimed_ids(&mut self, worker: WorkerId, limit: usize) -> Vec<RunId> {
        self.claim(worker, limit)
            .iter()
            .map(|claimed| claimed.run)
            .collect()
    }

    pub(crate) fn run(&self, run: RunId) -> &RunRow {
        self.rows.run(run).expect("the run exists")
    }

    pub(crate) fn state(&self, run: RunId) -> RunState {
        self.run(run).state
    }

    /// An empty round of the run by whoever has it.
    pub(crate) fn round(&self, run: RunId) -> Round {
        let row = self.run(run);
        let owner = row.owner.expect("somebody has the run");
        let mut round = Round::new(run, owner, row.epoch);
        round.created_at = Some(row.created_at);
        round
    }

    pub(crate) fn commit(&mut self, round: Round) -> Committed {
        match self.must(Op::Commit(round)) {
            Reply::Committed(committed) => committed,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn try_commit(&mut self, round: Round) -> Result<Committed, Refusal> {
        match self.op(&Op::Commit(round))? {
            Reply::Committed(committed) => Ok(committed),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn end(&mut self, run: RunId) -> Committed {
        let round = ending(self.round(run), RunState::Completed);
        self.commit(round)
    }

    pub(crate) fn send(&mut self, signal: Signal) -> Sent {
        match self.must(Op::Signal(signal)) {
            Reply::Sent(sent, _) => sent,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn signal(&mut self, run: RunId, name: &'static str, value: u32) -> Sent {
        self.send(signal(run, name, value))
    }

    pub(crate) fn offer(&mut self, name: &'static str, value: u32) -> Sent {
        match self.must(Op::Offer(offering(name, value))) {
            Reply::Sent(sent, _) => sent,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn release(&mut self, worker: WorkerId, runs: &[RunId]) -> usize {
        let (runs, leave) = (runs.to_vec(), false);
        let release = Release {
            worker,
            runs,
            leave,
        };
        match self.must(Op::Release(release)) {
            Reply::Released(count) => count,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn renew(&mut self, worker: WorkerId, run: RunId) -> roundel_core::Lease {
        let (runs, lease) = (vec![run], LEASE);
        match self.must(Op::Renew(Renew {
            worker,
            runs,
            lease,
        })) {
            Reply::Renewed(mut renewed) => renewed.remove(0).lease,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete(&mut self, run: RunId, force: bool) {
        let (namespace, target) = (NS, Target::Run(run));
        self.must(Op::Delete(roundel_core::Delete {
            namespace,
            target,
            force,
        }));
    }

    pub(crate) fn cancel(&mut self, run: RunId) -> roundel_core::Cancelled {
        let cancel = roundel_core::Cancel {
            namespace: NS,
            target: Target::Run(run),
            keep: false,
            claimant: None,
        };
        match self.must(Op::Cancel(cancel)) {
            Reply::Cancelled(answer, _) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// What is unread, as (name, value), in order of arrival.
    pub(crate) fn mail(&self, run: RunId) -> Vec<(String, u32)> {
        let mut mail: Vec<_> = self.rows.mail_of(run).collect();
        mail.sort_by_key(|(id, _)| id.number);
        let shown = mail.iter().map(|(id, row)| {
            let name = id.name.as_ref().map_or("", Name::as_str).to_owned();
            (name, value_of(&row.body))
        });
        shown.collect()
    }

    /// What must hold after any operation.
    pub(crate) fn check(&self) {
        let mut found = Vec::new();
        for row in self.rows.runs() {
            let mut record = RunRecord::gather(&self.rows, row.id);
            let own = self.journal.iter().filter(|round| round.run == row.id);
            record.journal = own.cloned().collect();
            check::rows(row.id, &record, &mut found);
        }
        for (id, offer) in self.rows.offers.iter() {
            check::offer(&OfferRecord::gather(&self.rows, id, offer), &mut found);
        }
        assert_eq!(found, []);
    }
}

pub(crate) fn lane(namespace: &Name, workflow: &'static str, version: u32) -> Lane {
    Lane {
        namespace: namespace.clone(),
        workflow: Name::constant(workflow),
        version,
    }
}

pub(crate) fn claimant(worker: WorkerId) -> Claimant {
    Claimant {
        worker,
        lease: LEASE,
    }
}

pub(crate) fn value(value: u32) -> Payload {
    Payload::encode(&value).expect("a number is JSON")
}

pub(crate) fn value_of(outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Value(value) => value.decode().unwrap_or_default(),
        Outcome::Failure(_) => u32::MAX,
    }
}

pub(crate) fn signal(run: RunId, name: &'static str, number: u32) -> Signal {
    Signal {
        namespace: NS,
        target: Target::Run(run),
        name: Name::constant(name),
        payload: value(number),
        policy: Policy::Keep,
        expires: None,
        key: None,
        claimant: None,
    }
}

pub(crate) fn offering(name: &'static str, number: u32) -> Offer {
    Offer {
        namespace: NS,
        name: Name::constant(name),
        payload: value(number),
        key: None,
        claimant: None,
    }
}

pub(crate) fn gate(name: &'static str) -> GateId {
    GateId {
        namespace: NS,
        name: Name::constant(name),
    }
}

/// The round, with waits for these signals begun; those whose name begins with `@` take offers.
pub(crate) fn opening(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        let (name, offerable) = (Name::constant(name), name.starts_with('@'));
        let until = None;
        let what = Call::Wait {
            signal: name.clone(),
            until,
        };
        round = recording(round, &[Entry::Begun { call: *call, what }]);
        if offerable {
            round.gates.push(GateId {
                namespace: NS,
                name: name.clone(),
            });
        }
        round.opened.push(OpenWait {
            call: *call,
            name,
            offerable,
        });
    }
    round
}

/// The round, consuming what these waits have.
pub(crate) fn consuming(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        round
            .consumed
            .push(Consumed::Wait(Name::constant(name), *call));
        let outcome = Outcome::Value(Payload::null());
        let call = *call;
        round = recording(round, &[Entry::Done { call, outcome }]);
    }
    round
}

/// The round, letting these waits go.
pub(crate) fn closing(mut round: Round, waits: &[(u32, &'static str)]) -> Round {
    for (call, name) in waits {
        round.closed.push((Name::constant(name), *call));
        if name.starts_with('@') {
            round.gates.push(gate(name));
        }
    }
    round
}

/// The round, with these entries after those it has.
pub(crate) fn recording(mut round: Round, entries: &[Entry]) -> Round {
    let known: Vec<Entry> = if round.count == 0 {
        Vec::new()
    } else {
        roundel_core::decode_entries(&round.entries).expect("entries")
    };
    let all: Vec<Entry> = known.into_iter().chain(entries.iter().cloned()).collect();
    round.count = u32::try_from(all.len()).expect("few");
    round.entries = encode_entries(&all);
    round
}

/// The round, with something in it.
pub(crate) fn working(round: Round) -> Round {
    let (call, name) = (1, Name::constant("s"));
    let (what, outcome) = (
        Call::Step { name, undo: None },
        Outcome::Value(Payload::null()),
    );
    recording(
        round,
        &[Entry::Did {
            call,
            what,
            outcome,
        }],
    )
}

pub(crate) fn suspending(mut round: Round) -> Round {
    round.then = Then::Suspend;
    round
}

pub(crate) fn ending(mut round: Round, state: RunState) -> Round {
    let round_outcome = Outcome::Value(value(7));
    round.then = Then::End(state, round_outcome);
    recording(round, &[Entry::Ended { state }])
}

/// The round, after which the run begins anew.
pub(crate) fn continuing(round: Round, version: Option<u32>) -> Round {
    let workflow = Name::constant("w");
    let started = Entry::Started {
        workflow,
        version: version.unwrap_or(1),
        input: value(2),
        unsettled: None,
        context: Context::default(),
        due: None,
    };
    let mut round = recording(round, &[Entry::Continued]);
    round.then = Then::ContinueAsNew(encode_entries(&[started]), version);
    round
}

/// A child of the run, in this call.
pub(crate) fn child_of(world: &mut World, run: RunId, call: u32) -> Start {
    let execution = world.run(run).execution;
    Start {
        parent: Some(Parent {
            run,
            execution,
            call,
        }),
        ..world.starting()
    }
}

/// As it was, or a message that says where it differs.
pub(crate) fn same(before: &Dump, after: &Dump) {
    assert!(before == after, "before {before:#?}\nafter {after:#?}");
}
