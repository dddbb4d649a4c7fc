//! TLS of the server's own, by rustls: a certificate and its key, from files that are looked at
//! again when they change, so that one that is renewed needs no restart. If it is said who signs
//! certificates of clients, one that is shown must be of those, and workers must show one.
//!
//! Absent on purpose: lists of certificates that were revoked, names that choose one, versions
//! before 1.2.

mod client;
mod stream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite};

pub use client::{Trust, TrustError};
pub use stream::TlsStream;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Mend the file, or name another.
    #[error("{0} cannot be read as what it should be: {1}; it must be PEM")]
    File(PathBuf, String),
    /// Name files that belong together.
    #[error("{0} and {1} are no certificate and its key: {2}")]
    Pair(PathBuf, PathBuf, String),
    /// Name a file with the certificates of those who sign.
    #[error("{0} does not say who signs certificates of clients: {1}")]
    Signers(PathBuf, String),
}

/// A certificate and its key, and perhaps who signs those of clients.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    loaded: Mutex<Loaded>,
}

#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    signers: Option<PathBuf>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    changed: Changed,
    looked: Instant,
}

/// When the files were last changed, as far as is known.
type Changed = [Option<SystemTime>; 3];

impl Tls {
    /// From these files, in PEM's form: the certificate with those that lead from it to a root, and
    /// its private key.
    ///
    /// # Errors
    /// When they cannot be read, or do not belong together.
    pub fn from_files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Tls, TlsError> {
        Tls::over(Files {
            certificate: certificate.into(),
            key: key.into(),
            signers: None,
        })
    }

    /// Clients may show certificates that one of these signed, in PEM's form, and no others. Who
    /// works on commands must: a worker's token alone is worth nothing then.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn workers_signed_by(self, signers: impl Into<PathBuf>) -> Result<Tls, TlsError> {
        let mut files = self.files;
        files.signers = Some(signers.into());
        Tls::over(files)
    }

    fn over(files: Files) -> Result<Tls, TlsError> {
        let changed = files.changed();
        let loaded = Mutex::new(Loaded {
            config: files.load()?,
            changed,
            looked: Instant::now(),
        });
        Ok(Tls { files, loaded })
    }

    /// Must workers show a certificate?
    pub(crate) fn asks_workers(&self) -> bool {
        self.files.signers.is_some()
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What connections that come now are given. Files that cannot be used, perhaps because they
    /// are being written, leave what was.
    fn config(&self, now: Instant) -> Arc<ServerConfig> {
        let mut loaded = self.loaded();
        if now.duration_since(loaded.looked) >= LOOK {
            loaded.looked = now;
            let changed = self.files.changed();
            if changed != loaded.changed {
                match self.files.load() {
                    Ok(config) => (loaded.config, loaded.changed) = (config, changed),
                    Err(error) => tracing::warn!(%error, "the certificate stays what it was"),
                }
            }
        }
        loaded.config.clone()
    }

    /// The connection, once both sides know each other.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let tls = ServerConnection::new(self.config(Instant::now())).map_err(io::Error::other)?;
        TlsStream::shaken(stream, tls.into()).await
    }
}

impl Files {
    fn changed(&self) -> Changed {
        let files = [
            Some(&self.certificate),
            Some(&self.key),
            self.signers.as_ref(),
        ];
        files.map(|path| std::fs::metadata(path?).ok()?.modified().ok())
    }

    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let Files {
            certificate,
            key,
            signers,
        } = self;
        let chain = certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| TlsError::File(key.clone(), error.to_string()))?;
        let pair = |error: rustls::Error| {
            TlsError::Pair(certificate.clone(), key.clone(), error.to_string())
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let config = match signers {
            None => config.with_no_client_auth(),
            Some(signers) => config.with_client_cert_verifier(verifier(signers)?),
        };
        let mut config = config.with_single_cert(chain, secret).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why: String| TlsError::File(path.to_owned(), why);
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(bad("there is no certificate in it".into())),
        false => Ok(certificates),
    }
}

/// Browsers have none, so who shows none is let in as far as that goes.
fn verifier(signers: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let bad = |why: String| TlsError::Signers(signers.to_owned(), why);
    let mut roots = RootCertStore::empty();
    for signer in certificates(signers)? {
        roots.add(signer).map_err(|error| bad(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| bad(error.to_string()))
}
