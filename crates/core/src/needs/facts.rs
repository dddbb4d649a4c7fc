//! What recording facts needs, and what brings projections further: everything is locked before
//! any of it is read.

use super::{Need, Stage};
use crate::{DocumentId, Follow, Name, Position, ProjectionId, Record, Rows, limits};

pub(super) fn of_record(record: &Record, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let facts = record.facts.iter().map(|fact| record.fact_id(fact));
    let needed = record.facts.iter().flat_map(|fact| &fact.needs);
    let needed = needed.map(|id| record.fact_of(id));
    let streams = record.facts.iter().filter_map(|fact| fact.stream.as_ref());
    let streams = streams.map(|stream| record.stream_id(stream));
    let documents = record.paths().map(|path| record.document_id(path));
    match stage {
        Stage::Keys => {
            out.push(Need::Projections(record.namespace.clone()));
            out.extend(facts.chain(needed).map(|id| Need::Lock(id.lock())));
            out.extend(streams.map(|id| Need::Lock(id.lock())));
            out.extend(documents.map(|id| Need::Lock(id.lock())));
        }
        Stage::Gates => {
            out.extend(facts.chain(needed).map(Need::Fact));
            out.extend(streams.map(Need::Stream));
            // Which of them is read depends on whose it is.
            for generation in rows.generations(&record.namespace) {
                let documents = record.paths().map(|path| DocumentId {
                    generation,
                    ..record.document_id(path)
                });
                out.extend(documents.map(Need::Document));
            }
        }
        // Who waits for them.
        Stage::Rest => {
            let new = facts.filter(|id| rows.facts.get(id).is_none());
            out.extend(new.map(|id| Need::Watchers(id.mark())));
        }
        Stage::Runs | Stage::Found => {}
    }
}

/// Of whoever changes a projection, and looks whether there are facts.
pub(super) fn of_declared(
    (projection, looks): (&ProjectionId, bool),
    stage: Stage,
    out: &mut Vec<Need>,
) {
    match stage {
        Stage::Keys => {
            out.push(Need::Projections(projection.namespace.clone()));
            out.push(Need::Lock(projection.lock()));
        }
        Stage::Runs if looks => out.push(Need::Tail(Position::default(), 1, false)),
        _ => {}
    }
}

pub(super) fn of_follow(follow: &Follow, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let id = &follow.projection;
    if stage == Stage::Keys {
        out.push(Need::Projections(id.namespace.clone()));
        out.push(Need::Lock(id.lock()));
        return;
    }
    let Some(row) = rows.projections.get(id) else {
        return;
    };
    let Some(build) = row.build(follow.generation) else {
        return;
    };
    match stage {
        Stage::Runs => {
            let settled = !follow.alone;
            let live = row.live.as_ref().map(|live| live.generation);
            let most = match build.inline && live == Some(build.generation) {
                true => 0,
                false => follow.most(),
            };
            out.push(Need::Tail(build.position, most, settled));
            if let Some(path) = &row.sweep {
                out.push(sweep(&id.namespace, path));
            }
        }
        Stage::Rest => {
            for fact in &rows.tail.facts {
                let into = fact.into(&id.namespace, build, &follow.folds);
                for (path, _) in into.iter().flatten() {
                    out.push(Need::Document(DocumentId {
                        namespace: id.namespace.clone(),
                        path: path.clone(),
                        generation: build.generation,
                    }));
                }
            }
        }
        Stage::Keys | Stage::Gates | Stage::Found => {}
    }
}

fn sweep(namespace: &Name, path: &str) -> Need {
    Need::Sweep(namespace.clone(), path.to_owned(), limits::SWEPT)
}
