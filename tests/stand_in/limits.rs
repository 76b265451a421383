//! The stand-in's limits: what AWS refuses beyond the content of a request, and the stand-in's options.

use std::time::{Duration, Instant};

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::config::Region;
use aws_sdk_scheduler::error::ProvideErrorMetadata;
use aws_sdk_scheduler::operation::create_schedule::builders::CreateScheduleFluentBuilder;
use aws_sdk_scheduler::primitives::DateTime as AwsDateTime;
use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use chrono::{DateTime, Utc};
use local::client;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use stand_in::{Clock, Options, StandIn, StandInServer, scheduler};

const JSON: &str = "application/json";

async fn stand_in(options: scheduler::Options) -> (StandInServer, Client) {
    stand_in_at(Clock::System, options).await
}

async fn stand_in_at(clock: Clock, options: scheduler::Options) -> (StandInServer, Client) {
    let options = Options { scheduler: options, ..Options::default() };
    let served = StandInServer::start_anywhere(StandIn::new(options, clock)).await.unwrap();
    let client = client::stand_in_client(&served.endpoint);
    (served, client)
}

fn at(now: &str) -> Clock {
    Clock::fixed(now.parse().unwrap())
}

fn on_time() -> FlexibleTimeWindow {
    FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap()
}

fn target() -> Target {
    let runner = "arn:aws:lambda:us-east-1:123456789012:function:runner";
    Target::builder().arn(runner).role_arn("arn:aws:iam::123456789012:role/scheduler").build().unwrap()
}

fn create(client: &Client, name: &str) -> CreateScheduleFluentBuilder {
    let create = client.create_schedule().name(name).schedule_expression("cron(0 9 * * ? *)");
    create.flexible_time_window(on_time()).target(target())
}

#[tokio::test]
async fn calls_above_the_quota_are_throttled() {
    let options = scheduler::Options { calls_per_second: Some(5), ..scheduler::Options::default() };
    let (_served, client) = stand_in(options).await;
    let began = Instant::now();
    let calls = futures::future::join_all((0..300).map(|_| client.list_schedules().send())).await;
    // However long the calls took, including the seconds that had started before and after them.
    let most = 5 * (began.elapsed().as_secs() + 2);
    let throttled: Vec<_> = calls.into_iter().filter_map(Result::err).collect();
    let passed = 300 - throttled.len() as u64;
    assert!(passed <= most, "{passed} calls passed, not {most} at most");
    for refusal in throttled {
        assert_eq!(refusal.raw_response().unwrap().status().as_u16(), 429);
        assert!(refusal.as_service_error().unwrap().is_throttling_exception());
    }
}

