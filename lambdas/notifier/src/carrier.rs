//! Publishes one message to an event bus or an SNS topic.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_eventbridge::config::Region as BusRegion;
use aws_sdk_eventbridge::error::ProvideErrorMetadata;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sns::config::Region as TopicRegion;
use aws_sdk_sns::types::MessageAttributeValue;
use notifications::aws_target::AwsTargetKind;
use notifications::delivery::{Acceptance, AwsMessage, Claimed, NotAccepted};

/// All tries of one call; the lease of a message is much longer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// What the events of EventBridge name as their source.
const SOURCE: &str = "cronbox";
/// SNS refuses a longer subject of an e-mail.
const LONGEST_SUBJECT: usize = 100;
/// How many bytes of a refusal are stored.
const REFUSAL_LIMIT: usize = 500;

/// The clients of AWS. A call goes to the region of its target.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    buses: aws_sdk_eventbridge::Client,
    topics: aws_sdk_sns::Client,
}

impl Carrier {
    /// Clients with the credentials and the endpoints of the environment.
    pub(crate) async fn new() -> Self {
        let timeouts = TimeoutConfig::builder().operation_timeout(CALL_TIMEOUT).build();
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12()).timeout_config(timeouts).load().await;
        Self { buses: aws_sdk_eventbridge::Client::new(&config), topics: aws_sdk_sns::Client::new(&config) }
    }

    /// Publishes a message under its id. Each refusal may end: an operator can permit the target, or create it again.
    pub(crate) async fn publish(&self, claimed: &Claimed, message: &AwsMessage) -> Result<Acceptance, NotAccepted> {
        let published = match message.target.kind {
            AwsTargetKind::Bus => self.put_event(message).await,
            AwsTargetKind::Topic { is_fifo } => self.publish_to_topic(claimed, message, is_fifo).await,
        };
        published.map(|()| Acceptance::Complete).map_err(|error| NotAccepted::transient(shorten(&error)))
    }

    async fn put_event(&self, message: &AwsMessage) -> Result<(), String> {
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&message.target.arn)
            .source(SOURCE)
            .detail_type(&message.kind)
            .detail(message.document.to_string())
            .build();
        let region = BusRegion::new(message.target.region.clone());
        let overrides = aws_sdk_eventbridge::config::Builder::new().region(region);
        let put = self.buses.put_events().entries(entry).customize().config_override(overrides).send().await;
        let answer = put.map_err(in_words)?;
        // The answer is 200 also if the bus did not take the event.
        let refused = answer.entries().iter().find_map(|entry| Some((entry.error_code()?, entry.error_message())));
        match refused {
            None if answer.failed_entry_count() == 0 => Ok(()),
            None => Err("EventBridge took no event, and does not say why".to_owned()),
            Some((code, words)) => Err(format!("{code}: {}", words.unwrap_or_default())),
        }
    }

    async fn publish_to_topic(&self, claimed: &Claimed, message: &AwsMessage, is_fifo: bool) -> Result<(), String> {
        let id = claimed.id.to_string();
        let mut publish = self
            .topics
            .publish()
            .topic_arn(&message.target.arn)
            .subject(mail_subject(&message.subject))
            .message(message.document.to_string());
        let attributes = [("id", id.as_str()), ("type", &message.kind), ("team_id", &claimed.team_id.to_string())];
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value).build();
            publish = publish.message_attributes(name, value.map_err(|error| error.to_string())?);
        }
        if is_fifo {
            // The messages of a team keep their order; SNS drops a repeated id for five minutes.
            publish = publish.message_group_id(format!("team-{}", claimed.team_id)).message_deduplication_id(id);
        }
        let region = TopicRegion::new(message.target.region.clone());
        let overrides = aws_sdk_sns::config::Builder::new().region(region);
        let published = publish.customize().config_override(overrides).send().await;
        published.map(drop).map_err(in_words)
    }
}

/// The code and the words of AWS, or why AWS did not answer. `workflows::aws_errors` parses both, because teams read no
/// words of AWS.
fn in_words(error: impl ProvideErrorMetadata + std::error::Error + Send + Sync + 'static) -> String {
    match error.code() {
        Some(code) => format!("{code}: {}", error.message().unwrap_or_default()),
        None => format!("AWS gave no answer: {:#}", anyhow::Error::new(error)),
    }
}

/// SNS accepts printable ASCII only.
fn mail_subject(subject: &str) -> String {
    let ascii = subject.chars().map(|character| if matches!(character, ' '..='~') { character } else { '?' });
    ascii.take(LONGEST_SUBJECT).collect()
}

fn shorten(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(REFUSAL_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_as_sns_wants_them() {
        assert_eq!(mail_subject("[cronbox prod] Übertrag\nfailed"), "[cronbox prod] ?bertrag?failed");
        assert_eq!(mail_subject(&"x".repeat(101)).len(), 100);
    }
}
