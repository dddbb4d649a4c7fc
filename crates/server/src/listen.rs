//! The server's own accept loop: a head that does not come in time, has too many headers or is too
//! long, ends its connection; there are so many connections and no more. HTTP/1 only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::server::Shared;

/// What is said to a connection for which there is no place.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
                      content-length: 0\r\n\r\n";
/// After the system had no more files to give.
const BREATH: Duration = Duration::from_millis(50);

/// A server that is being served. It ends when it is dropped, or stopped.
#[derive(Debug)]
pub struct Serving {
    address: SocketAddr,
    shared: SharedHandle,
    task: JoinHandle<()>,
}

struct SharedHandle(Arc<Shared>);

impl std::fmt::Debug for SharedHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Serving {
    /// Where.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nobody any more, lets what is in hand end for a while, and goes.
    pub async fn stop(mut self) {
        self.shared.0.stopping.send_replace(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shared.0.stopping.send_replace(true);
        self.task.abort();
    }
}

pub(crate) fn serve(
    listener: TcpListener,
    router: Router,
    shared: Arc<Shared>,
) -> std::io::Result<Serving> {
    let address = listener.local_addr()?;
    let task = tokio::spawn(accept(listener, router, shared.clone()));
    let shared = SharedHandle(shared);
    Ok(Serving {
        address,
        shared,
        task,
    })
}

async fn accept(listener: TcpListener, router: Router, shared: Arc<Shared>) {
    let places = shared.limits.connections;
    let (open, mut stopping) = (
        Arc::new(Semaphore::new(places)),
        shared.stopping.subscribe(),
    );
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        match open.clone().try_acquire_owned() {
            Ok(place) => {
                tokio::spawn(connection(stream, router.clone(), shared.clone(), place));
            }
            Err(_) => {
                let refused = &shared.counts.connections_refused;
                refused.fetch_add(1, Ordering::Relaxed);
                let _ = stream.try_write(FULL);
            }
        }
    }
    drop(listener);
    let all = u32::try_from(places).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(shared.limits.drain, open.acquire_many(all)).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    shared: Arc<Shared>,
    place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else {
        serve_connection(stream, router, (&shared, Certified(false))).await;
        drop(place);
        return;
    };
    // Who does not shake hands in time has nothing to say.
    match tokio::time::timeout(shared.limits.head_time, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certified = Certified(stream.shows_certificate());
            serve_connection(stream, router, (&shared, certified)).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a connection came to no understanding"),
        Err(_) => {}
    }
    drop(place);
}

/// Whether a request came by a connection whose other side showed a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certified(pub(crate) bool);

async fn serve_connection<S>(
    stream: S,
    router: Router,
    (shared, certified): (&Arc<Shared>, Certified),
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stopping = shared.stopping.subscribe();
    let limits = &shared.limits;
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(certified);
        router.call(request)
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_bytes.max(8192))
        .max_headers(limits.headers);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
