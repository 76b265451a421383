//! Step 4 of 7: the port to AWS: one schedule per workflow, created, replaced, read or deleted.
//!
//! Every call sends every field, because `UpdateSchedule` resets omitted fields. The port is the wire: the same code
//! speaks to AWS and, through `AWS_ENDPOINT_URL_SCHEDULER`, to the stand-in.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::retry::RetryConfig;
use aws_sdk_scheduler::config::timeout::TimeoutConfig;
use aws_sdk_scheduler::config::{Credentials, Region, StalledStreamProtectionConfig};
use aws_sdk_scheduler::operation::get_schedule::GetScheduleOutput;
use aws_sdk_scheduler::types::{
    ActionAfterCompletion, DeadLetterConfig, FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, ScheduleState,
    Target,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_types::DateTime as AwsTime;
use aws_smithy_types::error::operation::BuildError;
use chrono::{DateTime, Utc};
use schedule::ScheduleName;

use crate::scheduler::existing::{Dates, Existing};
use crate::scheduler::fault::{self, Effect, Fault, Kind};
use crate::scheduler::lease::{Lease, SignWithinLease};
use crate::scheduler::spec::{MAX_AGE_SECS, MAX_RETRIES, Spec, State};

/// EventBridge answers in milliseconds; a request without an answer after this time is lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Includes loading the credentials before the request, and reading the answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Less than a tick, because the server has closed the pooled connections of a Lambda that was frozen for a tick.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a client of EventBridge Scheduler with our timeouts, and without its retries, because the outbox retries.
///
/// With an `endpoint` it speaks to a stand-in there, with dummy credentials. Without one, the environment decides,
/// `AWS_ENDPOINT_URL_SCHEDULER` included.
pub async fn scheduler_client(endpoint: Option<&str>) -> Client {
    let config = match endpoint {
        Some(endpoint) => aws_sdk_scheduler::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("stand-in", "stand-in", None, None, "stand-in"))
            .endpoint_url(endpoint),
        None => {
            aws_sdk_scheduler::config::Builder::from(&aws_config::load_defaults(BehaviorVersion::v2026_01_12()).await)
        }
    };
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(ANSWER_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT);
    let http = aws_smithy_http_client::Builder::new()
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .build_https();
    let config = config.http_client(http).retry_config(RetryConfig::disabled()).timeout_config(timeouts.build());
    // The SDK would measure the throughput of each body at each poll; our timeouts end a stalled answer, too.
    let config = config.stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Client::from_conf(config.build())
}

/// Sends a create or an update, which have the same fields and no type in common.
macro_rules! write_all_fields {
    ($request:expr, $group:expr, $spec:ident, $now:ident, $lease:ident) => {{
        let dates = $spec.sent_dates($now);
        $request
            .name($spec.name.to_string())
            .group_name($group)
            .schedule_expression(&$spec.expression)
            .schedule_expression_timezone(&$spec.timezone)
            .state(state($spec.state))
            .flexible_time_window(punctual()?)
            .set_start_date(dates.start.map(aws_time))
            .set_end_date(dates.end.map(aws_time))
            .description($spec.identity.to_description())
            .action_after_completion(ActionAfterCompletion::None)
            .target(target($spec)?)
            .customize()
            .interceptor(SignWithinLease($lease.clone()))
            .send()
            .await
            .map(drop)
            .map_err(|error| fault::classify_error(&error))
    }};
}

/// The schedules of one schedule group.
#[derive(Clone, Debug)]
pub(crate) struct Schedules {
    pub(super) client: Client,
    pub(super) group: String,
}

