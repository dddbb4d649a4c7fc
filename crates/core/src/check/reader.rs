//! Reads and checks many journals that are much alike, as those of a simulator's schedules are:
//! what was read before is not read again. Same bytes, same entries.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{RunRecord, Violation, of_run};
use crate::{Entry, JournalRow, RunId, decode_entries};

/// Rows of journals that are kept in each half, at most: few, so that they stay close to the
/// processor.
const KEPT: usize = 1024;

/// Has read some rows of journals.
#[derive(Debug, Default)]
pub struct Reader {
    known: Known,
    /// What was known before that. What is asked for again stays, what only one run has goes.
    older: Known,
}

type Known = FxHashMap<Vec<u8>, Arc<Vec<Entry>>>;

impl Reader {
    /// Checks one run: its rows, and what its journal says, which is not in the record.
    pub fn run(
        &mut self,
        id: RunId,
        (record, journal): (&RunRecord, &[JournalRow]),
        out: &mut Vec<Violation>,
    ) {
        let rounds = journal.iter();
        let read = rounds.map(|round| (round, self.read(&round.entries)));
        let read = read.collect();
        of_run(id, record, &read, out);
    }

    /// The entries of one row.
    ///
    /// # Errors
    /// As `decode_entries` says.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Arc<Vec<Entry>>, serde_json::Error> {
        if let Some(known) = self.known.get(bytes) {
            return Ok(known.clone());
        }
        let (bytes, entries) = match self.older.remove_entry(bytes) {
            Some(older) => older,
            None => (bytes.to_vec(), Arc::new(decode_entries(bytes)?)),
        };
        if self.known.len() == KEPT {
            self.older.clear();
            std::mem::swap(&mut self.known, &mut self.older);
        }
        self.known.insert(bytes, entries.clone());
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_entries;

    #[test]
    fn what_was_read_before_is_what_would_be_read_now() {
        let (mut reader, call) = (Reader::default(), |call| vec![Entry::Dropped { call }]);
        for round in 0..2 {
            for number in 0..u32::try_from(KEPT).unwrap() + 2 {
                let read = reader.read(&encode_entries(&call(number))).unwrap();
                assert_eq!(*read, call(number), "in round {round}");
            }
        }
        assert!(reader.known.len() <= KEPT && reader.older.len() <= KEPT);
        assert!(reader.read(b"[").is_err() && reader.read(b"[").is_err());
    }
}
