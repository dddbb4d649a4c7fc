//! A request and its answer: HTTP/1, by TLS, or without it to this machine alone, since a token
//! does not travel in the clear.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use roundel_server::Trust;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::exit::{Exit, Failed, Result};

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How large an answer may be.
const ANSWER: usize = 64 << 20;
/// How large an event of a stream may be.
const EVENT: usize = 16 << 20;

/// Where a server is, and what lets us in.
#[derive(Debug)]
pub(super) struct Server {
    /// Host and port.
    at: String,
    host: String,
    /// Whom to believe; none without TLS.
    trust: Option<Trust>,
    token: String,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<String>,
}

/// A connection, which goes with this value.
struct Line {
    sender: SendRequest<String>,
    connection: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Events of a server, as they come.
pub(super) struct Events {
    _line: Line,
    body: Incoming,
    read: Vec<u8>,
}

impl Server {
    pub(super) fn new(
        url: &str,
        ca: Option<&PathBuf>,
        token_file: Option<&PathBuf>,
    ) -> Result<Server> {
        let by_tls = url.strip_prefix("https://");
        let rest = by_tls
            .or_else(|| url.strip_prefix("http://"))
            .unwrap_or(url);
        let (at, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() || at.is_empty() || at.contains('@') {
            let message = "a server is named as http://localhost:8462, or \
                           https://ops.example:8462, and nothing more";
            return Err(Failed::usage(message));
        }
        let port = at.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        let has_port = matches!(port, Some(Ok(_)));
        let host = match has_port {
            true => at.rsplit_once(':').map_or(at, |(host, _)| host),
            false => at,
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(Server {
            trust: trust(by_tls.is_some(), &host, ca)?,
            host,
            at: match has_port {
                true => at.to_owned(),
                false => format!("{at}:8462"),
            },
            token: token(token_file)?,
        })
    }

    /// The answer; what it says went wrong, otherwise.
    pub(super) async fn ask(&self, request: Request) -> Result<Value> {
        let asked = tokio::time::timeout(PATIENCE, async {
            let mut line = self.open().await?;
            let answer = self.send(&mut line, request, "application/json").await?;
            self.read(answer).await
        });
        asked.await.map_err(|_| self.late())?
    }

    /// The events of this path.
    pub(super) async fn events(&self, path: String) -> Result<Events> {
        let asked = tokio::time::timeout(PATIENCE, async {
            let mut line = self.open().await?;
            let request = Request {
                method: "GET",
                path,
                body: None,
            };
            let answer = self.send(&mut line, request, "text/event-stream").await?;
            if !answer.status().is_success() {
                return Err(self.read(answer).await.err().unwrap_or_else(|| self.late()));
            }
            Ok(Events {
                _line: line,
                body: answer.into_body(),
                read: Vec::new(),
            })
        });
        asked.await.map_err(|_| self.late())?
    }

    fn late(&self) -> Failed {
        Failed::new(Exit::NotNow, format!("{} does not answer", self.at))
    }

    fn lost(&self, error: &dyn std::fmt::Display) -> Failed {
        let message = format!("the server at {} cannot be asked: {error}", self.at);
        Failed::new(Exit::NotNow, message)
    }

    async fn open(&self) -> Result<Line> {
        let stream = TcpStream::connect(&self.at).await;
        let stream = stream.map_err(|error| self.lost(&error))?;
        let Some(trust) = &self.trust else {
            return self.line(stream).await;
        };
        let stream = trust.connect(&self.host, stream).await.map_err(|error| {
            let failed = self.lost(&error);
            match error.kind() {
                // Trying again does not help.
                ErrorKind::InvalidData => Failed::new(
                    Exit::No,
                    format!(
                        "{}; if the server is right, name who signed its certificate by --ca",
                        failed.message
                    ),
                ),
                _ => failed,
            }
        })?;
        self.line(stream).await
    }

    async fn line<S>(&self, stream: S) -> Result<Line>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.lost(&error))?;
        let connection = tokio::spawn(async { drop(connection.await) });
        Ok(Line { sender, connection })
    }

