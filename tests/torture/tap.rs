//! A tap on the connection to Postgres: a process moves from one statement to the next, and can die between them.
//!
//! Every executed statement is a point of the turnstile, so that a history can stop, kill or overtake a process at each
//! of them without any code in the product. The tap can lose an answer: the statement was executed, and its sender
//! never knows. It can refuse a statement, which is then not executed, or delay it: Postgres executes it after its sender
//! has gone on. And it can remove an ablation's remedy from a statement.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tests::statements::{Statements, Whole, first_message, prepared_statement};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::turnstile::Turnstile;

/// The check of each connection that the pool returns. It changes nothing and has a time limit, so it is not a step.
const CHECK: &str = "prove_server";

/// Clones are the same tap.
#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) address: SocketAddr,
    rewrites: Arc<[Rewrite]>,
    state: Arc<Mutex<State>>,
    /// The number of connections with an unanswered query.
    awaited: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// The turnstile and the actor that statements wait for; `None` = all pass.
    stepped: Option<(Turnstile, usize)>,
    loses_next_answer: bool,
    /// The label of the statement whose next answer gets lost.
    loses_answer_to: Option<&'static str>,
    refuses_next: bool,
    /// The statement that is delayed next.
    delays: Option<Delayed>,
    /// The statement that is delayed now.
    late: Option<Late>,
    /// The statement that passed last.
    last: String,
    /// The statement whose answer got lost.
    lost: Option<String>,
    is_in_transaction: bool,
    is_dead: bool,
}

/// A statement to delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delayed {
    /// The statement with this label
    Statement(&'static str),
    /// The commit that follows the statement with this label
    CommitOf(&'static str),
}

/// A statement that Postgres has not received, although its sender has gone.
struct Late {
    what: Delayed,
    pass: oneshot::Sender<()>,
    done: oneshot::Receiver<()>,
}

/// The same, on its connection.
struct Kept {
    bytes: Vec<u8>,
    passed: oneshot::Receiver<()>,
    done: oneshot::Sender<()>,
}

/// The rewrites that were made so far, in any history.
static MADE: Mutex<BTreeSet<(&str, &str)>> = Mutex::new(BTreeSet::new());

/// The replacement in the statement with this label.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    pub(crate) statement: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: String,
}

impl Tap {
    /// A tap in front of `server`, on this thread's runtime.
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

    /// From now on, each statement waits until `actor` may pass.
    pub(crate) fn step(&self, turnstile: &Turnstile, actor: usize) {
        self.state().stepped = Some((turnstile.clone(), actor));
    }

    /// From now on, all statements pass; one that is delayed stays so.
    pub(crate) fn free(&self) {
        let mut state = self.state();
        *state = State { late: state.late.take(), ..State::default() };
    }

    /// From now on, all statements pass, and the delayed one never does.
    pub(crate) fn forget(&self) {
        *self.state() = State::default();
    }

    /// The process is dead, so nothing passes.
    pub(crate) fn die(&self) {
        *self.state() = State { is_dead: true, ..State::default() };
    }

    /// Loses the next answer, and ends its connection.
    pub(crate) fn lose_next_answer(&self) {
        self.state().loses_next_answer = true;
    }

    /// Loses the answer to the next statement with this label, and ends its connection.
    pub(crate) fn lose_answer_to(&self, statement: &'static str) {
        self.state().loses_answer_to = Some(statement);
    }

    /// Refuses the next statement, and ends its connection.
    pub(crate) fn refuse_next(&self) {
        self.state().refuses_next = true;
    }

    /// Delays the next such statement, and ends its connection, unless one is delayed already.
    pub(crate) fn delay(&self, what: Delayed) {
        let mut state = self.state();
        state.delays = state.late.is_none().then_some(what);
    }

    /// Delays no further statement.
    pub(crate) fn delay_nothing(&self) {
        self.state().delays = None;
    }

    /// The statement that is delayed now.
    pub(crate) fn delayed(&self) -> Option<Delayed> {
        self.state().late.as_ref().map(|late| late.what)
    }

    /// Delivers the delayed statement, and waits for its end; it has none if Postgres has closed the connection.
    pub(crate) async fn deliver_late(&self) {
        let late = self.state().late.take();
        if let Some(Late { pass, done, .. }) = late
            && pass.send(()).is_ok()
        {
            done.await.ok();
        }
    }

