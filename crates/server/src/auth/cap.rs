//! Capabilities: the right to do one thing in one place. Only [`Cap::check`] makes them, and every
//! handler takes one, so that a route that nobody checks does not compile.

use std::marker::PhantomData;
use std::sync::Arc;

use roundel::{Client, Name, Timestamp};

use super::{Action, Grant, Role, Seal, Token};
use crate::problem::{Code, Problem};
use crate::server::Shared;

/// Somebody who was let in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Who {
    /// The operator in the audit.
    pub(crate) name: Name,
    /// For what.
    pub(crate) role: Role,
    /// Where; `*` for everywhere.
    pub(crate) namespaces: Vec<String>,
    /// Until when.
    pub(crate) expires_at: Option<Timestamp>,
    /// Came by the link that the server printed, not by a token.
    pub(crate) local: bool,
    /// What is handed out to them is sealed with this.
    pub(crate) seal: Seal,
}

impl Who {
    pub(crate) fn of(grant: &Grant) -> Who {
        Who {
            name: grant.name.clone(),
            role: grant.role,
            namespaces: grant.namespaces.clone(),
            expires_at: grant.expires_at,
            local: false,
            seal: Seal::of(&grant.hash),
        }
    }

    /// Whoever sees what the server prints.
    pub(crate) fn local() -> Who {
        Who {
            name: Name::constant("local"),
            role: Role::Admin,
            namespaces: vec!["*".to_owned()],
            expires_at: None,
            local: true,
            seal: Seal::of(Token::random().reveal()),
        }
    }

    /// May they go everywhere?
    pub(crate) fn is_everywhere(&self) -> bool {
        self.namespaces.iter().any(|place| place == "*")
    }

    fn is_in(&self, namespace: &str) -> bool {
        let mut places = self.namespaces.iter();
        places.any(|place| place == "*" || place == namespace)
    }
}

/// In one namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    client: Client,
}

/// In no namespace: about the server itself.
#[derive(Debug)]
pub(crate) struct Everywhere;

/// In all namespaces at once.
#[derive(Debug)]
pub(crate) struct AllOfThem {
    client: Client,
}

/// Where something is done, as the path says.
pub(crate) trait Place: Sized + Send + 'static {
    /// Does the path name a namespace?
    const NAMED: bool;
    /// Is it for those alone who may go everywhere?
    const ALL: bool = false;

    /// The place, if whoever asks may go there.
    ///
    /// # Errors
    /// When they may not.
    fn enter(server: &Shared, who: &Who, named: Option<&str>) -> Result<Self, Problem>;
}

impl Place for Everywhere {
    const NAMED: bool = false;

    fn enter(_: &Shared, _: &Who, _: Option<&str>) -> Result<Everywhere, Problem> {
        Ok(Everywhere)
    }
}

impl Place for Namespace {
    const NAMED: bool = true;

    fn enter(server: &Shared, who: &Who, named: Option<&str>) -> Result<Namespace, Problem> {
        let named = named.unwrap_or_default();
        if !who.is_in(named) {
            let text = format!("`{}` may do nothing in this namespace", who.name);
            return Err(Problem::new(Code::Forbidden, text));
        }
        let client = server.client.in_namespace(named.to_owned())?;
        let client = client.operator(who.name.to_string())?;
        Ok(Namespace { client })
    }
}

impl Place for AllOfThem {
    const NAMED: bool = false;
    const ALL: bool = true;

    fn enter(server: &Shared, who: &Who, _: Option<&str>) -> Result<AllOfThem, Problem> {
        if !who.is_everywhere() {
            let text = format!("`{}` may not look into all namespaces at once", who.name);
            return Err(Problem::new(Code::Forbidden, text));
        }
        let client = server.client.operator(who.name.to_string())?;
        Ok(AllOfThem { client })
    }
}

/// The right to do this, there.
pub(crate) struct Cap<A, P = Namespace> {
    pub(crate) who: Arc<Who>,
    pub(crate) server: Arc<Shared>,
    place: P,
    action: PhantomData<fn() -> A>,
}

impl<A, P> std::fmt::Debug for Cap<A, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cap({})", self.who.name)
    }
}

impl<A: Action, P: Place> Cap<A, P> {
    /// The only way to one.
    pub(crate) fn check(
        server: &Arc<Shared>,
        who: Arc<Who>,
        named: Option<&str>,
    ) -> Result<Cap<A, P>, Problem> {
        if !who.role.may(A::WORD) {
            let text = format!(
                "`{}` is {}, who may not {}",
                who.name,
                who.role.as_str(),
                A::WORD
            );
            return Err(Problem::new(Code::Forbidden, text));
        }
        Ok(Cap {
            place: P::enter(server, &who, named)?,
            who,
            server: server.clone(),
            action: PhantomData,
        })
    }
}

impl<A> Cap<A, AllOfThem> {
    /// A client, acting in the name of whoever asks.
    pub(crate) fn client(&self) -> &Client {
        &self.place.client
    }
}

impl<A> Cap<A, Namespace> {
    /// A client of the namespace, acting in the name of whoever asks.
    pub(crate) fn client(&self) -> &Client {
        &self.place.client
    }

    /// The same, with the reason that they gave.
    pub(crate) fn because(&self, reason: Option<&str>) -> Client {
        self.client().reason(reason.unwrap_or_default())
    }
}
