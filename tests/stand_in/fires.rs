//! The stand-in fires as EventBridge Scheduler's documentation says. These tests observe the function that it invokes.

use std::sync::{Arc, Mutex};

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::primitives::DateTime as AwsDateTime;
use aws_sdk_scheduler::types::{DeadLetterConfig, FlexibleTimeWindow, FlexibleTimeWindowMode, ScheduleState, Target};
use chrono::{DateTime, Utc};
use local::client;
use serde_json::{Value, json};
use stand_in::invoke::Handler;
use stand_in::scheduler::clock_change::Fold;
use stand_in::{Clock, Options, StandIn, StandInServer, fires, scheduler};

const FUNCTION: &str = "arn:aws:lambda:us-east-1:123456789012:function:runner";
const ROLE: &str = "arn:aws:iam::123456789012:role/scheduler";
const QUEUE: &str = "arn:aws:sqs:us-east-1:123456789012:schedule-dead-letters";
const INPUT: &str = r#"{"workflow_id":7,"scheduled_time":"<aws.scheduler.scheduled-time>","execution_id":"<aws.scheduler.execution-id>","attempt":"<aws.scheduler.attempt-number>","schedule_arn":"<aws.scheduler.schedule-arn>"}"#;

/// A stand-in on a settable clock, with one function that records its events.
struct Story {
    served: StandInServer,
    client: Client,
    clock: Clock,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Story {
    async fn begin(now: &str, options: Options) -> Story {
        let clock = Clock::fixed(at(now));
        let served = StandInServer::start_anywhere(StandIn::new(options, clock.clone())).await.unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        let handler: Handler = Arc::new(move |event| {
            kept.lock().unwrap().push(event);
            Box::pin(async { Ok(()) })
        });
        served.stand_in.lambda.register_function(FUNCTION, QUEUE, handler);
        Story { client: client::stand_in_client(&served.endpoint), served, clock, received }
    }

    /// Advances the clock through all times at which an invocation is due.
    async fn clock_to(&self, until: &str) {
        let until = at(until);
        while let Some(due) = self.served.stand_in.fires.next_due(until) {
            self.clock.set(due);
            self.served.stand_in.fires.fire_and_deliver(due).await;
        }
        self.clock.set(until);
    }

    /// The scheduled times that the function got since this was last called.
    fn times(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.received.lock().unwrap());
        events.iter().map(|event| event["scheduled_time"].as_str().unwrap_or("none").to_owned()).collect()
    }

    async fn create(&self, name: &str, expression: &str, zone: &str) {
        let create = self.client.create_schedule().name(name).schedule_expression(expression);
        let create = create.schedule_expression_timezone(zone).flexible_time_window(on_time()).target(target(FUNCTION));
        create.send().await.unwrap();
    }
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn on_time() -> FlexibleTimeWindow {
    FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap()
}

fn target(arn: &str) -> Target {
    let dead_letters = DeadLetterConfig::builder().arn(QUEUE).build();
    Target::builder().arn(arn).role_arn(ROLE).input(INPUT).dead_letter_config(dead_letters).build().unwrap()
}

#[tokio::test]
async fn schedules_fire_at_each_future_time() {
    let story = Story::begin("2026-03-02T09:00:30Z", Options::default()).await;
    story.create("wf-7-dev", "cron(0/15 9 ? * MON-FRI *)", "UTC").await;
    assert_eq!(story.served.stand_in.fires.next_due(at("2026-03-02T09:14:59Z")), None);
    story.clock_to("2026-03-03T09:00:00Z").await;
    assert_eq!(
        story.times(),
        ["2026-03-02T09:15:00Z", "2026-03-02T09:30:00Z", "2026-03-02T09:45:00Z", "2026-03-03T09:00:00Z"]
    );
}

#[tokio::test]
async fn the_context_attributes_are_filled_in() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    story.create("wf-7-dev", "cron(0 9 * * ? *)", "Europe/Paris").await;
    story.clock_to("2026-03-03T08:00:00Z").await;
    let events = story.received.lock().unwrap().clone();
    let [event] = &events[..] else { panic!("one event, not {events:?}") };
    let execution_id = event["execution_id"].as_str().unwrap();
    assert_eq!(uuid::Uuid::parse_str(execution_id).unwrap().to_string(), execution_id);
    assert_eq!(
        *event,
        json!({
            "workflow_id": 7,
            "scheduled_time": "2026-03-03T08:00:00Z",
            "execution_id": execution_id,
            "attempt": "1",
            "schedule_arn": "arn:aws:scheduler:us-east-1:123456789012:schedule/default/wf-7-dev",
        })
    );
}

