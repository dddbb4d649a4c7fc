//! Facts: what clients record, some of it decided on what they have read, and what steps record
//! with their lines. In the end documents are what the facts come to, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use roundel::Fact;
use roundel_core::{
    DocumentId, Name, NewFact, Op, Payload, Projection, Record, Refusal, RunId, Seen,
};
use roundel_store::Model;

use crate::book::Book;
use crate::marks::Mark;
use crate::site::{Site, Way};
use crate::world::{NAMESPACE, World};

/// What a step records with its line.
pub(crate) const WROTE: Fact<u32> = Fact::named("wrote");

/// Adds to a number, whatever that was.
const ADDED: Name = Name::constant("added");
/// Raises a number by one, as decided by somebody who has read it.
const RAISED: Name = Name::constant("raised");

static NUMBERS: [Name; 2] = [Name::constant("number/1"), Name::constant("number/2")];

fn number(payload: &Payload) -> u64 {
    payload.decode().unwrap_or_default()
}

/// The number after the fact.
fn after(kind: &Name, before: u64, said: u64) -> u64 {
    if *kind == RAISED { said } else { before + said }
}

fn numbers() -> Projection {
    Projection::new(Name::constant("numbers"), |document, _, fact| {
        let before = document.map_or(0, number);
        let after = after(&fact.kind, before, number(&fact.data));
        Ok(Some(World::payload(&after)))
    })
}

/// Adds this to one of the numbers.
pub(crate) fn added(id: Name, number: usize, said: u64) -> NewFact {
    let path = NUMBERS[number].clone();
    NewFact {
        stream: Some(path.clone()),
        into: vec![(path, numbers())],
        ..NewFact::new(id, ADDED, World::payload(&said))
    }
}

impl World<'_> {
    /// Something that a client records.
    pub(crate) fn record(&mut self) -> Op {
        let path = NUMBERS[self.random.below(2)].clone();
        let id = DocumentId {
            namespace: NAMESPACE,
            path: path.clone(),
        };
        let row = self.model.rows().documents.get(&id);
        let (version, value) = row.map_or((0, 0), |row| {
            (row.version, row.value.as_ref().map_or(0, number))
        });
        let (kind, said, seen) = if self.random.once_in(2) {
            let seen = Seen {
                path: path.clone(),
                version,
            };
            (RAISED, value + 1, vec![seen])
        } else {
            (ADDED, 1 + self.random.next() % 9, Vec::new())
        };
        let fact = NewFact {
            stream: Some(path.clone()),
            into: vec![(path, numbers())],
            ..NewFact::new(self.fresh_key(), kind, World::payload(&said))
        };
        Op::Record(Record {
            seen,
            ..Record::new(NAMESPACE, vec![fact])
        })
    }

    /// What came of it.
    pub(crate) fn note_recorded(&mut self, refused: Option<&Refusal>) {
        match refused {
            None => self.marks.hit(Mark::FactRecorded),
            Some(Refusal::Stale { .. }) => self.marks.hit(Mark::DecidedOnOldDocuments),
            Some(_) => {}
        }
    }
}

impl Book {
    /// Documents are what facts come to, and a line's fact is there if the line is.
    pub(crate) fn judge_facts(&mut self, model: &Model, site: &Site) {
        let mut numbers: BTreeMap<Name, (u64, u64)> = BTreeMap::new();
        let mut wrote: BTreeSet<&str> = BTreeSet::new();
        for (id, row) in model.facts() {
            let Some((stream, _)) = &row.stream else {
                wrote.insert(id.id.as_str());
                continue;
            };
            let (version, before) = numbers.entry(stream.clone()).or_default();
            let said = number(&row.data);
            if row.kind == RAISED && said != *before + 1 {
                let found = format!("fa_18: {stream} was {before}, and raised to {said}");
                self.complain(&found);
            }
            (*version, *before) = (*version + 1, after(&row.kind, *before, said));
        }
        for (path, (version, value)) in &numbers {
            let id = DocumentId {
                namespace: NAMESPACE,
                path: path.clone(),
            };
            let row = model.rows().documents.get(&id);
            let is = row.map(|row| (row.version, row.value.as_ref().map_or(0, number)));
            if is != Some((*version, *value)) {
                let found = format!("inv19_projections: {path} is {is:?}, not {value}");
                self.complain(&found);
            }
        }
        if !site.facts {
            return;
        }
        let lines = site
            .ledger
            .keys()
            .filter(|line| is_recorded(line.2, line.3));
        let lines: BTreeSet<String> = lines.map(|line| line_id(line.0, line.1, line.2)).collect();
        let lost = lines.iter().filter(|id| !wrote.contains(id.as_str()));
        let lost: Vec<&String> = lost.collect();
        let gone = |id: &&&str| {
            let run = id.split('/').next().and_then(|run| run.parse().ok());
            run.is_some_and(|run: RunId| self.ever_deleted.contains(&run))
        };
        let stray = wrote.iter().filter(|id| !lines.contains(**id) && !gone(id));
        let stray: Vec<&&str> = stray.collect();
        let found = match (lost.first(), stray.first()) {
            (Some(id), _) => format!("fa_14: the fact of the line {id} is lost"),
            (None, Some(id)) => format!("fa_14: the fact {id} was recorded without its line"),
            (None, None) => return,
        };
        self.complain(&found);
    }
}

fn is_recorded(name: &str, way: Way) -> bool {
    crate::flows::is_plain_line(name) && way == Way::Done
}

/// The id of the fact that is recorded with a line.
pub(crate) fn line_id(run: RunId, execution: u32, name: &str) -> String {
    format!("{run}/{execution}/{name}")
}
