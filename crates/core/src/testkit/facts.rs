//! Random facts: few ids, so that some come twice; few documents, so that many are folded into one.

use std::sync::Arc;

use super::{Draw, Maker, NAMESPACES, PLAIN, payload};
use crate::{
    Declare, DocumentId, Envelope, Failure, Folds, Follow, INCOMING, Item, Name, NewFact, Op,
    Payload, Projection, ProjectionId, Rebuild, Receive, Record, RunRow, Seen, SkipFact, Start,
    StreamId, Take,
};

static DOCUMENTS: [Name; 3] = [
    Name::constant("one"),
    Name::constant("two"),
    Name::constant("two/three"),
];
static STREAMS: [Name; 2] = [Name::constant("left"), Name::constant("right")];

/// Folds in what facts say, by the commits that record them.
const ADDING: Name = Name::constant("adding");
/// Does it afterwards.
const FOLLOWING: Name = Name::constant("following");

/// The same, for all facts, wherever they are folded in when they are recorded.
#[must_use]
pub(super) fn folds(name: Name, version: u32) -> Folds {
    Folds::new(name.clone(), version, move |fact| {
        let said = fact.data.decode::<u64>().unwrap_or_default();
        let path = DOCUMENTS[said as usize % 3].as_str();
        let path = match name == ADDING {
            true => path.to_owned(),
            false => format!("after/{path}"),
        };
        let path = Name::new(path).expect("a name");
        Ok(vec![(path.clone(), adding()), (path, adding())])
    })
}

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

/// What a process has: now and then not all of it.
fn known(draw: &mut Draw) -> Arc<[(Name, u32)]> {
    match draw.one_in(20) {
        true => [].into(),
        false => [(ADDING, 1)].into(),
    }
}

impl Maker<'_> {
    /// Something about a projection.
    pub(super) fn project(&self, draw: &mut Draw) -> Op {
        let inline = draw.one_in(3);
        let projection = ProjectionId {
            namespace: draw.pick(&NAMESPACES).clone(),
            name: if inline { ADDING } else { FOLLOWING },
        };
        let row = self.rows.projections.get(&projection);
        let known = row.map_or(1, crate::ProjectionRow::version);
        let what = draw.below(12);
        match (row, what) {
            (Some(_), 0) => Op::Rebuild(Rebuild { projection }),
            (Some(row), 1..=2) => {
                let builds = [row.live.as_ref(), row.next.as_ref()];
                let stuck = builds
                    .into_iter()
                    .flatten()
                    .find_map(|build| build.stuck.clone());
                let fact = stuck.map_or(PLAIN[0].clone(), |stuck| stuck.fact);
                Op::SkipFact(SkipFact { projection, fact })
            }
            (Some(row), 3..) => {
                let build = row.next.as_ref().filter(|_| !draw.one_in(4));
                let build = build.or(row.live.as_ref()).or(row.next.as_ref());
                let (generation, version) =
                    build.map_or((0, 1), |build| (build.generation, build.version));
                Op::Follow(Follow {
                    folds: folds(projection.name.clone(), version),
                    projection,
                    generation,
                    limit: 1 + draw.below(400) as usize,
                    alone: true,
                })
            }
            _ => Op::Declare(Declare {
                projection,
                version: match inline {
                    true => 1,
                    false => known + u32::from(draw.one_in(6)),
                },
                inline,
                kinds: vec![PLAIN[0].clone()],
            }),
        }
    }

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
            knows: known(draw),
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
            knows: known(draw),
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
        let id = DocumentId::at(namespace.clone(), path.clone());
        let found = self.rows.live_document(&id);
        let (generation, version) =
            found.map_or((0, 0), |(generation, row)| (generation, row.version));
        let version = version + u64::from(draw.one_in(3));
        Seen {
            path,
            version,
            generation,
        }
    }
}
