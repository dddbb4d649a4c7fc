//! Facts that come in: handed in at once or queued, some of which need others that come later; and
//! whoever takes what is in the queue, as he read it a while ago.

use std::collections::BTreeMap;

use roundel_core::{
    Envelope, FactId, Failure, INCOMING, Item, Name, NewFact, Op, Projection, Receive, Received,
    Rows, RunRow, RunState, Take,
};
use roundel_store::Model;

use crate::book::Book;
use crate::marks::Mark;
use crate::world::{NAMESPACE, World};

/// Cannot be folded by anybody.
const SPOILED: Name = Name::constant("spoiled");

/// So many are taken at once.
const AT_ONCE: usize = 4;

/// What clients have handed in.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Facts that others need, and nobody has handed in yet.
    owed: Vec<Name>,
    /// By their ids.
    items: BTreeMap<Name, Item>,
    /// Those that were acknowledged.
    told: Vec<Name>,
}

fn spoiled() -> Projection {
    Projection::new(Name::constant("spoiled"), |_, _, _| {
        Err(Failure::permanent("it is spoiled"))
    })
}

impl World<'_> {
    /// Something that a client does with facts.
    pub(crate) fn record_or_receive(&mut self) -> Op {
        match self.random.once_in(2) {
            true => self.record(),
            false => self.receive(),
        }
    }

    /// A fact is handed in, or what is in the queue is taken.
    fn receive(&mut self) -> Op {
        let due = self.due_items();
        let items = match due.is_empty() || self.random.once_in(2) {
            true => vec![self.arrival()],
            false => due,
        };
        Op::Receive(Receive {
            namespace: NAMESPACE,
            items,
            by: None,
            knows: [].into(),
        })
    }

    fn arrival(&mut self) -> Item {
        let again = self.book.arrivals.owed.len();
        let id = match again > 0 && self.random.once_in(2) {
            true => {
                let at = self.random.below(again);
                self.book.arrivals.owed.swap_remove(at)
            }
            false => self.fresh_key(),
        };
        let mut fact = self.added(id.clone());
        if self.random.once_in(12) {
            fact.kind = SPOILED;
            fact.into = vec![(Name::constant("spoiled"), spoiled())];
        } else if self.random.once_in(2) {
            let needed = match self.book.arrivals.owed.first() {
                Some(owed) if self.random.once_in(3) => owed.clone(),
                _ => self.fresh_key(),
            };
            if !self.book.arrivals.owed.contains(&needed) {
                self.book.arrivals.owed.push(needed.clone());
            }
            fact.needs.push(needed);
        }
        let take = match self.random.once_in(2) {
            true => Take::Queue,
            false => Take::Record,
        };
        let item = Item {
            envelope: World::payload(&Envelope::of(&fact)),
            fact,
            from: None,
            take,
            patience: None,
        };
        let items = &mut self.book.arrivals.items;
        items.insert(id, item.clone());
        item
    }

    /// The first in the queue, in order.
    fn due_items(&self) -> Vec<Item> {
        let rows = self.model.rows();
        let is_due = |row: &&RunRow| {
            row.state == RunState::Ready && rows.lane(row.lane).workflow == INCOMING
        };
        let mut due: Vec<&RunRow> = rows.runs().filter(is_due).collect();
        due.sort_by_key(|row| (row.ready_at, row.id));
        let items = due.into_iter().take(AT_ONCE).filter_map(|row| {
            let id = fact_of(row)?;
            let item = self.book.arrivals.items.get(&id)?;
            Some(Item {
                from: Some((row.id, row.execution)),
                take: Take::Record,
                ..item.clone()
            })
        });
        items.collect()
    }

    /// Takes what is left in the queue. Returns whether there was something.
    pub(crate) fn take_in(&mut self) -> bool {
        let items = self.due_items();
        if items.is_empty() {
            return false;
        }
        let op = Op::Receive(Receive {
            namespace: NAMESPACE,
            items,
            by: None,
            knows: [].into(),
        });
        let _ = self.transact(&op, Vec::new(), None);
        true
    }

    /// What came of it.
    pub(crate) fn note_received(&mut self, items: &[Item], received: &[Received]) {
        for (item, received) in items.iter().zip(received) {
            match received {
                Received::Recorded(fact) if fact.let_go > 0 => self.marks.hit(Mark::FactLetGo),
                Received::Recorded(_) if item.from.is_some() => self.marks.hit(Mark::FactTaken),
                Received::Waiting { .. } => self.marks.hit(Mark::FactWaited),
                Received::Gone | Received::Refused(_) => continue,
                _ => {}
            }
            let id = item.fact.id.clone();
            self.book.arrivals.told.push(id);
        }
    }
}

/// Is it a fact that came in, and no run that anybody started?
pub(crate) fn is_item(rows: &Rows, row: &RunRow) -> bool {
    rows.lane(row.lane).workflow == INCOMING
}

fn fact_of(row: &RunRow) -> Option<Name> {
    let (_, id) = row.key.as_ref()?.as_str().split_once(':')?;
    Name::new(id.to_owned()).ok()
}

impl Book {
    /// What was acknowledged is recorded, or waits where it can be seen.
    pub(crate) fn judge_arrivals(&mut self, model: &Model) {
        let rows = model.rows();
        let is_item = |row: &&RunRow| rows.lane(row.lane).workflow == INCOMING;
        let items = rows.runs().filter(is_item);
        let open = items.filter(|row| !row.state.has_ended());
        let open: BTreeMap<Name, RunState> = open
            .filter_map(|row| Some((fact_of(row)?, row.state)))
            .collect();
        for id in std::mem::take(&mut self.arrivals.told) {
            let fact = FactId {
                namespace: NAMESPACE,
                id: id.clone(),
            };
            let recorded = rows.facts.get(&fact).is_some();
            let found = match (recorded, open.get(&id)) {
                (true, None) => continue,
                (true, Some(_)) => format!("fa_06: {id} is recorded and in its queue"),
                (false, Some(RunState::Ready)) => format!("fa_06: {id} was never taken"),
                (false, Some(_)) => continue,
                (false, None) => format!("fa_06: {id} was acknowledged and is lost"),
            };
            self.complain(&found);
        }
    }
}

impl World<'_> {
    fn added(&mut self, id: Name) -> NewFact {
        let said = 1 + self.random.next() % 9;
        crate::facts::added(id, self.random.below(2), said)
    }
}
