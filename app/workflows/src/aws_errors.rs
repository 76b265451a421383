//! Steps 4, 5 and 7 of 7: what the members of a team read of an error of AWS. Only admins read its words, because they
//! name the account, its roles and its quotas.

/// What the sentence about a schedule that EventBridge refuses begins with.
pub const REFUSED: &str = "EventBridge refuses the schedule";
/// What the publisher says of a cron or a timezone that it cannot read; it is about the workflow only.
const UNREADABLE: &str = "the stored ";
/// What the notifier says if AWS did not answer, before the words of its client.
const NO_ANSWER: &str = "AWS gave no answer";
/// A longer text is no code.
const LONGEST_CODE: usize = 100;

/// The service that gave up a fire.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// It could not invoke the runner.
    EventBridge,
    /// Its function failed.
    Lambda,
}

/// An error as it is stored, by what it is about.
#[derive(Clone, Copy, Debug)]
pub enum StoredError<'a> {
    /// A schedule that EventBridge does not have yet.
    Publication {
        /// `error_class` of the publication.
        class: Option<&'a str>,
        /// The error.
        error: &'a str,
    },
    /// A fire that EventBridge or the runner did not deliver.
    DeadLetter {
        /// The service that gave up.
        service: Service,
        /// The error.
        error: &'a str,
    },
    /// What became of the redrive of a dead letter.
    Redrive {
        /// The result.
        result: &'a str,
    },
    /// A message to a channel. Only those of the kind `aws` have words of AWS.
    Message {
        /// The error.
        error: &'a str,
    },
}

/// Returns what a member of a team reads of an error: codes and sentences of cronbox, no words of AWS.
#[must_use]
pub fn error_for_team(stored: StoredError<'_>) -> String {
    match stored {
        StoredError::Publication { error, .. } if error.starts_with(UNREADABLE) => error.to_owned(),
        StoredError::Publication { class, .. } => about_publication(class),
        StoredError::DeadLetter { service, error } => match letter_code(service, error) {
            Some(code) => code.to_owned(),
            None => "the fire was not delivered: ask an operator for the reason".to_owned(),
        },
        StoredError::Redrive { result } if is_result_code(result) => result.to_owned(),
        StoredError::Redrive { .. } => "the fire could not be posted: ask an operator for the reason".to_owned(),
        StoredError::Message { error } => about_message(error),
    }
}

fn about_publication(class: Option<&str>) -> String {
    match class {
        Some("transient") => "EventBridge does not answer; the publisher tries again".to_owned(),
        Some("environment") => {
            "EventBridge refuses a setting, a permission or a quota of the deployment: ask an operator; the publisher \
             tries again"
                .to_owned()
        }
        Some("permanent") => {
            format!("{REFUSED}: change its cron, timezone or dates, or ask an operator for the reason")
        }
        _ => "EventBridge has not accepted the schedule yet; the publisher tries again".to_owned(),
    }
}

/// The code in the error of a dead letter. Of EventBridge it is the beginning. Of Lambda it is in the brackets at the end,
/// or the beginning if the function gave no sentence.
fn letter_code(service: Service, error: &str) -> Option<&str> {
    let in_brackets = match service {
        Service::EventBridge => None,
        Service::Lambda => error.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")),
    };
    let code = match in_brackets {
        Some((_sentence, codes)) => codes.split(", ").next(),
        None => error.split(": ").next(),
    };
    code.filter(|code| is_aws_code(code))
}

/// A refusal of AWS is stored as `Code: its words`. What other receivers and cronbox say begins with no such code.
fn about_message(error: &str) -> String {
    match error.split_once(": ") {
        Some((NO_ANSWER, _words)) => NO_ANSWER.to_owned(),
        Some((code, _words)) if is_aws_code(code) => format!("{code}: AWS refuses the message, ask an operator"),
        _ => error.to_owned(),
    }
}

/// For example `AccessDeniedException` or `Runtime.ExitError`: a letter, and no sign of an ARN.
fn is_aws_code(text: &str) -> bool {
    let is_of_code = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.len() <= LONGEST_CODE
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(is_of_code)
}

/// For example `workflow_gone`.
fn is_result_code(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As AWS answers if a policy denies a call.
    const WORDS: &str = "User: arn:aws:sts::123456789012:assumed-role/publisher is not authorized (123456789012)";

    #[test]
    fn teams_read_codes_of_dead_letters() {
        let letter = |service, error: &str| error_for_team(StoredError::DeadLetter { service, error });
        let unsent = |error: &str| letter(Service::EventBridge, error);
        assert_eq!(unsent(&format!("AccessDeniedException: {WORDS}: MaximumRetryAttempts")), "AccessDeniedException");
        assert_eq!(unsent(&format!("AWS.Lambda.Denied: {WORDS}")), "AWS.Lambda.Denied");
        let undelivered = |error: &str| letter(Service::Lambda, error);
        let no_key = format!("the scheduler key cannot be fetched: {WORDS} (NoKey, RetriesExhausted)");
        assert_eq!(undelivered(&no_key), "NoKey");
        assert_eq!(undelivered("Sandbox.Timedout: RetriesExhausted"), "Sandbox.Timedout");
        for (service, error) in [
            (Service::EventBridge, ""),
            (Service::EventBridge, "arn:aws:iam::123456789012:role/x: denied"),
            (Service::Lambda, "the app did not answer"),
            (Service::Lambda, "denied (arn:aws:iam::123456789012:role/x)"),
        ] {
            assert_eq!(letter(service, error), "the fire was not delivered: ask an operator for the reason", "{error}");
        }
    }

    #[test]
    fn teams_read_results_of_redrives() {
        let result = |result: &str| error_for_team(StoredError::Redrive { result });
        for code in ["accepted", "workflow_gone", "left_the_queue_before_redrive"] {
            assert_eq!(result(code), code);
        }
        assert_eq!(result(WORDS), "the fire could not be posted: ask an operator for the reason");
    }

    #[test]
    fn teams_read_errors_of_their_receivers() {
        let message = |error: &str| error_for_team(StoredError::Message { error });
        let refused = message(&format!("AuthorizationError: {WORDS}"));
        assert_eq!(refused, "AuthorizationError: AWS refuses the message, ask an operator");
        assert_eq!(message(&format!("AWS gave no answer: {WORDS}")), "AWS gave no answer");
        for error in [
            "the receiver answered 410 Gone",
            "a@example.com: no such user",
            "no mail server is set: an operator must set CRONBOX_SMTP_URL",
        ] {
            assert_eq!(message(error), error);
        }
    }
}
