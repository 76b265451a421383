//! A proxy to the database that loses the reply to one statement, or delays the statement itself.
//!
//! Postgres executes and commits the statement, but the client sees a broken connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::proxy::{Delivery, Observer, Proxy, complete_messages};

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
    /// The label of the statement that the next delay is for.
    delayed: Arc<Mutex<Option<&'static str>>>,
    delivery: Arc<Notify>,
    delivered: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct Armed {
    /// The label of the statement.
    statement: &'static str,
    /// If true, only a reply with rows is lost.
    with_rows: bool,
}

/// One connection.
struct Connection {
    losses: Losses,
    /// The loss of a reply that has not arrived yet.
    awaited: Option<Armed>,
    /// That reply, kept back until it is complete.
    reply: Vec<u8>,
}

impl LossyWay {
    /// Opens a proxy to the host of `dsn`.
    pub async fn to(dsn: &str) -> Self {
        let losses = Losses::default();
        let of_all = losses.clone();
        let proxy = Proxy::open(dsn, move || Connection { losses: of_all.clone(), awaited: None, reply: Vec::new() });
        LossyWay { proxy, losses }
    }

    /// The same DSN, through this proxy.
    pub fn dsn(&self, dsn: &str) -> String {
        self.proxy.dsn(dsn)
    }

    /// Loses the next reply with rows to the statement with this label.
    pub fn lose_rows_of(&self, statement: &'static str) {
        *lock(&self.losses.armed) = Some(Armed { statement, with_rows: true });
    }

    /// Loses the next reply to the statement with this label.
    pub fn lose_reply_to(&self, statement: &'static str) {
        *lock(&self.losses.armed) = Some(Armed { statement, with_rows: false });
    }

    /// Breaks the connection of the next statement with this label. The server receives it at [`Self::deliver_late`].
    pub fn delay(&self, statement: &'static str) {
        *lock(&self.losses.delayed) = Some(statement);
    }

    /// Delivers the delayed statement, and waits for its end.
    pub async fn deliver_late(&self) {
        self.losses.delivery.notify_one();
        self.losses.delivered.notified().await;
    }

    /// Waits until the statement is sent after the loss was set up. The reply to an earlier one passes.
    pub async fn wait_until_seen(&self) {
        self.losses.seen.notified().await;
    }

    /// Waits until the reply is lost.
    pub async fn wait_until_lost(&self) {
        self.losses.lost.notified().await;
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Connection {
    fn see_statement(&mut self, label: String) -> Delivery {
        let armed = *lock(&self.losses.armed);
        if let Some(armed) = armed.filter(|armed| armed.statement == label) {
            self.awaited = Some(armed);
            self.losses.seen.notify_one();
        }
        let mut delayed = lock(&self.losses.delayed);
        if delayed.is_none_or(|statement| statement != label) {
            return Delivery::Now;
        }
        *delayed = None;
        Delivery::Late { begin: Arc::clone(&self.losses.delivery), end: Arc::clone(&self.losses.delivered) }
    }

    fn pass_reply(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Some(armed) = self.awaited else { return Some(bytes.to_vec()) };
        self.reply.extend_from_slice(bytes);
        let (kinds, _) = complete_messages(&self.reply);
        if kinds.last() != Some(&b'Z') {
            return Some(Vec::new());
        }
        if !armed.with_rows || kinds.contains(&b'D') {
            *lock(&self.losses.armed) = None;
            self.losses.lost.notify_one();
            return None;
        }
        self.awaited = None;
        Some(std::mem::take(&mut self.reply))
    }
}
