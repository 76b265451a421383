//! A proxy to the database that loses the reply to one statement.
//!
//! Postgres executes and commits the statement, but the client sees a broken connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use crate::proxy::{Ends, Proxy, complete_messages};
use crate::statements::{Statements, Whole};

/// A proxy that can lose replies; clones are the same proxy.
#[derive(Clone)]
pub struct LossyWay {
    proxy: Proxy,
    losses: Losses,
}

/// The loss that is set up, and what has happened; clones are the same.
#[derive(Clone, Default)]
struct Losses {
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
        let losses = Losses::default();
        let of_connection = losses.clone();
        let proxy = Proxy::open(dsn, move |ends| of_connection.clone().pass(ends));
        LossyWay { proxy, losses }
    }

    /// The same DSN, through this proxy.
    pub fn dsn(&self, dsn: &str) -> String {
        self.proxy.dsn(dsn)
    }

    /// Loses the next reply with rows to the statement with this label.
    pub fn lose_rows_of(&self, statement: &'static str) {
        *self.losses.armed() = Some(Armed { statement, with_rows: true });
    }

    /// Loses the next reply to the statement with this label.
    pub fn lose_reply_to(&self, statement: &'static str) {
        *self.losses.armed() = Some(Armed { statement, with_rows: false });
    }

    /// Waits until the statement is sent after the loss was set up. The reply to an earlier one passes.
    pub async fn is_seen(&self) {
        self.losses.seen.notified().await;
    }

    /// Waits until the reply is lost.
    pub async fn is_lost(&self) {
        self.losses.lost.notified().await;
    }
}

impl Losses {
    async fn pass(self, ends: Ends) -> std::io::Result<()> {
        let Ends { from_client, to_client, from_server, to_server } = ends;
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
            let (kinds, _) = complete_messages(&reply);
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
