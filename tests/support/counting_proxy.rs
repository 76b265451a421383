//! A way to the database on which the rows of each answer are counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::proxy::{Ends, Proxy, complete_messages};
use crate::statements::{Statements, Whole};

/// The rows of the answers to one statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Of one answer at most.
    pub most: u64,
    /// Of all answers.
    pub all: u64,
}

/// A way on which rows are counted; clones are the same way.
#[derive(Clone)]
pub struct CountingWay {
    proxy: Proxy,
    counted: Counted,
}

/// The rows by the label of their statement; clones are the same.
#[derive(Clone, Default)]
struct Counted(Arc<Mutex<BTreeMap<String, Rows>>>);

impl CountingWay {
    /// Opens a way to where `dsn` leads.
    pub async fn to(dsn: &str) -> Self {
        let counted = Counted::default();
        let of_connection = counted.clone();
        let proxy = Proxy::open(dsn, move |ends| of_connection.clone().pass(ends));
        CountingWay { proxy, counted }
    }

    /// The same DSN, by this way.
    pub fn dsn(&self, dsn: &str) -> String {
        self.proxy.dsn(dsn)
    }

    /// The rows that came since they were last taken, by the label of their statement.
    pub fn take_rows(&self) -> BTreeMap<String, Rows> {
        std::mem::take(&mut *self.counted.lock())
    }
}

impl Counted {
    async fn pass(self, ends: Ends) -> std::io::Result<()> {
        let Ends { from_client, to_client, from_server, to_server } = ends;
        // The statement whose answer is on its way on this connection.
        let executed = Mutex::default();
        tokio::select! {
            ended = up(from_client, to_server, &executed) => ended,
            ended = self.down(from_server, to_client, &executed) => ended,
        }
    }

    async fn down(
        &self,
        mut server: OwnedReadHalf,
        mut client: OwnedWriteHalf,
        executed: &Mutex<Option<String>>,
    ) -> std::io::Result<()> {
        let (mut chunk, mut answer, mut rows) = (vec![0; 64 * 1024], Vec::new(), 0);
        loop {
            let read = server.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            let statement = executed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(statement) = statement {
                answer.extend_from_slice(&chunk[..read]);
                let kinds = take_kinds(&mut answer);
                rows += kinds.iter().map(|kind| u64::from(*kind == b'D')).sum::<u64>();
                // Counted before the client learns that this is all, because it sends its next statement then.
                if kinds.last() == Some(&b'Z') {
                    self.count(statement, std::mem::take(&mut rows));
                    *executed.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
            }
            client.write_all(&chunk[..read]).await?;
        }
    }

    fn count(&self, statement: String, rows: u64) {
        let mut counted = self.lock();
        let Rows { most, all } = counted.entry(statement).or_default();
        (*most, *all) = (rows.max(*most), *all + rows);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Rows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn up(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    executed: &Mutex<Option<String>>,
) -> std::io::Result<()> {
    let (mut chunk, mut statements) = (vec![0; 64 * 1024], Statements::default());
    loop {
        let read = client.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        let Whole { bytes, executes } = statements.take(&chunk[..read]);
        if executes.is_some() {
            *executed.lock().unwrap_or_else(PoisonError::into_inner) = executes;
        }
        server.write_all(&bytes).await?;
    }
}

/// Takes the complete messages; their types.
fn take_kinds(bytes: &mut Vec<u8>) -> Vec<u8> {
    let (kinds, taken) = complete_messages(bytes);
    bytes.drain(..taken);
    kinds
}
