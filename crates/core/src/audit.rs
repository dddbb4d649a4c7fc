//! The audit: what people and programs asked for in somebody's name, one row each, in the commit of
//! what it records.
//!
//! Each row is sealed together with the seal of the row before it, in the order of a counter. So a
//! row that is changed, taken out or put in between shows; that the last rows are missing shows to
//! whoever has kept a later seal elsewhere. Rounds never touch any of this.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::check::{Invariant, Violation};
use crate::{Name, Payload, RunId, Timestamp};

/// A row's place: namespaces have audits of their own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub struct AuditId {
    /// The tenant.
    pub namespace: Name,
    /// Counted from 1, without gaps.
    pub number: u64,
}

/// What was asked for, by whom, and what came of it.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub operator: Name,
    /// Why; may be empty.
    pub reason: String,
    /// What: a word.
    pub action: String,
    /// Of what, as it was named; may be empty.
    pub target: String,
    /// Which run that was.
    pub run: Option<RunId>,
    /// What came with it: a value, a patch.
    pub detail: Option<Payload>,
    /// What came of it.
    pub answer: String,
    /// Of this row and the seal before.
    pub seal: Seal,
}

/// A SHA-256.
pub type Seal = [u8; 32];

/// What the first row is sealed with.
pub(crate) const UNSEALED: Seal = [0; 32];

impl AuditRow {
    /// The seal of this row after that of the row before.
    ///
    /// # Panics
    /// Never: what is sealed has a JSON form.
    #[must_use]
    pub fn sealed(&self, id: &AuditId, before: &Seal) -> Seal {
        #[derive(Serialize)]
        struct Sealed<'a>(
            &'a str,
            u64,
            i64,
            &'a str,
            &'a str,
            &'a str,
            &'a str,
            Option<RunId>,
            Option<&'a str>,
            &'a str,
        );
        let sealed = Sealed(
            id.namespace.as_str(),
            id.number,
            self.at.0,
            self.operator.as_str(),
            &self.reason,
            &self.action,
            &self.target,
            self.run,
            self.detail.as_ref().map(Payload::as_str),
            &self.answer,
        );
        let text = serde_json::to_vec(&sealed).expect("texts and numbers have a JSON form");
        let digest = Sha256::new().chain_update(before).chain_update(text);
        digest.finalize().into()
    }
}

/// Reads an audit from its beginning, row by row, and says what should not be.
#[derive(Clone, Debug, Default)]
pub struct AuditReader {
    last: Option<(AuditId, Seal)>,
}

impl AuditReader {
    /// The last row that was read, and its seal.
    #[must_use]
    pub fn last(&self) -> Option<&(AuditId, Seal)> {
        self.last.as_ref()
    }

    /// The next row, in order of namespace and number.
    pub fn read(&mut self, id: &AuditId, row: &AuditRow, out: &mut Vec<Violation>) {
        let last = self.last.take();
        let last = last.filter(|(last, _)| last.namespace == id.namespace);
        let (number, before) = last.map_or((1, UNSEALED), |(last, seal)| (last.number + 1, seal));
        let mut complain = |found: String, expected: &str| {
            out.push(Violation {
                invariant: Invariant::Audit,
                run: row.run,
                found,
                expected: expected.to_owned(),
            });
        };
        let place = format!("audit row {} of `{}`", id.number, id.namespace);
        if id.number != number {
            complain(place, &format!("number {number}: rows are missing"));
        } else if row.sealed(id, &before) != row.seal {
            complain(place, "the seal that its content and the row before give");
        }
        self.last = Some((id.clone(), row.seal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(count: u64) -> Vec<(AuditId, AuditRow)> {
        let mut before = UNSEALED;
        let rows = (1..=count).map(|number| {
            let namespace = Name::constant("default");
            let id = AuditId { namespace, number };
            let mut row = AuditRow {
                at: Timestamp(7),
                operator: Name::constant("anna"),
                reason: "because".into(),
                action: "cancel".into(),
                target: "order-1".into(),
                run: None,
                detail: None,
                answer: "requested".into(),
                seal: UNSEALED,
            };
            row.seal = row.sealed(&id, &before);
            before = row.seal;
            (id, row)
        });
        rows.collect()
    }

    fn read(rows: &[(AuditId, AuditRow)]) -> usize {
        let (mut reader, mut out) = (AuditReader::default(), Vec::new());
        for (id, row) in rows {
            reader.read(id, row, &mut out);
        }
        out.len()
    }

    #[test]
    fn p8_a_seal_is_what_any_program_computes_from_the_row() {
        // SHA-256 of 32 zeros and of `["default",1,7,"anna","because","cancel","order-1",null,
        // null,"requested"]` in one line: seals that were kept elsewhere stay valid.
        let seal = chain(1)[0].1.seal;
        let hex: String = seal.iter().map(|byte| format!("{byte:02x}")).collect();
        let known = "868a2d1de537e063c7918e51bf029068e4cf3ff2db793a162b839a792b37dffd";
        assert_eq!(hex, known);
    }

    #[test]
    fn p8_whatever_is_changed_taken_out_or_put_in_shows() {
        assert_eq!(read(&chain(4)), 0);
        let changes: [fn(&mut AuditRow); 9] = [
            |row| row.at = Timestamp(8),
            |row| row.operator = Name::constant("bert"),
            |row| row.reason.clear(),
            |row| row.action = "undo".into(),
            |row| row.target = "order-2".into(),
            |row| row.run = Some(RunId::from_bytes([1; 16])),
            |row| row.detail = Some(Payload::null()),
            |row| row.answer = "refused".into(),
            |row| row.seal[31] ^= 1,
        ];
        for change in changes {
            let mut rows = chain(4);
            change(&mut rows[1].1);
            assert!(read(&rows) > 0);
            // One who seals it again breaks the next.
            let before = rows[0].1.seal;
            rows[1].1.seal = rows[1].1.sealed(&rows[1].0.clone(), &before);
            assert!(rows[1].1 == chain(4)[1].1 || read(&rows) > 0);
        }
        let mut rows = chain(4);
        rows.remove(1);
        assert!(read(&rows) > 0, "a row is missing");
        let mut rows = chain(4);
        rows.remove(0);
        assert!(read(&rows) > 0, "the first is missing");
    }
}
