//! The messages that this process has received: other consumers do not see them until they are returned.
//!
//! However this process ends, a message stays in the queue until it is deleted. At a signal the process returns its
//! messages at once; after kill -9, SQS shows them again when their visibility timeout ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::letter::Letter;
use super::queue::Queue;

/// Received messages, by message id, each with its newest receipt.
pub(super) struct Held<'a> {
    queue: &'a Queue,
    stop: Stop,
    receipts: HashMap<String, String>,
}

/// Whether a signal has requested the end.
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl<'a> Held<'a> {
    pub(super) fn of(queue: &'a Queue, stop: Stop) -> Self {
        Held { queue, stop, receipts: HashMap::new() }
    }

    /// Receives messages that were not received before; none at the end, or after a signal.
    pub(super) async fn next(&mut self) -> anyhow::Result<Vec<Letter>> {
        while !self.stop.is_asked() {
            let received = self.queue.receive().await?;
            if received.is_empty() {
                break;
            }
            // The queue delivers at least once, and again after the visibility timeout: the newest receipt counts.
            let new: Vec<Letter> = received
                .into_iter()
                .filter(|letter| self.receipts.insert(letter.id.clone(), letter.receipt.clone()).is_none())
                .collect();
            if !new.is_empty() {
                return Ok(new);
            }
        }
        Ok(Vec::new())
    }

    /// Deletes a message permanently.
    pub(super) async fn delete(&mut self, letter: &Letter) -> anyhow::Result<()> {
        self.queue.delete(&letter.receipt).await?;
        self.forget(letter);
        Ok(())
    }

    /// Removes a deleted message, so that it is not returned.
    pub(super) fn forget(&mut self, letter: &Letter) {
        self.receipts.remove(&letter.id);
    }

    /// Makes the remaining messages visible again.
    pub(super) async fn put_back(self) {
        let receipts: Vec<String> = self.receipts.into_values().collect();
        if let Err(error) = self.queue.put_back(&receipts).await {
            eprintln!("cronbox: some messages return to the queue only after --hold-secs: {error:#}");
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}

impl Stop {
    /// Stops at SIGINT or SIGTERM: the current messages are finished, and no new ones are received.
    pub(super) fn by_signal() -> anyhow::Result<Self> {
        let stop = Stop(Arc::default());
        let asked = stop.clone();
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot handle Ctrl-C")?;
        let mut terminated = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            eprintln!("cronbox: stopping after the current messages");
            asked.0.store(true, Ordering::Relaxed);
        });
        Ok(stop)
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
