//! Step 4 of 7: classifies EventBridge's refusals.

use std::error::Error as StdError;
use std::io;

use aws_sdk_scheduler::config::http::HttpResponse;
use aws_sdk_scheduler::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::scheduler::lease::LeaseEnded;

/// The kind of a call; permissions and quotas differ by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Get,
}

impl Operation {
    /// The name in AWS' API.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Operation::Create => "CreateSchedule",
            Operation::Update => "UpdateSchedule",
            Operation::Delete => "DeleteSchedule",
            Operation::Get => "GetSchedule",
        }
    }

    /// The name of its span, by the conventions for AWS' SDK.
    pub(crate) fn span_name(self) -> &'static str {
        match self {
            Operation::Create => "Scheduler/CreateSchedule",
            Operation::Update => "Scheduler/UpdateSchedule",
            Operation::Delete => "Scheduler/DeleteSchedule",
            Operation::Get => "Scheduler/GetSchedule",
        }
    }
}

/// The kind of a refusal. Its meaning depends on the call: see `converge/decide.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The schedule does not exist; for a create: the schedule group does not exist.
    NotFound,
    /// The schedule exists, or is being changed now.
    Conflict,
    /// Too many calls.
    Throttled,
    /// A failure of the server, or it cannot be reached.
    Transient,
    /// The publisher has no permission.
    Denied,
    /// Not caused by a schedule: credentials, quota, an answer that is not EventBridge's.
    Environment,
    /// EventBridge Scheduler may not assume the role that every schedule names.
    Role,
    /// A setting of the deployment is refused: target, role, dead-letter queue, schedule group.
    Setting,
    /// The schedule itself is not valid; another attempt changes nothing.
    Invalid,
    /// The lease ended before the request was signed, so nothing was sent.
    NotSent,
    /// None of these.
    Unclassified,
}

impl Kind {
    /// The word of the metrics and of the traces.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::NotSent => "not_sent",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::Throttled => "throttled",
            Kind::Transient => "transient",
            Kind::Denied => "denied",
            Kind::Environment | Kind::Role => "environment",
            Kind::Invalid | Kind::Setting => "invalid",
            Kind::Unclassified => "unclassified",
        }
    }
}

/// Whether a refused request may still take effect, or already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request has no effect: it was refused, or never sent.
    None,
    /// The effect is unknown: there was no answer, or the answer does not say it.
    Unknown,
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind of the refusal.
    pub(crate) kind: Kind,
    /// Whether the request may have taken effect nevertheless.
    pub(crate) effect: Effect,
    /// A sentence for the workflow's owner.
    pub(crate) message: String,
    /// The operation of the call, if it matters.
    pub(crate) operation: Option<Operation>,
    /// The status of the answer, 0 = there was none.
    pub(crate) status: u16,
    /// The connection broke before the first byte of the answer: probably a reused one that the server had closed.
    pub(crate) is_broken: bool,
}

impl Fault {
    pub(crate) fn new(kind: Kind, effect: Effect, message: impl Into<String>) -> Self {
        Fault { kind, effect, message: message.into(), operation: None, status: 0, is_broken: false }
    }

    fn with_status(self, status: u16) -> Self {
        Fault { status, ..self }
    }

    /// Returns the fault with the operation of the call.
    pub(crate) fn with_operation(self, operation: Operation) -> Self {
        Fault { operation: Some(operation), ..self }
    }

    /// The lease ended before the request was signed.
    pub(crate) fn not_sent() -> Self {
        Fault::new(Kind::NotSent, Effect::None, LeaseEnded.to_string())
    }

    /// Returns the same refusal with another kind.
    pub(crate) fn classified_as(self, kind: Kind, message: impl Into<String>) -> Self {
        Fault { kind, message: message.into(), ..self }
    }
}

