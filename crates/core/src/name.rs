//! Names: of workflows, steps, signals, namespaces, and the keys that users give to runs.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize, Serializer};

use crate::limits;

/// A checked name: 1 to 256 bytes, no control characters, not `.` or `..`.
#[derive(Clone, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Cow<'static, str>);

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing there.
    #[error("a name is empty; give it 1 to 256 bytes")]
    Empty,
    /// Over the limit.
    #[error("a name has {0} bytes; at most 256 are allowed")]
    TooLong(usize),
    /// Would garble a terminal or a log.
    #[error("a name has a control character at byte {0}; use printable characters")]
    Control(usize),
    /// Would read as a path.
    #[error("`.` and `..` are not names")]
    Dots,
}

impl Name {
    /// No name comes before this one.
    pub const FIRST: Name = Name::constant(" ");

    /// A name known when the program is compiled; a bad one does not compile in a `const`.
    ///
    /// # Panics
    /// When the text is not a name.
    #[must_use]
    pub const fn constant(text: &'static str) -> Name {
        match check(text.as_bytes()) {
            Ok(()) => Name(Cow::Borrowed(text)),
            Err(_) => panic!("a name has 1 to 256 bytes, no control characters, and is not dots"),
        }
    }

    /// A name known at run time.
    ///
    /// # Errors
    /// When the text is not a name.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Name, BadName> {
        let text = text.into();
        check(text.as_bytes())?;
        Ok(Name(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn check(bytes: &[u8]) -> Result<(), BadName> {
    if bytes.is_empty() {
        return Err(BadName::Empty);
    }
    if bytes.len() > limits::NAME_BYTES {
        return Err(BadName::TooLong(bytes.len()));
    }
    if bytes[0] == b'.' && (bytes.len() == 1 || (bytes.len() == 2 && bytes[1] == b'.')) {
        return Err(BadName::Dots);
    }
    let mut at = 0;
    while at < bytes.len() {
        // Mostly it is one of these: names are read with every entry of a journal.
        if !matches!(bytes[at], 0x20..0x7F) {
            let c1 = bytes[at] == 0xC2 && at + 1 < bytes.len() && bytes[at + 1] < 0xA0;
            if bytes[at] < 0x20 || bytes[at] == 0x7F || c1 {
                return Err(BadName::Control(at));
            }
        }
        at += 1;
    }
    Ok(())
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        // Namespaces and names in the code are mostly one and the same text.
        std::ptr::eq(self.as_str(), other.as_str()) || self.0 == other.0
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Name) -> Ordering {
        if std::ptr::eq(self.as_str(), other.as_str()) {
            return Ordering::Equal;
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Name, BadName> {
        Name::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ro_41_names_are_exact_at_the_boundary() {
        for (text, found) in [
            (String::new(), Err(BadName::Empty)),
            ("a".repeat(256), Ok(())),
            ("a".repeat(257), Err(BadName::TooLong(257))),
            ("a\nb".into(), Err(BadName::Control(1))),
            ("\u{7f}".into(), Err(BadName::Control(0))),
            ("x\u{85}".into(), Err(BadName::Control(1))),
            ("..".into(), Err(BadName::Dots)),
            ("...".into(), Ok(())),
            ("Bestellung Nº 7 ✓".into(), Ok(())),
        ] {
            assert_eq!(Name::new(text.clone()).map(|_| ()), found, "{text:?}");
        }
    }
}
