//! Sessions of browsers: a one-time code, or a token, is exchanged for a cookie that scripts cannot
//! read. They live in memory and go with the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roundel::Timestamp;

use super::{Hash, Token, Who, hash, same};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "roundel_session";
/// How long a code can be exchanged.
const CODE: Duration = Duration::from_secs(15 * 60);
/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Sessions at a time; the oldest goes for a new one.
const MOST: usize = 1000;

#[derive(Default)]
pub(crate) struct Sessions(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    /// Codes that were not exchanged yet: who they let in, and until when.
    codes: Vec<(Hash, Arc<Who>, Timestamp)>,
    /// By the hash of what is in the cookie.
    open: HashMap<Hash, Session>,
}

/// Somebody at a browser.
#[derive(Clone)]
struct Session {
    who: Arc<Who>,
    until: Timestamp,
}

impl Sessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A code that lets in as this one, once.
    pub(crate) fn code(&self, who: Arc<Who>, now: Timestamp) -> Token {
        let code = Token::random();
        let mut inside = self.lock();
        inside.codes.retain(|(_, _, until)| now < *until);
        inside.codes.push((code.hash(), who, now.after(CODE)));
        code
    }

    /// Who this code lets in; it is used up.
    pub(crate) fn exchange(&self, code: &str, now: Timestamp) -> Option<Arc<Who>> {
        let code = hash(code);
        let mut inside = self.lock();
        let mut at = None;
        for (place, (known, _, until)) in inside.codes.iter().enumerate() {
            if same(known, &code) && now < *until {
                at = Some(place);
            }
        }
        at.map(|at| inside.codes.swap_remove(at).1)
    }

    /// Opens a session; what is returned goes into the cookie.
    pub(crate) fn open(&self, who: Arc<Who>, now: Timestamp) -> Token {
        let secret = Token::random();
        let mut inside = self.lock();
        inside.open.retain(|_, session| now < session.until);
        if inside.open.len() >= MOST {
            let oldest = inside.open.iter().min_by_key(|(_, session)| session.until);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| inside.open.remove(&hash));
        }
        let until = now.after(LASTS);
        inside.open.insert(secret.hash(), Session { who, until });
        secret
    }

    /// Who has the cookie with this secret. It is looked up by its hash, so that how long that
    /// takes says nothing about secrets.
    pub(crate) fn holder(&self, secret: &str, now: Timestamp) -> Option<Arc<Who>> {
        let inside = self.lock();
        let session = inside.open.get(&hash(secret));
        session
            .filter(|session| now < session.until)
            .map(|session| session.who.clone())
    }

    pub(crate) fn close(&self, secret: &str) {
        self.lock().open.remove(&hash(secret));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_for_a_while() {
        let sessions = Sessions::default();
        let (who, now) = (Arc::new(Who::local()), Timestamp(0));
        let code = sessions.code(who.clone(), now);
        assert!(sessions.exchange("roundel_00", now).is_none());
        assert!(sessions.exchange(code.reveal(), now).is_some());
        assert!(sessions.exchange(code.reveal(), now).is_none());
        let code = sessions.code(who.clone(), now);
        assert!(sessions.exchange(code.reveal(), now.after(CODE)).is_none());
        let secret = sessions.open(who, now);
        assert!(sessions.holder(secret.reveal(), now).is_some());
        assert!(sessions.holder(secret.reveal(), now.after(LASTS)).is_none());
        sessions.close(secret.reveal());
        assert!(sessions.holder(secret.reveal(), now).is_none());
    }
}
