//! Step 5 of 7: the port to SQS: receives messages, and deletes or returns them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use chrono::DateTime;
use url::{Host, Url};

use crate::message::DeadMessage;

/// How many messages SQS sends or accepts at once.
const BATCH: usize = 10;
/// With a wait above 0 SQS checks all of its servers; without one, an empty answer may miss messages.
const WAIT_SECS: i32 = 1;
/// The time limit of one try of a call; the SDK makes three.
const PATIENCE: Duration = Duration::from_secs(10);

/// One queue.
pub struct Queue {
    client: Client,
    url: String,
    hold_secs: i32,
}

impl Queue {
    /// Creates a client of the queue at `url`; it sends nothing yet. Other consumers do not see a received message for
    /// `hold_secs`. `has_endpoint`: the environment names the endpoint of SQS, so that the URL does not.
    pub async fn connect(url: &Url, hold_secs: i32, has_endpoint: bool) -> Self {
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(PATIENCE).build());
        if let Some(region) = region(url) {
            loader = loader.region(Region::new(region));
        }
        if is_local(url) && !has_endpoint {
            // The stand-in of this machine: it checks no signature, and there is no account to ask for credentials.
            let credentials = Credentials::new("local", "local", None, None, "local");
            loader = loader.endpoint_url(url.origin().ascii_serialization()).credentials_provider(credentials);
            loader = loader.region(Region::new("us-east-1"));
        }
        Queue { client: Client::new(&loader.load().await), url: url.to_string(), hold_secs }
    }

    /// Receives the next messages, which other consumers do not see for a while; none = no more are visible.
    ///
    /// # Errors
    /// Fails if SQS does not answer or refuses the request.
    pub async fn receive_messages(&self) -> anyhow::Result<Vec<DeadMessage>> {
        let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(BATCH as i32);
        let request = request.wait_time_seconds(WAIT_SECS).visibility_timeout(self.hold_secs);
        let request = request.message_attribute_names("All");
        let received = request.message_system_attribute_names(MessageSystemAttributeName::All).send().await;
        let received = received.with_context(|| format!("the queue {} cannot be read", self.url))?;
        Ok(received.messages.unwrap_or_default().into_iter().filter_map(dead_message).collect())
    }

    /// Deletes a message permanently.
    ///
    /// # Errors
    /// Fails if SQS does not answer or refuses the request.
    pub async fn delete_message(&self, receipt: &str) -> anyhow::Result<()> {
        let deleted = self.client.delete_message().queue_url(&self.url).receipt_handle(receipt).send().await;
        deleted.map(drop).context("the message cannot be deleted")
    }

    /// Makes these messages visible again at once.
    ///
    /// # Errors
    /// Fails if SQS does not answer or refuses the request.
    pub async fn put_back(&self, receipts: &[String]) -> anyhow::Result<()> {
        for receipts in receipts.chunks(BATCH) {
            let entries = receipts.iter().enumerate().map(|(n, receipt)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(n.to_string());
                entry.receipt_handle(receipt).visibility_timeout(0).build()
            });
            let entries = entries.collect::<Result<Vec<_>, _>>()?;
            // If SQS refuses one because its visibility timeout is over, it is visible already.
            self.client
                .change_message_visibility_batch()
                .queue_url(&self.url)
                .set_entries(Some(entries))
                .send()
                .await?;
        }
        Ok(())
    }

    /// The approximate number of visible messages; SQS has no exact one.
    pub async fn count_messages(&self) -> Option<u64> {
        self.read_count(QueueAttributeName::ApproximateNumberOfMessages).await
    }

    /// The approximate number of messages that consumers, this one included, have received and not returned yet.
    pub async fn count_in_flight(&self) -> Option<u64> {
        self.read_count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible).await
    }

    async fn read_count(&self, name: QueueAttributeName) -> Option<u64> {
        let reply = self.client.get_queue_attributes().queue_url(&self.url).attribute_names(name.clone()).send().await;
        reply.ok()?.attributes()?.get(&name)?.parse().ok()
    }
}

fn is_local(queue: &Url) -> bool {
    match queue.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The region in the URL of an AWS queue, which may differ from that of the operator's profile.
fn region(queue: &Url) -> Option<String> {
    let mut labels = queue.host_str()?.split('.');
    let is_aws = queue.host_str()?.contains(".amazonaws.com");
    (is_aws && labels.next() == Some("sqs")).then(|| labels.next().map(str::to_owned))?
}

fn dead_message(received: Message) -> Option<DeadMessage> {
    let sent_on = received.attributes().and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp));
    let sent_on = sent_on.and_then(|millis| millis.parse().ok()).and_then(DateTime::from_timestamp_millis);
    let attributes = received.message_attributes.unwrap_or_default().into_iter();
    let attributes: BTreeMap<_, _> =
        attributes.filter_map(|(name, value)| value.string_value.map(|value| (name, value))).collect();
    Some(DeadMessage::parse_message(
        received.message_id?,
        received.receipt_handle?,
        sent_on,
        received.body.unwrap_or_default(),
        attributes,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_in_the_url() {
        let of = |url: &str| region(&url.parse().unwrap());
        assert_eq!(of("https://sqs.eu-west-1.amazonaws.com/123456789012/dead"), Some("eu-west-1".to_owned()));
        assert_eq!(of("https://sqs.cn-north-1.amazonaws.com.cn/1/dead"), Some("cn-north-1".to_owned()));
        assert_eq!(of("http://127.0.0.1:5000/123456789012/dead"), None);
    }
}