impl Schedules {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Schedules { client, group }
    }

    /// Creates a schedule; [`Kind::NotFound`] means that the schedule group is missing.
    pub(crate) async fn create_schedule(&self, spec: &Spec, now: DateTime<Utc>, lease: &Lease) -> Result<(), Fault> {
        write_all_fields!(self.client.create_schedule(), &self.group, spec, now, lease)
    }

    /// Replaces all fields of a schedule.
    pub(crate) async fn update_schedule(&self, spec: &Spec, now: DateTime<Utc>, lease: &Lease) -> Result<(), Fault> {
        write_all_fields!(self.client.update_schedule(), &self.group, spec, now, lease)
    }

    /// Deletes a schedule.
    pub(crate) async fn delete_schedule(&self, name: &ScheduleName, lease: &Lease) -> Result<(), Fault> {
        self.client
            .delete_schedule()
            .name(name.to_string())
            .group_name(&self.group)
            .customize()
            .interceptor(SignWithinLease(lease.clone()))
            .send()
            .await
            .map(drop)
            .map_err(|error| fault::classify_error(&error))
    }

    /// Reads a schedule; `None` if there is none.
    pub(crate) async fn get_schedule(&self, name: &ScheduleName, lease: &Lease) -> Result<Option<Existing>, Fault> {
        let read = self
            .client
            .get_schedule()
            .name(name.to_string())
            .group_name(&self.group)
            .customize()
            .interceptor(SignWithinLease(lease.clone()))
            .send()
            .await;
        match read.map_err(|error| fault::classify_error(&error)) {
            Ok(output) => Ok(Some(existing(output))),
            Err(fault) if fault.kind == Kind::NotFound => Ok(None),
            // A read has no effect, whatever its result.
            Err(fault) => Err(Fault { effect: Effect::None, ..fault }),
        }
    }
}

fn target(spec: &Spec) -> Result<Target, Fault> {
    let retries = RetryPolicy::builder().maximum_event_age_in_seconds(MAX_AGE_SECS).maximum_retry_attempts(MAX_RETRIES);
    Target::builder()
        .arn(&spec.target_arn)
        .role_arn(&spec.role_arn)
        .dead_letter_config(DeadLetterConfig::builder().arn(&spec.dlq_arn).build())
        .retry_policy(retries.build())
        .input(spec.input.to_json())
        .build()
        .map_err(|error| incomplete(&error))
}

/// No flexible window, because a cron names its exact minute.
fn punctual() -> Result<FlexibleTimeWindow, Fault> {
    FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().map_err(|error| incomplete(&error))
}

fn incomplete(error: &BuildError) -> Fault {
    Fault::new(Kind::Unclassified, Effect::None, format!("the request is incomplete: {error}"))
}

fn state(state: State) -> ScheduleState {
    match state {
        State::Enabled => ScheduleState::Enabled,
        State::Disabled => ScheduleState::Disabled,
    }
}

fn existing(output: GetScheduleOutput) -> Existing {
    let target = output.target;
    let retries = target.as_ref().and_then(|target| target.retry_policy.as_ref());
    Existing {
        expression: output.schedule_expression,
        // An omitted field has its default: UTC, enabled.
        timezone: output.schedule_expression_timezone,
        is_enabled: output.state.is_none_or(|state| state == ScheduleState::Enabled),
        is_kept: output.action_after_completion.is_none_or(|action| action == ActionAfterCompletion::None),
        kms_key_arn: output.kms_key_arn.filter(|arn| !arn.is_empty()),
        is_punctual: output.flexible_time_window.is_none_or(|window| window.mode == FlexibleTimeWindowMode::Off),
        dates: Dates { start: output.start_date.and_then(utc), end: output.end_date.and_then(utc) },
        description: output.description,
        retries: retries.and_then(|policy| policy.maximum_event_age_in_seconds.zip(policy.maximum_retry_attempts)),
        dlq_arn: target.as_ref().and_then(|target| target.dead_letter_config.as_ref()).and_then(|dlq| dlq.arn.clone()),
        target_arn: target.as_ref().map(|target| target.arn.clone()),
        role_arn: target.as_ref().map(|target| target.role_arn.clone()),
        input: target.and_then(|target| target.input),
        modified_on: output.last_modification_date.and_then(utc_micros),
    }
}

fn aws_time(time: DateTime<Utc>) -> AwsTime {
    AwsTime::from_secs(time.timestamp())
}

fn utc(time: AwsTime) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time.secs(), 0)
}

