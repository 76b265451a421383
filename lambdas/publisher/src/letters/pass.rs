//! Step 5 of 7: one pass over each queue, within the time that is left after the outbox.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use dead_letters::DeadMessage;
use futures::future::join_all;

use super::redrive::redrive_requested;
use super::rows::{self, Seen};
use super::source::LetterQueue;
use crate::publisher::Publisher;

/// How long a pass over all queues may receive, redrive and delete.
const PASS_LIMIT: Duration = Duration::from_secs(10);
/// Receiving stops here; the rest of the pass is for what is requested.
const RECEIVE_LIMIT: Duration = Duration::from_secs(4);
/// Messages of a queue in one pass at most. SQS returns others in the next pass.
const MOST_MESSAGES: usize = 500;

/// What a pass has received of a queue: each message with its newest receipt.
#[derive(Default)]
struct Received {
    by_id: HashMap<String, (DeadMessage, Seen)>,
    /// Whether the queue had no further visible message.
    is_complete: bool,
}

impl Publisher {
    /// Mirrors the dead-letter queues, and redrives and discards what operators have requested. Does nothing if the settings
    /// name no queue, or while the database waits for the acceptance of its ledger: the queues may be another database's.
    ///
    /// A queue that fails is logged; the next pass tries it again.
    pub async fn mirror_dead_letters(&self) {
        let queues = self.sources().queues().await;
        if queues.is_empty() {
            return;
        }
        match rows::is_held(self.pool()).await {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => return tracing::warn!(%error, "dead letters not mirrored"),
        }
        let mut passes = Vec::with_capacity(queues.len());
        for queue in queues {
            passes.push(self.mirror_within_limit(queue));
        }
        join_all(passes).await;
    }

    async fn mirror_within_limit(&self, queue: &LetterQueue) {
        match tokio::time::timeout(PASS_LIMIT, self.mirror_queue(queue)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(queue = queue.name, "dead letters not mirrored: {error:#}"),
            // What it has received becomes visible again by itself.
            Err(_) => tracing::warn!(queue = queue.name, "dead letters not mirrored: the time was up"),
        }
    }

    async fn mirror_queue(&self, queue: &LetterQueue) -> anyhow::Result<()> {
        let mut received = Received::default();
        let mirrored = self.receive_messages(queue, &mut received).await;
        // What was received is processed and returned also after a failure.
        let done = self.process_messages(queue, &mut received).await;
        let rest: Vec<String> = received.by_id.into_values().map(|(message, _)| message.receipt).collect();
        let returned = queue.port.put_back(&rest).await.context("messages not returned to the queue at once");
        mirrored.and(done).and(returned)?;
        if received.is_complete {
            rows::settle_vanished(self.pool(), queue.name).await?;
        }
        rows::delete_old_rows(self.pool()).await?;
        Ok(())
    }

    /// Receives and records messages until there are no more, or the time or the number is reached.
    async fn receive_messages(&self, queue: &LetterQueue, received: &mut Received) -> anyhow::Result<()> {
        // An empty queue costs one request without a wait, and not the long poll of a receive. The count may be a minute old.
        if queue.port.count_messages().await == Some(0) {
            received.is_complete = true;
            return Ok(());
        }
        let until = Instant::now() + RECEIVE_LIMIT;
        while received.by_id.len() < MOST_MESSAGES && Instant::now() < until {
            let messages = queue.port.receive_messages().await?;
            if messages.is_empty() {
                received.is_complete = true;
                break;
            }
            let recorded = rows::record_messages(self.pool(), queue.name, &messages).await;
            let mut seen = recorded.as_ref().map(HashMap::clone).unwrap_or_default();
            for message in messages {
                let row = seen.remove(&message.id).unwrap_or(Seen::Open);
                received.by_id.insert(message.id.clone(), (message, row));
            }
            recorded?;
        }
        Ok(())
    }

    /// Redrives and discards what is requested, and deletes the messages that are settled.
    async fn process_messages(&self, queue: &LetterQueue, received: &mut Received) -> anyhow::Result<()> {
        let ids: Vec<String> = received.by_id.keys().cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let discarded = rows::settle_discarded(self.pool(), queue.name, &ids).await?;
        let messages = received.by_id.values().map(|(message, _)| (message.id.as_str(), message)).collect();
        let redriven = redrive_requested(self, queue.name, &messages).await?;
        for id in discarded.iter().chain(&redriven) {
            if let Some((_, seen)) = received.by_id.get_mut(id) {
                *seen = Seen::Settled;
            }
        }
        let settled: Vec<String> =
            received.by_id.iter().filter(|(_, (_, seen))| *seen == Seen::Settled).map(|(id, _)| id.clone()).collect();
        for id in settled {
            let Some((message, _)) = received.by_id.get(&id) else { continue };
            queue.port.delete_message(&message.receipt).await?;
            received.by_id.remove(&id);
        }
        Ok(())
    }
}
