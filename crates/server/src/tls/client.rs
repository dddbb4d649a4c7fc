//! The other side of TLS: whoever asks a server, and whom it trusts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};

use super::TlsStream;

/// Where systems keep the roots that they trust, in one file.
const SYSTEM: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why nobody can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Mend the file, or name another.
    #[error("no certificate of {0} can be trusted: {1}; it must be PEM")]
    File(PathBuf, String),
    /// Name a file.
    #[error(
        "this system has no file of roots where others have it; name one by SSL_CERT_FILE, or the \
         server's own"
    )]
    NoSystem,
}

/// Whose certificates are believed.
#[derive(Clone, Debug)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Those that are signed by one of this file's, in PEM's form, and nobody else's.
    ///
    /// # Errors
    /// When there is none in it.
    pub fn file(path: impl AsRef<Path>) -> Result<Trust, TrustError> {
        let path = path.as_ref();
        let bad = |why: String| TrustError::File(path.to_owned(), why);
        let found = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
        let found = found.collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| bad(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(found);
        if taken == 0 {
            return Err(bad("there is none in it".into()));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(error.to_string()))?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Trust(Arc::new(config)))
    }

    /// What this system trusts: the file that `SSL_CERT_FILE` names, or where systems have it.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn system() -> Result<Trust, TrustError> {
        if let Some(named) = std::env::var_os("SSL_CERT_FILE") {
            return Trust::file(PathBuf::from(named));
        }
        let there = SYSTEM.iter().find(|path| Path::new(path).exists());
        Trust::file(there.ok_or(TrustError::NoSystem)?)
    }

    /// TLS over this stream, with whoever has a certificate of this name.
    ///
    /// # Errors
    /// When the other side has none, or none that is trusted, or goes.
    pub async fn connect<S>(&self, name: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let bad = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let name = ServerName::try_from(name.to_owned()).map_err(bad)?;
        let tls = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        TlsStream::shaken(stream, tls.into()).await
    }
}
