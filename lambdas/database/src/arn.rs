//! Amazon resource names, which are validated at the start by AWS's patterns.

/// A secret of Secrets Manager.
///
/// # Errors
/// Says what to write.
pub fn parse_secret_arn(text: &str) -> Result<String, String> {
    let is_secret = Arn::split(text).is_some_and(|arn| {
        let name = arn.resource.strip_prefix("secret:").unwrap_or_default();
        arn.service == "secretsmanager" && arn.is_regional() && is_word(name, "/_+=.@!-")
    });
    checked(text, is_secret, "a secret's ARN: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf")
}

/// The text, if it is right; else what to write.
///
/// # Errors
/// Says to write `pattern`.
pub fn checked(text: &str, is_right: bool, pattern: &str) -> Result<String, String> {
    if is_right { Ok(text.to_owned()) } else { Err(format!("write {pattern}")) }
}

/// `arn:partition:service:region:account:resource`.
#[derive(Clone, Copy, Debug)]
pub struct Arn<'a> {
    /// For example `lambda`.
    pub service: &'a str,
    /// Empty for services without regions.
    pub region: &'a str,
    /// Twelve digits.
    pub account: &'a str,
    /// What the service calls it.
    pub resource: &'a str,
}

impl<'a> Arn<'a> {
    /// The parts of an ARN; `None`: it is none.
    #[must_use]
    pub fn split(text: &'a str) -> Option<Arn<'a>> {
        let mut parts = text.splitn(6, ':');
        let (Some("arn"), Some(partition)) = (parts.next(), parts.next()) else { return None };
        let is_aws = partition.strip_prefix("aws")?.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let (service, region, account, resource) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        is_aws.then_some(Arn { service, region, account, resource })
    }

    /// Whether it names an account.
    #[must_use]
    pub fn has_account(&self) -> bool {
        self.account.len() == 12 && self.account.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Whether it names a region and an account.
    #[must_use]
    pub fn is_regional(&self) -> bool {
        let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !self.region.is_empty() && self.region.bytes().all(is_region) && self.has_account()
    }
}

/// Whether the text has only letters, digits and these characters, and at least one.
#[must_use]
pub fn is_word(text: &str, extra: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || extra.contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_of_secrets_are_checked_as_aws_does() {
        assert!(parse_secret_arn("arn:aws:secretsmanager:eu-west-1:123456789012:secret:rds!cluster-1-AbCdEf").is_ok());
        assert!(parse_secret_arn("arn:aws:secretsmanager:eu-west-1:123456789012:db/prod-AbCdEf").is_err());
    }
}
