//! What objects hold: the rows that a commit changed, or all of them; and the bytes that it changed
//! in the database of the user's own, which steps write to.

use std::io::{self, ErrorKind};

use roundel_core::Changes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The bytes of the user's own database are compared in pieces of this size.
const PIECE: usize = 4096;

/// One commit, or everything up to one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// Whoever does not know whether it is there looks for this.
    pub(super) id: Uuid,
    /// In the order in which they were decided.
    pub(super) changes: Vec<Changes>,
    /// Nothing follows in this volume.
    #[serde(default)]
    pub(super) closes: bool,
    /// The records of the volume before, at the beginning of one.
    #[serde(default)]
    pub(super) before: Vec<Uuid>,
    #[serde(default)]
    pub(super) pieces: Pieces,
}

/// What changed in the user's own database.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pieces {
    /// How large it is now.
    size: usize,
    /// Which pieces changed.
    numbers: Vec<usize>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Pieces {
    /// What makes this of that.
    pub(super) fn between(before: &[u8], after: &[u8]) -> Pieces {
        let mut pieces = Pieces {
            size: after.len(),
            ..Pieces::default()
        };
        for (number, piece) in after.chunks(PIECE).enumerate() {
            if before.get(number * PIECE..number * PIECE + piece.len()) != Some(piece) {
                pieces.numbers.push(number);
                pieces.bytes.extend_from_slice(piece);
            }
        }
        pieces
    }

    /// Is it as it was?
    pub(super) fn is_nothing(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(super) fn apply(&self, image: &mut Vec<u8>) {
        image.resize(self.size, 0);
        let mut bytes = &self.bytes[..];
        for number in &self.numbers {
            let at = (number * PIECE).min(self.size);
            let size = PIECE.min(self.size - at).min(bytes.len());
            let (piece, rest) = bytes.split_at(size);
            image[at..at + size].copy_from_slice(piece);
            bytes = rest;
        }
    }
}

impl Record {
    /// A digest in hexadecimal, a line feed, a line of JSON, the pieces.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = serde_json::to_vec(self).expect("rows have a JSON form");
        body.push(b'\n');
        body.extend_from_slice(&self.pieces.bytes);
        let mut bytes = format!("{:x}\n", Sha256::digest(&body)).into_bytes();
        bytes.append(&mut body);
        bytes
    }

    pub(super) fn decode(key: &str, bytes: &[u8]) -> io::Result<Record> {
        let strange = |why: &str| {
            let why = format!("object {key} is damaged, or of a newer version: {why}");
            io::Error::new(ErrorKind::InvalidData, why)
        };
        let (digest, body) = split(bytes).ok_or_else(|| strange("it has no digest"))?;
        if format!("{:x}", Sha256::digest(body)).as_bytes() != digest {
            return Err(strange("its digest is another"));
        }
        let (text, pieces) = split(body).ok_or_else(|| strange("it ends too early"))?;
        let mut record: Record =
            serde_json::from_slice(text).map_err(|error| strange(&error.to_string()))?;
        record.pieces.bytes = pieces.to_vec();
        Ok(record)
    }
}

/// What is before and after the first line feed.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}
