//! Keys: several, of which the first seals and all open; and one more, by which what is sent again
//! is known whatever key seals now.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aes_siv::siv::Aes256Siv;
use aes_siv::{Key as SivKey, KeyInit};
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

/// A file that is larger is none of keys.
const MOST: u64 = 64 << 10;
/// Bytes of a key.
const BYTES: usize = 32;
/// Bytes of a key's name.
const NAME: usize = 32;
/// The line that is no key of payloads.
const RESENDS: &str = "resends";

/// The keys that payloads are sealed with. Cloning is cheap; nothing shows them.
///
/// As text they are lines of a name, a colon and 64 hex digits. The first seals, all of them open.
/// The line of `resends` is a key of its own, made once and never changed: what is sent again under
/// the same id is known by it also after the others were changed. Lines that begin with `#` say
/// nothing.
///
/// ```
/// let text = roundel::Keys::generate("2026-11");
/// let keys = roundel::Keys::parse(&text)?;
/// assert_eq!(keys.names().collect::<Vec<_>>(), ["2026-11"]);
/// assert!(!format!("{keys:?}").contains(&text[20..40]));
/// # Ok::<(), roundel::BadKeys>(())
/// ```
#[derive(Clone)]
pub struct Keys(Arc<Ring>);

struct Ring {
    /// The first seals. There is one.
    keys: Vec<Key>,
    resends: Secret,
    /// Of this process and since it has these keys: what is counted is never counted again.
    salt: u64,
    count: AtomicU64,
}

struct Key {
    name: String,
    secret: Secret,
}

/// Not shown, and wiped when it goes.
struct Secret(Zeroizing<[u8; 64]>);

/// Why a text is none of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keys{place} cannot be used: {why}")]
pub struct BadKeys {
    place: String,
    why: String,
}

impl BadKeys {
    fn new(why: impl Into<String>) -> BadKeys {
        BadKeys {
            place: String::new(),
            why: why.into(),
        }
    }

    fn at(self, path: &Path) -> BadKeys {
        BadKeys {
            place: format!(" in {}", path.display()),
            ..self
        }
    }
}

impl fmt::Debug for Keys {
    /// Their names alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Keys {
    /// The keys in this file, which nobody but its owner may read.
    ///
    /// # Errors
    /// When it cannot be read, others can read it, or it holds none.
    pub fn read(path: impl AsRef<Path>) -> Result<Keys, BadKeys> {
        let path = path.as_ref();
        let failed = |error: std::io::Error| BadKeys::new(error.to_string()).at(path);
        let file = File::open(path).map_err(failed)?;
        #[cfg(unix)]
        {
            let about = file.metadata().map_err(failed)?;
            let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
            if mode & 0o077 != 0 {
                let why = "others than its owner may read it; say `chmod 600`";
                return Err(BadKeys::new(why).at(path));
            }
        }
        let mut text = Zeroizing::new(String::new());
        file.take(MOST).read_to_string(&mut text).map_err(failed)?;
        Keys::parse(&text).map_err(|error| error.at(path))
    }

