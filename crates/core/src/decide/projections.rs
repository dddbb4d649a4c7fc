//! Projections: declared by the processes that have them, built anew, and brought further by facts
//! that were recorded before.
//!
//! How far a projection is and what its documents say are put down together. Whoever asks for the
//! next facts has the projection alone while it is decided: so it does not matter who asks, and how
//! many do.

use std::collections::BTreeMap;

use crate::mutant::{self, Mutant};
use crate::{
    Build, Declare, DocumentId, DocumentRow, Failure, Follow, Followed, Hint, Name, Passing,
    Position, ProjectionRow, Rebuild, Refusal, Rows, SkipFact, Stuck, Timestamp, limits,
};

/// Makes a projection known, and has it built if that is needed.
pub(super) fn declare(declare: &Declare, rows: &mut Rows) -> Result<ProjectionRow, Refusal> {
    let (id, kinds) = (&declare.projection, declare.kinds.len());
    Refusal::over(
        "kinds of facts of a projection",
        limits::PROJECTION_KINDS,
        kinds,
    )?;
    let mut row = rows.projections.get(id).cloned().unwrap_or_default();
    let build = |generation| Build {
        generation,
        version: declare.version,
        inline: declare.inline,
        kinds: declare.kinds.clone(),
        position: Position::default(),
        facts: 0,
        folds: 0,
        stuck: None,
    };
    let known = row.version();
    let refused = || Refusal::OtherProjection {
        projection: id.name.clone(),
        known,
        found: declare.version,
    };
    if known == declare.version {
        let both = [row.live.as_ref(), row.next.as_ref()];
        let its = |build: &&Build| build.version == known;
        let same = both
            .into_iter()
            .flatten()
            .filter(its)
            .all(|build| (build.inline, &build.kinds) == (declare.inline, &declare.kinds));
        return if same { Ok(row) } else { Err(refused()) };
    }
    if declare.version < known {
        return Err(refused());
    }
    if row.live.is_none() && row.next.is_none() && !(declare.inline && has_facts(rows)) {
        row.live = Some(build(0));
    } else {
        if row.next.is_some() {
            row.sweep = Some(String::new());
        }
        row.generations += 1;
        row.next = Some(build(row.generations));
    }
    rows.projections.put(id.clone(), row.clone());
    rows.hints.push(Hint::Facts(id.namespace.clone()));
    Ok(row)
}

/// What was recorded before it was known has to be taken up.
fn has_facts(rows: &Rows) -> bool {
    !rows.tail.facts.is_empty()
}

/// Has the documents of a projection made anew.
pub(super) fn rebuild(rebuild: &Rebuild, rows: &mut Rows) -> Result<ProjectionRow, Refusal> {
    let id = &rebuild.projection;
    let mut row = known(&rebuild.projection, rows)?;
    if let (Some(live), None) = (&row.live, &row.next) {
        row.generations += 1;
        row.next = Some(Build {
            generation: row.generations,
            position: Position::default(),
            facts: 0,
            folds: 0,
            stuck: None,
            ..live.clone()
        });
        rows.projections.put(id.clone(), row.clone());
    }
    rows.hints.push(Hint::Facts(id.namespace.clone()));
    Ok(row)
}

/// Passes over a fact that a projection cannot fold in.
pub(super) fn skip(skip: &SkipFact, rows: &mut Rows) -> Result<ProjectionRow, Refusal> {
    let id = &skip.projection;
    let mut row = known(id, rows)?;
    let mut found = false;
    for build in [row.live.as_mut(), row.next.as_mut()].into_iter().flatten() {
        if let Some(stuck) = build.stuck.take_if(|stuck| stuck.fact == skip.fact) {
            (build.position, found) = (stuck.position, true);
            build.facts += 1;
        }
    }
    if !found {
        return Err(Refusal::NotStuck {
            projection: id.name.clone(),
            fact: skip.fact.clone(),
        });
    }
    rows.projections.put(id.clone(), row.clone());
    rows.hints.push(Hint::Facts(id.namespace.clone()));
    Ok(row)
}

fn known(id: &crate::ProjectionId, rows: &Rows) -> Result<ProjectionRow, Refusal> {
    let row = rows.projections.get(id).cloned();
    row.ok_or_else(|| Refusal::UnknownProjection {
        projection: id.name.clone(),
    })
}

