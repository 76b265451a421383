//! The service model's constraints on single fields, with AWS's error messages.

use super::error::Error;

/// Which characters a field accepts.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Names of schedules and schedule groups, and prefixes of them
    Name,
    /// `ClientToken`
    Token,
    /// `Target.RoleArn`
    Role,
    /// `DeadLetterConfig.Arn`: a standard queue, so no `.fifo`
    Queue,
    /// `KmsKeyArn`
    Key,
    /// What can be tagged: only schedule groups
    GroupArn,
}

/// All constraint violations of a request, in one answer as in AWS.
#[derive(Default)]
pub struct Violations(Vec<String>);

impl Violations {
    /// Ends the checks.
    ///
    /// # Errors
    /// Returns a `ValidationException` that lists every violation.
    pub fn into_result(self) -> Result<(), Error> {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        match self.0.len() {
            0 => Ok(()),
            count => {
                Err(Error::Validation(format!("{count} validation error{plural} detected: {}", self.0.join("; "))))
            }
        }
    }

    /// Returns the value of a required field; adds a violation if it is missing.
    pub fn require_value<'a, T>(&mut self, field: &str, value: Option<&'a T>) -> Option<&'a T> {
        if value.is_none() {
            self.0.push(format!("Value null at '{field}' failed to satisfy constraint: Member must not be null"));
        }
        value
    }

    /// Adds a violation if the length is outside of `min..=max` characters.
    pub fn check_length(&mut self, field: &str, value: &str, min: usize, max: usize) {
        let length = value.chars().count();
        if length < min {
            self.add_violation(field, value, &format!("Member must have length greater than or equal to {min}"));
        } else if length > max {
            self.add_violation(field, value, &format!("Member must have length less than or equal to {max}"));
        }
    }

    /// Adds a violation if the number is outside of `min..=max`.
    pub fn check_range(&mut self, field: &str, value: i64, min: i64, max: i64) {
        if value < min {
            self.add_violation(
                field,
                &value.to_string(),
                &format!("Member must have value greater than or equal to {min}"),
            );
        } else if value > max {
            self.add_violation(
                field,
                &value.to_string(),
                &format!("Member must have value less than or equal to {max}"),
            );
        }
    }

    /// Adds a violation if the pattern does not accept the characters.
    pub fn check_pattern(&mut self, field: &str, value: &str, pattern: Pattern) {
        if !pattern.matches(value) {
            self.add_violation(
                field,
                value,
                &format!("Member must satisfy regular expression pattern: {}", pattern.text()),
            );
        }
    }

    /// Adds a violation if the value is not one of `words`.
    pub fn check_one_of(&mut self, field: &str, value: &str, words: &[&str]) {
        if !words.contains(&value) {
            self.add_violation(field, value, &format!("Member must satisfy enum value set: [{}]", words.join(", ")));
        }
    }

    /// Checks the name of a schedule or schedule group: 1 to 64 characters of its alphabet.
    pub fn check_name(&mut self, field: &str, value: &str) {
        self.check_length(field, value, 1, 64);
        self.check_pattern(field, value, Pattern::Name);
    }

    /// Checks a client token: 1 to 64 characters of its alphabet.
    pub fn check_token(&mut self, value: Option<&str>) {
        if let Some(token) = value {
            self.check_length("clientToken", token, 1, 64);
            self.check_pattern("clientToken", token, Pattern::Token);
        }
    }

    fn add_violation(&mut self, field: &str, value: &str, constraint: &str) {
        self.0.push(format!("Value '{value}' at '{field}' failed to satisfy constraint: {constraint}"));
    }
}

