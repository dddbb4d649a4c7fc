//! Who may come in: a file of tokens, kept as hashes, that only its owner can read. It is read
//! again when it has changed, so that a token that is revoked is out at once.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use roundel::{Name, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Hash, Role, Token, Who, same};

/// A file that is larger was not written by us.
const MOST: u64 = 1 << 20;
/// So often, at most, it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Who has it: the operator in the audit.
    pub name: Name,
    /// For what.
    pub role: Role,
    /// Where; `*` for everywhere.
    pub namespaces: Vec<String>,
    /// Of its secret, SHA-256, in hex.
    pub hash: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it is good; for ever if nothing is said.
    pub expires_at: Option<Timestamp>,
}

/// Why tokens cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Look at the file.
    #[error("the tokens in {path} cannot be used: {why}")]
    File {
        /// Where.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Choose another.
    #[error("there is a token `{0}` already; revoke it, or choose another name")]
    Taken(Name),
    /// Choose another.
    #[error("there is no token `{0}`; `tokens list` shows those there are")]
    Missing(String),
}

/// A file of tokens. One that is not there is empty.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    grants: Vec<(Hash, Arc<Who>)>,
    /// Of the file as it was read.
    stamp: Option<Stamp>,
    looked: Instant,
}

type Stamp = (u64, SystemTime);

impl Tokens {
    /// The tokens of this file.
    ///
    /// # Errors
    /// When it is there, and cannot be read, or others than its owner can.
    pub fn at(path: impl Into<PathBuf>) -> Result<Tokens, TokenError> {
        let path = path.into();
        let (grants, stamp) = read(&path)?;
        let known = Known {
            grants: known(&path, &grants)?,
            stamp,
            looked: Instant::now(),
        };
        Ok(Tokens {
            path,
            known: Mutex::new(known),
        })
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().grants.is_empty()
    }

    /// What is in the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn list(&self) -> Result<Vec<Grant>, TokenError> {
        Ok(read(&self.path)?.0)
    }

    /// Makes a new token, which is returned once and kept as a hash.
    ///
    /// # Errors
    /// When there is one of that name, or the file cannot be written.
    pub fn add(
        &self,
        (name, role): (Name, Role),
        namespaces: Vec<String>,
        (now, expires_at): (Timestamp, Option<Timestamp>),
    ) -> Result<Token, TokenError> {
        let mut grants = self.list()?;
        if grants.iter().any(|grant| grant.name == name) {
            return Err(TokenError::Taken(name));
        }
        let token = Token::random();
        let hash = token.hash().into_iter().map(|byte| format!("{byte:02x}"));
        grants.push(Grant {
            name,
            role,
            namespaces,
            hash: hash.collect(),
            created_at: now,
            expires_at,
        });
        self.write(&grants)?;
        Ok(token)
    }

    /// From now on this token is worth nothing.
    ///
    /// # Errors
    /// When there is none of that name, or the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let mut grants = self.list()?;
        let before = grants.len();
        grants.retain(|grant| grant.name.as_str() != name);
        if grants.len() == before {
            return Err(TokenError::Missing(name.to_owned()));
        }
        self.write(&grants)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a new file beside the old one, and puts it in its place.
    fn write(&self, grants: &[Grant]) -> Result<(), TokenError> {
        let failed = |error: std::io::Error| self.failed(error.to_string());
        let text = serde_json::to_string_pretty(grants).map_err(|e| self.failed(e.to_string()))?;
        let beside = self
            .path
            .with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let _ = std::fs::remove_file(&beside);
        let mut file = options.open(&beside).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&beside, &self.path).map_err(failed)?;
        self.look_again();
        Ok(())
    }

    fn failed(&self, why: String) -> TokenError {
        let path = self.path.clone();
        TokenError::File { path, why }
    }

    /// The file may have changed.
    fn look_again(&self) {
        let mut now = self.lock();
        now.looked = Instant::now();
        let stamp = std::fs::metadata(&self.path).ok().as_ref().map(stamp);
        if stamp == now.stamp {
            return;
        }
        let read = read(&self.path);
        match read.and_then(|(grants, stamp)| Ok((known(&self.path, &grants)?, stamp))) {
            Ok((grants, stamp)) => (now.grants, now.stamp) = (grants, stamp),
            Err(error) => {
                // Whoever was let in by a file that cannot be read any more is not let in.
                tracing::error!(%error, "no token is good until this is mended");
                now.grants.clear();
                now.stamp = None;
            }
        }
    }

    /// Who has the token of this hash, if it is good at this time.
    pub(crate) fn holder(&self, hash: &Hash, at: Timestamp) -> Option<Arc<Who>> {
        if self.lock().looked.elapsed() >= LOOK {
            self.look_again();
        }
        let mut found = None;
        for (known, who) in &self.lock().grants {
            if same(known, hash) {
                found = Some(who.clone());
            }
        }
        found.filter(|who| who.expires_at.is_none_or(|end| at < end))
    }

    /// Is whoever came in by this name still welcome?
    pub(crate) fn knows(&self, who: &Who, at: Timestamp) -> bool {
        let known = self.lock();
        let mut grants = known.grants.iter().map(|(_, known)| known);
        let found = grants.find(|known| known.name == who.name);
        found.is_some_and(|known| **known == *who && known.expires_at.is_none_or(|end| at < end))
    }
}

