//! A tap on the way to Postgres: a process moves only from one statement to the next, and dies between them.
//!
//! Every statement that is executed is a point of the turnstile, so that a history can stop, kill or overtake
//! a process at each of them without a word of it in the product. An answer can get lost: the statement
//! was done, and its sender never learns that. A statement can be refused: it was not done. And a statement can
//! be taken the remedy out of which an ablation lacks.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tests::statements::{Statements, Whole, message, prepares};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::turnstile::Turnstile;

/// The check of each connection that the pool lends. It changes nothing and has a time limit: it is no step.
const CHECK: &str = "prove_server";

/// Clones are the same tap.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    rewrites: Arc<[Rewrite]>,
    state: Arc<Mutex<State>>,
    /// Connections with something under way at the server.
    awaited: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// Whose statements wait at which turnstile; none = all pass.
    stepped: Option<(Turnstile, usize)>,
    loses_next_answer: bool,
    /// The answer to the next statement of this label gets lost.
    loses_answer_to: Option<&'static str>,
    refuses_next: bool,
    /// The statement that was let through last.
    last: String,
    /// The statement whose answer got lost.
    lost: Option<String>,
    is_in_transaction: bool,
    is_dead: bool,
}

/// The rewrites that were made so far, in any history.
static MADE: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());

/// What a statement says instead, by its label.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    pub(crate) statement: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: String,
}

impl Tap {
    /// A tap on the way to `server`, on this thread's runtime.
    pub(crate) async fn on(server: SocketAddr, rewrites: Vec<Rewrite>) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tap = Tap { address, rewrites: rewrites.into(), state: Arc::default(), awaited: Arc::default() };
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

    /// The answer to the next statement of this label gets lost, and the connection with it.
    pub(crate) fn lose_answer_to(&self, statement: &'static str) {
        self.state().loses_answer_to = Some(statement);
    }

    /// The next statement is not done, and its connection ends.
    pub(crate) fn refuse_next(&self) {
        self.state().refuses_next = true;
    }

    /// Whether the server said with its last answer that a transaction is open.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.state().is_in_transaction
    }

    /// Whether the server has yet to answer something.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst) > 0
    }

    /// Whether the last answer that got lost was to such a statement, and was not asked about yet.
    pub(crate) fn has_lost_answer_to(&self, statement: &str) -> bool {
        self.state().lost.take_if(|lost| lost == statement).is_some()
    }

    async fn pass(&self, client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
        if self.state().is_dead {
            return Ok(());
        }
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let awaiting = Awaiting { awaited: Arc::clone(&self.awaited), is_awaited: AtomicBool::new(false) };
        // Whichever ends first ends both.
        tokio::select! {
            ended = self.up(from_client, to_server, &awaiting) => ended,
            ended = self.down(from_server, to_client, &awaiting) => ended,
        }
    }

    async fn up(
        &self,
        mut client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
        awaiting: &Awaiting,
    ) -> std::io::Result<()> {
        let (mut chunk, mut messages) = (vec![0; 64 * 1024], Statements::default());
        loop {
            let read = client.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            let Whole { bytes, executes } = messages.take(&chunk[..read]);
            if let Some(statement) = executes {
                if statement != CHECK {
                    if std::mem::take(&mut self.state().refuses_next) {
                        return Ok(());
                    }
                    self.wait(statement.clone()).await;
                }
                let mut state = self.state();
                if state.loses_answer_to.is_some_and(|label| label == statement) {
                    (state.loses_answer_to, state.loses_next_answer) = (None, true);
                }
                state.last = statement;
            }
            if !bytes.is_empty() {
                awaiting.set(true);
            }
            server.write_all(&self.rewritten(bytes)).await?;
        }
    }

    async fn down(
        &self,
        mut server: OwnedReadHalf,
        mut client: OwnedWriteHalf,
        awaiting: &Awaiting,
    ) -> std::io::Result<()> {
        let (mut chunk, mut is_logged_in) = (vec![0; 64 * 1024], false);
        loop {
            let read = server.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            // Ready for the next query: this one is done.
            let is_done = read >= 6 && chunk[read - 6..read - 1] == *b"Z\0\0\0\x05";
            if is_done {
                awaiting.set(false);
                self.state().is_in_transaction = chunk[read - 1] != b'I';
            }
            if !self.rewrites.is_empty() && is_refused_as_wrong(&chunk[..read]) {
                // A statement that fails is not the app without a remedy: it is an app that can do nothing.
                give_up(&format!(
                    "Postgres refuses a rewritten statement: {}",
                    String::from_utf8_lossy(&chunk[..read])
                ));
            }
            if !self.state().loses_next_answer {
                client.write_all(&chunk[..read]).await?;
                is_logged_in |= is_done;
            } else if is_done || !is_logged_in {
                // A login that is not answered would be waited for.
                let mut state = self.state();
                state.loses_next_answer = false;
                state.lost = Some(state.last.clone());
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

    /// The messages, the statements in them without what an ablation lacks.
    fn rewritten(&self, bytes: Vec<u8>) -> Vec<u8> {
        if self.rewrites.is_empty() {
            return bytes;
        }
        let (mut rest, mut rewritten) = (&bytes[..], Vec::with_capacity(bytes.len()));
        while let Some(message) = message(rest) {
            let concerned = self.rewrites.iter().filter(|rewrite| rewrite.concerns(message));
            rewritten.extend(concerned.fold(message.to_vec(), |message, rewrite| rewrite.message(&message)));
            rest = &rest[message.len()..];
        }
        // The first message has no type byte, and no statement.
        rewritten.extend_from_slice(rest);
        rewritten
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one connection's server has yet to answer.
struct Awaiting {
    awaited: Arc<AtomicUsize>,
    is_awaited: AtomicBool,
}

impl Awaiting {
    fn set(&self, is_awaited: bool) {
        match (self.is_awaited.swap(is_awaited, Ordering::SeqCst), is_awaited) {
            (false, true) => drop(self.awaited.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(self.awaited.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl Rewrite {
    /// Whether a statement was changed by it so far. If none was, the statement has another label now.
    pub(crate) fn was_made(&self) -> bool {
        MADE.lock().unwrap().contains(&(self.statement, self.from))
    }

    fn concerns(&self, message: &[u8]) -> bool {
        prepares(message).as_deref() == Some(self.statement)
    }

    /// The message with the other text, and so with another length.
    fn message(&self, message: &[u8]) -> Vec<u8> {
        let place = message.windows(self.from.len()).position(|part| part == self.from.as_bytes());
        let Some(place) = place else {
            // An ablation that takes nothing out would prove nothing, whichever way its histories end.
            give_up(&format!(
                "`{}` does not contain `{}` any more: change the ablation, too",
                self.statement, self.from
            ));
        };
        MADE.lock().unwrap().insert((self.statement, self.from));
        let body = [&message[5..place], self.to.as_bytes(), &message[place + self.from.len()..]].concat();
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&message[..1], &length, &body].concat()
    }
}

/// Whether an answer is an error of class 42: a syntax error, an unknown column, a wrong type.
fn is_refused_as_wrong(answer: &[u8]) -> bool {
    // The code is a field of its own, and the message follows it.
    answer.windows(9).any(|field| field.starts_with(b"\0C42") && field.ends_with(b"\0M"))
}

/// The ablation itself is wrong: no verdict about any history.
fn give_up(why: &str) -> ! {
    println!("{why}");
    std::process::exit(2)
}
