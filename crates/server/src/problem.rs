//! What went wrong, for programs: `application/problem+json` (RFC 9457) with a stable code.
//!
//! A problem says what the caller can do about it, never what the server is made of: of errors of
//! the database only the kind is told, the rest goes to the log, under the number of the request.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use roundel::{Error, Refusal, masked};
use serde_json::json;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident;)*) => {
        /// Kinds of problems. The words are part of the interface.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The word that is sent.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word,)* }
            }

            /// The status that it is sent with.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }
        }
    };
}

codes! {
    /// The request makes no sense.
    BadRequest = "bad_request", BAD_REQUEST;
    /// The cursor is none that this list gave.
    BadCursor = "bad_cursor", BAD_REQUEST;
    /// There is no token, or none that is known.
    Unauthenticated = "unauthenticated", UNAUTHORIZED;
    /// The token's role does not allow this, or not in this namespace.
    Forbidden = "forbidden", FORBIDDEN;
    /// The request came from another site.
    CrossSite = "cross_site", FORBIDDEN;
    /// There is no such thing, or no such path.
    NotFound = "not_found", NOT_FOUND;
    /// The path has no such method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not come in time.
    TooSlow = "too_slow", REQUEST_TIMEOUT;
    /// It is not as the request takes it to be: look again.
    Conflict = "conflict", CONFLICT;
    /// It has gone on since it was looked at: look again, and decide again.
    Stale = "stale", CONFLICT;
    /// The command is not this worker's any more: drop what was done for it.
    LeaseLost = "lease_lost", CONFLICT;
    /// The idempotency key was used for something else.
    KeyReused = "key_reused", CONFLICT;
    /// The body is too large.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE;
    /// The body is not JSON.
    NotJson = "not_json", UNSUPPORTED_MEDIA_TYPE;
    /// The server does not go by this name.
    Misdirected = "misdirected", MISDIRECTED_REQUEST;
    /// The request was understood and refused: it asks for too much, or for what cannot be.
    Refused = "refused", UNPROCESSABLE_ENTITY;
    /// Slower.
    TooMany = "too_many", TOO_MANY_REQUESTS;
    /// Something is wrong with the server; the log says what.
    Broken = "broken", INTERNAL_SERVER_ERROR;
    /// Not now; nothing happened.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE;
    /// It is not known whether it happened: repeat it under the same key.
    Unknown = "unknown", GATEWAY_TIMEOUT;
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind.
    pub code: Code,
    /// For people.
    pub detail: String,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let detail = detail.into();
        Problem { code, detail }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Problem {
        Problem::new(Code::BadRequest, detail)
    }

    pub(crate) fn missing(detail: impl Into<String>) -> Problem {
        Problem::new(Code::NotFound, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = json!({
            "type": format!("urn:roundel:problem:{}", self.code.as_str()),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": self.code.as_str(),
            "detail": masked(&self.detail),
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        match self.code {
            Code::Unauthenticated => {
                let scheme = HeaderValue::from_static("Bearer realm=\"roundel\"");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            Code::TooMany | Code::Unavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let code = match &error {
            Error::NoSuchRun(_)
            | Error::Refused(Refusal::UnknownRun { .. } | Refusal::UnknownKey { .. }) => {
                Code::NotFound
            }
            Error::Refused(Refusal::Conflict { .. }) => Code::KeyReused,
            Error::Refused(Refusal::MovedOn { .. }) => Code::Stale,
            Error::Refused(
                Refusal::NotParked { .. }
                | Refusal::SignalNotParked { .. }
                | Refusal::NotAtRest { .. }
                | Refusal::NotWaiting { .. }
                | Refusal::NotEnded { .. }
                | Refusal::HasBegun { .. }
                | Refusal::Stale { .. }
                | Refusal::StreamMoved { .. },
            ) => Code::Conflict,
            Error::Refused(_) | Error::Failed { .. } | Error::Parked { .. } => Code::Refused,
            Error::BadName(_) | Error::Value(_) | Error::Statement(_) => Code::BadRequest,
            Error::Unavailable(_) | Error::Closed => Code::Unavailable,
            Error::Unknown(_) => Code::Unknown,
            Error::Setup(_) | Error::Unfit(_) | Error::Unusable(_) => Code::Broken,
        };
        let hidden = match code {
            Code::Unavailable => "the database cannot be asked at the moment; nothing happened",
            Code::Unknown => {
                "the database did not answer in time; it may have happened: repeat the request \
                 with the same idempotency key to learn it"
            }
            Code::Broken => "the database cannot be used; the server's log says why",
            _ => return Problem::new(code, error.to_string()),
        };
        tracing::error!(code = code.as_str(), error = %error, "a request failed");
        Problem::new(code, hidden)
    }
}

impl From<roundel::BadName> for Problem {
    fn from(error: roundel::BadName) -> Problem {
        Problem::bad(error.to_string())
    }
}
