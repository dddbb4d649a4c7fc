//! Recording facts: once per id, counted in their streams, folded into their documents.
//!
//! A fold is the user's code and may fail. So everything is worked out beside the rows first, and
//! put there when nothing can fail any more.

use std::collections::BTreeMap;

use super::{incoming, starts};
use crate::mutant::{self, Mutant};
use crate::{
    Cause, DocumentId, DocumentRow, FactId, FactRow, Failure, Hint, Name, NewFact, ProjectionRow,
    Record, RecordedFact, Refusal, Round, Rows, StreamId, StreamRow, Timestamp, limits,
};

/// What recording comes to.
#[derive(Default)]
pub(super) struct Plan {
    facts: Vec<(FactId, FactRow)>,
    streams: BTreeMap<StreamId, StreamRow>,
    documents: BTreeMap<DocumentId, DocumentRow>,
}

/// Records facts, or refuses all of them.
pub(super) fn record(
    record: &Record,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Vec<RecordedFact>, Refusal> {
    let mut plan = Plan::default();
    let recorded = plan.add((record, None), rows, now)?;
    starts::may_send(record.sent.iter(), rows)?;
    incoming::may_queue(record, rows)?;
    plan.carry_out(rows, now);
    for start in record.sent.iter().filter(|_| !mutant::on(Mutant::SentLost)) {
        starts::start(start, rows, now).expect("checked");
    }
    incoming::put(record, rows, now);
    Ok(recorded)
}

/// What the steps of a round recorded.
pub(super) fn of_round(round: &Round, rows: &Rows, now: Timestamp) -> Result<Plan, Refusal> {
    let mut plan = Plan::default();
    let recorded = round.recorded();
    for record in recorded.filter(|_| !mutant::on(Mutant::FactLost)) {
        let row = rows.run(round.run).expect("checked");
        let cause = Cause {
            run: round.run,
            execution: row.execution,
            entry: row.head + 1,
        };
        plan.add((record, Some(cause)), rows, now)?;
    }
    Ok(plan)
}

impl Plan {
    /// Works out what these facts come to, after those that are in the plan already.
    pub(super) fn add(
        &mut self,
        (record, cause): (&Record, Option<Cause>),
        rows: &Rows,
        now: Timestamp,
    ) -> Result<Vec<RecordedFact>, Refusal> {
        check(record)?;
        check_known(record, rows)?;
        for seen in &record.seen {
            let found = self.live(&record.document_id(&seen.path), rows);
            let found = found.map_or((0, 0), |(generation, row)| (generation, row.version));
            if found != (seen.generation, seen.version) && !mutant::on(Mutant::StaleReads) {
                let path = seen.path.clone();
                return Err(Refusal::Stale { path });
            }
        }
        let facts = record.facts.iter();
        facts
            .map(|fact| self.fact((record, fact), cause, rows, now))
            .collect()
    }

    fn fact(
        &mut self,
        (record, fact): (&Record, &NewFact),
        cause: Option<Cause>,
        rows: &Rows,
        now: Timestamp,
    ) -> Result<RecordedFact, Refusal> {
        let id = record.fact_id(fact);
        if let Some(known) = self.known(&id, rows) {
            return repeated(fact, known);
        }
        if let Some(needs) = self.missing((record, fact), rows) {
            let (fact, needs) = (fact.id.clone(), needs.clone());
            return Err(Refusal::FactMissing { fact, needs });
        }
        let stream = self.count((record, fact), rows)?;
        let row = FactRow {
            kind: fact.kind.clone(),
            version: fact.version,
            data: fact.data.clone(),
            at: now,
            own: record.own,
            by: record.by.clone(),
            cause,
            stream: stream.clone(),
        };
        self.fold((record, fact), (&id, &row), rows)?;
        let let_go = rows.watchers_of(id.mark()).count();
        self.facts.push((id, row));
        Ok(RecordedFact {
            new: true,
            stream_version: stream.map(|(_, version)| version),
            let_go: u32::try_from(let_go).unwrap_or(u32::MAX),
        })
    }

    /// The first of the facts that it needs and that is not there.
    fn missing<'f>(&self, (record, fact): (&Record, &'f NewFact), rows: &Rows) -> Option<&'f Name> {
        let is_there = |id: &Name| {
            let id = record.fact_of(id);
            let planned = self.facts.iter().any(|(planned, _)| *planned == id);
            planned || rows.facts.get(&id).is_some() && !mutant::on(Mutant::NeedSeenTooEarly)
        };
        fact.needs.iter().find(|id| !is_there(id))
    }

    /// The fact of this id, in the rows or in the plan.
    fn known<'a>(&'a self, id: &FactId, rows: &'a Rows) -> Option<&'a FactRow> {
        let planned = self.facts.iter().find(|(planned, _)| planned == id);
        let planned = planned.map(|(_, row)| row);
        planned.or_else(|| {
            rows.facts
                .get(id)
                .filter(|_| !mutant::on(Mutant::FactTwice))
        })
    }

    /// The document at this path that is read, in the plan or in the rows.
    fn live<'a>(&'a self, id: &DocumentId, rows: &'a Rows) -> Option<(u32, &'a DocumentRow)> {
        let planned = rows.generations(&id.namespace).into_iter();
        let mut planned = planned.filter_map(|generation| {
            let id = DocumentId {
                generation,
                ..id.clone()
            };
            Some((generation, self.documents.get(&id)?))
        });
        planned.next().or_else(|| rows.live_document(id))
    }

    /// Its place in its stream, which must be where it is expected.
    fn count(
        &mut self,
        (record, fact): (&Record, &NewFact),
        rows: &Rows,
    ) -> Result<Option<(Name, u64)>, Refusal> {
        let Some(name) = &fact.stream else {
            return Ok(None);
        };
        let id = record.stream_id(name);
        let row = self.streams.get(&id).or_else(|| rows.streams.get(&id));
        let found = row.map_or(0, |row| row.version);
        if let Some(expected) = fact.expected.filter(|expected| *expected != found) {
            return Err(Refusal::StreamMoved {
                stream: name.clone(),
                expected,
                found,
            });
        }
        let version = found + 1;
        self.streams.insert(id, StreamRow { version });
        Ok(Some((name.clone(), version)))
    }

    fn fold(
        &mut self,
        (record, fact): (&Record, &NewFact),
        row: (&FactId, &FactRow),
        rows: &Rows,
    ) -> Result<(), Refusal> {
        for (path, projection) in &fact.into {
            // While its first building is being made, nobody reads it; that takes this fact up.
            let name = projection.name();
            let Some(generation) = rows.live_generation(&record.namespace, name) else {
                continue;
            };
            let id = DocumentId {
                generation,
                ..record.document_id(path)
            };
            let before = self.live(&id, rows).map(|(_, before)| before);
            let version = before.map_or(0, |before| before.version) + 1;
            let value = before.and_then(|before| before.value.as_ref());
            let folded = match before.filter(|before| before.projection != *name) {
                Some(other) => Err(not_its(path, &other.projection)),
                None => projection.fold(value, row),
            };
            let value = folded.map_err(|failure| Refusal::NotFolded {
                fact: fact.id.clone(),
                projection: name.clone(),
                path: path.clone(),
                failure: Box::new(failure),
            })?;
            Refusal::payload(value.as_ref().map_or(0, crate::Payload::size))?;
            let document = DocumentRow {
                projection: name.clone(),
                version,
                value,
                at: row.1.at,
            };
            self.documents.insert(id, document);
        }
        Ok(())
    }

    /// Nothing can fail any more.
    pub(super) fn carry_out(self, rows: &mut Rows, now: Timestamp) {
        self.tell(rows);
        for (id, row) in self.facts {
            incoming::let_go(&id, rows, now);
            rows.facts.put(id, row);
        }
        for (id, row) in self.streams {
            rows.streams.put(id, row);
        }
        for (id, row) in self.documents {
            if !mutant::on(Mutant::FoldLost) {
                rows.documents.put(id, row);
            }
        }
    }
}

