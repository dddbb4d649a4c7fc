//! Coming in with a browser: a one-time code, or a token, is exchanged for a cookie. These are the
//! only paths beside health and readiness that ask for no token: they take one, and show nothing.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::auth::{COOKIE, Who, hash};
use crate::guard::{same_site, seal};
use crate::problem::Problem;
use crate::route::{collect, decoded, respond};
use crate::server::Shared;
use crate::ui::ENTER;

const HTML: &str = "text/html; charset=utf-8";
const FORM: &str = include_str!("login.html");
/// The form, or what comes of a link with a code.
pub(crate) async fn look(server: Arc<Shared>, request: Request) -> Response {
    let server = &server;
    let query = request.uri().query().unwrap_or_default();
    let code = match field(query, "code") {
        Ok(code) => code,
        Err(problem) => return server.refuse(problem),
    };
    if let Err(problem) = server.hosts.check(request.uri(), request.headers()) {
        return server.refuse(problem);
    }
    let Some(code) = code else {
        return seal(respond(StatusCode::OK, HTML, FORM), server.behind_tls);
    };
    match server.sessions.exchange(&code, server.client.now()) {
        Some(who) => entered(server, who),
        None => server.refuse(server.unknown(
            "the link was used before, or is too old; the server prints a new one when it starts",
        )),
    }
}

/// The form was filled in.
pub(crate) async fn enter(server: Arc<Shared>, request: Request) -> Response {
    let server = &server;
    match try_to_enter(server, request).await {
        Ok(who) => entered(server, who),
        Err(problem) => server.refuse(problem),
    }
}

async fn try_to_enter(server: &Arc<Shared>, request: Request) -> Result<Arc<Who>, Problem> {
    let (parts, body) = request.into_parts();
    let host = server.hosts.check(&parts.uri, &parts.headers)?;
    same_site(&parts.method, &parts.headers, &host)?;
    let body = collect(body, &parts.headers, &server.limits).await?;
    let text = str::from_utf8(&body).map_err(|_| Problem::bad("the form is not UTF-8"))?;
    let token = field(text, "token")?.unwrap_or_default();
    let known = server.tokens.as_ref();
    let known = known.and_then(|known| known.holder(&hash(token.trim()), server.client.now()));
    known.ok_or_else(|| server.unknown("there is no such token, or it is no longer good"))
}

fn field(form: &str, name: &str) -> Result<Option<String>, Problem> {
    let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(field, _)| *field == name);
    found.map(|(_, value)| decoded(value)).transpose()
}

fn entered(server: &Arc<Shared>, who: Arc<Who>) -> Response {
    let secret = server.sessions.open(who, server.client.now());
    let secure = if server.behind_tls { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/{secure}",
        secret.reveal()
    );
    let mut response = respond(StatusCode::OK, HTML, Body::from(ENTER));
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        Err(_) => return Problem::bad("the session has no cookie").into_response(),
    }
    seal(response, server.behind_tls)
}
