//! The settings of a schedule, validated like in AWS.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::constraint::{Arn, Pattern, Violations};
use super::error::Error;
use super::expression::Expression;
use super::wire::{PutSchedule, RetryPolicy, TargetBody, WindowBody};
use super::zone::Zone;
use super::zone_files::ZoneFiles;

/// A schedule's settings; every update replaces all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// When it fires
    pub expression: Expression,
    /// The expression as the client wrote it
    pub expression_text: String,
    /// The timezone of the expression
    pub timezone: Zone,
    /// Whether it fires
    pub state: State,
    /// No fire before this time, in full minutes
    pub start_date: Option<DateTime<Utc>>,
    /// No fire after this time, in full minutes
    pub end_date: Option<DateTime<Utc>>,
    /// Free text
    pub description: Option<String>,
    /// Stored, not used
    pub kms_key_arn: Option<String>,
    /// How late a fire may be; the stand-in is always on time
    pub window: WindowBody,
    /// What it invokes
    pub target: TargetBody,
    /// What happens to a schedule that will not fire again
    pub completion: Completion,
}

/// Whether a schedule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It fires
    Enabled,
    /// It exists, and does not fire
    Disabled,
}

/// `ActionAfterCompletion`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is kept
    Keep,
    /// It is deleted
    Delete,
}

/// Start and end of a schedule, where it has them.
pub type Dates = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// The values that AWS uses if `RetryPolicy` is not sent.
pub const DEFAULT_RETRY_POLICY: RetryPolicy =
    RetryPolicy { maximum_event_age_in_seconds: Some(86_400), maximum_retry_attempts: Some(185) };

const MAX_INPUT_BYTES: usize = 256 * 1024;

/// AWS's parameters for targets other than functions.
const PARAMETERS: [&str; 7] = [
    "EcsParameters",
    "EventBridgeParameters",
    "EventBridgePutEventsV2Parameters",
    "EventBridgePutRawEventsParameters",
    "KinesisParameters",
    "SageMakerPipelineParameters",
    "SqsParameters",
];

impl State {
    /// AWS's name.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Enabled => "ENABLED",
            State::Disabled => "DISABLED",
        }
    }
}

impl Completion {
    /// AWS's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Completion::Keep => "NONE",
            Completion::Delete => "DELETE",
        }
    }
}

impl Spec {
    /// Validates a create or update as AWS does; an absent field takes its system default.
    ///
    /// # Errors
    /// Returns a `ValidationException`: first with all violated constraints of the model, then for one rule at a time.
    pub fn from_request(
        name: &str,
        put: PutSchedule,
        zone_files: &ZoneFiles,
        now: DateTime<Utc>,
    ) -> Result<Spec, Error> {
        check_constraints(name, &put)?;
        let expression_text = put.schedule_expression.unwrap_or_default();
        let expression = Expression::parse(&expression_text)
            .filter(Expression::has_a_time)
            .ok_or_else(|| Error::Validation(format!("Invalid Schedule Expression {expression_text}.")))?;
        let timezone_text = put.schedule_expression_timezone.as_deref().unwrap_or("UTC");
        let timezone = Zone::by_name(timezone_text, zone_files)
            .ok_or_else(|| Error::Validation(format!("Invalid Schedule Expression Timezone {timezone_text}.")))?;
        let (start_date, end_date) = dates(&expression, put.start_date, put.end_date, now)?;
        Ok(Spec {
            expression,
            expression_text,
            timezone,
            state: if put.state.as_deref() == Some("DISABLED") { State::Disabled } else { State::Enabled },
            start_date,
            end_date,
            description: put.description,
            kms_key_arn: put.kms_key_arn,
            window: window(put.flexible_time_window.unwrap_or_default())?,
            target: target(put.target.unwrap_or_default())?,
            completion: match put.action_after_completion.as_deref() {
                Some("DELETE") => Completion::Delete,
                _ => Completion::Keep,
            },
        })
    }
}

impl Spec {
    /// The times between which it fires: the dates of a one-time schedule are ignored.
    pub fn fire_limits(&self) -> Dates {
        match self.expression {
            Expression::At(_) => (None, None),
            Expression::Cron(_) | Expression::Rate(_) => (self.start_date, self.end_date),
        }
    }
}

fn check_constraints(name: &str, put: &PutSchedule) -> Result<(), Error> {
    let mut violations = Violations::default();
    violations.check_name("name", name);
    if let Some(group) = &put.group_name {
        violations.check_name("groupName", group);
    }
    violations.check_token(put.client_token.as_deref());
    if let Some(expression) = violations.require_value("scheduleExpression", put.schedule_expression.as_ref()) {
        violations.check_length("scheduleExpression", expression, 1, 256);
    }
    if let Some(timezone) = &put.schedule_expression_timezone {
        violations.check_length("scheduleExpressionTimezone", timezone, 1, 50);
    }
    if let Some(description) = &put.description {
        violations.check_length("description", description, 0, 512);
    }
    if let Some(state) = &put.state {
        violations.check_one_of("state", state, &["ENABLED", "DISABLED"]);
    }
    if let Some(completion) = &put.action_after_completion {
        violations.check_one_of("actionAfterCompletion", completion, &["NONE", "DELETE"]);
    }
    if let Some(key) = &put.kms_key_arn {
        violations.check_length("kmsKeyArn", key, 1, 2048);
        violations.check_pattern("kmsKeyArn", key, Pattern::Key);
    }
    if let Some(window) = violations.require_value("flexibleTimeWindow", put.flexible_time_window.as_ref()) {
        check_window(&mut violations, window);
    }
    if let Some(target) = violations.require_value("target", put.target.as_ref()) {
        check_target(&mut violations, target);
    }
    violations.into_result()
}

