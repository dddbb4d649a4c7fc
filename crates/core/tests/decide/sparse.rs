//! Rows of which only those are loaded that an operation says it needs: what a database does. If
//! a decision reads a row that was not asked for, it comes out different here.

use roundel_core::{
    Changes, GateId, Name, Need, Op, Refusal, Reply, Rows, RunId, Stage, Taken, WaitId, decide,
    needs,
};

use crate::world::World;

/// What the operation answers and changes, over the rows that it needs and no others.
pub(crate) fn decide_sparsely(world: &World, op: &Op) -> (Result<Reply, Refusal>, Changes) {
    let mut some = Loader {
        all: &world.rows,
        rows: Rows::default(),
    };
    some.rows.load_lanes(world.rows.lanes().to_vec());
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
            Need::Due(lanes, limit) => {
                let (found, next) = world.due(&lanes, limit);
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
            Need::AllWaits(run) => self.all_waits(run),
            Need::Mail(run, name, limit) => {
                let mail = self
                    .all
                    .mail_of(run)
                    .filter(|(id, _)| id.name.as_ref() == Some(&name));
                let mail: Vec<_> = mail
                    .take(limit)
                    .map(|(id, row)| (id.clone(), row.clone()))
                    .collect();
                mail.into_iter()
                    .for_each(|(id, row)| self.rows.mail.load(id, Some(row)));
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
            Need::State(run) => self
                .rows
                .states
                .load(run, self.all.states.get(&run).cloned()),
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
        }
    }

    fn offer(&mut self, gate: GateId, place: u64) {
        let id = roundel_core::OfferId { gate, place };
        let row = self.all.offers.get(&id).cloned();
        self.rows.offers.load(id, row);
    }

    fn all_waits(&mut self, run: RunId) {
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
            let as_many = waits
                .iter()
                .filter(|(other, _)| other.name == id.name)
                .count();
            self.waiters(&gate, as_many);
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
