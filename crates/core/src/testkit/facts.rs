//! Random facts: few ids, so that some come twice; few documents, so that many are folded into one.

use super::{Draw, Maker, NAMESPACES, PLAIN, payload};
use crate::{DocumentId, Failure, Name, NewFact, Op, Projection, Record, Seen, StreamId};

static DOCUMENTS: [Name; 3] = [
    Name::constant("one"),
    Name::constant("two"),
    Name::constant("two/three"),
];
static STREAMS: [Name; 2] = [Name::constant("left"), Name::constant("right")];

/// Adds up what facts say, in an order that can be told from any other; fails on some.
#[must_use]
pub fn adding() -> Projection {
    Projection::new(Name::constant("adding"), |document, _, fact| {
        let number = |payload: &crate::Payload| payload.decode::<u64>().unwrap_or_default();
        let (before, said) = (document.map_or(1, number), number(&fact.data));
        match said {
            3 => Err(Failure::permanent("three is never folded in")),
            4 => Ok(None),
            _ => Ok(Some(payload((before * 31 + said) % 1_000_003))),
        }
    })
}

impl Maker<'_> {
    pub(super) fn record(&self, draw: &mut Draw) -> Op {
        let namespace = draw.pick(&NAMESPACES).clone();
        Op::Record(self.facts(namespace, draw))
    }

    pub(super) fn facts(&self, namespace: Name, draw: &mut Draw) -> Record {
        let count = 1 + draw.below(3);
        let facts = (0..count).map(|_| self.fact(&namespace, draw)).collect();
        let seen = match draw.one_in(3) {
            true => vec![self.seen(&namespace, draw)],
            false => Vec::new(),
        };
        Record {
            seen,
            own: draw.one_in(2),
            by: draw.one_in(2).then(|| draw.pick(&PLAIN).clone()),
            ..Record::new(namespace, facts)
        }
    }

    fn fact(&self, namespace: &Name, draw: &mut Draw) -> NewFact {
        let id = Name::new(format!("fact {}", draw.below(200))).expect("a name");
        let stream = draw.one_in(2).then(|| draw.pick(&STREAMS).clone());
        let expected = stream.clone().filter(|_| draw.one_in(3)).map(|name| {
            let namespace = namespace.clone();
            let row = self.rows.streams.get(&StreamId { namespace, name });
            row.map_or(0, |row| row.version) + u64::from(draw.one_in(4))
        });
        let into = (0..draw.below(3)).map(|_| (draw.pick(&DOCUMENTS).clone(), adding()));
        let into = into.collect();
        NewFact {
            stream,
            expected,
            into,
            ..NewFact::new(id, draw.pick(&PLAIN).clone(), payload(draw.below(12)))
        }
    }

    fn seen(&self, namespace: &Name, draw: &mut Draw) -> Seen {
        let path = draw.pick(&DOCUMENTS).clone();
        let id = DocumentId {
            namespace: namespace.clone(),
            path: path.clone(),
        };
        let row = self.rows.documents.get(&id);
        let version = row.map_or(0, |row| row.version) + u64::from(draw.one_in(3));
        Seen { path, version }
    }
}
