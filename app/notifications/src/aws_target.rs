//! Step 7 of 7: where messages to AWS go: an event bus or an SNS topic, by its ARN.

/// Something that takes messages on AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsTarget {
    /// The ARN.
    pub arn: String,
    /// The region, whose endpoint takes the call.
    pub region: String,
    /// What it is.
    pub kind: AwsTargetKind,
}

/// What takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwsTargetKind {
    /// A bus of EventBridge.
    Bus,
    /// A topic of SNS.
    Topic {
        /// Whether it keeps the order, and drops a message that it has already.
        is_fifo: bool,
    },
}

impl AwsTarget {
    /// The target with this ARN; `None`: it is no bus and no topic.
    #[must_use]
    pub fn parse(arn: &str) -> Option<Self> {
        let mut parts = arn.splitn(6, ':');
        let is_aws = parts.next()? == "arn" && parts.next()?.strip_prefix("aws").is_some_and(is_partition);
        let (service, region, account, resource) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let kind = match service {
            "events" => parse_bus(resource)?,
            "sns" => parse_topic(resource)?,
            _ => return None,
        };
        let is_target = is_aws && is_account && is_word(region, "-");
        is_target.then(|| Self { arn: arn.to_owned(), region: region.to_owned(), kind })
    }
}

fn parse_bus(resource: &str) -> Option<AwsTargetKind> {
    let name = resource.strip_prefix("event-bus/")?;
    (name.len() <= 256 && is_word(name, "/.-_")).then_some(AwsTargetKind::Bus)
}

fn parse_topic(resource: &str) -> Option<AwsTargetKind> {
    let (name, is_fifo) = resource.strip_suffix(".fifo").map_or((resource, false), |name| (name, true));
    (resource.len() <= 256 && is_word(name, "-_")).then_some(AwsTargetKind::Topic { is_fifo })
}

/// What follows `aws`: nothing, or for example `-cn`.
fn is_partition(rest: &str) -> bool {
    rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn is_word(text: &str, extra: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || extra.contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buses_and_topics_are_targets() {
        let kind = |arn: &str| AwsTarget::parse(arn).map(|target| target.kind);
        assert_eq!(kind("arn:aws:events:eu-west-1:123456789012:event-bus/default"), Some(AwsTargetKind::Bus));
        let topic = |is_fifo| Some(AwsTargetKind::Topic { is_fifo });
        assert_eq!(kind("arn:aws-cn:sns:cn-north-1:123456789012:alerts"), topic(false));
        assert_eq!(kind("arn:aws:sns:eu-west-1:123456789012:alerts.fifo"), topic(true));
        for other in [
            "",
            "alerts",
            "arn:aws:sns:eu-west-1:123456789012:",
            "arn:aws:sns:eu-west-1:123456789012:.fifo",
            "arn:aws:sns:eu-west-1:123456789012:alerts:8c1b5c4a",
            "arn:aws:sns:eu-west-1:12345:alerts",
            "arn:aws:sns::123456789012:alerts",
            "arn:aws:sns:x.example.com/:123456789012:alerts",
            "arn:aws:sqs:eu-west-1:123456789012:alerts",
            "arn:aws:events:eu-west-1:123456789012:rule/alerts",
            "arn:gcp:sns:eu-west-1:123456789012:alerts",
        ] {
            assert_eq!(kind(other), None, "{other}");
        }
    }
}
