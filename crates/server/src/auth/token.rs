//! Tokens: 256 random bits with a prefix that scanners know, shown once and kept as a hash.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256 of a secret.
pub(crate) type Hash = [u8; 32];

/// A secret. It is shown when it is made, by [`Token::reveal`], and nowhere else.
pub struct Token(String);

impl Token {
    /// What all of them begin with.
    pub const PREFIX: &'static str = "roundel_";

    /// A new one.
    ///
    /// # Panics
    /// When the system has no random numbers.
    #[must_use]
    pub fn random() -> Token {
        use std::fmt::Write;
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        let mut text = Token::PREFIX.to_owned();
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Token(text)
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> Hash {
        hash(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}...)", Token::PREFIX)
    }
}

pub(crate) fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// Are they equal? It takes as long for all that are not.
pub(crate) fn same(one: &Hash, other: &Hash) -> bool {
    let differ = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n19_tokens_have_256_bits_and_are_not_shown_by_chance() {
        let (one, other) = (Token::random(), Token::random());
        assert_eq!(one.reveal().len(), Token::PREFIX.len() + 64);
        assert_ne!(one.reveal(), other.reveal());
        assert!(!format!("{one:?}").contains(&one.reveal()[Token::PREFIX.len()..]));
        assert!(same(&one.hash(), &hash(one.reveal())) && !same(&one.hash(), &other.hash()));
    }
}
