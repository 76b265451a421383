//! Steps 1 and 7 of 7: a connection that ends if its client does not read.
//!
//! hyper limits how long a client may take to send its headers, and nothing limits how long it may take to read. A client
//! that reads nothing would occupy its connection forever, with megabytes in the kernel.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The client has read nothing for as long as a write may wait.
#[derive(Debug, thiserror::Error)]
#[error("the client reads nothing")]
pub(super) struct WriteStalled;

/// A stream of which no write waits longer than `limit` without progress.
pub(super) struct ProgressStream {
    stream: TcpStream,
    limit: Duration,
    /// The end of the wait, while a write waits; it is created once.
    wait: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl ProgressStream {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, wait: None, is_waiting: false }
    }

    /// Passes the result of a write on; a write that waits too long fails.
    fn limit_wait<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        let end = Instant::now() + self.limit;
        let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        if !self.is_waiting {
            self.is_waiting = true;
            wait.as_mut().reset(end);
        }
        ready!(wait.as_mut().poll(context));
        // Otherwise the kernel would keep what the client does not read, after the connection has ended here.
        drop(self.stream.set_zero_linger());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, WriteStalled)))
    }
}

impl AsyncRead for ProgressStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ProgressStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit_wait(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limit_wait(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush: its writes wait.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
