//! Names that the server goes by. A page of another site can make a browser send requests to
//! loopback under a name of its own (DNS rebinding); those are refused.

use axum::http::{HeaderMap, Uri, header};

use crate::problem::{Code, Problem};

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Those of loopback, and these.
    pub(crate) fn new(names: &[String]) -> Hosts {
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        let names = LOOPBACK.map(str::to_owned).into_iter().chain(names);
        Hosts(names.collect())
    }

    /// The name and port that the request was sent to, if it is one of ours.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<String, Problem> {
        let refused = || {
            let text = "this server does not go by that name; it must be told of it (--host NAME)";
            Problem::new(Code::Misdirected, text)
        };
        let mut named = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else {
            return Err(refused());
        };
        let host = host.to_str().map_err(|_| refused())?.to_ascii_lowercase();
        // A request for a whole URL must name the same one.
        let other = uri
            .authority()
            .map(|other| other.as_str().to_ascii_lowercase());
        if other.is_some_and(|other| other != host) {
            return Err(refused());
        }
        match self.0.iter().any(|name| name == without_port(&host)) {
            true => Ok(host),
            false => Err(refused()),
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n11_only_names_that_were_configured_are_answered() {
        let hosts = Hosts::new(&["Ops.example".to_owned()]);
        let uri = Uri::from_static("/");
        let ask = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            hosts.check(&uri, &headers).is_ok()
        };
        for host in [
            "localhost",
            "127.0.0.1:8080",
            "[::1]:80",
            "[::1]",
            "ops.EXAMPLE:1",
        ] {
            assert!(ask(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil",
            "localhost:80:80x",
            "::1",
            "",
            "localhost@evil",
        ] {
            assert!(!ask(host), "{host}");
        }
        assert!(hosts.check(&uri, &HeaderMap::new()).is_err());
        let mut twice = HeaderMap::new();
        twice.append(header::HOST, "localhost".parse().unwrap());
        assert!(
            hosts
                .check(&Uri::from_static("http://evil/"), &twice)
                .is_err()
        );
        twice.append(header::HOST, "localhost".parse().unwrap());
        assert!(hosts.check(&uri, &twice).is_err());
    }
}