#[tokio::test]
async fn a_switch_sends_seconds_other_than_zero() {
    let options = Options { fires: fires::Options { second: 43, seed: None }, ..Options::default() };
    let story = Story::begin("2026-03-02T08:00:00Z", options).await;
    story.create("wf-7-dev", "cron(0 9 * * ? *)", "UTC").await;
    story.clock_to("2026-03-02T09:00:00Z").await;
    assert_eq!(story.times(), ["2026-03-02T09:00:43Z"]);
}

#[tokio::test]
async fn times_while_disabled_are_never_fired() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    story.create("wf-7-dev", "cron(0 * * * ? *)", "UTC").await;
    let set = async |state: ScheduleState| {
        let update = story.client.update_schedule().name("wf-7-dev").schedule_expression("cron(0 * * * ? *)");
        update.state(state).flexible_time_window(on_time()).target(target(FUNCTION)).send().await.unwrap();
    };
    set(ScheduleState::Disabled).await;
    story.clock_to("2026-03-02T10:30:00Z").await;
    assert_eq!(story.times(), [""; 0]);
    set(ScheduleState::Enabled).await;
    story.clock_to("2026-03-02T11:30:00Z").await;
    assert_eq!(story.times(), ["2026-03-02T11:00:00Z"]);
}

#[tokio::test]
async fn start_and_end_date_bound_the_fires() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    let create = story.client.create_schedule().name("wf-7-dev").schedule_expression("cron(0 * * * ? *)");
    let create = create.start_date(AwsDateTime::from_secs(at("2026-03-02T10:00:00Z").timestamp()));
    let create = create.end_date(AwsDateTime::from_secs(at("2026-03-02T12:00:00Z").timestamp()));
    create.flexible_time_window(on_time()).target(target(FUNCTION)).send().await.unwrap();
    story.clock_to("2026-03-02T20:00:00Z").await;
    assert_eq!(story.times(), ["2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z", "2026-03-02T12:00:00Z"]);
}

/// AWS documents that only the first instance fires; an option of the stand-in fires both.
#[tokio::test]
async fn folds_fire_once_unless_switched() {
    let first = Story::begin("2026-11-01T04:59:00Z", Options::default()).await;
    first.create("wf-7-dev", "cron(30 1 * * ? *)", "America/New_York").await;
    first.clock_to("2026-11-01T12:00:00Z").await;
    assert_eq!(first.times(), ["2026-11-01T05:30:00Z"]);
    let scheduler = scheduler::Options { fold: Fold::Both, ..scheduler::Options::default() };
    let both = Story::begin("2026-11-01T04:59:00Z", Options { scheduler, ..Options::default() }).await;
    both.create("wf-7-dev", "cron(30 1 * * ? *)", "America/New_York").await;
    both.clock_to("2026-11-01T12:00:00Z").await;
    assert_eq!(both.times(), ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]);
}

#[tokio::test]
async fn targets_without_input_get_default_events() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    let bare = Target::builder().arn(FUNCTION).role_arn(ROLE).build().unwrap();
    let create = story.client.create_schedule().name("bare").schedule_expression("cron(0 9 * * ? *)");
    create.flexible_time_window(on_time()).target(bare).send().await.unwrap();
    story.clock_to("2026-03-02T09:00:00Z").await;
    let events = story.received.lock().unwrap().clone();
    let mut event = events[0].clone();
    event["id"] = json!("an execution");
    assert_eq!(
        event,
        json!({
            "version": "0",
            "id": "an execution",
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": "123456789012",
            "time": "2026-03-02T09:00:00Z",
            "region": "us-east-1",
            "resources": ["arn:aws:scheduler:us-east-1:123456789012:schedule/default/bare"],
            "detail": "{}",
        })
    );
}