/// Classifies the error of any operation.
pub(crate) fn classify_error<E>(error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    if has_cause::<LeaseEnded>(error, |_| true) {
        return Fault::not_sent();
    }
    match error {
        SdkError::ConstructionFailure(_) => Fault::new(
            Kind::Environment,
            Effect::None,
            format!("cannot sign requests to EventBridge: {}", sentence(error)),
        ),
        SdkError::TimeoutError(_) => Fault::new(Kind::Transient, Effect::Unknown, "EventBridge did not answer in time"),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => {
            Fault::new(Kind::Transient, Effect::Unknown, "EventBridge did not answer in time")
        }
        SdkError::DispatchFailure(_) => Fault {
            is_broken: has_cause::<hyper::Error>(error, |_| true),
            ..Fault::new(Kind::Transient, unreached(error), "EventBridge cannot be reached")
        },
        SdkError::ResponseError(answer) => {
            let status = answer.raw().status().as_u16();
            unreadable(status).with_status(status)
        }
        SdkError::ServiceError(answer) => {
            let (error, status) = (answer.err(), answer.raw().status().as_u16());
            refusal(error.code().unwrap_or_default(), error.message().unwrap_or_default(), status).with_status(status)
        }
        _ => Fault::new(Kind::Unclassified, Effect::Unknown, sentence(error)),
    }
}

/// A typed refusal. The type decides, not the status: emulators answer 400 where AWS answers 409.
fn refusal(code: &str, message: &str, status: u16) -> Fault {
    let said = if message.is_empty() { code } else { message };
    match code {
        "ResourceNotFoundException" => {
            Fault::new(Kind::NotFound, Effect::None, format!("EventBridge does not find what the call names: {said}"))
        }
        "ConflictException" => {
            Fault::new(Kind::Conflict, Effect::None, format!("EventBridge is busy with this schedule: {said}"))
        }
        // The role is missing, does not trust Scheduler, or still propagates in IAM: AWS reports all three as if the
        // schedule were wrong. Not `Setting`: while a role propagates, calls of other workflows succeed.
        "ValidationException" if message.contains("assume the role") => {
            Fault::new(Kind::Role, Effect::None, format!("EventBridge cannot assume the role: {said}"))
        }
        "ValidationException" if is_about_the_schedule(message) => {
            Fault::new(Kind::Invalid, Effect::None, format!("EventBridge refuses the schedule: {said}"))
        }
        "ValidationException" => {
            Fault::new(Kind::Setting, Effect::None, format!("EventBridge refuses a setting of the deployment: {said}"))
        }
        "ServiceQuotaExceededException" | "LimitExceededException" => {
            Fault::new(Kind::Environment, Effect::None, format!("the account's quota of schedules is used up: {said}"))
        }
        "AccessDeniedException" | "NotAuthorized" => {
            Fault::new(Kind::Denied, Effect::None, format!("the publisher may not do this in EventBridge: {said}"))
        }
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "OptInRequired" => {
            Fault::new(Kind::Environment, Effect::None, format!("the publisher may not do this in EventBridge: {said}"))
        }
        _ if code.starts_with("Throttl") || code == "TooManyRequestsException" || status == 429 => {
            Fault::new(Kind::Throttled, Effect::None, "EventBridge throttles our calls")
        }
        _ if status >= 500 => {
            Fault::new(Kind::Transient, Effect::Unknown, format!("EventBridge has an internal error: {said}"))
        }
        _ if status == 402 => {
            Fault::new(Kind::Environment, Effect::None, format!("the account's quota of schedules is used up: {said}"))
        }
        _ if status == 401 || status == 403 => {
            Fault::new(Kind::Denied, Effect::None, format!("the publisher may not do this in EventBridge: {said}"))
        }
        // Scheduler names each of its refusals, so another server answered.
        "" => foreign(status, Effect::None),
        _ => Fault::new(Kind::Unclassified, Effect::None, format!("EventBridge answered {status} {said}")),
    }
}

/// Whether a refusal concerns a field that the workflow's owner wrote, and none that the deployment adds.
///
/// AWS names the fields that violate its model (`Value '..' at 'target.roleArn' failed to satisfy constraint: ..`), and
/// describes violations of its other rules in separate sentences.
fn is_about_the_schedule(message: &str) -> bool {
    let is_own = |text: &str, fields: &[&str]| {
        let text = text.to_ascii_lowercase();
        fields.iter().any(|field| text.contains(field))
    };
    let fields: Vec<&str> =
        message.split(" at '").skip(1).filter_map(|rest| rest.split_once('\'').map(|(field, _)| field)).collect();
    if fields.is_empty() {
        return is_own(message, &["schedule expression", "timezone", "time zone", "startdate", "enddate"]);
    }
    let own = ["scheduleexpression", "startdate", "enddate"];
    fields.iter().all(|field| is_own(field, &own))
}

