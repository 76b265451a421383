//! A tap on the way to Postgres: a process moves only from one statement to the next, and dies between them.
//!
//! Every statement that is executed is a point of the turnstile, so that a history can stop, kill or overtake
//! a process at each of them without a word of it in the product. An answer can get lost: the statement
//! was done, and whoever sent it never learns that.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::turnstile::Turnstile;

/// Clones are the same tap.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whose statements wait at which turnstile; none = all pass.
    stepped: Option<(Turnstile, usize)>,
    loses_next_answer: bool,
    is_dead: bool,
}

/// Sent first to ask for TLS, and answered with one byte.
const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

impl Tap {
    /// A tap on the way to `server`, on this thread's runtime.
    pub(crate) async fn on(server: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Tap { address: listener.local_addr().unwrap(), state: Arc::default() };
        let behind = tap.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let tap = behind.clone();
                tokio::spawn(async move { tap.pass(client, server).await.ok() });
            }
        });
        tap
    }

    /// From now on each statement waits until `actor` is let through.
    pub(crate) fn step(&self, turnstile: &Turnstile, actor: usize) {
        self.state().stepped = Some((turnstile.clone(), actor));
    }

    /// From now on all statements pass.
    pub(crate) fn free(&self) {
        *self.state() = State::default();
    }

    /// Its process is gone: nothing passes any more.
    pub(crate) fn die(&self) {
        *self.state() = State { is_dead: true, ..State::default() };
    }

    /// The next answer gets lost, and the connection with it.
    pub(crate) fn lose_next_answer(&self) {
        self.state().loses_next_answer = true;
    }

    async fn pass(&self, client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
        if self.state().is_dead {
            return Ok(());
        }
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        // Whichever ends first ends both.
        tokio::select! {
            ended = self.up(from_client, to_server) => ended,
            ended = self.down(from_server, to_client) => ended,
        }
    }

    async fn up(&self, mut client: OwnedReadHalf, mut server: OwnedWriteHalf) -> std::io::Result<()> {
        let (mut chunk, mut messages) = (vec![0; 64 * 1024], Messages::default());
        loop {
            let read = client.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            let Whole { bytes, executes } = messages.take(&chunk[..read]);
            if let Some(statement) = executes {
                self.wait(statement).await;
            }
            server.write_all(&bytes).await?;
        }
    }

    async fn down(&self, mut server: OwnedReadHalf, mut client: OwnedWriteHalf) -> std::io::Result<()> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let read = server.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            if !self.state().loses_next_answer {
                client.write_all(&chunk[..read]).await?;
            } else if chunk[..read].len() >= 6 && chunk[read - 6..read - 1] == *b"Z\0\0\0\x05" {
                // Ready for the next query: this one is done.
                self.state().loses_next_answer = false;
                return Ok(());
            }
        }
    }

    async fn wait(&self, statement: String) {
        let waiting = self.state().stepped.as_ref().map(|(turnstile, actor)| turnstile.wait_as(*actor, statement));
        if let Some(waiting) = waiting {
            waiting.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's messages so far: what is not whole yet, and what its prepared statements are.
#[derive(Default)]
struct Messages {
    rest: Vec<u8>,
    has_started: bool,
    statements: HashMap<Vec<u8>, String>,
}

/// What can be sent on.
struct Whole {
    bytes: Vec<u8>,
    /// The statement that it executes.
    executes: Option<String>,
}

impl Messages {
    fn take(&mut self, chunk: &[u8]) -> Whole {
        self.rest.extend_from_slice(chunk);
        if !self.has_started {
            // No type byte yet, and nothing to wait for.
            self.has_started = self.rest.get(4..8) != Some(&SSL_REQUEST);
            return Whole { bytes: std::mem::take(&mut self.rest), executes: None };
        }
        let (mut whole, mut bound, mut executes) = (0, None, None);
        while let Some(message) = message(&self.rest[whole..]) {
            let body = &message[5..];
            match message[0] {
                b'P' => {
                    let (name, rest) = text(body);
                    let label = label(text(rest).0);
                    self.statements.insert(name.to_vec(), label);
                }
                b'B' => bound = self.statements.get(text(text(body).1).0).cloned(),
                b'E' => executes = Some(bound.take().unwrap_or_default()),
                // What the pool asks when a connection comes back is no step of anybody's.
                b'Q' if text(body).0 == b"COMMIT" => executes = Some("COMMIT".to_owned()),
                _ => {}
            }
            whole += message.len();
        }
        let rest = self.rest.split_off(whole);
        Whole { bytes: std::mem::replace(&mut self.rest, rest), executes }
    }
}

/// The first whole message: a type byte, four bytes of length, which count themselves, and the body.
fn message(bytes: &[u8]) -> Option<&[u8]> {
    let length: [u8; 4] = bytes.get(1..5)?.try_into().ok()?;
    bytes.get(..1 + u32::from_be_bytes(length) as usize)
}

/// A text that ends with a NUL, and what follows.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// What a statement says of itself: its first comment, or its first words.
fn label(sql: &[u8]) -> String {
    let sql = String::from_utf8_lossy(sql);
    let line = sql.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.trim_start_matches("-- ").split([':', ',']).next().unwrap_or_default().chars().take(40).collect()
}
