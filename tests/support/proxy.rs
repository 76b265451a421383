//! A TCP proxy to the database that shows each connection's statements and replies to an observer.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

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
    fn see_statement(&mut self, label: String);

    /// The server sent these bytes. Returns the bytes for the client, or `None` to break the connection.
    fn pass_reply(&mut self, bytes: &[u8]) -> Option<Vec<u8>>;
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
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        ended = pass_statements(from_client, to_server, observer) => ended,
        ended = pass_replies(from_server, to_client, observer) => ended,
    }
}

async fn pass_statements<O: Observer>(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    observer: &Mutex<O>,
) -> std::io::Result<()> {
    let (mut chunk, mut statements) = (vec![0; CHUNK], Statements::default());
    loop {
        let read = client.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        let Whole { bytes, executes } = statements.take_messages(&chunk[..read]);
        if let Some(label) = executes {
            lock(observer).see_statement(label);
        }
        server.write_all(&bytes).await?;
    }
}

async fn pass_replies<O: Observer>(
    mut server: OwnedReadHalf,
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
