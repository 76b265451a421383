//! Steps 5 to 7: how long the delivery of a fire may take, and how long the ledger waits for it.
//!
//! The app and the publisher use the same constants, so that their rules agree.

use std::time::Duration;

use chrono::TimeDelta;

/// EventBridge Scheduler invokes less than 60 s after the scheduled time; this is the last whole second.
pub const EVENTBRIDGE_PRECISION: TimeDelta = TimeDelta::seconds(59);

/// How long Lambda waits before the second and the third try of an asynchronous invocation.
pub const LAMBDA_RETRY_PAUSES: [TimeDelta; 2] = [TimeDelta::seconds(60), TimeDelta::seconds(120)];

/// The time limit of the runner for one invocation, all of its requests together.
pub const RUNNER_TIME_LIMIT: Duration = Duration::from_secs(12);

/// A fire that is at most this old is on time. If none has arrived by then, the watchdog decides the time.
pub const GRACE: TimeDelta = TimeDelta::seconds(300);

/// How long after its end a span is decided: the grace, and two passes of the watchdog.
pub const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(420);

#[cfg(test)]
mod tests {
    use super::*;

    /// Lambda's third try starts after two tries that used their full time, and both pauses.
    #[test]
    fn lambdas_third_try_lies_within_grace() {
        let try_secs = i64::try_from(RUNNER_TIME_LIMIT.as_secs()).unwrap();
        let failed_tries = i32::try_from(LAMBDA_RETRY_PAUSES.len()).unwrap();
        let pauses = LAMBDA_RETRY_PAUSES.iter().fold(TimeDelta::zero(), |sum, pause| sum + *pause);
        let third_try = EVENTBRIDGE_PRECISION + pauses + TimeDelta::seconds(try_secs) * failed_tries;
        assert_eq!(third_try, TimeDelta::seconds(263));
        assert!(GRACE - third_try >= TimeDelta::seconds(30), "{GRACE} leaves too little after {third_try}");
    }

    #[test]
    fn a_settled_span_had_two_watchdog_passes() {
        assert_eq!(SETTLED_AFTER - GRACE, TimeDelta::minutes(2));
    }
}
