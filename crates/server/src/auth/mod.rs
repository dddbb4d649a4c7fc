//! Who asks, and what they may do.

pub(crate) mod cap;
mod file;
mod role;
mod seal;
mod session;
mod token;

pub(crate) use cap::{AllOfThem, Cap, Everywhere, Namespace, Who};
pub use file::{Grant, TokenError, Tokens};
pub use role::Role;
pub(crate) use role::{Action, actions};
pub(crate) use seal::Seal;
pub(crate) use session::{COOKIE, Sessions};
pub use token::Token;
pub(crate) use token::{Hash, hash, same};
