//! Step 3 of 7: validates Amazon resource names at the start, by AWS's patterns.
//!
//! An error at the start is better than a refusal of every schedule after something was published.

/// A Lambda function, optionally with an alias or a version.
pub(crate) fn parse_function_arn(text: &str) -> Result<String, String> {
    let is_function = Arn::split(text).is_some_and(|arn| {
        let name = arn.resource.strip_prefix("function:").unwrap_or_default();
        arn.service == "lambda" && arn.is_regional() && name.split(':').count() <= 2 && is_word(name, "-_:$")
    });
    checked(text, is_function, "a Lambda function's ARN: arn:aws:lambda:eu-west-1:123456789012:function:runner")
}

/// A role; botocore: `^arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+$`.
pub(crate) fn parse_role_arn(text: &str) -> Result<String, String> {
    let is_role = Arn::split(text).is_some_and(|arn| {
        let name = arn.resource.strip_prefix("role/").unwrap_or_default();
        arn.service == "iam" && arn.region.is_empty() && arn.has_account() && is_word(name, "_+=,.@/-")
    });
    checked(text, is_role, "a role's ARN: arn:aws:iam::123456789012:role/scheduler")
}

/// A standard queue; botocore: `^arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+$`.
pub(crate) fn parse_queue_arn(text: &str) -> Result<String, String> {
    let is_queue =
        Arn::split(text).is_some_and(|arn| arn.service == "sqs" && arn.is_regional() && is_word(arn.resource, "-_"));
    checked(text, is_queue, "a standard queue's ARN: arn:aws:sqs:eu-west-1:123456789012:dead-letters")
}

/// A secret of Secrets Manager.
pub(crate) fn parse_secret_arn(text: &str) -> Result<String, String> {
    let is_secret = Arn::split(text).is_some_and(|arn| {
        let name = arn.resource.strip_prefix("secret:").unwrap_or_default();
        arn.service == "secretsmanager" && arn.is_regional() && is_word(name, "/_+=.@!-")
    });
    checked(text, is_secret, "a secret's ARN: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf")
}

/// A schedule group's name; botocore: `^[0-9a-zA-Z-_.]+$`, 1 to 64 characters.
pub(crate) fn parse_group_name(text: &str) -> Result<String, String> {
    let is_group = text.len() <= 64 && is_word(text, "-_.");
    checked(text, is_group, "a schedule group's name: 1 to 64 letters, digits, - _ and .")
}

fn checked(text: &str, is_right: bool, pattern: &str) -> Result<String, String> {
    if is_right { Ok(text.to_owned()) } else { Err(format!("write {pattern}")) }
}

/// `arn:partition:service:region:account:resource`.
struct Arn<'a> {
    service: &'a str,
    region: &'a str,
    account: &'a str,
    resource: &'a str,
}

impl<'a> Arn<'a> {
    fn split(text: &'a str) -> Option<Arn<'a>> {
        let mut parts = text.splitn(6, ':');
        let (Some("arn"), Some(partition)) = (parts.next(), parts.next()) else { return None };
        let is_aws = partition.strip_prefix("aws")?.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let (service, region, account, resource) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        is_aws.then_some(Arn { service, region, account, resource })
    }

    fn has_account(&self) -> bool {
        self.account.len() == 12 && self.account.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn is_regional(&self) -> bool {
        let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !self.region.is_empty() && self.region.bytes().all(is_region) && self.has_account()
    }
}

fn is_word(text: &str, extra: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || extra.contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_are_checked_as_aws_does() {
        assert!(parse_role_arn("arn:aws:iam::123456789012:role/path/to+role").is_ok());
        assert!(parse_role_arn("arn:aws:iam::12345678901:role/short-account").is_err());
        assert!(parse_role_arn("arn:aws:iam::123456789012:user/me").is_err());
        assert!(parse_queue_arn("arn:aws-cn:sqs:cn-north-1:123456789012:dead_letters").is_ok());
        assert!(parse_queue_arn("arn:aws:sqs:eu-west-1:123456789012:dead-letters.fifo").is_err());
        for name in ["runner", "runner:live", "runner:$LATEST"] {
            assert!(
                parse_function_arn(&format!("arn:aws-us-gov:lambda:us-gov-west-1:123456789012:function:{name}"))
                    .is_ok()
            );
        }
        assert!(parse_function_arn("arn:aws:lambda:eu-west-1:123456789012:layer:x").is_err());
        assert!(parse_function_arn("arn:gcp:lambda:eu-west-1:123456789012:function:x").is_err());
        assert!(parse_secret_arn("arn:aws:secretsmanager:eu-west-1:123456789012:secret:rds!cluster-1-AbCdEf").is_ok());
        assert!(parse_secret_arn("arn:aws:secretsmanager:eu-west-1:123456789012:db/prod-AbCdEf").is_err());
        assert!(
            parse_group_name("cronbox-dev").is_ok()
                && parse_group_name("no group").is_err()
                && parse_group_name(&"x".repeat(65)).is_err()
        );
    }
}
