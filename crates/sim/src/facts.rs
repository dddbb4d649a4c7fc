//! Facts: what clients record, some of it decided on what they have read, and what steps record
//! with their lines. In the end documents are what the facts come to, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use roundel::Fact;
use roundel_core::{
    Declare, DocumentId, Folds, Follow, Followed, Name, NewFact, Op, Payload, Projection,
    ProjectionId, Rebuild, Record, Refusal, RunId, Seen,
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

/// Takes up afterwards what clients record.
fn after_all() -> ProjectionId {
    ProjectionId {
        namespace: NAMESPACE,
        name: Name::constant("after all"),
    }
}

/// The numbers again, each beside the one that is kept by the commits.
fn folds() -> Folds {
    let fold = Projection::new(after_all().name, |document, _, fact| {
        let before = document.map_or(0, number);
        let after = after(&fact.kind, before, number(&fact.data));
        Ok(Some(World::payload(&after)))
    });
    Folds::new(after_all().name, 1, move |fact| {
        let path = fact.stream.as_ref().map(|(stream, _)| beside(stream));
        Ok(path.map(|path| (path, fold.clone())).into_iter().collect())
    })
}

fn beside(stream: &Name) -> Name {
    Name::new(format!("beside/{stream}")).expect("a name")
}

impl World<'_> {
    pub(crate) fn about_facts(&mut self) -> Op {
        match self.random.once_in(3) {
            true => self.project(),
            false => self.record_or_receive(),
        }
    }

    /// Something that a process does for a projection that follows.
    fn project(&mut self) -> Op {
        let projection = after_all();
        let Some(row) = self.model.rows().projections.get(&projection) else {
            return Op::Declare(Declare {
                projection,
                version: 1,
                inline: false,
                kinds: vec![ADDED, RAISED],
            });
        };
        let (live, next) = (row.live.clone(), row.next.clone());
        if next.is_none() && self.random.once_in(8) {
            return Op::Rebuild(Rebuild { projection });
        }
        let build = next.filter(|_| self.random.once_in(2)).or(live);
        Op::Follow(Follow {
            projection,
            generation: build.map_or(0, |build| build.generation),
            folds: folds(),
            limit: 1 + self.random.below(4),
            alone: false,
        })
    }

    /// What came of it.
    pub(crate) fn note_followed(&mut self, came: &Followed) {
        if came.passed > 0 {
            self.marks.hit(Mark::FactFollowed);
        }
        let live = came.row.live.as_ref();
        if live.is_some_and(|live| live.generation > 0) {
            self.marks.hit(Mark::ProjectionRebuilt);
        }
    }

    /// Something that a client records.
    pub(crate) fn record(&mut self) -> Op {
        let path = NUMBERS[self.random.below(2)].clone();
        let id = DocumentId::at(NAMESPACE, path.clone());
        let row = self.model.rows().documents.get(&id);
        let (version, value) = row.map_or((0, 0), |row| {
            (row.version, row.value.as_ref().map_or(0, number))
        });
        let (kind, said, seen) = if self.random.once_in(2) {
            let seen = Seen {
                path: path.clone(),
                version,
                generation: 0,
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
            let id = DocumentId::at(NAMESPACE, path.clone());
            let row = model.rows().documents.get(&id);
            let is = row.map(|row| (row.version, row.value.as_ref().map_or(0, number)));
            if is != Some((*version, *value)) {
                let found = format!("inv19_projections: {path} is {is:?}, not {value}");
                self.complain(&found);
            }
        }
        self.judge_followed(model);
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

impl Book {
    /// What follows is what the facts that it has passed come to, each once.
    fn judge_followed(&mut self, model: &Model) {
        let row = model.rows().projections.get(&after_all());
        let Some(live) = row.and_then(|row| row.live.as_ref()) else {
            return;
        };
        let mut numbers: BTreeMap<&Name, u64> = BTreeMap::new();
        let passed = usize::try_from(live.facts).unwrap_or(usize::MAX);
        for (_, row) in model.facts().take(passed) {
            if let Some((stream, _)) = &row.stream {
                let before = numbers.entry(stream).or_default();
                *before = after(&row.kind, *before, number(&row.data));
            }
        }
        for path in &NUMBERS {
            let id = DocumentId::at(NAMESPACE, beside(path));
            let is = model.rows().live_document(&id);
            let is = is.and_then(|(_, row)| row.value.as_ref()).map_or(0, number);
            let should = numbers.get(path).copied().unwrap_or_default();
            if is != should {
                let found = format!("fa_13: {path} is followed as {is}, not {should}");
                self.complain(&found);
            }
        }
    }
}

fn is_recorded(name: &str, way: Way) -> bool {
    crate::flows::is_plain_line(name) && way == Way::Done
}

/// The id of the fact that is recorded with a line.
pub(crate) fn line_id(run: RunId, execution: u32, name: &str) -> String {
    format!("{run}/{execution}/{name}")
}
