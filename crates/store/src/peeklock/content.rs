//! What there is at a place in the order of commits: all rows, and the user's own database.

use roundel_core::{Hint, Reply};
use uuid::Uuid;

use super::record::{Pieces, Record};
use crate::memory::State;
use crate::{Ask, Clock, Error};

#[derive(Default)]
pub(super) struct Content {
    state: State,
    /// The bytes of the user's own database.
    image: Vec<u8>,
    /// Is that what steps see?
    loaded: bool,
    /// Was there a step since the last record?
    worked: bool,
}

impl Content {
    /// What somebody committed happens here too.
    pub(super) fn absorb(&mut self, record: Record) {
        for changes in record.changes {
            self.state.tables.absorb(changes);
        }
        if !record.pieces.is_nothing() {
            record.pieces.apply(&mut self.image);
            self.loaded = false;
        }
    }

    /// Everything, as one record.
    pub(super) fn all(&self) -> Record {
        Record {
            id: Uuid::new_v4(),
            changes: vec![self.state.tables.all()],
            pieces: Pieces::between(&[], &self.image),
            ..Record::default()
        }
    }

    /// Decides one request. What changed is part of the next record.
    pub(super) fn decide(&mut self, ask: &mut Ask, clock: &dyn Clock) -> Result<Reply, Error> {
        self.state.tables.kept.get_or_insert_default();
        if matches!(ask, Ask::Work(_)) {
            self.load()?;
            self.worked = true;
        }
        let result = self.state.transact(ask, clock);
        self.state.companion.commit();
        result
    }

    fn load(&mut self) -> Result<(), Error> {
        if !self.loaded {
            let loaded = self.state.companion.load(&self.image);
            loaded.map_err(|error| Error::Unusable(error.to_string()))?;
            self.loaded = true;
        }
        Ok(())
    }

    /// What was decided since the last time; none if nothing changed.
    pub(super) fn take(&mut self) -> Result<Option<Record>, Error> {
        let changes = self.state.tables.kept.take().unwrap_or_default();
        let mut pieces = Pieces::default();
        if std::mem::take(&mut self.worked) {
            let image = self.state.companion.image();
            let image = image.map_err(|error| Error::Unusable(error.to_string()))?;
            pieces = Pieces::between(&self.image, &image);
            self.image = image;
        }
        if changes.is_empty() && pieces.is_nothing() {
            return Ok(None);
        }
        Ok(Some(Record {
            id: Uuid::new_v4(),
            changes,
            pieces,
            ..Record::default()
        }))
    }

    /// The hints of what was decided.
    pub(super) fn take_hints(&mut self) -> Vec<Hint> {
        self.state.tables.rows.take_hints()
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }
}