    /// Whether the server's last answer showed an open transaction.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.state().is_in_transaction
    }

    /// Whether the server has an unanswered query.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst) > 0
    }

    /// Whether the last lost answer was to this statement; returns true once.
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
        let ((from_client, to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
        let awaiting = Awaiting { awaited: Arc::clone(&self.awaited), is_awaited: AtomicBool::new(false) };
        // If one direction ends, both end.
        let kept = tokio::select! {
            kept = self.up(from_client, &mut to_server, &awaiting) => kept?,
            ended = self.down(&mut from_server, to_client, &awaiting) => return ended,
        };
        let Some(Kept { bytes, passed, done }) = kept else { return Ok(()) };
        if passed.await.is_ok() {
            to_server.write_all(&self.rewritten(bytes)).await?;
            read_reply(&mut from_server).await?;
            done.send(()).ok();
        }
        Ok(())
    }

    /// Passes statements until the client has gone; returns the one that is delayed.
    async fn up(
        &self,
        mut client: OwnedReadHalf,
        server: &mut OwnedWriteHalf,
        awaiting: &Awaiting,
    ) -> std::io::Result<Option<Kept>> {
        let (mut chunk, mut messages) = (vec![0; 64 * 1024], Statements::default());
        let mut before = String::new();
        loop {
            let read = client.read(&mut chunk).await?;
            if read == 0 {
                return Ok(None);
            }
            let Whole { bytes, executes } = messages.take_messages(&chunk[..read]);
            if let Some(statement) = executes {
                if statement != CHECK {
                    if std::mem::take(&mut self.state().refuses_next) {
                        return Ok(None);
                    }
                    self.wait(statement.clone()).await;
                }
                let mut state = self.state();
                if let Some(what) = state.delays.take_if(|what| what.is(&statement, &before)) {
                    let ((pass, passed), (done, is_done)) = (oneshot::channel(), oneshot::channel());
                    state.late = Some(Late { what, pass, done: is_done });
                    return Ok(Some(Kept { bytes, passed, done }));
                }
                if state.loses_answer_to.is_some_and(|label| label == statement) {
                    (state.loses_answer_to, state.loses_next_answer) = (None, true);
                }
                before.clone_from(&statement);
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
        server: &mut OwnedReadHalf,
        mut client: OwnedWriteHalf,
        awaiting: &Awaiting,
    ) -> std::io::Result<()> {
        let (mut chunk, mut is_logged_in) = (vec![0; 64 * 1024], false);
        // The rest of an answer is lost with its beginning, also if another connection has an answer meanwhile.
        let mut is_losing = false;
        loop {
            let read = server.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            // Ready for the next query, so this one is done.
            let is_done = is_ready(&chunk[..read]);
            if is_done {
                awaiting.set(false);
                self.state().is_in_transaction = chunk[read - 1] != b'I';
            }
            if !self.rewrites.is_empty() && is_refused_as_wrong(&chunk[..read]) {
                // A failing statement would test a broken app, not the app without a remedy.
                give_up(&format!(
                    "Postgres refuses a rewritten statement: {}",
                    String::from_utf8_lossy(&chunk[..read])
                ));
            }
            is_losing |= std::mem::take(&mut self.state().loses_next_answer);
            if !is_losing {
                client.write_all(&chunk[..read]).await?;
                is_logged_in |= is_done;
            } else if is_done || !is_logged_in {
                // The process would wait for an unanswered login.
                let mut state = self.state();
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

    /// The messages, with the rewrites in their statements.
    fn rewritten(&self, bytes: Vec<u8>) -> Vec<u8> {
        if self.rewrites.is_empty() {
            return bytes;
        }
        let (mut rest, mut rewritten) = (&bytes[..], Vec::with_capacity(bytes.len()));
        while let Some(message) = first_message(rest) {
            let concerned = self.rewrites.iter().filter(|rewrite| rewrite.concerns(message));
            rewritten.extend(concerned.fold(message.to_vec(), |message, rewrite| rewrite.message(&message)));
            rest = &rest[message.len()..];
        }
        // The first message has no type byte and no statement.
        rewritten.extend_from_slice(rest);
        rewritten
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delayed {
    /// Whether it is `statement`, which follows the statement `before` on its connection.
    fn is(self, statement: &str, before: &str) -> bool {
        match self {
            Delayed::Statement(label) => label == statement,
            Delayed::CommitOf(label) => statement == "COMMIT" && label == before,
        }
    }
}

/// Reads until the server is ready for the next query.
async fn read_reply(server: &mut OwnedReadHalf) -> std::io::Result<()> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match server.read(&mut chunk).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read if is_ready(&chunk[..read]) => return Ok(()),
            _ => {}
        }
    }
}

/// Whether an answer ends with "ready for the next query".
fn is_ready(answer: &[u8]) -> bool {
    answer.len() >= 6 && answer[answer.len() - 6..answer.len() - 1] == *b"Z\0\0\0\x05"
}

/// Whether the server of one connection has an unanswered query.
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
    /// Whether any statement was changed by this rewrite. If none was, the statement's label has changed.
    pub(crate) fn was_made(&self) -> bool {
        MADE.lock().unwrap().contains(&(self.statement, self.from))
    }

    fn concerns(&self, message: &[u8]) -> bool {
        prepared_statement(message).as_deref() == Some(self.statement)
    }

    /// The message with the replaced text and its new length.
    fn message(&self, message: &[u8]) -> Vec<u8> {
        let place = message.windows(self.from.len()).position(|part| part == self.from.as_bytes());
        let Some(place) = place else {
            // An ablation without its rewrite would prove nothing, whatever its histories show.
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

/// Whether an answer is an error of class 42, for example a syntax error, an unknown column or a wrong type.
fn is_refused_as_wrong(answer: &[u8]) -> bool {
    // The code has its own field, and the message follows it.
    answer.windows(9).any(|field| field.starts_with(b"\0C42") && field.ends_with(b"\0M"))
}

/// The ablation itself is wrong, so there is no verdict.
fn give_up(why: &str) -> ! {
    println!("{why}");
    std::process::exit(2)
}
