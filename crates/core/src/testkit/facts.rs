//! Random facts: few ids, so that some come twice; few documents, so that many are folded into one.

use super::{Draw, Maker, NAMESPACES, PLAIN, payload};
use crate::{
    DocumentId, Envelope, Failure, INCOMING, Item, Name, NewFact, Op, Payload, Projection, Receive,
    Record, RunRow, Seen, Start, StreamId, Take,
};

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
        let mut record = self.facts(namespace.clone(), draw);
        if draw.one_in(4) {
            let items = (0..1 + draw.below(2)).map(|_| self.item(&namespace, Take::Queue, draw));
            record.queued = items.collect();
        }
        if draw.one_in(6) {
            let start = Start {
                namespace,
                ..self.start(draw)
            };
            record.sent.push(start);
        }
        Op::Record(record)
    }

    /// Facts that come in: new ones, and some that are in the queue.
    pub(super) fn receive(&self, draw: &mut Draw) -> Op {
        let namespace = draw.pick(&NAMESPACES).clone();
        let items = (0..1 + draw.below(3)).map(|_| {
            let take = match draw.below(6) {
                0 | 1 => Take::Queue,
                2 => Take::Park(Box::new(Failure::permanent("nobody knows it"))),
                _ => Take::Record,
            };
            let new = self.item(&namespace, take, draw);
            match draw.one_in(2) {
                true => self.queued(&namespace, new, draw),
                false => new,
            }
        });
        let items = items.collect();
        let by = draw.one_in(2).then(|| draw.pick(&PLAIN).clone());
        Op::Receive(Receive {
            namespace,
            items,
            by,
        })
    }

    fn item(&self, namespace: &Name, take: Take, draw: &mut Draw) -> Item {
        let mut fact = self.fact(namespace, draw);
        fact.expected = None;
        Item {
            envelope: Payload::encode(&Envelope::of(&fact)).expect("an envelope is JSON"),
            fact,
            from: None,
            take,
            patience: draw.one_in(2).then(|| draw.span()),
        }
    }

    /// The same, as an item that is there.
    fn queued(&self, namespace: &Name, mut item: Item, draw: &mut Draw) -> Item {
        let is_item = |run: &&RunRow| {
            let lane = self.rows.lane(run.lane);
            lane.workflow == INCOMING && lane.namespace == *namespace
        };
        let items: Vec<&RunRow> = self.runs().into_iter().filter(is_item).collect();
        let open: Vec<&RunRow> = items
            .iter()
            .copied()
            .filter(|run| !run.state.has_ended())
            .collect();
        let items = if open.is_empty() || draw.one_in(8) {
            items
        } else {
            open
        };
        if items.is_empty() {
            return item;
        }
        let run = items[draw.below(items.len() as u64) as usize];
        let key = run.key.as_ref().map_or("", Name::as_str);
        if let Some((_, id)) = key.split_once(':') {
            item.fact.id = Name::new(id.to_owned()).expect("a name");
        }
        item.from = Some((run.id, run.execution + u32::from(draw.one_in(20))));
        item
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
        let needs = 0..draw.below(6).saturating_sub(3);
        let needs = needs.map(|_| Name::new(format!("fact {}", draw.below(200))).expect("a name"));
        NewFact {
            stream,
            expected,
            needs: needs.collect(),
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
