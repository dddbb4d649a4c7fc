//! What recording facts needs: everything is locked before any of it is read.

use super::{Need, Stage};
use crate::{Record, Rows};

pub(super) fn of_record(record: &Record, rows: &Rows, stage: Stage, out: &mut Vec<Need>) {
    let facts = record.facts.iter().map(|fact| record.fact_id(fact));
    let needed = record.facts.iter().flat_map(|fact| &fact.needs);
    let needed = needed.map(|id| record.fact_of(id));
    let streams = record.facts.iter().filter_map(|fact| fact.stream.as_ref());
    let streams = streams.map(|stream| record.stream_id(stream));
    let documents = record.paths().map(|path| record.document_id(path));
    match stage {
        Stage::Keys => {
            out.extend(facts.chain(needed).map(|id| Need::Lock(id.lock())));
            out.extend(streams.map(|id| Need::Lock(id.lock())));
            out.extend(documents.map(|id| Need::Lock(id.lock())));
        }
        Stage::Gates => {
            out.extend(facts.chain(needed).map(Need::Fact));
            out.extend(streams.map(Need::Stream));
            out.extend(documents.map(Need::Document));
        }
        // Who waits for them.
        Stage::Rest => {
            let new = facts.filter(|id| rows.facts.get(id).is_none());
            out.extend(new.map(|id| Need::Watchers(id.mark())));
        }
        Stage::Runs | Stage::Found => {}
    }
}
