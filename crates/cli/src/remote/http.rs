//! A request and its answer: HTTP/1, to this machine alone. A token does not travel in the clear,
//! so a server elsewhere is reached through a tunnel.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::exit::{Exit, Failed, Result};

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How large an answer may be.
const ANSWER: usize = 64 << 20;

/// Where a server is, and what lets us in.
#[derive(Debug)]
pub(super) struct Server {
    /// Host and port.
    at: String,
    token: String,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<String>,
}

impl Server {
    pub(super) fn new(url: &str, token_file: Option<&PathBuf>) -> Result<Server> {
        if url.starts_with("https://") {
            return Err(Failed::usage(
                "https:// is not known here; reach the server through a tunnel, such as `ssh -L \
                 8462:localhost:8462 host`, and name http://localhost:8462",
            ));
        }
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (at, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() || at.is_empty() || at.contains('@') {
            let message = "a server is named as http://localhost:8462, and nothing more";
            return Err(Failed::usage(message));
        }
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !is_here {
            return Err(Failed::usage(format!(
                "`{host}` is not this machine, and a token does not travel in the clear; reach it \
                 through a tunnel, such as `ssh -L 8462:localhost:8462 {host}`, and name \
                 http://localhost:8462"
            )));
        }
        let has_port = at
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Server {
            at: if has_port {
                at.to_owned()
            } else {
                format!("{at}:8462")
            },
            token: token(token_file)?,
        })
    }

    /// The answer; what it says went wrong, otherwise.
    pub(super) async fn ask(&self, request: Request) -> Result<Value> {
        let asked = tokio::time::timeout(PATIENCE, self.send(request)).await;
        let late = || Failed::new(Exit::NotNow, format!("{} does not answer", self.at));
        asked.map_err(|_| late())?
    }

    async fn send(&self, request: Request) -> Result<Value> {
        let lost = |error: &dyn std::fmt::Display| {
            let message = format!("the server at {} cannot be asked: {error}", self.at);
            Failed::new(Exit::NotNow, message)
        };
        let stream = TcpStream::connect(&self.at)
            .await
            .map_err(|error| lost(&error))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| lost(&error))?;
        let connection = tokio::spawn(connection);
        let body = request.body.unwrap_or_default();
        let mut asks = hyper::Request::builder()
            .method(request.method)
            .uri(&request.path)
            .header(HOST, &self.at)
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", self.token));
        if !body.is_empty() {
            asks = asks.header(CONTENT_TYPE, "application/json");
        }
        let asks = asks.body(body).map_err(|error| lost(&error))?;
        let answer = sender
            .send_request(asks)
            .await
            .map_err(|error| lost(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER).collect().await;
        let body = body.map_err(|error| lost(&error))?.to_bytes();
        connection.abort();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status.is_success() {
            true => Ok(value),
            false => Err(problem(status.as_u16(), &value)),
        }
    }
}

/// What a server says went wrong, as an exit code and a message.
fn problem(status: u16, value: &Value) -> Failed {
    let exit = match status {
        400 | 405 | 413 | 415 => Exit::Usage,
        404 => Exit::NotFound,
        408 | 429 | 503 | 504 => Exit::NotNow,
        500 => Exit::Database,
        _ => Exit::No,
    };
    let detail = value["detail"].as_str().unwrap_or("it says nothing more");
    let advice = match status {
        401 => {
            "; a token is made with `roundel tokens add`, and named by ROUNDEL_TOKEN or \
                --token-file"
        }
        403 => "; `roundel tokens add --role` says what a token may",
        _ => "",
    };
    let code = value["code"].as_str().unwrap_or("unknown");
    Failed::new(
        exit,
        format!("the server says {status} {code}: {detail}{advice}"),
    )
}

/// From a file, or from the environment: never from the command line, which others can see.
fn token(file: Option<&PathBuf>) -> Result<String> {
    let token = match file {
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            Failed::usage(format!(
                "the token file {} cannot be read: {error}",
                path.display()
            ))
        })?,
        None => std::env::var("ROUNDEL_TOKEN").map_err(|_| {
            Failed::usage(
                "a server needs a token: `roundel tokens add NAME --role viewer` makes one; set \
                 ROUNDEL_TOKEN to it, or put it into a file and say --token-file",
            )
        })?,
    };
    let token = token.trim().to_owned();
    match token.is_empty() || token.chars().any(|c| c.is_control() || c.is_whitespace()) {
        true => Err(Failed::usage(
            "this is no token: it is empty, or has spaces in it",
        )),
        false => Ok(token),
    }
}

/// As a part of a path, or a value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                shown.push(char::from(byte));
            }
            byte => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_this_machine_alone() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "rdl_secret\n").expect("written");
        let path = file.path().to_owned();
        let server = |url: &str| Server::new(url, Some(&path));
        for (url, at) in [
            ("http://localhost", "localhost:8462"),
            ("http://127.0.0.1:99/", "127.0.0.1:99"),
            ("http://[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(server(url).expect(url).at, at);
        }
        for url in [
            "http://example.com",
            "http://localhost.example.com",
            "http://10.0.0.1:8462",
            "https://localhost",
            "http://localhost/api",
            "http://me@localhost",
            "http://",
        ] {
            let failed = server(url).expect_err(url);
            assert_eq!(failed.exit, Exit::Usage, "{url}: {failed:?}");
        }
        assert_eq!(encoded("a b/ü"), "a%20b%2F%C3%BC");
    }
}
