//! A stream that hands bytes between tokio's side and that of rustls, for whoever is asked and for
//! whoever asks.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose bytes are encrypted.
pub struct TlsStream<S> {
    stream: S,
    tls: Connection,
    said_goodbye: bool,
}

impl<S> std::fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsStream")
    }
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

impl<S> TlsStream<S> {
    /// Did the other side show a certificate? Then it was one that is asked for.
    pub(crate) fn shows_certificate(&self) -> bool {
        let shown = self.tls.peer_certificates();
        shown.is_some_and(|shown| !shown.is_empty())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// The connection, once both sides know each other.
    pub(super) async fn shaken(stream: S, tls: Connection) -> io::Result<TlsStream<S>> {
        let mut stream = TlsStream {
            stream,
            tls,
            said_goodbye: false,
        };
        std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }

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
