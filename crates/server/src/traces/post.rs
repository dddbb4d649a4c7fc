//! Giving JSON to a collector: one request on a connection of its own, with a time-out, and no more
//! of the answer read than its first line.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER: u64 = 1024;

/// Where it is.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    /// With its port.
    host: String,
    path: String,
}

/// It was not taken.
pub(super) struct Refused {
    pub(super) why: String,
    /// Whoever is that slow is not asked again.
    pub(super) for_good: bool,
}

impl Collector {
    pub(super) fn at(url: &str) -> Result<Collector, String> {
        let bad = |why: &str| format!("`{url}` is no collector of traces: {why}");
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| bad("it must begin with http://"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let strange = |byte: u8| !byte.is_ascii_graphic() || b"@?#\"<>\\".contains(&byte);
        if host.is_empty() || rest.bytes().any(strange) {
            return Err(bad("it must be http://HOST:PORT or http://HOST:PORT/PATH"));
        }
        let port = host.rsplit_once(':').map(|(_, port)| port);
        let has_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
        let host = match has_port {
            true => host.to_owned(),
            false => format!("{host}:4318"),
        };
        let path = match path {
            "" => "/v1/traces".to_owned(),
            path => format!("/{path}"),
        };
        Ok(Collector { host, path })
    }

    /// Posts it.
    pub(super) async fn post(&self, body: &str) -> Result<(), Refused> {
        let passing = |why: String| Refused {
            why,
            for_good: false,
        };
        match tokio::time::timeout(PATIENCE, self.exchange(body)).await {
            Ok(Ok(said)) => is_taken(&said).map_err(passing),
            Ok(Err(error)) => Err(passing(error.to_string())),
            Err(_) => Err(Refused {
                why: format!("it took more than {PATIENCE:?}"),
                for_good: true,
            }),
        }
    }

    async fn exchange(&self, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.host).await?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut said = Vec::new();
        stream.take(ANSWER).read_to_end(&mut said).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// Only what says so was taken: whoever leads elsewhere is not followed.
fn is_taken(said: &str) -> Result<(), String> {
    let line = said.lines().next().unwrap_or_default();
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(status) => Err(format!("it answered {status}")),
        None => Err("it did not answer in HTTP".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n22_only_a_plain_address_is_a_collector() {
        let collector = |url: &str| Collector::at(url).map(|one| (one.host, one.path));
        let known = |host: &str, path: &str| Ok((host.to_owned(), path.to_owned()));
        assert_eq!(
            collector("http://127.0.0.1:4318"),
            known("127.0.0.1:4318", "/v1/traces")
        );
        assert_eq!(
            collector("http://collector/x/y"),
            known("collector:4318", "/x/y")
        );
        assert_eq!(collector("http://[::1]:9"), known("[::1]:9", "/v1/traces"));
        for bad in [
            "",
            "127.0.0.1:4318",
            "https://127.0.0.1:4318",
            "http://",
            "http:///v1",
            "http://user@host:1",
            "http://host:1/a b",
            "http://host:1/a\r\nX: y",
            "file:///etc/passwd",
        ] {
            assert!(collector(bad).is_err(), "{bad}");
        }
        for (said, taken) in [
            ("HTTP/1.1 200 OK\r\n\r\n{}", true),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://evil.example\r\n\r\n",
                false,
            ),
            ("HTTP/1.1 503 Busy\r\n\r\n", false),
            ("", false),
            ("nonsense", false),
        ] {
            assert_eq!(is_taken(said).is_ok(), taken, "{said}");
        }
    }
}