/// In microseconds, like Postgres, so that the value that is read equals the one that was stored.
pub(super) fn utc_micros(time: AwsTime) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time.secs(), time.subsec_nanos() / 1000 * 1000)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Instant;

    #[cfg(debug_assertions)]
    use aws_smithy_runtime_api::box_error::BoxError;
    #[cfg(debug_assertions)]
    use aws_smithy_runtime_api::client::interceptors::Intercept;
    #[cfg(debug_assertions)]
    use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
    #[cfg(debug_assertions)]
    use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
    #[cfg(debug_assertions)]
    use aws_smithy_types::config_bag::ConfigBag;
    use schedule::WorkflowId;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::scheduler::lease::{End, Renewal, Span};
    use crate::stopwatch::Stopwatch;

    #[tokio::test]
    async fn nothing_is_signed_after_the_lease() {
        let span = |deadline| Span::new(Some(deadline), Renewal::Off, End::default(), Stopwatch::default());
        let over = Lease::new(Instant::now(), &span(Instant::now()));
        // No server listens there, so a request that was sent would be refused as a transient fault.
        let schedules = Schedules::new(scheduler_client(Some("http://127.0.0.1:9")).await, "group".to_owned());
        let name = ScheduleName::new(WorkflowId(1), &"dev".parse().unwrap());
        assert_eq!(schedules.delete_schedule(&name, &over).await, Err(Fault::not_sent()));

        let live = Lease::new(Instant::now(), &span(Instant::now() + Duration::from_secs(60)));
        let refused = schedules.delete_schedule(&name, &live).await.unwrap_err();
        assert_eq!((refused.kind, refused.effect), (Kind::Transient, Effect::None), "{}", refused.message);
    }

    /// The server sends the head of an answer, and never its body.
    #[tokio::test]
    async fn an_answer_that_stalls_ends_by_the_timeout_of_the_call() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let stalling = async {
            let (mut connection, _) = server.accept().await.unwrap();
            connection.read_buf(&mut Vec::with_capacity(4_096)).await.unwrap();
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{").await.unwrap();
            std::future::pending::<Infallible>().await
        };
        let span = Span::new(None, Renewal::Off, End::default(), Stopwatch::default());
        let schedules = Schedules::new(scheduler_client(Some(&endpoint)).await, "group".to_owned());
        let name = ScheduleName::new(WorkflowId(1), &"dev".parse().unwrap());
        let lease = Lease::new(Instant::now(), &span);
        let answer = tokio::select! {
            answer = schedules.delete_schedule(&name, &lease) => answer,
            never = stalling => match never {},
        };
        let stalled = answer.unwrap_err();
        assert_eq!((stalled.kind, stalled.effect), (Kind::Transient, Effect::Unknown), "{}", stalled.message);
    }

    /// Freezes the process between signing and sending, for a minute of the lease's clock.
    #[cfg(debug_assertions)]
    #[derive(Debug)]
    struct FreezeSigned(Stopwatch);

    #[cfg(debug_assertions)]
    impl Intercept for FreezeSigned {
        fn name(&self) -> &'static str {
            "FreezeSigned"
        }

        fn read_after_signing(
            &self,
            _: &BeforeTransmitInterceptorContextRef<'_>,
            _: &RuntimeComponents,
            _: &mut ConfigBag,
        ) -> Result<(), BoxError> {
            self.0.advance_by(Duration::from_secs(60));
            Ok(())
        }
    }

    /// The process freezes after it has signed the request, until the lease has ended.
    #[cfg(debug_assertions)]
    #[tokio::test]
    async fn nothing_is_sent_after_a_freeze() {
        let stopwatch = Stopwatch::new_stopped();
        let deadline = stopwatch.now() + Duration::from_secs(3600);
        let span = Span::new(Some(deadline), Renewal::Off, End::default(), stopwatch.clone());
        let lease = Lease::new(stopwatch.now(), &span);
        let client = scheduler_client(Some("http://127.0.0.1:9")).await;
        let config = client.config().to_builder().interceptor(FreezeSigned(stopwatch)).build();
        let schedules = Schedules::new(Client::from_conf(config), "group".to_owned());
        let name = ScheduleName::new(WorkflowId(1), &"dev".parse().unwrap());
        assert_eq!(schedules.delete_schedule(&name, &lease).await, Err(Fault::not_sent()));
    }
}
