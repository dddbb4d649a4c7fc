//! Roundel over HTTP: an API, live views and a dashboard over one [`roundel::Client`].
//!
//! [`Server::router`] is an axum router to be mounted in a program of your own;
//! [`Server::serve`] is a server of its own, with time-outs and limits that a router cannot have.
//! Nothing is open by default: requests need a token or a session, and a role that allows what they
//! ask; names of hosts that were not configured are refused; without tokens only loopback is
//! served.
//!
//! Every route stands in one table (`table.rs`): its method, path, action and the shapes of what it
//! takes and gives. The router, the OpenAPI document and the tests of who may do what are made from
//! it. A handler takes a `Cap`, which only the check of a token makes: a route without one does
//! not compile.
//!
//! Left out on purpose: HTTP/2, compression, CORS, forwarded headers; calls to the outside, but for
//! traces, if a program asks for them.

mod api;
mod auth;
mod cursor;
mod guard;
mod limits;
mod listen;
mod live;
mod log;
mod openapi;
mod problem;
mod ready;
mod route;
mod server;
mod shape;
mod table;
mod tls;
mod traces;
mod ui;
pub mod view;

pub use auth::{Grant, Role, Token, TokenError, Tokens};
pub use limits::Limits;
pub use listen::Serving;
pub use log::Log;
pub use problem::{Code, Problem};
pub use server::{Server, ServerBuilder, SetupError};
pub use tls::{Tls, TlsError, TlsStream, Trust, TrustError};
pub use traces::{Telling, Told, Traces};

/// What a test looks at: the routes, without what they do.
pub mod routes {
    pub use crate::route::Listed;
    pub use crate::table::listed;
}

/// The guide's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/operating.md")]
struct Operating;
