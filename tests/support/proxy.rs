//! A TCP proxy to the database that shows each connection's statements and replies to an observer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::statements::{Statements, Whole, first_message};
use crate::story::host_of;

/// How many bytes are read at once.
const CHUNK: usize = 64 * 1024;

/// A proxy; clones are the same one.
#[derive(Clone)]
pub(crate) struct Proxy {
    address: SocketAddr,
    target: String,
}

/// What happens to the statements and replies of one connection.
pub(crate) trait Observer: Send + 'static {
    /// The client executes the statement with this label; the server has not received it yet.
    fn see_statement(&mut self, label: String) -> Delivery;

    /// The server sent these bytes. Returns the bytes for the client, or `None` to break the connection.
    fn pass_reply(&mut self, bytes: &[u8]) -> Option<Vec<u8>>;
}

/// When the server receives a statement.
pub(crate) enum Delivery {
    /// At once.
    Now,
    /// After `begin`: the client's connection breaks before that. `end` follows the reply.
    Late { begin: Arc<Notify>, end: Arc<Notify> },
}

/// A statement that the server has not received, though its client has gone.
struct Late {
    bytes: Vec<u8>,
    begin: Arc<Notify>,
    end: Arc<Notify>,
}

impl Proxy {
    /// Opens a proxy to the host of `dsn`; each connection gets an observer from `observe`.
    pub(crate) fn open<O: Observer>(dsn: &str, observe: impl Fn() -> O + Send + 'static) -> Self {
        let target = host_of(dsn).to_owned();
        let listener =
            app::bind_listener(([127, 0, 0, 1], 0).into()).unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        tokio::spawn(accept(listener, target.clone(), observe));
        Self { address, target }
    }

    /// The same DSN, through this proxy.
    pub(crate) fn dsn(&self, dsn: &str) -> String {
        dsn.replace(&self.target, &self.address.to_string())
    }
}

async fn accept<O: Observer>(listener: TcpListener, target: String, observe: impl Fn() -> O + Send + 'static) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, observer) = (target.clone(), Mutex::new(observe()));
        tokio::spawn(async move { pass(client, &target, &observer).await });
    }
}

async fn pass<O: Observer>(client: TcpStream, target: &str, observer: &Mutex<O>) -> std::io::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
    let late = tokio::select! {
        ended = pass_statements(from_client, &mut to_server, observer) => ended?,
        ended = pass_replies(&mut from_server, to_client, observer) => return ended,
    };
    let Some(Late { bytes, begin, end }) = late else { return Ok(()) };
    begin.notified().await;
    to_server.write_all(&bytes).await?;
    await_reply(&mut from_server).await?;
    end.notify_one();
    Ok(())
}

/// Passes statements until the client has gone; returns the one that it does not pass.
async fn pass_statements<O: Observer>(
    mut client: OwnedReadHalf,
    server: &mut OwnedWriteHalf,
    observer: &Mutex<O>,
) -> std::io::Result<Option<Late>> {
    let (mut chunk, mut statements) = (vec![0; CHUNK], Statements::default());
    loop {
        let read = client.read(&mut chunk).await?;
        if read == 0 {
            return Ok(None);
        }
        let Whole { bytes, executes } = statements.take_messages(&chunk[..read]);
        let delivery = executes.map(|label| lock(observer).see_statement(label));
        if let Some(Delivery::Late { begin, end }) = delivery {
            return Ok(Some(Late { bytes, begin, end }));
        }
        server.write_all(&bytes).await?;
    }
}

/// Waits until the server has answered everything.
async fn await_reply(server: &mut OwnedReadHalf) -> std::io::Result<()> {
    let (mut chunk, mut reply) = (vec![0; CHUNK], Vec::new());
    while complete_messages(&reply).0.last() != Some(&b'Z') {
        let read = server.read(&mut chunk).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        reply.extend_from_slice(&chunk[..read]);
    }
    Ok(())
}

async fn pass_replies<O: Observer>(
    server: &mut OwnedReadHalf,
    mut client: OwnedWriteHalf,
    observer: &Mutex<O>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = server.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        let passed = lock(observer).pass_reply(&chunk[..read]);
        let Some(bytes) = passed else { return Ok(()) };
        client.write_all(&bytes).await?;
    }
}

fn lock<O>(observer: &Mutex<O>) -> MutexGuard<'_, O> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The types of the complete messages, and the number of their bytes.
pub(crate) fn complete_messages(bytes: &[u8]) -> (Vec<u8>, usize) {
    let (mut kinds, mut taken) = (Vec::new(), 0);
    while let Some(whole) = first_message(&bytes[taken..]) {
        kinds.push(whole[0]);
        taken += whole.len();
    }
    (kinds, taken)
}
