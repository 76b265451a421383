//! A proxy to the database that counts the rows of each answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::proxy::{Delivery, Observer, Proxy, complete_messages};

/// The rows of the answers to one statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Of one answer at most.
    pub most: u64,
    /// Of all answers.
    pub all: u64,
    /// How often the statement was executed.
    pub statements: u64,
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

/// One connection.
#[derive(Default)]
struct Connection {
    counted: Counted,
    /// The statement whose answer has not arrived completely.
    executed: Option<String>,
    /// The bytes of an incomplete message of that answer.
    rest: Vec<u8>,
    /// The rows of that answer so far.
    rows: u64,
}

impl CountingWay {
    /// Opens a way to where `dsn` leads.
    pub async fn to(dsn: &str) -> Self {
        let counted = Counted::default();
        let of_all = counted.clone();
        let proxy = Proxy::open(dsn, move || Connection { counted: of_all.clone(), ..Connection::default() });
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
    fn count(&self, statement: String, rows: u64) {
        let mut counted = self.lock();
        let Rows { most, all, statements } = counted.entry(statement).or_default();
        (*most, *all, *statements) = (rows.max(*most), *all + rows, *statements + 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Rows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Connection {
    fn see_statement(&mut self, label: String) -> Delivery {
        self.executed = Some(label);
        Delivery::Now
    }

    fn pass_reply(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if let Some(statement) = self.executed.take() {
            self.rest.extend_from_slice(bytes);
            let (kinds, taken) = complete_messages(&self.rest);
            self.rest.drain(..taken);
            self.rows += kinds.iter().map(|kind| u64::from(*kind == b'D')).sum::<u64>();
            // Counted before the client learns that this is all, because it sends its next statement then.
            match kinds.last() {
                Some(b'Z') => self.counted.count(statement, std::mem::take(&mut self.rows)),
                _ => self.executed = Some(statement),
            }
        }
        Some(bytes.to_vec())
    }
}