    /// The keys that this text has: from a file, or from where secrets are kept.
    ///
    /// # Errors
    /// When it has none, or what is no key.
    pub fn parse(text: &str) -> Result<Keys, BadKeys> {
        let (mut keys, mut resends): (Vec<Key>, _) = (Vec::new(), None);
        let lines = text.lines().map(str::trim);
        for (number, line) in (1..).zip(lines) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| BadKeys::new(format!("line {number} {why}"));
            let (name, hex) = line
                .split_once(':')
                .ok_or_else(|| wrong("is not a name, a colon and 64 hex digits"))?;
            let bytes = unhex(hex.trim()).ok_or_else(|| wrong("has not 64 hex digits"))?;
            let name = name.trim();
            if name == RESENDS {
                resends = Some(Secret::of("resends", &bytes));
                continue;
            }
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || name.len() > NAME || !name.bytes().all(is_word) {
                return Err(wrong(
                    "names a key by other than 1 to 32 of a-z, 0-9, `-_.`",
                ));
            }
            if keys.iter().any(|key| key.name == name) {
                return Err(wrong("names a key that is there already"));
            }
            keys.push(Key {
                name: name.to_owned(),
                secret: Secret::of("payloads", &bytes),
            });
        }
        let how = "make some with `roundel keys new`";
        if keys.is_empty() {
            return Err(BadKeys::new(format!("there are none; {how}")));
        }
        let resends = resends
            .ok_or_else(|| BadKeys::new(format!("the line of `{RESENDS}` is not there; {how}")))?;
        let (salt, _) = uuid::Uuid::new_v4().as_u64_pair();
        Ok(Keys(Arc::new(Ring {
            keys,
            resends,
            salt,
            count: AtomicU64::new(0),
        })))
    }

    /// New keys, as text: one of this name, and that of what is sent again.
    #[must_use]
    pub fn generate(name: &str) -> String {
        format!("{}{}", Keys::line(name), Keys::line(RESENDS))
    }

    /// A new key, as a line of the text.
    #[must_use]
    pub fn line(name: &str) -> String {
        // The random bits of two UUIDs, of which each has 122, and of two more: 488 for 256.
        let ids = [(); 4].map(|()| uuid::Uuid::new_v4());
        let mut digest = Sha512::new_with_prefix(b"roundel key 1");
        ids.iter().for_each(|id| digest.update(id.as_bytes()));
        let bytes = Zeroizing::new(<[u8; 64]>::from(digest.finalize()));
        let hex = bytes[..BYTES].iter().map(|byte| format!("{byte:02x}"));
        format!("{name}: {}\n", hex.collect::<String>())
    }

    /// Their names: of the one that seals first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys.iter().map(|key| key.name.as_str())
    }

    /// The one that seals: its name, and what seals.
    pub(super) fn first(&self) -> (&str, Aes256Siv) {
        let first = &self.0.keys[0];
        (&first.name, first.secret.siv())
    }

    /// What opens what the key of this name has sealed.
    pub(super) fn named(&self, name: &str) -> Option<Aes256Siv> {
        let key = self.0.keys.iter().find(|key| key.name == name)?;
        Some(key.secret.siv())
    }

    /// What makes marks by which what is sent again is known.
    pub(super) fn resends(&self) -> Aes256Siv {
        self.0.resends.siv()
    }

    /// Never the same twice.
    pub(super) fn nonce(&self) -> [u8; 16] {
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.0.salt.to_be_bytes());
        nonce[8..].copy_from_slice(&count.to_be_bytes());
        nonce
    }
}

impl Secret {
    /// The two keys that AES-SIV takes, from one.
    fn of(what: &str, bytes: &[u8; BYTES]) -> Secret {
        let digest = Sha512::new_with_prefix(b"roundel siv 1 ");
        let digest = digest.chain_update(what).chain_update(bytes);
        Secret(Zeroizing::new(digest.finalize().into()))
    }

    fn siv(&self) -> Aes256Siv {
        Aes256Siv::new(SivKey::<Aes256Siv>::from_slice(&*self.0))
    }
}

fn unhex(text: &str) -> Option<Zeroizing<[u8; BYTES]>> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_keys_show_their_names_alone() {
        let text = Keys::generate("one");
        let keys = Keys::parse(&text).unwrap();
        assert_eq!(format!("{keys:?}"), r#"["one"]"#);
        assert_ne!(Keys::line("one"), Keys::line("one"));
    }

    #[test]
    fn p3_what_is_no_key_is_refused_with_its_line_and_not_with_what_it_says() {
        let (hex, resends) = ("ab".repeat(32), Keys::line(RESENDS));
        for (text, why) in [
            (String::new(), "there are none"),
            (format!("one: {hex}"), "`resends`"),
            (resends.clone(), "there are none"),
            (format!("{resends}one {hex}"), "line 2"),
            (format!("{resends}one: {}", &hex[1..]), "64 hex digits"),
            (
                format!("{resends}one: {}", hex.replace('a', "+")),
                "64 hex digits",
            ),
            (format!("{resends}a b: {hex}"), "names a key by"),
            (format!("{resends}: {hex}"), "names a key by"),
            (format!("{resends}one: {hex}\none: {hex}"), "there already"),
        ] {
            let error = Keys::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("abab"), "{error}");
        }
        let fine = format!("# made today\n\n{resends}\n one : {hex} \ntwo:{hex}\n");
        let keys = Keys::parse(&fine).unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["one", "two"]);
    }

    #[cfg(unix)]
    #[test]
    fn p5_a_key_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, Keys::generate("one")).unwrap();
        let set = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).unwrap();
        };
        set(0o640);
        let error = Keys::read(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        set(0o600);
        assert!(Keys::read(&path).is_ok());
        let missing = Keys::read(folder.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}