impl Plan {
    /// Says that there is something for projections that take facts up afterwards.
    fn tell(&self, rows: &mut Rows) {
        let Some((first, _)) = self.facts.first() else {
            return;
        };
        let namespace = &first.namespace;
        let concerns = |row: &ProjectionRow| {
            let both = [
                row.live.as_ref().filter(|live| !live.inline),
                row.next.as_ref(),
            ];
            let mut both = both.into_iter().flatten();
            both.any(|build| {
                let mut facts = self.facts.iter();
                facts.any(|(_, fact)| build.folds_kind(&fact.kind))
            })
        };
        if rows.projections_of(namespace).any(|(_, row)| concerns(row)) {
            rows.hints.push(Hint::Facts(namespace.clone()));
        }
    }
}

fn not_its(path: &Name, owner: &Name) -> Failure {
    let message = format!("the document `{path}` is the projection `{owner}`'s own");
    Failure::permanent(message).with_code("other_projection")
}

/// Does the process that asks have every projection that folds such facts in by the commit?
fn check_known(record: &Record, rows: &Rows) -> Result<(), Refusal> {
    for (id, row) in rows.projections_of(&record.namespace) {
        let Some(live) = row.live.as_ref().filter(|live| live.inline) else {
            continue;
        };
        let mut kinds = record.facts.iter().map(|fact| &fact.kind);
        let Some(kind) = kinds.find(|kind| live.folds_kind(kind)) else {
            continue;
        };
        let mut knows = record.knows.iter();
        if !knows.any(|(name, version)| (name, *version) == (&id.name, live.version)) {
            return Err(Refusal::LacksProjection {
                kind: kind.clone(),
                projection: id.name.clone(),
                version: live.version,
            });
        }
    }
    Ok(())
}

fn check(record: &Record) -> Result<(), Refusal> {
    Refusal::over("facts recorded at once", limits::FACTS, record.facts.len())?;
    let seen = record.seen.len();
    Refusal::over("documents read for a decision", limits::FACTS, seen)?;
    let mut bytes = 0;
    for fact in &record.facts {
        Refusal::payload(fact.data.size())?;
        Refusal::over(
            "facts that one needs",
            limits::FACT_DOCUMENTS,
            fact.needs.len(),
        )?;
        let into = fact.into.len();
        Refusal::over("documents of one fact", limits::FACT_DOCUMENTS, into)?;
        bytes += fact.data.size();
    }
    let what = "bytes of facts recorded at once";
    Refusal::over(what, limits::ROUND_BYTES, bytes)
}

/// The same fact again is nothing new; another one under its id is refused.
pub(super) fn repeated(fact: &NewFact, known: &FactRow) -> Result<RecordedFact, Refusal> {
    let stream = known.stream.as_ref().map(|(name, _)| name);
    let same = (&fact.kind, fact.version, &fact.data, fact.stream.as_ref())
        == (&known.kind, known.version, &known.data, stream);
    if !same {
        return Err(Refusal::AnotherFact {
            id: fact.id.clone(),
        });
    }
    Ok(RecordedFact {
        new: false,
        stream_version: known.stream.as_ref().map(|(_, version)| *version),
        let_go: 0,
    })
}
