//! Step 7 of 7: a connection to a receiver, which ends if the receiver sends interim answers (1xx) without end.
//!
//! The HTTP client skips interim answers and reads on, so that no limit of a head or a body ever counts them.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::Request;
use hyper::ext::on_informational;
use hyper::http::Extensions;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, capture_connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// How many interim answers may precede an answer.
const MOST_INTERIM: usize = 16;

/// A connection, with or without TLS.
pub(crate) struct Wire {
    io: Io,
    interim: Interim,
}

enum Io {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// The interim answers since the last answer of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interim(Arc<AtomicUsize>);

#[derive(Debug)]
struct TooManyInterim;

impl Wire {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { io: Io::Plain(TokioIo::new(stream)), interim: Interim::default() }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { io: Io::Tls(Box::new(TokioIo::new(stream))), interim: Interim::default() }
    }
}

impl Interim {
    /// Counts the interim answers to this request on the connection that sends it.
    pub(crate) fn count_on<B>(request: &mut Request<B>) {
        let connection = capture_connection(request);
        on_informational(request, move |_| {
            let mut extensions = Extensions::new();
            connection.connection_metadata().iter().for_each(|connected| connected.get_extras(&mut extensions));
            if let Some(interim) = extensions.get::<Self>() {
                interim.0.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Begins again: the answer has arrived.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0..=MOST_INTERIM => Ok(()),
            _ => Err(io::Error::other(TooManyInterim)),
        }
    }
}

impl std::error::Error for TooManyInterim {}

impl fmt::Display for TooManyInterim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the receiver sent more than {MOST_INTERIM} interim answers (1xx)")
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.interim.clone())
    }
}

impl Read for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.interim.check()?;
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }
}
