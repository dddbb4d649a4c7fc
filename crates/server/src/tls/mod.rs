//! TLS of the server's own, by rustls: a certificate and its key, from files that are looked at
//! again when they change, so that one that is renewed needs no restart.
//!
//! Absent on purpose: certificates of clients, names that choose one, versions before 1.2.

mod client;
mod stream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
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
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the files were last changed, as far as is known.
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

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
        let (certificate, key) = (certificate.into(), key.into());
        let changed = changed(&certificate, &key);
        let loaded = Mutex::new(Loaded {
            config: load(&certificate, &key)?,
            changed,
            looked: Instant::now(),
        });
        Ok(Tls {
            certificate,
            key,
            loaded,
        })
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
            let changed = changed(&self.certificate, &self.key);
            if changed != loaded.changed {
                match load(&self.certificate, &self.key) {
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

fn changed(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|path| std::fs::metadata(path).ok()?.modified().ok())
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let bad = |path: &Path, why: String| TlsError::File(path.to_owned(), why);
    let certificates = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad(certificate, "there is no certificate in it".into()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
    let pair = |error: rustls::Error| {
        TlsError::Pair(certificate.to_owned(), key.to_owned(), error.to_string())
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(certificates, secret)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