impl Pattern {
    fn text(self) -> &'static str {
        match self {
            Pattern::Name => "^[0-9a-zA-Z-_.]+$",
            Pattern::Token => "^[a-zA-Z0-9-_]+$",
            Pattern::Role => r"^arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@\/-]+$",
            Pattern::Queue => r"^arn:aws[a-z-]*:sqs:[a-z0-9\-]+:\d{12}:[a-zA-Z0-9\-_]+$",
            Pattern::Key => r"^arn:aws[a-z-]*:kms:[a-z0-9\-]+:\d{12}:(key|alias)\/[0-9a-zA-Z-_]*$",
            Pattern::GroupArn => r"^arn:aws[a-z-]*:scheduler:[a-z0-9\-]+:\d{12}:schedule-group\/[0-9a-zA-Z-_.]+$",
        }
    }

    fn matches(self, value: &str) -> bool {
        match self {
            Pattern::Name => word(value, "-_."),
            Pattern::Token => word(value, "-_"),
            Pattern::Role => Arn::parse(value).is_some_and(|arn| {
                arn.service == "iam"
                    && arn.region.is_empty()
                    && arn.is_of_account()
                    && arn.resource.strip_prefix("role/").is_some_and(|path| word(path, "_+=,.@/-"))
            }),
            Pattern::Queue => Arn::parse(value)
                .is_some_and(|arn| arn.service == "sqs" && arn.is_regional() && word(arn.resource, "-_")),
            Pattern::Key => Arn::parse(value).is_some_and(|arn| {
                let id = arn.resource.strip_prefix("key/").or(arn.resource.strip_prefix("alias/"));
                arn.service == "kms" && arn.is_regional() && id.is_some_and(|id| id.is_empty() || word(id, "-_"))
            }),
            Pattern::GroupArn => Arn::parse(value).is_some_and(|arn| {
                arn.service == "scheduler"
                    && arn.is_regional()
                    && arn.resource.strip_prefix("schedule-group/").is_some_and(|name| word(name, "-_."))
            }),
        }
    }
}

/// The six parts of an Amazon resource name.
pub struct Arn<'a> {
    /// `lambda`, `sqs`, ..
    pub service: &'a str,
    /// Empty for global resources
    pub region: &'a str,
    /// Twelve digits
    pub account: &'a str,
    /// The rest, colons included
    pub resource: &'a str,
}

impl<'a> Arn<'a> {
    /// Splits `arn:partition:service:region:account:resource`.
    pub fn parse(text: &'a str) -> Option<Arn<'a>> {
        let mut parts = text.splitn(6, ':');
        let (Some("arn"), Some(partition)) = (parts.next(), parts.next()) else { return None };
        let arn =
            Arn { service: parts.next()?, region: parts.next()?, account: parts.next()?, resource: parts.next()? };
        let of_aws = partition.strip_prefix("aws")?.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        (of_aws && !arn.service.is_empty() && !arn.resource.is_empty()).then_some(arn)
    }

    fn is_of_account(&self) -> bool {
        self.account.len() == 12 && self.account.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn is_regional(&self) -> bool {
        let region = !self.region.is_empty()
            && self.region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        region && self.is_of_account()
    }
}

fn word(text: &str, extra: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || extra.contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_violation_is_named_in_one_sentence() {
        let mut violations = Violations::default();
        violations.check_name("name", "no spaces");
        violations.check_range("maximumRetryAttempts", 186, 0, 185);
        assert_eq!(
            violations.into_result(),
            Err(Error::Validation(
                "2 validation errors detected: Value 'no spaces' at 'name' failed to satisfy constraint: Member must \
                 satisfy regular expression pattern: ^[0-9a-zA-Z-_.]+$; Value '186' at 'maximumRetryAttempts' failed \
                 to satisfy constraint: Member must have value less than or equal to 185"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn arns_are_distinguished() {
        assert!(Pattern::Role.matches("arn:aws:iam::123456789012:role/path/to+role"));
        assert!(!Pattern::Role.matches("arn:aws:iam::12345678901:role/short-account"));
        assert!(!Pattern::Role.matches("arn:aws:iam::123456789012:user/me"));
        assert!(Pattern::Queue.matches("arn:aws-cn:sqs:cn-north-1:123456789012:dead_letters"));
        assert!(!Pattern::Queue.matches("arn:aws:sqs:eu-west-1:123456789012:dead-letters.fifo"));
        assert!(!Pattern::GroupArn.matches("arn:aws:scheduler:eu-west-1:123456789012:schedule/default/wf-1-dev"));
        assert!(!Pattern::Queue.matches("arn:gcp:sqs:eu-west-1:123456789012:dead-letters"));
    }
}