#[tokio::test]
async fn calls_take_the_configured_latency() {
    let options = scheduler::Options { latency: Duration::from_millis(40), ..scheduler::Options::default() };
    let (_served, client) = stand_in(options).await;
    let started = Instant::now();
    client.list_schedules().send().await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn schedules_above_the_quota_are_refused() {
    let mut options = scheduler::Options::default();
    options.account.max_schedules = 1;
    let (_served, client) = stand_in(options).await;
    create(&client, "wf-1-dev").send().await.unwrap();
    let refusal = create(&client, "wf-2-dev").send().await.unwrap_err();
    assert_eq!(refusal.raw_response().unwrap().status().as_u16(), 402);
    assert!(refusal.as_service_error().unwrap().is_service_quota_exceeded_exception());
}

#[tokio::test]
async fn client_tokens_make_creates_idempotent() {
    let (_served, client) = stand_in(scheduler::Options::default()).await;
    let first = create(&client, "wf-1-dev").client_token("once").send().await.unwrap();
    let again = create(&client, "wf-1-dev").client_token("once").send().await.unwrap();
    assert_eq!(first.schedule_arn(), again.schedule_arn());
    let other = create(&client, "wf-1-dev").client_token("twice").send().await.unwrap_err();
    assert!(other.as_service_error().unwrap().is_conflict_exception());
}

/// AWS does not document for how long it remembers a token. It can forget it when the signature has expired.
#[tokio::test]
async fn client_tokens_outlive_no_signature() {
    let clock = at("2026-03-02T10:00:00Z");
    let (_served, client) = stand_in_at(clock.clone(), scheduler::Options::default()).await;
    let again = async || create(&client, "wf-1-dev").client_token("once").send().await.is_ok();
    let group_again = async || client.create_schedule_group().name("group").client_token("once").send().await.is_ok();
    assert_eq!((again().await, group_again().await), (true, true));
    clock.set("2026-03-02T10:14:59Z".parse().unwrap());
    assert_eq!((again().await, group_again().await), (true, true));
    clock.set("2026-03-02T10:15:00Z".parse().unwrap());
    assert_eq!((again().await, group_again().await), (false, false));
}

#[tokio::test]
async fn client_tokens_end_with_an_update() {
    let (_served, client) = stand_in(scheduler::Options::default()).await;
    create(&client, "wf-1-dev").client_token("once").send().await.unwrap();
    let other = create(&client, "wf-1-dev").client_token("once").description("other").send().await.unwrap_err();
    assert!(other.as_service_error().unwrap().is_conflict_exception(), "of another content it is another create");
    let update = client.update_schedule().name("wf-1-dev").schedule_expression("cron(0 9 * * ? *)");
    update.flexible_time_window(on_time()).target(target()).send().await.unwrap();
    let late = create(&client, "wf-1-dev").client_token("once").send().await.unwrap_err();
    assert!(late.as_service_error().unwrap().is_conflict_exception());
}

/// AWS's answer is not known. The stricter answer reveals a client that sends an ended schedule.
#[tokio::test]
async fn ended_and_timeless_schedules_are_refused() {
    let (_served, client) = stand_in_at(at("2026-03-02T10:00:00Z"), scheduler::Options::default()).await;
    let refusal = async |end: &str, expression: &str| {
        let end = AwsDateTime::from_secs(end.parse::<DateTime<Utc>>().unwrap().timestamp());
        let create = create(&client, "wf-1-dev").schedule_expression(expression).end_date(end);
        create.send().await.err().map(|refusal| refusal.message().unwrap_or_default().to_owned())
    };
    let past = Some("The EndDate you specify must be in the future.".to_owned());
    assert_eq!(refusal("2026-03-02T10:00:00Z", "cron(0 9 * * ? *)").await, past);
    assert_eq!(refusal("2020-01-01T00:00:00Z", "rate(1 day)").await, past);
    for never in ["cron(0 9 30 2 ? *)", "cron(0 9 31 4,6 ? *)", "rate(99999999999 days)"] {
        assert_eq!(refusal("2030-01-01T00:00:00Z", never).await, Some(format!("Invalid Schedule Expression {never}.")));
    }
    assert_eq!(refusal("2020-01-01T00:00:00Z", "at(2026-03-02T11:00:00)").await, None, "it ignores the dates");
}

/// AWS accepted `at(2022-12-31T23:59:59)` on 2025-02-02: LocalStack recorded it (`test_scheduler.snapshot.json`,
/// `tests_create_schedule_with_valid_schedule_expression`). We assume the same for a cron whose years have passed.
#[tokio::test]
async fn expressions_of_the_past_are_accepted() {
    let (served, client) = stand_in_at(at("2026-03-02T10:00:00Z"), scheduler::Options::default()).await;
    for (name, past) in [("once", "at(2022-12-31T23:59:59)"), ("wf-1-dev", "cron(0 9 * * ? 2020)")] {
        create(&client, name).schedule_expression(past).send().await.unwrap();
        let update = client.update_schedule().name(name).schedule_expression(past);
        update.flexible_time_window(on_time()).target(target()).send().await.unwrap();
        let kept = client.get_schedule().name(name).send().await.unwrap();
        assert_eq!(kept.schedule_expression(), Some(past));
    }
    let next = served.stand_in.fires.next_due("2199-12-31T00:00:00Z".parse().unwrap());
    assert_eq!(next, None, "neither fires");
}

#[tokio::test]
async fn dates_are_kept_in_whole_minutes() {
    let (_served, client) = stand_in_at(at("2026-03-02T10:00:00Z"), scheduler::Options::default()).await;
    let seconds = |text: &str| AwsDateTime::from_secs(text.parse::<DateTime<Utc>>().unwrap().timestamp());
    let create = create(&client, "wf-1-dev").start_date(seconds("2026-03-03T10:00:59Z"));
    create.end_date(seconds("2026-03-04T10:00:30Z")).send().await.unwrap();
    let kept = client.get_schedule().name("wf-1-dev").send().await.unwrap();
    let whole = (seconds("2026-03-03T10:00:00Z"), seconds("2026-03-04T10:00:00Z"));
    assert_eq!((kept.start_date(), kept.end_date()), (Some(&whole.0), Some(&whole.1)));
}

/// AWS documents that FLEXIBLE needs a maximum; it documents no rule for a maximum with OFF.
#[tokio::test]
async fn only_a_flexible_window_needs_a_maximum() {
    let (_served, client) = stand_in(scheduler::Options::default()).await;
    let window = |mode: FlexibleTimeWindowMode, minutes: Option<i32>| {
        FlexibleTimeWindow::builder().mode(mode).set_maximum_window_in_minutes(minutes).build().unwrap()
    };
    let flexible = create(&client, "a").flexible_time_window(window(FlexibleTimeWindowMode::Flexible, None)).send();
    assert!(flexible.await.unwrap_err().as_service_error().unwrap().is_validation_exception());
    create(&client, "a").flexible_time_window(window(FlexibleTimeWindowMode::Off, Some(15))).send().await.unwrap();
}

#[tokio::test]
async fn the_signature_names_the_region() {
    let (served, client) = stand_in(scheduler::Options::default()).await;
    let paris = client.config().to_builder().region(Region::new("eu-west-3")).build();
    let paris = Client::from_conf(paris);
    let arn = create(&paris, "wf-1-dev").send().await.unwrap().schedule_arn().to_owned();
    assert_eq!(arn, "arn:aws:scheduler:eu-west-3:123456789012:schedule/default/wf-1-dev");
    let group = paris.create_schedule_group().name("cronbox").send().await.unwrap();
    assert_eq!(group.schedule_group_arn(), "arn:aws:scheduler:eu-west-3:123456789012:schedule-group/cronbox");
    let groups = paris.list_schedule_groups().send().await.unwrap();
    let arns: Vec<_> = groups.schedule_groups().iter().filter_map(|group| group.arn()).collect();
    assert_eq!(arns.iter().filter(|arn| arn.starts_with("arn:aws:scheduler:eu-west-3:")).count(), 2, "{arns:?}");
    paris.list_tags_for_resource().resource_arn(arns[1]).send().await.unwrap();

    // An update keeps the ARN, also if another caller sends it.
    let update = client.update_schedule().name("wf-1-dev").schedule_expression("cron(0 9 * * ? *)");
    let updated = update.flexible_time_window(on_time()).target(target()).send().await.unwrap();
    assert_eq!(updated.schedule_arn(), arn);
    let unsigned = reqwest::get(format!("{}/schedule-groups/default", served.endpoint)).await.unwrap();
    let unsigned: Value = unsigned.json().await.unwrap();
    assert_eq!(unsigned["Arn"], "arn:aws:scheduler:us-east-1:123456789012:schedule-group/default");
}

#[tokio::test]
async fn long_bodies_get_an_aws_error() {
    let (served, _client) = stand_in(scheduler::Options::default()).await;
    let http = reqwest::Client::new();
    for path in ["schedules/wf-1-dev", "schedule-groups/cronbox"] {
        let url = format!("{}/{path}", served.endpoint);
        let refused = http.post(url).header(CONTENT_TYPE, JSON).body("x".repeat(3 << 20)).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 413);
        assert_eq!(refused.headers()["x-amzn-errortype"], "RequestEntityTooLargeException");
        let said: Value = refused.json().await.unwrap();
        assert_eq!(said["Message"], "Request size exceeds the limit.");
    }
}

#[tokio::test]
async fn refusals_name_every_wrong_field() {
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
    let post =
        || reqwest::Client::new().post(format!("{}/schedules/wf-1-dev", served.endpoint)).header(CONTENT_TYPE, JSON);
    let empty = post().send().await.unwrap();
    assert_eq!(empty.headers()["x-amzn-errortype"], "ValidationException");
    let said: Value = empty.json().await.unwrap();
    assert!(said["Message"].as_str().unwrap().starts_with("3 validation errors detected: Value null at"), "{said}");
    let garbled = post().body("{").send().await.unwrap();
    assert_eq!(garbled.headers()["x-amzn-errortype"], "SerializationException");
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
