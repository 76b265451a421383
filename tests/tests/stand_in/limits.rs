//! The stand-in's limits: what AWS refuses beyond the single request, and what its switches do.

use std::time::{Duration, Instant};

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::ProvideErrorMetadata;
use aws_sdk_scheduler::operation::create_schedule::builders::CreateScheduleFluentBuilder;
use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use local::stand_in::{Options, Served, StandIn};
use local::{client, scheduler};
use schedule::Clock;
use serde_json::Value;

async fn stand_in(options: scheduler::Options) -> (Served, Client) {
    let options = Options { scheduler: options, ..Options::default() };
    let served = Served::anywhere(StandIn::new(options, Clock::System)).await.unwrap();
    let client = client::scheduler(&served.endpoint);
    (served, client)
}

fn create(client: &Client, name: &str) -> CreateScheduleFluentBuilder {
    let target = Target::builder()
        .arn("arn:aws:lambda:us-east-1:123456789012:function:runner")
        .role_arn("arn:aws:iam::123456789012:role/scheduler");
    client
        .create_schedule()
        .name(name)
        .schedule_expression("cron(0 9 * * ? *)")
        .flexible_time_window(FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap())
        .target(target.build().unwrap())
}

#[tokio::test]
async fn above_the_quota_of_calls_the_rest_of_the_second_is_throttled() {
    let options = scheduler::Options { calls_per_second: Some(5), ..scheduler::Options::default() };
    let (_served, client) = stand_in(options).await;
    let calls = futures::future::join_all((0..50).map(|_| client.list_schedules().send())).await;
    let throttled: Vec<_> = calls.into_iter().filter_map(Result::err).collect();
    assert!(throttled.len() >= 40, "at most two seconds' worth of calls got through, not {}", 50 - throttled.len());
    for refusal in throttled {
        assert_eq!(refusal.raw_response().unwrap().status().as_u16(), 429);
        assert!(refusal.as_service_error().unwrap().is_throttling_exception());
    }
}

#[tokio::test]
async fn each_call_takes_the_latency_that_was_asked_for() {
    let options = scheduler::Options { latency: Duration::from_millis(40), ..scheduler::Options::default() };
    let (_served, client) = stand_in(options).await;
    let started = Instant::now();
    client.list_schedules().send().await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn an_account_takes_no_more_schedules_than_its_quota() {
    let mut options = scheduler::Options::default();
    options.account.max_schedules = 1;
    let (_served, client) = stand_in(options).await;
    create(&client, "wf-1-dev").send().await.unwrap();
    let refusal = create(&client, "wf-2-dev").send().await.unwrap_err();
    assert_eq!(refusal.raw_response().unwrap().status().as_u16(), 402);
    assert!(refusal.as_service_error().unwrap().is_service_quota_exceeded_exception());
}

#[tokio::test]
async fn a_create_repeated_with_its_client_token_is_the_same_create() {
    let (_served, client) = stand_in(scheduler::Options::default()).await;
    let first = create(&client, "wf-1-dev").client_token("once").send().await.unwrap();
    let again = create(&client, "wf-1-dev").client_token("once").send().await.unwrap();
    assert_eq!(first.schedule_arn(), again.schedule_arn());
    let other = create(&client, "wf-1-dev").client_token("twice").send().await.unwrap_err();
    assert!(other.as_service_error().unwrap().is_conflict_exception());
}

#[tokio::test]
async fn a_refusal_names_every_field_that_is_wrong() {
    let (served, client) = stand_in(scheduler::Options::default()).await;
    let wrong = create(&client, "no spaces").state("SLEEPING".into()).send().await.unwrap_err();
    assert_eq!(
        wrong.message(),
        Some(
            "2 validation errors detected: Value 'no spaces' at 'name' failed to satisfy constraint: Member must satisfy \
             regular expression pattern: ^[0-9a-zA-Z-_.]+$; Value 'SLEEPING' at 'state' failed to satisfy constraint: \
             Member must satisfy enum value set: [ENABLED, DISABLED]"
        )
    );
    let token = client.list_schedules().next_token("not ours").send().await.unwrap_err();
    assert_eq!(token.message(), Some("Invalid NextToken."));
    let empty = reqwest::Client::new().post(format!("{}/schedules/wf-1-dev", served.endpoint)).send().await.unwrap();
    assert_eq!(empty.headers()["x-amzn-errortype"], "ValidationException");
    let said: Value = empty.json().await.unwrap();
    assert!(said["Message"].as_str().unwrap().starts_with("3 validation errors detected: Value null at"), "{said}");
    let garbled = reqwest::Client::new().post(format!("{}/schedules/wf-1-dev", served.endpoint)).body("{").send().await;
    assert_eq!(garbled.unwrap().headers()["x-amzn-errortype"], "SerializationException");
    let unknown = reqwest::get(format!("{}/nothing", served.endpoint)).await.unwrap();
    assert_eq!(
        (unknown.status().as_u16(), &unknown.headers()["x-amzn-errortype"]),
        (404, &"UnknownOperationException".parse().unwrap())
    );
}

#[tokio::test]
async fn the_default_group_cannot_be_deleted() {
    let (_served, client) = stand_in(scheduler::Options::default()).await;
    let refusal = client.delete_schedule_group().name("default").send().await.unwrap_err();
    assert!(refusal.as_service_error().unwrap().is_validation_exception());
}