/// An answer that is not Scheduler's: from a proxy, or a wrong endpoint.
fn foreign(status: u16, effect: Effect) -> Fault {
    let message = format!("something other than EventBridge answered {status}: check the endpoint and the proxy");
    Fault::new(Kind::Environment, effect, message)
}

/// An answer that is not in Scheduler's protocol: a proxy's page, a truncated body.
fn unreadable(status: u16) -> Fault {
    match status {
        429 => Fault::new(Kind::Throttled, Effect::None, "EventBridge throttles our calls"),
        500.. => Fault::new(Kind::Transient, Effect::Unknown, format!("EventBridge answered {status}")),
        _ => foreign(status, Effect::Unknown),
    }
}

/// A refused connection carried no request; after any other failure the effect is unknown.
fn unreached(error: &(dyn StdError + 'static)) -> Effect {
    if has_cause::<io::Error>(error, |cause| cause.kind() == io::ErrorKind::ConnectionRefused) {
        Effect::None
    } else {
        Effect::Unknown
    }
}

fn has_cause<C: StdError + 'static>(error: &(dyn StdError + 'static), is: impl Fn(&C) -> bool) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<C>().is_some_and(&is) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn sentence(error: &(dyn StdError + 'static)) -> String {
    DisplayErrorContext(error).to_string().lines().next().unwrap_or_default().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_decides_and_then_the_status() {
        let kinds = [
            ("ConflictException", "exists", 400, Kind::Conflict, Effect::None),
            ("ResourceNotFoundException", "", 404, Kind::NotFound, Effect::None),
            ("ValidationException", "Invalid Schedule Expression", 400, Kind::Invalid, Effect::None),
            (
                "ValidationException",
                "must allow AWS EventBridge Scheduler to assume the role.",
                400,
                Kind::Role,
                Effect::None,
            ),
            ("ServiceQuotaExceededException", "", 402, Kind::Environment, Effect::None),
            ("AccessDeniedException", "not authorized", 403, Kind::Denied, Effect::None),
            ("ThrottlingException", "Rate exceeded", 429, Kind::Throttled, Effect::None),
            ("InternalServerException", "", 500, Kind::Transient, Effect::Unknown),
            ("", "", 503, Kind::Transient, Effect::Unknown),
            ("SomethingNew", "", 418, Kind::Unclassified, Effect::None),
            ("", "", 404, Kind::Environment, Effect::None),
            ("", "", 302, Kind::Environment, Effect::None),
        ];
        for (code, message, status, kind, effect) in kinds {
            let fault = refusal(code, message, status);
            assert_eq!((fault.kind, fault.effect), (kind, effect), "{code} {status}");
        }
    }

    #[test]
    fn validation_errors_name_schedule_or_setting() {
        let constraint = |field| {
            format!("1 validation error detected: Value 'x' at '{field}' failed to satisfy constraint: Member must ..")
        };
        for field in ["scheduleExpression", "scheduleExpressionTimezone", "startDate", "endDate"] {
            assert_eq!(refusal("ValidationException", &constraint(field), 400).kind, Kind::Invalid, "{field}");
        }
        let others = ["target.arn", "target.roleArn", "target.deadLetterConfig.arn", "groupName", "name", "kmsKeyArn"];
        for field in others {
            assert_eq!(refusal("ValidationException", &constraint(field), 400).kind, Kind::Setting, "{field}");
        }
        let both = "2 validation errors detected: Value '' at 'scheduleExpression' failed to satisfy constraint: a; \
                    Value 'x' at 'target.roleArn' failed to satisfy constraint: b";
        assert_eq!(refusal("ValidationException", both, 400).kind, Kind::Setting);
        for (sentence, kind) in [
            ("Invalid Schedule Expression cron(0 9 ? * 8 *).", Kind::Invalid),
            ("Invalid Schedule Expression Timezone Mars/Phobos.", Kind::Invalid),
            ("The StartDate you specify cannot be earlier than 5 minutes ago.", Kind::Invalid),
            ("The EndDate you specify must come after the StartDate.", Kind::Invalid),
            ("Provided Arn is not in correct format.", Kind::Setting),
            ("Something that no document mentions.", Kind::Setting),
        ] {
            assert_eq!(refusal("ValidationException", sentence, 400).kind, kind, "{sentence}");
        }
    }
}
