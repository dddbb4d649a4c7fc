//! How many rows of each kind, and a digest of all that is in them. It does not depend on the order
//! in which they come, nor on how a database stores them.

use std::fmt::Debug;

use roundel_core::{Changes, RunChange, Write, digest};

use crate::query::without_positions;

/// The kinds, in the order in which they are counted.
const KINDS: [&str; 20] = [
    "workflows",
    "runs",
    "journal rows",
    "labels",
    "messages",
    "waits",
    "gates",
    "offers",
    "keys",
    "watches",
    "states",
    "workers",
    "subscriptions",
    "publications",
    "latches",
    "audit rows",
    "queues",
    "facts",
    "documents",
    "projections",
];

/// What was counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    rows: [u64; KINDS.len()],
    sum: u128,
}

impl Tally {
    /// Counts what is put.
    pub(super) fn add(&mut self, changes: &Changes) {
        for (at, lane) in (changes.first_lane..).zip(&changes.lanes) {
            self.row(0, &(at, lane), &[]);
        }
        for row in changes.runs.iter().map(RunChange::row) {
            self.row(1, row, &[&json(&row.outcome)]);
        }
        for row in &changes.journal {
            let key = (row.run, row.execution, row.first, row.count);
            self.row(2, &(key, row.epoch, row.at), &[&row.entries]);
        }
        for label in &changes.labels {
            self.row(3, label, &[]);
        }
        self.all(4, &changes.mail, |row| {
            let times = (row.expires_at.map(|at| at.0), row.parked_at.map(|at| at.0));
            json(&(&row.body, row.policy.number(), times))
        });
        self.all(5, &changes.waits, |_| Vec::new());
        self.all(6, &changes.gates, |_| Vec::new());
        self.all(7, &changes.offers, |row| row.payload.as_str().into());
        self.all(8, &changes.keys, |_| Vec::new());
        self.all(9, &changes.watches, |()| Vec::new());
        self.all(10, &changes.states, |row| row.value.as_str().into());
        self.all(11, &changes.workers, |_| Vec::new());
        self.all(12, &changes.subscriptions, |_| Vec::new());
        self.all(13, &changes.publications, |row| {
            [row.payload.as_str().as_bytes(), &json(&row.context)].concat()
        });
        self.all(14, &changes.latches, |_| Vec::new());
        self.all(15, &changes.audit, |row| json(&row.detail));
        self.all(16, &changes.queues, |_| Vec::new());
        self.all(17, &changes.facts, |row| row.data.as_str().into());
        self.all(18, &changes.documents, |row| json(&row.value));
        // Where they are among facts, each database says otherwise.
        let views = changes
            .projections
            .iter()
            .filter_map(|(id, write)| match write {
                Write::Insert(row) | Write::Update(row) => Some((id.clone(), row.clone())),
                Write::Delete => None,
            });
        for view in without_positions(views.collect()) {
            self.row(19, &view, &[]);
        }
    }

    fn all<K: Debug, V: Debug>(
        &mut self,
        kind: usize,
        writes: &[(K, Write<V>)],
        hidden: impl Fn(&V) -> Vec<u8>,
    ) {
        for (key, write) in writes {
            if let Write::Insert(row) | Write::Update(row) = write {
                self.row(kind, &(key, row), &[&hidden(row)]);
            }
        }
    }

    /// What is shown of a row, and what of it is never shown: payloads.
    fn row(&mut self, kind: usize, shown: &dyn Debug, hidden: &[&[u8]]) {
        self.rows[kind] += 1;
        let shown = format!("{kind} {shown:?}");
        let parts = [&[shown.as_bytes()], hidden].concat();
        self.sum = self.sum.wrapping_add(digest(&parts));
    }

    pub(super) fn runs(&self) -> u64 {
        self.rows[1]
    }

    pub(super) fn rows(&self) -> Vec<(&'static str, u64)> {
        KINDS.into_iter().zip(self.rows).collect()
    }

    pub(super) fn digest(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("rows have a JSON form")
}

#[cfg(test)]
mod tests {
    use roundel_core::{Name, Payload, RunId, StateRow};

    use super::*;

    fn state(run: u8, text: &str) -> Changes {
        let value = Payload::encode(text).expect("text");
        let row = StateRow { version: 1, value };
        let states = vec![(RunId::from_bytes([run; 16]), Write::Insert(row))];
        Changes {
            states,
            ..Changes::default()
        }
    }

    fn tally(all: &[&Changes]) -> Tally {
        let mut tally = Tally::default();
        all.iter().for_each(|changes| tally.add(changes));
        tally
    }

    #[test]
    fn a_digest_sees_what_is_not_shown_and_not_the_order() {
        let (one, two) = (state(1, "a"), state(2, "b"));
        assert_eq!(tally(&[&one, &two]), tally(&[&two, &one]));
        assert_ne!(tally(&[&one]).digest(), tally(&[&state(1, "c")]).digest());
        assert_ne!(tally(&[&one, &one]), tally(&[&one]));
        let label = |value: &str| Changes {
            labels: vec![(
                RunId::from_bytes([1; 16]),
                Name::constant("a"),
                value.into(),
            )],
            ..Changes::default()
        };
        assert_ne!(tally(&[&label("x")]), tally(&[&label("y")]));
        let rows = tally(&[&one, &label("x")]).rows();
        assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
