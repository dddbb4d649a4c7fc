//! TLS of the server's own, by rustls: a certificate and its key, from files that are looked at
//! again when they change, so that one that is renewed needs no restart.
//!
//! Absent on purpose: certificates of clients, names that choose one, versions before 1.2.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
        let mut stream = TlsStream {
            stream,
            tls,
            said_goodbye: false,
        };
        std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
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

/// A connection whose bytes are encrypted.
pub(crate) struct TlsStream<S> {
    stream: S,
    tls: ServerConnection,
    said_goodbye: bool,
}

/// A stream that says that it would block instead of waiting.
struct Blocking<'a, 'c, S> {
    stream: &'a mut S,
    context: &'a mut Context<'c>,
}

fn or_blocks<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<S: AsyncRead + Unpin> Read for Blocking<'_, '_, S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut room = ReadBuf::new(bytes);
        let polled = Pin::new(&mut *self.stream).poll_read(self.context, &mut room);
        or_blocks(polled).map(|()| room.filled().len())
    }
}

impl<S: AsyncWrite + Unpin> Write for Blocking<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_blocks(Pin::new(&mut *self.stream).poll_write(self.context, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_blocks(Pin::new(&mut *self.stream).poll_flush(self.context))
    }
}

fn or_pends<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.is_handshaking() {
            let sent = self.poll_send(context)?;
            if self.tls.wants_read() {
                if ready!(self.poll_receive(context))? == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            } else if sent.is_pending() {
                return Poll::Pending;
            }
        }
        self.poll_send(context)
    }

    /// Takes what the other side has sent. None is its end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let stream = &mut self.stream;
        let mut from = Blocking { stream, context };
        let count = ready!(or_pends(self.tls.read_tls(&mut from)))?;
        if let Err(error) = self.tls.process_new_packets() {
            // It is told why, if it listens.
            let _ = self.poll_send(context);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        Poll::Ready(Ok(count))
    }

    /// Sends what is ready.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let stream = &mut self.stream;
            let mut to = Blocking { stream, context };
            if ready!(or_pends(self.tls.write_tls(&mut to)))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.tls.reader().read(room.initialize_unfilled()) {
                Ok(count) => {
                    room.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            // New keys and the like are answered; that need not be done before more is read.
            let _ = this.poll_send(context)?;
            ready!(this.poll_receive(context))?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let taken = this.tls.writer().write(bytes)?;
            let sent = this.poll_send(context)?;
            if taken > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(taken));
            }
            if sent.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.said_goodbye, true) {
            this.tls.send_close_notify();
        }
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
