//! Roles, and what each may do. A route names its action as a type; the table below is all there
//! is to say about who may do what.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::shape::Shape;

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks, and changes nothing.
    Viewer,
    /// Looks, and does something about what is found.
    Operator,
    /// Starts runs and sends messages, and sees nothing.
    Submitter,
    /// Works on commands from outside.
    Worker,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] = [
        Role::Viewer,
        Role::Operator,
        Role::Submitter,
        Role::Worker,
        Role::Admin,
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Admin => "admin",
        }
    }

    /// The role of this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// May it do this? What is not said here is not allowed.
    #[must_use]
    pub fn may(self, action: &str) -> bool {
        let allowed: &[&str] = match self {
            Role::Viewer => &["know oneself", "see"],
            Role::Operator => &["know oneself", "see", "see the audit", "submit", "operate"],
            Role::Submitter => &["know oneself", "submit"],
            Role::Worker => &["know oneself", "work"],
            Role::Admin => &[
                "know oneself",
                "see",
                "see the audit",
                "submit",
                "operate",
                "work",
                "delete",
                "ask in SQL",
            ],
        };
        allowed.contains(&action)
    }
}

impl Shape for Role {
    fn schema() -> Value {
        json!({"type": "string", "enum": Role::ALL.map(Role::as_str)})
    }
}

/// What a route does, as a type.
pub(crate) trait Action: Send + Sync + 'static {
    /// The word for it, as in [`Role::may`].
    const WORD: &'static str;
}

/// The actions that there are.
pub(crate) mod actions {
    use super::Action;

    macro_rules! actions {
        ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
            $($(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl Action for $name {
                const WORD: &'static str = $word;
            })*

            /// The words of all of them.
            pub(crate) const ALL: &[&str] = &[$($word,)*];
        };
    }

    actions! {
        /// Learn who one is, and leave.
        KnowOneself = "know oneself";
        /// Look at runs and all that belongs to them.
        See = "see";
        /// Look at what was done, and by whom.
        SeeAudit = "see the audit";
        /// Start runs, send messages.
        Submit = "submit";
        /// End runs, undo them, mend what is parked, change limits and schedules.
        Operate = "operate";
        /// Claim commands and answer them.
        Work = "work";
        /// Remove what cannot be brought back.
        Delete = "delete";
        /// Look at whatever there is, in one's own words.
        Query = "ask in SQL";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n17_only_some_roles_change_anything() {
        let may = |action: &str| Role::ALL.map(|role| role.may(action));
        // Viewer, operator, submitter, worker, admin.
        for (action, roles) in [
            ("know oneself", [true, true, true, true, true]),
            ("see", [true, true, false, false, true]),
            ("see the audit", [false, true, false, false, true]),
            ("submit", [false, true, true, false, true]),
            ("operate", [false, true, false, false, true]),
            ("work", [false, false, false, true, true]),
            ("delete", [false, false, false, false, true]),
            ("ask in SQL", [false, false, false, false, true]),
            ("anything else", [false; 5]),
        ] {
            assert_eq!(may(action), roles, "{action}");
        }
        assert_eq!(actions::ALL.len(), 8);
    }
}