/// Takes up the facts that come next, and lets a building that has all take its place.
pub(super) fn follow(
    follow: &Follow,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<Followed, Refusal> {
    let id = &follow.projection;
    let before = known(id, rows)?;
    let mut row = before.clone();
    let is_next = row.next.as_ref().map(|next| next.generation) == Some(follow.generation);
    let build = match is_next {
        true => row.next.as_mut(),
        false => row.live.as_mut(),
    };
    let its = |build: &&mut Build| {
        let version = follow.folds.version;
        build.generation == follow.generation && build.version == version
    };
    let unknown = || Refusal::UnknownProjection {
        projection: id.name.clone(),
    };
    let build = build.filter(its).ok_or_else(unknown)?;
    // An inline one that is live takes nothing up afterwards, but may have left something.
    if build.inline && !is_next && before.sweep.is_none() {
        return Err(unknown());
    }
    let tail = std::mem::take(&mut rows.tail);
    let more = tail.facts.len() == follow.most();
    if follow.alone && more {
        // Whoever records next may do so under an older number than some of these: they are taken
        // up all together, or not at all.
        return Ok(Followed {
            row: before,
            passed: 0,
            more,
            unsettled: true,
        });
    }
    let mut taken = Taken::new(follow, rows);
    let passed = taken.all(&tail.facts, build, now);
    let documents = taken.documents;
    let (stuck, inline) = (build.stuck.is_some(), build.inline);
    let position = build.position;
    let behind = |live: &Build| !live.inline && live.position > position;
    let more = more && !stuck;
    let has_all = !more && !stuck && (!inline || follow.alone);
    let takes_over = is_next && has_all && !row.live.as_ref().is_some_and(behind);
    // What the search for old documents saw, it saw before.
    let searched = row.sweep.is_some() && !takes_over;
    if takes_over {
        if row.live.is_some() {
            row.sweep = Some(String::new());
        }
        row.live = row.next.take();
    }
    let swept = sweep(follow, searched, &mut row, rows);
    for (id, document) in documents {
        rows.documents.put(id, document);
    }
    if row != before && !mutant::on(Mutant::PositionApart) {
        rows.projections.put(id.clone(), row.clone());
    }
    Ok(Followed {
        row,
        passed,
        more: more || swept,
        unsettled: tail.unsettled,
    })
}

/// What facts come to, beside the rows.
struct Taken<'a> {
    follow: &'a Follow,
    rows: &'a Rows,
    documents: BTreeMap<DocumentId, DocumentRow>,
}

impl<'a> Taken<'a> {
    fn new(follow: &'a Follow, rows: &'a Rows) -> Taken<'a> {
        Taken {
            follow,
            rows,
            documents: BTreeMap::new(),
        }
    }

    /// Takes up these facts, up to the first that cannot be folded in. Says how many there were.
    fn all(&mut self, facts: &[Passing], build: &mut Build, now: Timestamp) -> usize {
        for (number, fact) in facts.iter().enumerate() {
            let into = fact.into(&self.follow.projection.namespace, build, &self.follow.folds);
            let folded = match into {
                Ok(into) => self.one(fact, into, build.generation),
                Err(failure) => Err(failure.clone()),
            };
            match folded {
                Ok(folds) => {
                    build.position = fact.position;
                    build.facts += 1;
                    build.folds += folds;
                    build.stuck = None;
                }
                Err(failure) => {
                    let known = build.stuck.as_ref().is_some_and(|stuck| {
                        (&stuck.fact, &stuck.failure) == (&fact.id.id, &failure)
                    });
                    if !known {
                        build.stuck = Some(Stuck {
                            fact: fact.id.id.clone(),
                            position: fact.position,
                            failure,
                            at: now,
                        });
                    }
                    return number;
                }
            }
        }
        facts.len()
    }

    /// One fact: into all of its documents, or none. Says how many they are.
    fn one(
        &mut self,
        fact: &Passing,
        into: &[(Name, crate::Projection)],
        generation: u32,
    ) -> Result<u64, Failure> {
        let mut new: Vec<(DocumentId, DocumentRow)> = Vec::with_capacity(into.len());
        for (path, projection) in into {
            let id = DocumentId {
                namespace: self.follow.projection.namespace.clone(),
                path: path.clone(),
                generation,
            };
            let same = new.iter().rev().find(|(other, _)| *other == id);
            let before = same.map(|(_, row)| row);
            let before = before.or_else(|| self.documents.get(&id));
            let before = before.or_else(|| self.rows.documents.get(&id));
            let version = before.map_or(0, |row| row.version) + 1;
            let value = before.and_then(|row| row.value.as_ref());
            let value = projection.fold(value, (&fact.id, &fact.row))?;
            let size = value.as_ref().map_or(0, crate::Payload::size);
            if let Err(refusal) = Refusal::payload(size) {
                return Err(Failure::permanent(refusal));
            }
            let projection = self.follow.projection.name.clone();
            let row = DocumentRow {
                projection,
                version,
                value,
                at: fact.row.at,
            };
            new.push((id, row));
        }
        let folds = new.len() as u64;
        self.documents.extend(new);
        Ok(folds)
    }
}

/// Removes some of the documents of old buildings, if a search found some. Says whether there may
/// be more.
fn sweep(follow: &Follow, searched: bool, row: &mut ProjectionRow, rows: &mut Rows) -> bool {
    if !searched {
        return row.sweep.is_some();
    }
    let found = std::mem::take(&mut rows.swept);
    for id in &found {
        let its = rows.documents.get(id);
        let its = its.is_some_and(|found| found.projection == follow.projection.name);
        if its && row.build(id.generation).is_none() {
            rows.documents.remove(id);
        }
    }
    let last = found.last().filter(|_| found.len() >= limits::SWEPT);
    match last {
        Some(last) => row.sweep = Some(last.path.as_str().to_owned()),
        None => row.sweep = None,
    }
    row.sweep.is_some()
}
