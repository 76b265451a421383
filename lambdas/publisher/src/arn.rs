//! Step 3 of 7: validates Amazon resource names at the start, by AWS's patterns.
//!
//! An error at the start is better than a refusal of every schedule after something was published.

use lambda_database::arn::{Arn, checked, is_word};

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

/// A schedule group's name; botocore: `^[0-9a-zA-Z-_.]+$`, 1 to 64 characters.
pub(crate) fn parse_group_name(text: &str) -> Result<String, String> {
    let is_group = text.len() <= 64 && is_word(text, "-_.");
    checked(text, is_group, "a schedule group's name: 1 to 64 letters, digits, - _ and .")
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
        assert!(
            parse_group_name("cronbox-dev").is_ok()
                && parse_group_name("no group").is_err()
                && parse_group_name(&"x".repeat(65)).is_err()
        );
    }
}
