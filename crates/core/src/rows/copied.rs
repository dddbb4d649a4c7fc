//! Rows from one place to another that holds all of them: for stores that keep what was decided,
//! and work on it in memory.

use super::Rows;
use crate::changes::{Changes, RunChange, Write};
use crate::{FactId, FactRow, StreamId, StreamRow};

impl Rows {
    /// What was decided elsewhere happens here too, over rows that are all here. It counts as a
    /// change until it is accepted.
    pub fn absorb(&mut self, changes: Changes) {
        self.lanes.extend(changes.lanes);
        for change in changes.runs {
            match change {
                RunChange::Insert(row) | RunChange::Update { row, .. } => self.put_run(row),
            }
        }
        for (id, write) in changes.waits {
            let run = self.run(id.run).expect("a run that waits is here");
            let namespace = self.lane(run.lane).namespace.clone();
            match write {
                Write::Insert(row) | Write::Update(row) => self.put_wait(&namespace, id, row),
                Write::Delete => drop(self.remove_wait(&namespace, &id)),
            }
        }
        self.mail.absorb(changes.mail);
        self.gates.absorb(changes.gates);
        self.offers.absorb(changes.offers);
        self.keys.absorb(changes.keys);
        self.watches.absorb(changes.watches);
        self.states.absorb(changes.states);
        self.workers.absorb(changes.workers);
        self.subscriptions.absorb(changes.subscriptions);
        self.publications.absorb(changes.publications);
        self.latches.absorb(changes.latches);
        self.audit.absorb(changes.audit);
        self.queues.absorb(changes.queues);
        for (id, write) in changes.facts {
            let Write::Insert(row) = write else { continue };
            self.note_stream(&id, &row);
            self.facts.put(id, row);
        }
        self.projections.absorb(changes.projections);
        self.documents.absorb(changes.documents);
        self.note_limits();
        for run in changes.deleted {
            self.delete_run(run);
        }
        self.journal.extend(changes.journal);
        self.labels.extend(changes.labels);
    }

    /// How far its stream is at least.
    fn note_stream(&mut self, id: &FactId, row: &FactRow) {
        let Some((name, version)) = row.stream.clone() else {
            return;
        };
        let namespace = id.namespace.clone();
        self.streams
            .put(StreamId { namespace, name }, StreamRow { version });
    }

    /// All of them, as what an empty database would have to be told; but for what rows in memory
    /// do not keep.
    #[must_use]
    pub fn all(&self) -> Changes {
        Changes {
            runs: self.runs().cloned().map(RunChange::Insert).collect(),
            lanes: self.lanes.clone(),
            first_lane: 1,
            mail: self.mail.all(),
            waits: self.waits.all(),
            gates: self.gates.all(),
            offers: self.offers.all(),
            keys: self.keys.all(),
            watches: self.watches.all(),
            states: self.states.all(),
            workers: self.workers.all(),
            subscriptions: self.subscriptions.all(),
            publications: self.publications.all(),
            latches: self.latches.all(),
            audit: self.audit.all(),
            queues: self.queues.all(),
            facts: self.facts.all(),
            projections: self.projections.all(),
            documents: self.documents.all(),
            journal: Vec::new(),
            labels: Vec::new(),
            deleted: Vec::new(),
        }
    }
}