fn stamp(of: &Metadata) -> Stamp {
    (of.len(), of.modified().unwrap_or(SystemTime::UNIX_EPOCH))
}

fn known(path: &Path, grants: &[Grant]) -> Result<Vec<(Hash, Arc<Who>)>, TokenError> {
    let one = |grant: &Grant| {
        let byte = |at: usize| u8::from_str_radix(grant.hash.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..grant.hash.len()).step_by(2).map(byte).collect();
        let hash = bytes.and_then(|bytes| Hash::try_from(bytes).ok());
        let hash = hash.ok_or_else(|| TokenError::File {
            path: path.to_owned(),
            why: format!("the hash of `{}` is not 64 hex digits", grant.name),
        })?;
        Ok((hash, Arc::new(Who::of(grant))))
    };
    grants.iter().map(one).collect()
}

fn read(path: &Path) -> Result<(Vec<Grant>, Option<Stamp>), TokenError> {
    let failed = |why: String| TokenError::File {
        path: path.to_owned(),
        why,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((vec![], None)),
        Err(error) => return Err(failed(error.to_string())),
    };
    let about = file.metadata().map_err(|error| failed(error.to_string()))?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077 != 0 {
        let why = "others than its owner may read it; say `chmod 600`";
        return Err(failed(why.to_owned()));
    }
    let mut text = String::new();
    let read = file.take(MOST).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    let grants = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    Ok((grants, Some(stamp(&about))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn n19_tokens_are_kept_as_hashes_in_a_file_of_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        let tokens = Tokens::at(&path).unwrap();
        assert!(tokens.is_empty());
        let (ada, everywhere) = (Name::constant("ada"), || vec!["*".to_owned()]);
        let until = Some(Timestamp(2_000_000));
        let token = tokens.add((ada.clone(), Role::Viewer), everywhere(), (NOW, until));
        let token = token.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains(&token.reveal()[Token::PREFIX.len()..]),
            "{text}"
        );
        let who = tokens.holder(&token.hash(), NOW).unwrap();
        assert_eq!((who.name.as_str(), who.role), ("ada", Role::Viewer));
        assert!(tokens.holder(&Token::random().hash(), NOW).is_none());
        assert!(tokens.holder(&token.hash(), Timestamp(2_000_000)).is_none());
        assert!(tokens.knows(&who, NOW) && !tokens.knows(&who, Timestamp(2_000_000)));
        let again = tokens.add((ada, Role::Admin), everywhere(), (NOW, None));
        assert!(matches!(again, Err(TokenError::Taken(_))));

        Tokens::at(&path).unwrap().revoke("ada").unwrap();
        tokens.look_again();
        assert!(tokens.holder(&token.hash(), NOW).is_none() && !tokens.knows(&who, NOW));
        assert!(matches!(tokens.revoke("ada"), Err(TokenError::Missing(_))));
    }

    #[cfg(unix)]
    #[test]
    fn p5_a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        std::fs::write(&path, "[]").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(
            Tokens::at(&path)
                .unwrap_err()
                .to_string()
                .contains("chmod 600")
        );
        mode(0o600);
        assert!(Tokens::at(&path).unwrap().is_empty());
        std::fs::write(&path, r#"[{"name": "ada", "roles": ["admin"]}]"#).unwrap();
        assert!(Tokens::at(&path).is_err(), "l8: unknown keys are errors");
    }
}
