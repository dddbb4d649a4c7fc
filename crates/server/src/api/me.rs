//! Who asks, and the end of their session.

use roundel::Name;

use crate::auth::{Action, Cap, Everywhere, Role, actions};
use crate::problem::Problem;
use crate::route::{Ask, Json};
use crate::shape::{Nothing, output};

output! {
    /// Whoever asks.
    pub(crate) struct Me {
        /// As the audit names them.
        name: Name,
        /// What for.
        role: Role,
        /// In which namespaces; `*` for all.
        namespaces: Vec<String>,
        /// What they may do.
        may: Vec<&'static str>,
        /// The namespace of the server's own client.
        home: Name,
    }
}

type Mine = Cap<actions::KnowOneself, Everywhere>;

pub(crate) async fn show(cap: Mine, _: Ask) -> Result<Json<Me>, Problem> {
    let (who, home) = (&cap.who, cap.server.client.namespace().clone());
    let all = <actions::Query as Action>::WORD;
    let may = actions::ALL.iter().copied();
    let may = may.filter(|action| who.role.may(action));
    let may = may.filter(|action| *action != all || who.is_everywhere());
    Ok(Json(Me {
        name: who.name.clone(),
        role: who.role,
        namespaces: who.namespaces.clone(),
        may: may.collect(),
        home,
    }))
}

pub(crate) async fn leave(cap: Mine, ask: Ask) -> Result<Json<Nothing>, Problem> {
    if let Some(secret) = &ask.session {
        cap.server.sessions.close(secret);
    }
    Ok(Json(Nothing {}))
}
