//! What recording facts needs: everything is locked before any of it is read.

use super::{Need, Stage};
use crate::Record;

pub(super) fn of_record(record: &Record, stage: Stage, out: &mut Vec<Need>) {
    let facts = record.facts.iter().map(|fact| record.fact_id(fact));
    let streams = record.facts.iter().filter_map(|fact| fact.stream.as_ref());
    let streams = streams.map(|stream| record.stream_id(stream));
    let documents = record.paths().map(|path| record.document_id(path));
    match stage {
        Stage::Keys => {
            out.extend(facts.map(|id| Need::Lock(id.lock())));
            out.extend(streams.map(|id| Need::Lock(id.lock())));
            out.extend(documents.map(|id| Need::Lock(id.lock())));
        }
        Stage::Gates => {
            out.extend(facts.map(Need::Fact));
            out.extend(streams.map(Need::Stream));
            out.extend(documents.map(Need::Document));
        }
        Stage::Runs | Stage::Rest | Stage::Found => {}
    }
}
