//! The messages that this process has received: other consumers do not see them until they are returned.
//!
//! However this process ends, a message stays in the queue until it is deleted. At a signal the process returns its
//! messages at once; after kill -9, SQS shows them again when their visibility timeout ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use dead_letters::{DeadMessage, Queue};
use tokio::signal::unix::{SignalKind, signal};

use crate::print::print_error;

/// Received messages, by message id, each with its newest receipt.
pub(super) struct InFlight<'a> {
    queue: &'a Queue,
    stop: Stop,
    receipts: HashMap<String, String>,
}

/// Whether a signal has requested the end.
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl<'a> InFlight<'a> {
    pub(super) fn new(queue: &'a Queue, stop: Stop) -> Self {
        InFlight { queue, stop, receipts: HashMap::new() }
    }

    /// Receives messages that were not received before; none at the end, or after a signal.
    pub(super) async fn receive_new(&mut self) -> anyhow::Result<Vec<DeadMessage>> {
        while !self.stop.is_requested() {
            let received = self.queue.receive_messages().await?;
            if received.is_empty() {
                break;
            }
            // The queue delivers at least once, and again after the visibility timeout: the newest receipt counts.
            let new: Vec<DeadMessage> = received
                .into_iter()
                .filter(|message| self.receipts.insert(message.id.clone(), message.receipt.clone()).is_none())
                .collect();
            if !new.is_empty() {
                return Ok(new);
            }
        }
        Ok(Vec::new())
    }

    /// About how many messages other receivers have in flight; `None`: SQS does not say.
    pub(super) async fn count_elsewhere(&self) -> Option<u64> {
        let all = self.queue.count_in_flight().await?;
        Some(all.saturating_sub(self.receipts.len() as u64))
    }

    /// Deletes a message permanently.
    pub(super) async fn delete_message(&mut self, message: &DeadMessage) -> anyhow::Result<()> {
        self.queue.delete_message(&message.receipt).await?;
        self.forget_message(message);
        Ok(())
    }

    /// Removes a deleted message, so that it is not returned.
    pub(super) fn forget_message(&mut self, message: &DeadMessage) {
        self.receipts.remove(&message.id);
    }

    /// Makes the remaining messages visible again.
    pub(super) async fn put_back(self) {
        let receipts: Vec<String> = self.receipts.into_values().collect();
        if let Err(error) = self.queue.put_back(&receipts).await {
            print_error(&format!("some messages return to the queue only after --hold-secs: {error:#}"));
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }
}

impl Stop {
    /// Stops at SIGINT or SIGTERM: the current messages are finished, and no new ones are received.
    pub(super) fn by_signal() -> anyhow::Result<Self> {
        let stop = Stop(Arc::default());
        let requested = stop.clone();
        let mut interrupted = signal(SignalKind::interrupt()).context("cannot handle Ctrl-C")?;
        let mut terminated = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            eprintln!("cronbox: stopping after the current messages");
            requested.0.store(true, Ordering::Relaxed);
        });
        Ok(stop)
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
