//! One kind of row, with what is known about the database's version of each.

use std::collections::BTreeMap;

use crate::changes::Write;

/// One kind of row, by key.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    slots: BTreeMap<K, Slot<V>>,
    changed: Vec<K>,
}

#[derive(Clone, Debug)]
struct Slot<V> {
    row: Option<V>,
    stored: bool,
    changed: bool,
}

impl<K: Ord + Clone, V> Default for Table<K, V> {
    fn default() -> Self {
        Table {
            slots: BTreeMap::new(),
            changed: Vec::new(),
        }
    }
}

impl<K: Ord + Clone, V: Clone> Table<K, V> {
    /// The row, if it exists.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.slots.get(key).and_then(|slot| slot.row.as_ref())
    }

    /// The row, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let slot = self.slots.get_mut(key)?;
        if slot.row.is_some() && !slot.changed {
            slot.changed = true;
            self.changed.push(key.clone());
        }
        slot.row.as_mut()
    }

    /// Has the store already said whether this row exists?
    pub fn is_loaded(&self, key: &K) -> bool {
        self.slots.contains_key(key)
    }

    /// What the database has; what is already here is newer and stays.
    pub fn load(&mut self, key: K, row: Option<V>) {
        let stored = row.is_some();
        self.slots.entry(key).or_insert(Slot {
            row,
            stored,
            changed: false,
        });
    }

    /// Makes or replaces the row.
    pub fn put(&mut self, key: K, row: V) {
        self.set(key, Some(row));
    }

    /// Removes the row.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let row = self.get(key).cloned();
        if row.is_some() {
            self.set(key.clone(), None);
        }
        row
    }

    fn set(&mut self, key: K, row: Option<V>) {
        let slot = self.slots.entry(key.clone()).or_insert(Slot {
            row: None,
            stored: false,
            changed: false,
        });
        slot.row = row;
        if !slot.changed {
            slot.changed = true;
            self.changed.push(key);
        }
    }

    /// Rows from `first` to `last`, in order.
    pub fn range(&self, first: K, last: K) -> impl Iterator<Item = (&K, &V)> {
        self.slots
            .range(first..=last)
            .filter_map(|(key, slot)| slot.row.as_ref().map(|row| (key, row)))
    }

    /// The last row from `first` to `last`.
    pub fn last(&self, first: K, last: K) -> Option<(&K, &V)> {
        let mut slots = self.slots.range(first..=last).rev();
        slots.find_map(|(key, slot)| slot.row.as_ref().map(|row| (key, row)))
    }

    /// Rows from `first` on, in order.
    pub fn starting_at(&self, first: K) -> impl Iterator<Item = (&K, &V)> {
        self.slots
            .range(first..)
            .filter_map(|(key, slot)| slot.row.as_ref().map(|row| (key, row)))
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.slots
            .iter()
            .filter_map(|(key, slot)| slot.row.as_ref().map(|row| (key, row)))
    }

    /// What changed since the last time, as writes.
    pub(super) fn take_changes(&mut self) -> Vec<(K, Write<V>)> {
        let mut writes = Vec::with_capacity(self.changed.len());
        for key in self.changed.drain(..) {
            let slot = self.slots.get_mut(&key).expect("a changed row is here");
            slot.changed = false;
            let write = match (&slot.row, slot.stored) {
                (Some(row), false) => Write::Insert(row.clone()),
                (Some(row), true) => Write::Update(row.clone()),
                (None, true) => Write::Delete,
                (None, false) => {
                    self.slots.remove(&key);
                    continue;
                }
            };
            slot.stored = slot.row.is_some();
            if slot.row.is_none() {
                self.slots.remove(&key);
            }
            writes.push((key, write));
        }
        writes
    }

    /// Makes these writes here.
    pub(super) fn absorb(&mut self, writes: Vec<(K, Write<V>)>) {
        for (key, write) in writes {
            match write {
                Write::Insert(row) | Write::Update(row) => self.put(key, row),
                Write::Delete => drop(self.remove(&key)),
            }
        }
    }

    /// All rows, as writes.
    pub(super) fn all(&self) -> Vec<(K, Write<V>)> {
        let insert = |(key, row): (&K, &V)| (key.clone(), Write::Insert(row.clone()));
        self.iter().map(insert).collect()
    }

    /// Keeps what changed since the last time as what the database has. Mostly that is nothing.
    #[inline]
    pub(super) fn accept_changes(&mut self) {
        if !self.changed.is_empty() {
            self.accept_all();
        }
    }

    /// The same, and tells of each that is there, in the order in which they changed.
    pub(super) fn accept_each(&mut self, mut tell: impl FnMut(&K)) {
        for key in self.changed.drain(..) {
            let slot = self.slots.get_mut(&key).expect("a changed row is here");
            (slot.changed, slot.stored) = (false, slot.row.is_some());
            match slot.stored {
                true => tell(&key),
                false => drop(self.slots.remove(&key)),
            }
        }
    }

    fn accept_all(&mut self) {
        while let Some(key) = self.changed.pop() {
            let slot = self.slots.get_mut(&key).expect("a changed row is here");
            (slot.changed, slot.stored) = (false, slot.row.is_some());
            if !slot.stored {
                self.slots.remove(&key);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        assert!(
            self.changed.is_empty(),
            "rows are dropped with changes that were not written"
        );
        self.slots.clear();
    }

    /// Forgets rows without a write.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, Option<&V>) -> bool) {
        self.slots.retain(|key, slot| keep(key, slot.row.as_ref()));
    }
}
