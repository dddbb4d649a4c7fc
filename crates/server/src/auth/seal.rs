//! Seals: words that the server hands out and takes back only from whoever it gave them to. What a
//! word says is in it, so nothing is kept, and any server that knows the same tokens reads it; a
//! MAC (HMAC-SHA-256 under a key of that token's own) says that nobody made it up or changed it.

use sha2::{Digest, Sha256};

use super::{Hash, hash, same};

/// Bytes of what HMAC mixes the key with.
const BLOCK: usize = 64;

/// The key that is somebody's own.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seal(Hash);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Of whoever has the token with this hash.
    pub(crate) fn of(token: &str) -> Seal {
        Seal(hash(&format!("roundel seal {token}")))
    }

    /// These bytes as a word, of this kind and in this namespace.
    pub(crate) fn close(&self, (kind, namespace): (&str, &str), bytes: &[u8]) -> String {
        use std::fmt::Write;
        let mac = self.mac(kind, namespace, bytes);
        let mut word = String::with_capacity(2 * (bytes.len() + mac.len()));
        for byte in bytes.iter().chain(&mac) {
            let _ = write!(word, "{byte:02x}");
        }
        word
    }

    /// What the word says, if it was closed under this seal, as this kind, in this namespace.
    pub(crate) fn open<const N: usize>(
        &self,
        (kind, namespace): (&str, &str),
        word: &str,
    ) -> Option<[u8; N]> {
        let digits = word.as_bytes();
        if digits.len() != 2 * (N + size_of::<Hash>()) {
            return None;
        }
        let digit = |at: usize| match digits[at] {
            byte @ b'0'..=b'9' => Some(byte - b'0'),
            byte @ b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let byte = |at: usize| Some(digit(2 * at)? << 4 | digit(2 * at + 1)?);
        let bytes: Vec<u8> = (0..digits.len() / 2).map(byte).collect::<Option<_>>()?;
        let (said, mac) = bytes.split_at(N);
        let right = self.mac(kind, namespace, said);
        same(&right, &Hash::try_from(mac).ok()?).then(|| said.try_into().ok())?
    }

    /// What is between the parts occurs in no kind and no namespace.
    fn mac(&self, kind: &str, namespace: &str, bytes: &[u8]) -> Hash {
        let keyed = |with: u8| {
            let mut key = [with; BLOCK];
            key.iter_mut()
                .zip(self.0)
                .for_each(|(one, own)| *one ^= own);
            Sha256::new().chain_update(key)
        };
        let inner = keyed(0x36).chain_update(kind).chain_update([0]);
        let inner = inner.chain_update(namespace).chain_update([0]);
        let inner = inner.chain_update(bytes).finalize();
        keyed(0x5c).chain_update(inner).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_as_others_compute_it() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mac = Seal(key).mac("kind", "place", b"what do ya want for nothing?");
        // python3: hmac.new(key, b"kind\0place\0what do ya want for nothing?", "sha256")
        let digits: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let known = "42dd0973e2e0fb8e4a75a59f3fcf7940c54c61fa54cac52e445658c27204cbff";
        assert_eq!(digits, known);
    }

    #[test]
    fn n18_a_word_is_taken_back_from_its_owner_as_what_it_was() {
        let (ada, eve) = (Seal::of("a"), Seal::of("b"));
        let word = ada.close(("lease", "default"), &[7; 4]);
        assert_eq!(ada.open(("lease", "default"), &word), Some([7_u8; 4]));
        assert_eq!(eve.open::<4>(("lease", "default"), &word), None);
        assert_eq!(ada.open::<4>(("worker", "default"), &word), None);
        assert_eq!(ada.open::<4>(("lease", "other"), &word), None);
        assert_eq!(ada.open::<3>(("lease", "default"), &word), None);
        for at in 0..word.len() {
            let mut other = word.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(ada.open::<4>(("lease", "default"), &other), None, "{at}");
        }
        for nonsense in ["", "zz", &word[2..], &word.to_uppercase(), "\u{e9}"] {
            assert_eq!(ada.open::<4>(("lease", "default"), nonsense), None);
        }
        assert_eq!(format!("{ada:?}"), "Seal");
    }
}
