//! Step 4 of 7: what EventBridge's refusals mean, whatever they are called.

use std::error::Error as StdError;
use std::io;

use aws_sdk_scheduler::config::http::HttpResponse;
use aws_sdk_scheduler::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::lease::LeaseEnded;

/// What kind of refusal it is. What it means depends on the call: see `converge/judge.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The schedule does not exist; of a create: the group does not.
    NotFound,
    /// The schedule exists, or is being changed right now.
    Conflict,
    /// Too many calls.
    Throttled,
    /// Broken on their side, unreachable, or a role that is not known everywhere yet.
    Transient,
    /// We have no permission for it.
    Denied,
    /// Nobody's schedule is the cause: credentials, quota.
    Environment,
    /// The schedule itself is wrong; trying again changes nothing.
    Invalid,
    /// Our lease ended before the request was signed: nothing was sent.
    NotSent,
    /// None of these.
    Unclassified,
}

/// Whether a refused request may yet take effect, or already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It was refused, or never left.
    None,
    /// Nobody knows: no answer came, or one that does not tell.
    Unknown,
}

/// A call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What kind of refusal.
    pub(crate) kind: Kind,
    /// What may have happened nonetheless.
    pub(crate) effect: Effect,
    /// A sentence for the workflow's owner.
    pub(crate) message: String,
}

impl Fault {
    fn new(kind: Kind, effect: Effect, message: impl Into<String>) -> Self {
        Fault { kind, effect, message: message.into() }
    }

    /// The lease ended before the request was signed.
    pub(crate) fn not_sent() -> Self {
        Fault::new(Kind::NotSent, Effect::None, LeaseEnded.to_string())
    }

    /// The same refusal, judged as another kind.
    pub(crate) fn judged_as(self, kind: Kind, message: impl Into<String>) -> Self {
        Fault { kind, effect: self.effect, message: message.into() }
    }
}

/// Reads any operation's error.
pub(crate) fn read<E>(error: &SdkError<E, HttpResponse>) -> Fault
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
        SdkError::DispatchFailure(_) => Fault::new(Kind::Transient, unreached(error), "EventBridge cannot be reached"),
        SdkError::ResponseError(answer) => unreadable(answer.raw().status().as_u16()),
        SdkError::ServiceError(answer) => {
            let error = answer.err();
            refusal(
                error.code().unwrap_or_default(),
                error.message().unwrap_or_default(),
                answer.raw().status().as_u16(),
            )
        }
        _ => Fault::new(Kind::Unclassified, Effect::Unknown, sentence(error)),
    }
}

/// A typed refusal. The type decides, not the status: emulators answer 400 where AWS says 409.
fn refusal(code: &str, message: &str, status: u16) -> Fault {
    let said = if message.is_empty() { code } else { message };
    match code {
        "ResourceNotFoundException" => {
            Fault::new(Kind::NotFound, Effect::None, format!("EventBridge does not find it: {said}"))
        }
        "ConflictException" => {
            Fault::new(Kind::Conflict, Effect::None, format!("EventBridge is busy with this schedule: {said}"))
        }
        // While IAM propagates a new role, AWS words it as if the schedule were wrong.
        "ValidationException" if message.contains("assume the role") => {
            Fault::new(Kind::Transient, Effect::None, format!("EventBridge cannot assume the role yet: {said}"))
        }
        "ValidationException" => {
            Fault::new(Kind::Invalid, Effect::None, format!("EventBridge refuses the schedule: {said}"))
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
        _ => Fault::new(Kind::Unclassified, Effect::None, format!("EventBridge answered {status} {said}")),
    }
}

/// An answer that does not speak Scheduler's protocol: a proxy's page, a cut body.
fn unreadable(status: u16) -> Fault {
    match status {
        429 => Fault::new(Kind::Throttled, Effect::None, "EventBridge throttles our calls"),
        500.. => Fault::new(Kind::Transient, Effect::Unknown, format!("EventBridge answered {status}")),
        _ => Fault::new(
            Kind::Unclassified,
            Effect::Unknown,
            format!("EventBridge answered {status} with something unreadable"),
        ),
    }
}

/// A connection that was refused carried no request; of any other break nobody knows.
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
                Kind::Transient,
                Effect::None,
            ),
            ("ServiceQuotaExceededException", "", 402, Kind::Environment, Effect::None),
            ("AccessDeniedException", "not authorized", 403, Kind::Denied, Effect::None),
            ("ThrottlingException", "Rate exceeded", 429, Kind::Throttled, Effect::None),
            ("InternalServerException", "", 500, Kind::Transient, Effect::Unknown),
            ("", "", 503, Kind::Transient, Effect::Unknown),
            ("SomethingNew", "", 418, Kind::Unclassified, Effect::None),
        ];
        for (code, message, status, kind, effect) in kinds {
            let fault = refusal(code, message, status);
            assert_eq!((fault.kind, fault.effect), (kind, effect), "{code} {status}");
        }
    }
}
