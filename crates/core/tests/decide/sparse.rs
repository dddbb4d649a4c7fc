//! Rows of which only those are loaded that an operation says it needs: what a database does. If
//! a decision reads a row that was not asked for, it comes out different here.

use roundel_core::{
    Caused, Changes, GateId, Name, Need, Op, Refusal, Reply, Round, Rows, RunId, Stage, Start,
    Taken, WaitId, decide, needs,
};

use crate::world::{A, World, child_of, claimant, opening, suspending};

/// What the operation answers and changes, over the rows that it needs and no others.
pub(crate) fn decide_sparsely(world: &World, op: &Op) -> (Result<Reply, Refusal>, Changes) {
    let mut some = Loader {
        all: &world.rows,
        rows: Rows::default(),
    };
    some.rows.load_lanes(world.rows.lanes().to_vec());
    some.rows.searched_at = world.now;
    let mut wanted = Vec::new();
    for stage in Stage::ALL {
        needs(op, &some.rows, stage, &mut wanted);
        for need in wanted.drain(..) {
            some.load(world, need);
        }
    }
    let reply = decide(op, &mut some.rows, world.now);
    (reply, some.rows.take_changes())
}

struct Loader<'a> {
    all: &'a Rows,
    rows: Rows,
}

impl Loader<'_> {
    fn load(&mut self, world: &World, need: Need) {
        match need {
            Need::Key(id) => self
                .rows
                .keys
                .load(id.clone(), self.all.keys.get(&id).cloned()),
            Need::Gate(id) => self
                .rows
                .gates
                .load(id.clone(), self.all.gates.get(&id).cloned()),
            Need::Run(run) => self.run(run),
            Need::Worker(id) => self
                .rows
                .workers
                .load(id, self.all.workers.get(&id).cloned()),
            Need::Due(due) => {
                let (found, next) = world.due(&due);
                found.iter().for_each(|run| self.run(*run));
                (self.rows.found, self.rows.found_next) = (found, next);
            }
            Need::Subtree(run, limit) => {
                let found = world.subtree(run, limit);
                found.iter().for_each(|run| self.run(*run));
                self.rows.found = found;
            }
            Need::Waits(run, name) => {
                let waits = self.all.waits_of(run).filter(|(id, _)| id.name == name);
                let waits: Vec<_> = waits.map(|(id, _)| id.clone()).collect();
                waits.iter().for_each(|id| self.wait(id));
            }
            Need::AllWaits(run, waiters) => self.all_waits(run, waiters),
            Need::Mail(run, name, limit) => {
                let mail = || {
                    let mail = self.all.mail_of(run);
                    let named = mail.filter(|(id, _)| id.name.as_ref() == Some(&name));
                    named.filter(|(_, row)| row.parked_at.is_none())
                };
                let lasting = mail().filter(|(_, row)| row.expires_at.is_none());
                let expiring = mail().filter(|(_, row)| row.expires_at.is_some());
                for (id, row) in lasting.take(limit).chain(expiring) {
                    self.rows.mail.load(id.clone(), Some(row.clone()));
                }
            }
            Need::Inbox(run) => self.inbox(run),
            Need::Offers(gate, limit) => {
                let free = self
                    .all
                    .offers
                    .iter()
                    .filter(|(id, row)| id.gate == gate && row.taken_by.is_none());
                let free: Vec<_> = free
                    .take(limit)
                    .map(|(id, _)| (id.gate.clone(), id.place))
                    .collect();
                free.into_iter()
                    .for_each(|(gate, place)| self.offer(gate, place));
            }
            Need::Waiters(gate, limit) => self.waiters(&gate, limit),
            Need::Watchers(run) => {
                for watch in self.all.watchers_of(run) {
                    self.rows.watches.load(watch, Some(()));
                    self.run(watch.1);
                }
            }
            need => self.load_scope(world, need),
        }
    }

    fn load_scope(&mut self, world: &World, need: Need) {
        match need {
            Need::State(run) => self
                .rows
                .states
                .load(run, self.all.states.get(&run).cloned()),
            Need::Subscribers(namespace, topic) => {
                let same = self.all.subscriptions.iter();
                let same =
                    same.filter(|(id, _)| (&id.namespace, &id.topic) == (&namespace, &topic));
                for (id, row) in same {
                    self.rows.subscriptions.load(id.clone(), Some(row.clone()));
                }
            }
            Need::Publication(id) => {
                let row = self.all.publications.get(&id).cloned();
                self.rows.publications.load(id, row);
            }
            Need::OpenPublications(namespace, topic) => {
                self.rows.open_publications = world.open_publications(&namespace, &topic);
                for id in self.rows.open_publications.clone() {
                    let row = self.all.publications.get(&id).cloned();
                    self.rows.publications.load(id, row);
                }
            }
            Need::Letter(id) => {
                let row = self.all.mail.get(&id).cloned();
                self.rows.mail.load(id, row);
            }
            Need::Unread(run) => {
                let named = self.all.mail_of(run).filter(|(id, _)| id.name.is_some());
                for (id, row) in named {
                    self.rows.mail.load(id.clone(), Some(row.clone()));
                }
            }
            Need::Unseen(limit) => {
                self.rows.unseen = world.unseen(limit);
                for id in self.rows.unseen.clone() {
                    let row = self.all.workers.get(&id).cloned();
                    self.rows.workers.load(id, row);
                }
            }
            Need::Heard(id) => {
                let found = world.heard(id);
                found.iter().for_each(|run| self.run(*run));
                self.rows.found = found;
            }
            Need::Latch(id) => self
                .rows
                .latches
                .load(id, self.all.latches.get(&id).copied()),
            Need::Scope(run, execution, call) => {
                let found = world.scope(run, execution, call);
                found.iter().for_each(|run| self.run(*run));
                self.rows.scopes.insert((run, execution, call), found);
            }
            need => self.load_queue(world, need),
        }
    }

    fn load_queue(&mut self, world: &World, need: Need) {
        match need {
            Need::Queue(id) => {
                let row = self.all.queues.get(&id).cloned();
                self.rows.queues.load(id, row);
            }
            Need::Permits(queue) => {
                let count = world.permits(&queue);
                self.rows.permits.insert(queue, count);
            }
            Need::Audit(namespace) => {
                let audit = self.all.audit.iter();
                let last = audit.filter(|(id, _)| id.namespace == namespace).last();
                if let Some((id, row)) = last {
                    self.rows.audit.load(id.clone(), Some(row.clone()));
                }
            }
            Need::Lock(_) => {}
            Need::Fact(id) => {
                let row = self.all.facts.get(&id).cloned();
                self.rows.facts.load(id, row);
            }
            Need::Stream(id) => {
                let row = self.all.streams.get(&id).copied();
                self.rows.streams.load(id, row);
            }
            Need::Document(id) => {
                let row = self.all.documents.get(&id).cloned();
                self.rows.documents.load(id, row);
            }
            Need::Projections(namespace) => {
                let all = self.all.projections.iter();
                for (id, row) in all.filter(|(id, _)| id.namespace == namespace) {
                    self.rows.projections.load(id.clone(), Some(row.clone()));
                }
            }
            Need::Tail(after, limit, _) => {
                self.rows.tail = std::sync::Arc::new(world.tail(after, limit));
            }
            Need::Sweep(namespace, from, limit) => {
                self.rows.swept = world.swept(&namespace, &from, limit);
                for id in &self.rows.swept {
                    let row = self.all.documents.get(id).cloned();
                    self.rows.documents.load(id.clone(), row);
                }
            }
            _ => unreachable!("loaded otherwise"),
        }
    }

    fn run(&mut self, run: RunId) {
        self.rows.load_run(run, self.all.run(run).cloned());
    }

    fn namespace(&self, run: RunId) -> Name {
        self.all
            .lane(self.all.run(run).expect("it waits").lane)
            .namespace
            .clone()
    }

    fn wait(&mut self, id: &WaitId) {
        let row = self.all.waits.get(id).expect("it is open").clone();
        self.rows
            .load_wait(&self.namespace(id.run), id.clone(), row);
    }

    fn waiters(&mut self, gate: &GateId, limit: usize) {
        let waits: Vec<_> = self.all.waiters_at(gate).take(limit).cloned().collect();
        for id in waits {
            self.wait(&id);
            self.run(id.run);
            self.inbox(id.run);
        }
    }

    fn offer(&mut self, gate: GateId, place: u64) {
        let id = roundel_core::OfferId { gate, place };
        let row = self.all.offers.get(&id).cloned();
        self.rows.offers.load(id, row);
    }

    fn all_waits(&mut self, run: RunId, waiters: usize) {
        let namespace = self.namespace(run);
        let waits: Vec<_> = self
            .all
            .waits_of(run)
            .map(|(id, row)| (id.clone(), row.clone()))
            .collect();
        for (id, row) in &waits {
            self.wait(id);
            let gate = GateId {
                namespace: namespace.clone(),
                name: id.name.clone(),
            };
            if let Some(Taken::Offer(place)) = row.taken {
                self.offer(gate.clone(), place);
            }
            self.waiters(&gate, waiters);
        }
    }

    fn inbox(&mut self, run: RunId) {
        let own = self.all.mail_of(run).filter(|(id, _)| id.name.is_none());
        let own: Vec<_> = own.map(|(id, row)| (id.clone(), row.clone())).collect();
        own.into_iter()
            .for_each(|(id, row)| self.rows.mail.load(id, Some(row)));
        let waits: Vec<_> = self
            .all
            .waits_of(run)
            .map(|(id, row)| (id.clone(), row.clone()))
            .collect();
        for (id, row) in waits {
            let name = id.name.clone();
            match row.taken {
                None => continue,
                Some(Taken::Mail(number)) => {
                    let mail = roundel_core::MailId {
                        run,
                        name: Some(name),
                        number,
                    };
                    let row = self.all.mail.get(&mail).cloned();
                    self.rows.mail.load(mail, row);
                }
                Some(Taken::Offer(place)) => {
                    let namespace = self.namespace(run);
                    self.offer(GateId { namespace, name }, place);
                }
            }
            self.wait(&id);
        }
    }
}

#[test]
fn the_first_rounds_of_children_need_offers_of_their_own() {
    let mut world = World::new();
    let jobs = &[(1, "@job"), (2, "@job")];
    for value in 1..=4 {
        world.offer("@job", value);
    }
    let parent = world.owned(A);
    let child = child_of(&mut world, parent, 9);
    let first = suspending(opening(Round::new(child.run, A, 1), jobs));
    let (own, first) = (Some(claimant(A)), Some(Box::new(first)));
    let child = Start {
        claimant: own,
        first,
        ..child
    };
    let mut round = opening(world.round(parent), jobs);
    round.caused.push(Caused::Child(9, Box::new(child)));
    let op = Op::Commit(round);
    let (_, sparse) = decide_sparsely(&world, &op);
    world.decide(&op).expect("committed");
    assert!(
        world.rows.take_changes() == sparse,
        "four offers for four waits"
    );
}