#[tokio::test]
async fn fires_for_unknown_functions_are_dead_letters() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    let nowhere = target("arn:aws:lambda:us-east-1:123456789012:function:nowhere");
    let create = story.client.create_schedule().name("wf-7-dev").schedule_expression("cron(0 9 * * ? *)");
    create.flexible_time_window(on_time()).target(nowhere).send().await.unwrap();
    story.clock_to("2026-03-02T09:00:00Z").await;
    let url = format!("{}/_dead-letters", story.served.endpoint);
    let listed: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    let message = &listed["items"][0];
    assert_eq!(message["queue"], QUEUE);
    assert_eq!(message["body"]["FunctionName"], "arn:aws:lambda:us-east-1:123456789012:function:nowhere");
    assert_eq!(message["body"]["InvocationType"], "Event");
    let payload: Value = serde_json::from_str(message["body"]["Payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["scheduled_time"], "2026-03-02T09:00:00Z");
    let attributes = message["attributes"].as_object().unwrap();
    assert_eq!(attributes["ERROR_CODE"], "ResourceNotFoundException");
    assert_eq!(attributes["SCHEDULED_TIME"], "2026-03-02T09:00:00Z");
    assert_eq!(attributes["TARGET_ARN"], "arn:aws:scheduler:::aws-sdk:lambda:invoke");
    assert!(!attributes.contains_key("EXHAUSTED_RETRY_CONDITION"), "a permanent error exhausts no retries");
}

#[tokio::test]
async fn deletes_take_back_no_due_fire() {
    let story = Story::begin("2026-03-02T08:59:00Z", Options::default()).await;
    story.create("wf-7-dev", "cron(0 9 * * ? *)", "UTC").await;
    story.clock.set(at("2026-03-02T09:00:00Z"));
    story.client.delete_schedule().name("wf-7-dev").send().await.unwrap();
    story.clock_to("2026-03-04T00:00:00Z").await;
    assert_eq!(story.times(), ["2026-03-02T09:00:00Z"]);
}

#[tokio::test]
async fn action_after_completion_deletes_the_schedule() {
    let story = Story::begin("2026-03-02T08:00:00Z", Options::default()).await;
    let create = story.client.create_schedule().name("once").schedule_expression("at(2026-03-02T09:00:00)");
    let create = create.action_after_completion("DELETE".into());
    create.flexible_time_window(on_time()).target(target(FUNCTION)).send().await.unwrap();
    story.clock_to("2026-03-02T10:00:00Z").await;
    assert_eq!(story.times(), ["2026-03-02T09:00:00Z"]);
    let gone = story.client.get_schedule().name("once").send().await.unwrap_err();
    assert!(gone.as_service_error().unwrap().is_resource_not_found_exception());
}

#[tokio::test]
async fn schedules_fire_by_the_machines_clock() {
    let served = StandInServer::start_anywhere(StandIn::new(Options::default(), Clock::System)).await.unwrap();
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let handler: Handler = Arc::new(move |event| {
        sender.send(event).unwrap();
        Box::pin(async { Ok(()) })
    });
    served.stand_in.lambda.register_function(FUNCTION, QUEUE, handler);
    // A rate without a StartDate fires at once, so the test need not wait for a minute.
    let create =
        client::stand_in_client(&served.endpoint).create_schedule().name("now").schedule_expression("rate(1 day)");
    create.flexible_time_window(on_time()).target(target(FUNCTION)).send().await.unwrap();
    let event = received.recv().await.unwrap();
    assert_eq!(event["workflow_id"], 7);
    served.stop_serving().await.unwrap();
}
