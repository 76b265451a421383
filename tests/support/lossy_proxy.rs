//! A proxy to the database that loses the reply to one statement.
//!
//! Postgres executes and commits the statement, but the client sees a broken connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::statements::{Statements, Whole, message};

/// A proxy that can lose replies; clones are the same proxy.
#[derive(Clone)]
pub struct LossyWay {
    address: SocketAddr,
    target: String,
    armed: Arc<Mutex<Option<Armed>>>,
    seen: Arc<Notify>,
    lost: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Armed {
    /// The label of the statement.
    statement: &'static str,
    /// If true, only a reply with rows is lost.
    with_rows: bool,
}

impl LossyWay {
    /// Opens a proxy to the host of `dsn`.
    pub async fn to(dsn: &str) -> Self {
        let target = super::story::host_of(dsn).to_owned();
        let listener = app::listen(([127, 0, 0, 1], 0).into()).unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let way = LossyWay { address, target, armed: Arc::default(), seen: Arc::default(), lost: Arc::default() };
        tokio::spawn(way.clone().accept(listener));
        way
    }

    /// The same DSN, through this proxy.
    pub fn dsn(&self, dsn: &str) -> String {
        dsn.replace(&self.target, &self.address.to_string())
    }

    /// Loses the next reply with rows to the statement with this label.
    pub fn lose_rows_of(&self, statement: &'static str) {
        *self.armed() = Some(Armed { statement, with_rows: true });
    }

    /// Loses the next reply to the statement with this label.
    pub fn lose_reply_to(&self, statement: &'static str) {
        *self.armed() = Some(Armed { statement, with_rows: false });
    }

    /// Waits until the statement is sent after the loss was set up. The reply to an earlier one passes.
    pub async fn is_seen(&self) {
        self.seen.notified().await;
    }

    /// Waits until the reply is lost.
    pub async fn is_lost(&self) {
        self.lost.notified().await;
    }

    async fn accept(self, listener: TcpListener) {
        while let Ok((client, _)) = listener.accept().await {
            let way = self.clone();
            tokio::spawn(async move { way.pass(client).await.ok() });
        }
    }

    async fn pass(&self, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect(&self.target).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        // The statement on this connection whose reply has not arrived yet.
        let executed = Mutex::default();
        tokio::select! {
            ended = self.up(from_client, to_server, &executed) => ended,
            ended = self.down(from_server, to_client, &executed) => ended,
        }
    }

    async fn up(
        &self,
        mut client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
        executed: &Mutex<Option<Armed>>,
    ) -> std::io::Result<()> {
        let (mut chunk, mut statements) = (vec![0; 64 * 1024], Statements::default());
        loop {
            let read = client.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            let Whole { bytes, executes } = statements.take(&chunk[..read]);
            let armed = *self.armed();
            if let Some(armed) = armed.filter(|armed| executes.as_deref() == Some(armed.statement)) {
                *executed.lock().unwrap_or_else(PoisonError::into_inner) = Some(armed);
                self.seen.notify_one();
            }
            server.write_all(&bytes).await?;
        }
    }

    async fn down(
        &self,
        mut server: OwnedReadHalf,
        mut client: OwnedWriteHalf,
        executed: &Mutex<Option<Armed>>,
    ) -> std::io::Result<()> {
        let (mut chunk, mut reply) = (vec![0; 64 * 1024], Vec::new());
        loop {
            let read = server.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            let awaited = *executed.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(armed) = awaited else {
                client.write_all(&chunk[..read]).await?;
                continue;
            };
            reply.extend_from_slice(&chunk[..read]);
            let kinds = kinds(&reply);
            if kinds.last() != Some(&b'Z') {
                continue;
            }
            if !armed.with_rows || kinds.contains(&b'D') {
                *self.armed() = None;
                self.lost.notify_one();
                return Ok(());
            }
            *executed.lock().unwrap_or_else(PoisonError::into_inner) = None;
            client.write_all(&std::mem::take(&mut reply)).await?;
        }
    }

    fn armed(&self) -> MutexGuard<'_, Option<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The types of the complete messages.
fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some(whole) = message(bytes) {
        kinds.push(whole[0]);
        bytes = &bytes[whole.len()..];
    }
    kinds
}