fn check_window(violations: &mut Violations, window: &WindowBody) {
    if let Some(mode) = violations.require_value("flexibleTimeWindow.mode", window.mode.as_ref()) {
        violations.check_one_of("flexibleTimeWindow.mode", mode, &["OFF", "FLEXIBLE"]);
    }
    if let Some(minutes) = window.maximum_window_in_minutes {
        violations.check_range("flexibleTimeWindow.maximumWindowInMinutes", minutes, 1, 1440);
    }
}

fn check_target(violations: &mut Violations, target: &TargetBody) {
    if let Some(arn) = violations.require_value("target.arn", target.arn.as_ref()) {
        violations.check_length("target.arn", arn, 1, 1600);
    }
    if let Some(role) = violations.require_value("target.roleArn", target.role_arn.as_ref()) {
        violations.check_length("target.roleArn", role, 1, 1600);
        violations.check_pattern("target.roleArn", role, Pattern::Role);
    }
    if let Some(input) = &target.input {
        violations.check_length("target.input", input, 1, usize::MAX);
    }
    if let Some(queue) = target.dead_letter_config.as_ref().and_then(|config| config.arn.as_ref()) {
        violations.check_length("target.deadLetterConfig.arn", queue, 1, 1600);
        violations.check_pattern("target.deadLetterConfig.arn", queue, Pattern::Queue);
    }
    if let Some(policy) = &target.retry_policy {
        if let Some(age) = policy.maximum_event_age_in_seconds {
            violations.check_range("target.retryPolicy.maximumEventAgeInSeconds", age, 60, 86_400);
        }
        if let Some(attempts) = policy.maximum_retry_attempts {
            violations.check_range("target.retryPolicy.maximumRetryAttempts", attempts, 0, 185);
        }
    }
}

/// Parses the dates of a schedule.
///
/// AWS documents that a one-time schedule ignores both dates. It was observed to refuse an old start and to discard a
/// start's seconds. That it also refuses an end in the past, and discards an end's seconds, is an assumption.
fn dates(expression: &Expression, start: Option<f64>, end: Option<f64>, now: DateTime<Utc>) -> Result<Dates, Error> {
    let start = start.map(|seconds| timestamp("StartDate", seconds)).transpose()?;
    let end = end.map(|seconds| timestamp("EndDate", seconds)).transpose()?;
    if !matches!(expression, Expression::At(_)) {
        check_dates(start, end, now)?;
    }
    Ok((start.map(minute_of), end.map(minute_of)))
}

fn check_dates(start: Option<DateTime<Utc>>, end: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Result<(), Error> {
    let refused = |sentence: &str| Err(Error::Validation(sentence.to_owned()));
    if start.is_some_and(|start| start < now - TimeDelta::minutes(5)) {
        return refused("The StartDate you specify cannot be earlier than 5 minutes ago.");
    }
    if end.is_some_and(|end| end <= now) {
        return refused("The EndDate you specify must be in the future.");
    }
    if start.zip(end).is_some_and(|(start, end)| end <= start) {
        return refused("The EndDate you specify must come after the StartDate.");
    }
    Ok(())
}

fn minute_of(time: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp(time.timestamp().div_euclid(60) * 60, 0).unwrap_or(time)
}

fn timestamp(field: &str, seconds: f64) -> Result<DateTime<Utc>, Error> {
    DateTime::from_timestamp_millis((seconds * 1000.0) as i64)
        .ok_or_else(|| Error::Validation(format!("The {field} you specify is not a time.")))
}

fn window(window: WindowBody) -> Result<WindowBody, Error> {
    match (window.mode.as_deref(), window.maximum_window_in_minutes) {
        (Some("FLEXIBLE"), None) => Err(Error::Validation(
            "MaximumWindowInMinutes must be specified when the mode of FlexibleTimeWindow is FLEXIBLE.".to_owned(),
        )),
        // AWS documents no rule against MaximumWindowInMinutes with OFF.
        _ => Ok(window),
    }
}

fn target(mut target: TargetBody) -> Result<TargetBody, Error> {
    let service = target.arn.as_deref().and_then(Arn::parse).map(|arn| arn.service.to_owned());
    let Some(service) = service else {
        return Err(Error::Validation("Provided Arn is not in correct format.".to_owned()));
    };
    if let Some(input) = &target.input {
        if input.len() > MAX_INPUT_BYTES {
            return Err(Error::Validation(format!("The Input of a Target cannot exceed {MAX_INPUT_BYTES} bytes.")));
        }
        if service == "lambda" && serde_json::from_str::<Value>(input).is_err() {
            return Err(Error::Validation("The Input of a Lambda Target must be well-formed JSON.".to_owned()));
        }
    }
    let policy = target.retry_policy.unwrap_or(DEFAULT_RETRY_POLICY);
    target.retry_policy = Some(RetryPolicy {
        maximum_event_age_in_seconds: policy
            .maximum_event_age_in_seconds
            .or(DEFAULT_RETRY_POLICY.maximum_event_age_in_seconds),
        maximum_retry_attempts: policy.maximum_retry_attempts.or(DEFAULT_RETRY_POLICY.maximum_retry_attempts),
    });
    target.parameters.retain(|name, _| PARAMETERS.contains(&name.as_str()));
    Ok(target)
}
