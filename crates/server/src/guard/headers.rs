//! What every answer says to browsers: run nothing but our own scripts, show this in no frame, keep
//! no copy, tell nobody where you were.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                   img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
                   form-action 'self'; frame-ancestors 'none'; \
                   require-trusted-types-for 'script'; trusted-types 'none'";

/// Puts them on.
pub(crate) fn seal(mut response: Response, behind_tls: bool) -> Response {
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    put(header::CONTENT_SECURITY_POLICY, CSP);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::X_FRAME_OPTIONS, "DENY");
    put(header::REFERRER_POLICY, "no-referrer");
    put(header::CACHE_CONTROL, "no-store");
    put(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    put(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    if behind_tls {
        put(header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    response
}
