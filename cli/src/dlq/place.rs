//! Which queue an operator means, and which of its messages.

use anyhow::bail;
use clap::Args;
use dead_letters::{DeadMessage, Queue};
use url::Url;

use crate::config::variable;

/// Which queue.
#[derive(Args)]
pub(crate) struct At {
    /// The queue's URL, as in Terraform's output `dead_letter_queue_urls`.
    #[arg(long, value_name = "URL")]
    queue: Url,
    /// For how many seconds other consumers do not see a received message. All messages return at the end, and after a
    /// kill -9 when this time is over.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(i32).range(5..=43_200))]
    hold_secs: i32,
}

/// Creates a client of the queue; it sends nothing yet.
pub(super) async fn open_queue(at: &At) -> Queue {
    // The environment may name the endpoint of SQS already.
    let has_endpoint = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"].iter().any(|name| variable(name).is_some());
    Queue::connect(&at.queue, at.hold_secs, has_endpoint).await
}

/// Fails if a message with one of these ids was not received.
pub(super) fn require_all_found(ids: &[String], messages: &[DeadMessage]) -> anyhow::Result<()> {
    match ids.iter().find(|id| messages.iter().all(|message| message.id != **id)) {
        Some(id) => {
            bail!("message {id} is not visible in the queue: it was deleted, or another receiver has it in flight")
        }
        None => Ok(()),
    }
}
