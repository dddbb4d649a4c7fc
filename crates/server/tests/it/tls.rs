//! TLS of the server's own: it is spoken, a certificate that is renewed is taken up, and whoever
//! does not speak it gets no answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundel::{Engine, Timestamp};
use roundel_server::{Limits, Role, Server, ServerBuilder, Serving, Tls, TlsError, Tokens};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};
use tempfile::TempDir;

use crate::support::PATIENCE;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/tls")
        .join(name)
}

/// A server whose certificate can be replaced.
struct Place {
    engine: Engine,
    serving: Serving,
    folder: TempDir,
}

impl Place {
    async fn new(limits: Limits) -> Place {
        Place::with(limits, |server, tls| server.tls(tls)).await
    }

    async fn with(
        limits: Limits,
        set_up: impl FnOnce(ServerBuilder, Tls) -> ServerBuilder,
    ) -> Place {
        let engine = Engine::in_memory().start().await.expect("an engine");
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        std::fs::copy(file("one.pem"), place("cert.pem")).expect("a certificate");
        std::fs::copy(file("one.key"), place("key.pem")).expect("a key");
        let tls = Tls::from_files(place("cert.pem"), place("key.pem")).expect("a pair");
        let server = set_up(Server::over(engine.client()).limits(limits), tls).build();
        let serving = server.serve(([127, 0, 0, 1], 0).into()).await;
        let serving = serving.expect("a port");
        Place {
            engine,
            serving,
            folder,
        }
    }

    fn put(&self, from: &str, to: &str) {
        std::fs::copy(file(from), self.folder.path().join(to)).expect("a copy");
    }

    async fn end(self) {
        self.serving.stop().await;
        self.engine.shutdown().await;
    }
}

/// What is answered to somebody who trusts this certificate alone.
fn ask(at: SocketAddr, trusted: &str, path: &str) -> std::io::Result<String> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    say(at, (trusted, None), &head)
}

/// The same, to somebody who shows that certificate, if any.
fn say(
    at: SocketAddr,
    (trusted, shown): (&str, Option<&str>),
    head: &str,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    let trusted = CertificateDer::from_pem_file(file(trusted)).expect("a certificate");
    roots.add(trusted).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(file(&format!("{name}.pem")));
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).expect("a key");
            let chain = vec![certificate.expect("a certificate")];
            config.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut tcp = TcpStream::connect(at)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    let mut stream = Stream::new(&mut tls, &mut tcp);
    stream.write_all(head.as_bytes())?;
    let mut said = Vec::new();
    // Its end is said, so that nobody can cut an answer short.
    stream.read_to_end(&mut said)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

async fn asked(at: SocketAddr, trusted: &'static str, path: &'static str) -> Option<String> {
    let asking = tokio::task::spawn_blocking(move || ask(at, trusted, path));
    asking.await.expect("a thread").ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_certificate_speaks_tls_and_says_so() {
    let place = Place::new(Limits::default()).await;
    let at = place.serving.address();
    let said = asked(at, "one.pem", "/healthz").await.expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
    assert!(said.contains("strict-transport-security"), "{said}");
    assert!(said.ends_with("ok\n"), "{said}");
    assert!(
        asked(at, "two.pem", "/healthz").await.is_none(),
        "it is another's"
    );
    // Many at once, each on a connection of its own.
    let many = (0..20).map(|_| asked(at, "one.pem", "/ui/"));
    for said in futures_util::future::join_all(many).await {
        assert!(said.expect("an answer").starts_with("HTTP/1.1 "));
    }
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_renewed_is_taken_up_and_a_broken_one_is_not() {
    let place = Place::new(Limits::default()).await;
    let at = place.serving.address();
    // Half of a new pair is none: what was stays.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    place.put("two.pem", "cert.pem");
    assert!(asked(at, "one.pem", "/healthz").await.is_some());
    place.put("two.key", "key.pem");
    let until = Instant::now() + PATIENCE;
    while asked(at, "two.pem", "/healthz").await.is_none() {
        assert!(Instant::now() < until, "the new one is not taken up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(asked(at, "one.pem", "/healthz").await.is_none());
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n1_who_does_not_shake_hands_gets_no_answer_and_no_place() {
    let limits = Limits {
        head_time: Duration::from_millis(300),
        connections: 2,
        ..Limits::default()
    };
    let place = Place::new(limits).await;
    let at = place.serving.address();
    let plain = tokio::task::spawn_blocking(move || {
        let mut silent = TcpStream::connect(at).expect("a connection");
        let mut plain = TcpStream::connect(at).expect("a connection");
        plain
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("sent");
        let mut said = Vec::new();
        for stream in [&mut plain, &mut silent] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
            match stream.read_to_end(&mut said) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
            }
        }
        said
    });
    let said = plain.await.expect("a thread");
    assert!(!said.windows(4).any(|part| part == b"HTTP"), "{said:?}");
    // Both places are free again.
    let said = asked(at, "one.pem", "/healthz").await.expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    place.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_show_a_certificate_that_is_known_or_their_token_is_worth_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Tokens::at(folder.path().join("tokens.json")).expect("no tokens yet");
    let name = roundel::Name::constant("hand");
    let places = vec!["default".to_owned()];
    let token = tokens.add((name, Role::Worker), places, (Timestamp(0), None));
    let bearer = format!(
        "Authorization: Bearer {}\r\n",
        token.expect("a token").reveal()
    );
    let place = Place::with(Limits::default(), |server, tls| {
        let tls = tls.workers_signed_by(file("two.pem")).expect("a signer");
        server.tls(tls).tokens(tokens)
    });
    let place = place.await;
    let at = place.serving.address();
    let claim = r#"{"queues":["mail"]}"#;
    let claims = format!(
        "POST /api/v1/default/work/claim HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         {bearer}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{claim}",
        claim.len()
    );
    let me =
        format!("GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{bearer}\r\n");
    let said = async |shown: Option<&'static str>, head: &str| {
        let head = head.to_owned();
        let asking = move || say(at, ("one.pem", shown), &head);
        tokio::task::spawn_blocking(asking)
            .await
            .expect("a thread")
            .ok()
    };
    let said_well = said(Some("two"), &claims).await.expect("an answer");
    assert!(said_well.starts_with("HTTP/1.1 200"), "{said_well}");
    // Browsers have none, and are let in as far as that goes.
    let known = said(None, &me).await.expect("an answer");
    assert!(known.starts_with("HTTP/1.1 200"), "{known}");
    let refused = said(None, &claims).await.expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(refused.contains("certificate"), "{refused}");
    // One that somebody else signed is none.
    assert!(said(Some("one"), &claims).await.is_none());
    assert!(said(Some("one"), &me).await.is_none());
    place.end().await;
}

#[test]
fn files_that_are_no_pair_are_refused() {
    let refused = Tls::from_files(file("one.pem"), file("two.key")).unwrap_err();
    assert!(matches!(refused, TlsError::Pair(..)), "{refused}");
    for (certificate, key) in [("one.key", "one.key"), ("one.pem", "one.pem"), ("no", "no")] {
        let refused = Tls::from_files(file(certificate), file(key)).unwrap_err();
        assert!(matches!(refused, TlsError::File(..)), "{refused}");
    }
    for signers in ["one.key", "no"] {
        let tls = Tls::from_files(file("one.pem"), file("one.key")).unwrap();
        let refused = tls.workers_signed_by(file(signers)).unwrap_err();
        assert!(matches!(refused, TlsError::File(..)), "{refused}");
    }
}