    async fn send(
        &self,
        line: &mut Line,
        request: Request,
        accept: &str,
    ) -> Result<hyper::Response<Incoming>> {
        let body = request.body.unwrap_or_default();
        let mut asks = hyper::Request::builder()
            .method(request.method)
            .uri(&request.path)
            .header(HOST, &self.at)
            .header(ACCEPT, accept)
            .header(AUTHORIZATION, format!("Bearer {}", self.token));
        if !body.is_empty() {
            asks = asks.header(CONTENT_TYPE, "application/json");
        }
        let asks = asks.body(body).map_err(|error| self.lost(&error))?;
        let answer = line.sender.send_request(asks).await;
        answer.map_err(|error| self.lost(&error))
    }

    async fn read(&self, answer: hyper::Response<Incoming>) -> Result<Value> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER).collect().await;
        let body = body.map_err(|error| self.lost(&error))?.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status.is_success() {
            true => Ok(value),
            false => Err(problem(status.as_u16(), &value)),
        }
    }
}

impl Events {
    /// What the next of them says; none if the server ended the stream, or is gone.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                let lines = event.split(|byte| *byte == b'\n');
                let data = lines.filter_map(|line| line.strip_prefix(b"data: "));
                let data = data.collect::<Vec<_>>().concat();
                if let Ok(value) = serde_json::from_slice(&data) {
                    return Some(value);
                }
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref()?);
            if self.read.len() > EVENT {
                return None;
            }
        }
    }
}

/// Whom to believe, where that is asked; this machine needs nobody.
fn trust(by_tls: bool, host: &str, ca: Option<&PathBuf>) -> Result<Option<Trust>> {
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match (by_tls, ca) {
        (true, ca) => {
            let trust = ca.map_or_else(Trust::system, Trust::file);
            let trust = trust.map_err(|error| {
                let more = if ca.is_none() { "; say --ca FILE" } else { "" };
                Failed::usage(format!("{error}{more}"))
            })?;
            Ok(Some(trust))
        }
        (false, Some(_)) => Err(Failed::usage(
            "--ca is for a server that is named by https://",
        )),
        (false, None) if is_here => Ok(None),
        (false, None) => Err(Failed::usage(format!(
            "`{host}` is not this machine, and a token does not travel in the clear; give the \
             server a certificate and name https://{host}, or reach it through a tunnel, such as \
             `ssh -L 8462:localhost:8462 {host}`, and name http://localhost:8462"
        ))),
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
        let server = |url: &str| Server::new(url, None, Some(&path));
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
            "https://me@localhost",
            "https://localhost/api",
            "http://localhost/api",
            "http://me@localhost",
            "http://",
        ] {
            let failed = server(url).expect_err(url);
            assert_eq!(failed.exit, Exit::Usage, "{url}: {failed:?}");
        }
        assert_eq!(encoded("a b/ü"), "a%20b%2F%C3%BC");
    }

    #[test]
    fn by_tls_it_also_goes_elsewhere() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "rdl_secret").expect("written");
        let (token, ca) = (
            file.path().to_owned(),
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../server/tests/it/tls/one.pem"
            ),
        );
        let ca = PathBuf::from(ca);
        let server = Server::new("https://ops.example", Some(&ca), Some(&token)).expect("one");
        assert_eq!(
            (server.at.as_str(), server.host.as_str()),
            ("ops.example:8462", "ops.example")
        );
        assert!(server.trust.is_some());
        // What is no certificate is not left out silently, nor is one that nobody asks for.
        for (url, ca) in [("https://ops.example", &token), ("http://localhost", &ca)] {
            let failed = Server::new(url, Some(ca), Some(&token)).expect_err(url);
            assert_eq!(failed.exit, Exit::Usage, "{url}: {failed:?}");
        }
    }
}
