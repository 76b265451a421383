//! The same calls of the Scheduler API to moto's server and to the stand-in, through the real SDK.
//!
//! Where the two differ, moto differs from AWS. A comment at each such place says what moto does.

use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_scheduler::operation::get_schedule::GetScheduleOutput;
use aws_sdk_scheduler::types::{
    ActionAfterCompletion, FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, ScheduleState, Tag, Target,
};
use stand_in::{Clock, Options, StandIn, StandInServer};
use tests::Moto;

const FUNCTION: &str = "arn:aws:lambda:us-east-1:123456789012:function:runner";
const ROLE: &str = "arn:aws:iam::123456789012:role/scheduler";

/// The server that is called.
enum Server {
    StandIn(StandInServer),
    Moto(Moto),
}

impl Server {
    async fn stand_in() -> Server {
        Server::StandIn(StandInServer::start_anywhere(StandIn::new(Options::default(), Clock::System)).await.unwrap())
    }

    async fn moto() -> Server {
        Server::Moto(Moto::start().await)
    }

    fn client(&self) -> Client {
        local::client::stand_in_client(match self {
            Server::StandIn(served) => &served.endpoint,
            Server::Moto(moto) => &moto.endpoint,
        })
    }

    fn is_moto(&self) -> bool {
        matches!(self, Server::Moto(_))
    }
}

/// The code and the status of a refusal.
fn refusal<T: std::fmt::Debug, E: ProvideErrorMetadata>(answer: Result<T, SdkError<E>>) -> (String, u16) {
    let error = answer.expect_err("a refusal");
    let status = error.raw_response().map_or(0, |response| response.status().as_u16());
    (error.code().unwrap_or("none").to_owned(), status)
}

fn refused(code: &str, status: u16) -> (String, u16) {
    (code.to_owned(), status)
}

fn on_time() -> FlexibleTimeWindow {
    FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap()
}

fn target() -> Target {
    Target::builder().arn(FUNCTION).role_arn(ROLE).input(r#"{"workflow_id":1}"#).build().unwrap()
}

/// Creates a daily schedule with only the required fields.
async fn create(client: &Client, group: &str, name: &str) {
    let create = client.create_schedule().group_name(group).name(name).schedule_expression("cron(0 9 * * ? *)");
    create.flexible_time_window(on_time()).target(target()).send().await.unwrap();
}

async fn get(client: &Client, group: &str, name: &str) -> GetScheduleOutput {
    client.get_schedule().group_name(group).name(name).send().await.unwrap()
}

async fn names(client: &Client, group: &str, page: i32) -> Vec<String> {
    let pages = client.list_schedules().group_name(group).max_results(page).into_paginator().items().send();
    let items: Vec<_> = pages.try_collect().await.unwrap();
    let mut names: Vec<_> = items.iter().map(|item| item.name().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn stand_in_keeps_schedules_like_aws() {
    let server = Server::stand_in().await;
    schedules(&server).await;
    lists(&server).await;
}

#[tokio::test]
async fn moto_keeps_schedules_with_known_differences() {
    let server = Server::moto().await;
    schedules(&server).await;
    lists(&server).await;
}

#[tokio::test]
async fn stand_in_keeps_groups_like_aws() {
    groups(&Server::stand_in().await).await;
}

#[tokio::test]
async fn moto_keeps_groups_with_known_differences() {
    groups(&Server::moto().await).await;
}

#[tokio::test]
async fn stand_in_refuses_like_aws() {
    let server = Server::stand_in().await;
    refusals(&server).await;
    validation(&server).await;
}

#[tokio::test]
async fn moto_refuses_next_to_nothing() {
    let server = Server::moto().await;
    refusals(&server).await;
    validation(&server).await;
}

async fn schedules(server: &Server) {
    let client = server.client();
    client.create_schedule_group().name("cronbox").send().await.unwrap();
    create(&client, "cronbox", "wf-1-dev").await;

    let made = get(&client, "cronbox", "wf-1-dev").await;
    assert_eq!(made.arn(), Some("arn:aws:scheduler:us-east-1:123456789012:schedule/cronbox/wf-1-dev"));
    assert_eq!(
        (made.schedule_expression(), made.schedule_expression_timezone()),
        (Some("cron(0 9 * * ? *)"), Some("UTC"))
    );
    assert_eq!(made.state(), Some(&ScheduleState::Enabled));
    let policy = made.target().unwrap().retry_policy().unwrap();
    assert_eq!((policy.maximum_event_age_in_seconds(), policy.maximum_retry_attempts()), (Some(86_400), Some(185)));
    assert!(made.creation_date().is_some() && made.creation_date() == made.last_modification_date());

    // An update replaces everything: a field that it omits gets its default.
    let update = client.update_schedule().group_name("cronbox").name("wf-1-dev");
    let update = update.schedule_expression("cron(0/5 * * * ? *)").schedule_expression_timezone("Europe/Paris");
    let update = update.state(ScheduleState::Disabled).description("paused");
    let update = update.action_after_completion(ActionAfterCompletion::Delete);
    let policy = RetryPolicy::builder().maximum_event_age_in_seconds(1800).maximum_retry_attempts(5).build();
    let sharp = Target::builder().arn(FUNCTION).role_arn(ROLE).retry_policy(policy).build().unwrap();
    update.flexible_time_window(on_time()).target(sharp).send().await.unwrap();
    let updated = get(&client, "cronbox", "wf-1-dev").await;
    assert_eq!(updated.schedule_expression_timezone(), Some("Europe/Paris"));
    assert_eq!((updated.state(), updated.description()), (Some(&ScheduleState::Disabled), Some("paused")));
    assert_eq!(updated.target().unwrap().retry_policy().unwrap().maximum_retry_attempts(), Some(5));
    assert_eq!(updated.target().unwrap().input(), None);
    // moto: UpdateSchedule ignores ActionAfterCompletion.
    let completion = if server.is_moto() { None } else { Some(&ActionAfterCompletion::Delete) };
    assert_eq!(updated.action_after_completion(), completion);

    let update = client.update_schedule().group_name("cronbox").name("wf-1-dev");
    let update = update.schedule_expression("cron(0 9 * * ? *)");
    update.flexible_time_window(on_time()).target(target()).send().await.unwrap();
    let replaced = get(&client, "cronbox", "wf-1-dev").await;
    assert_eq!((replaced.schedule_expression_timezone(), replaced.description()), (Some("UTC"), None));
    assert_eq!(replaced.target().unwrap().retry_policy().unwrap().maximum_retry_attempts(), Some(185));
    // moto: UpdateSchedule drops the State if the request omits it.
    let state = if server.is_moto() { None } else { Some(&ScheduleState::Enabled) };
    assert_eq!(replaced.state(), state);
}

/// Runs after `schedules`: the group `cronbox` contains `wf-1-dev`.
async fn lists(server: &Server) {
    let client = server.client();
    for name in ["wf-2-dev", "wf-3-dev", "other"] {
        create(&client, "cronbox", name).await;
    }
    create(&client, "default", "wf-9-dev").await;
    assert_eq!(names(&client, "cronbox", 2).await, ["other", "wf-1-dev", "wf-2-dev", "wf-3-dev"], "over two pages");
    let prefixed = client.list_schedules().name_prefix("wf-").send().await.unwrap();
    assert_eq!(prefixed.schedules().len(), 4, "of all groups");
    let enabled = client.list_schedules().group_name("cronbox").state(ScheduleState::Enabled).send().await.unwrap();
    // moto: no State filter finds the schedule whose State it dropped.
    assert_eq!(enabled.schedules().len(), if server.is_moto() { 3 } else { 4 });
    let summary = enabled.schedules().iter().find(|summary| summary.name() == Some("other")).unwrap();
    assert_eq!(summary.target().unwrap().arn(), FUNCTION);

    client.delete_schedule().group_name("cronbox").name("other").send().await.unwrap();
    assert_eq!(names(&client, "cronbox", 100).await, ["wf-1-dev", "wf-2-dev", "wf-3-dev"]);
}

async fn groups(server: &Server) {
    let client = server.client();
    let tag = Tag::builder().key("env").value("dev").build().unwrap();
    let made = client.create_schedule_group().name("cronbox").tags(tag).send().await.unwrap();
    let arn = made.schedule_group_arn();
    assert_eq!(arn, "arn:aws:scheduler:us-east-1:123456789012:schedule-group/cronbox");
    let group = client.get_schedule_group().name("cronbox").send().await.unwrap();
    assert_eq!((group.arn(), group.state().unwrap().as_str()), (Some(arn), "ACTIVE"));
    let listed = client.list_schedule_groups().send().await.unwrap();
    let mut names: Vec<_> = listed.schedule_groups().iter().map(|group| group.name().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cronbox", "default"]);

    let more = Tag::builder().key("team").value("billing").build().unwrap();
    client.tag_resource().resource_arn(arn).tags(more).send().await.unwrap();
    client.untag_resource().resource_arn(arn).tag_keys("env").send().await.unwrap();
    let tags = client.list_tags_for_resource().resource_arn(arn).send().await.unwrap();
    let tags: Vec<_> = tags.tags().iter().map(|tag| (tag.key(), tag.value())).collect();
    assert_eq!(tags, [("team", "billing")]);

    create(&client, "cronbox", "wf-1-dev").await;
    let again = client.create_schedule_group().name("cronbox").send().await;
    if server.is_moto() {
        // moto: a duplicate group silently replaces the first, schedules and all.
        assert!(again.is_ok());
    } else {
        assert_eq!(refusal(again), refused("ConflictException", 409));
        get(&client, "cronbox", "wf-1-dev").await;
    }

    client.delete_schedule_group().name("cronbox").send().await.unwrap();
    let gone = client.get_schedule().group_name("cronbox").name("wf-1-dev").send().await;
    assert_eq!(refusal(gone), refused("ResourceNotFoundException", 404), "a group takes its schedules along");
    let twice = client.delete_schedule_group().name("cronbox").send().await;
    // moto: deleting a group twice is a 500.
    let expected = if server.is_moto() { 500 } else { 404 };
    assert_eq!(refusal(twice).1, expected);
    let listed = client.list_schedules().group_name("cronbox").send().await;
    if server.is_moto() {
        // moto: a group that does not exist has an empty list.
        assert_eq!(listed.unwrap().schedules().len(), 0);
    } else {
        assert_eq!(refusal(listed), refused("ResourceNotFoundException", 404));
    }
}

async fn refusals(server: &Server) {
    let client = server.client();
    let missing = refused("ResourceNotFoundException", 404);
    assert_eq!(refusal(client.get_schedule().name("missing").send().await), missing);
    assert_eq!(refusal(client.delete_schedule().name("missing").send().await), missing);
    let update = client.update_schedule().name("missing").schedule_expression("cron(0 9 * * ? *)");
    assert_eq!(refusal(update.flexible_time_window(on_time()).target(target()).send().await), missing);

    create(&client, "default", "wf-1-dev").await;
    let again = client.create_schedule().name("wf-1-dev").schedule_expression("cron(0 9 * * ? *)");
    let again = refusal(again.flexible_time_window(on_time()).target(target()).send().await);
    // moto: a Conflict has the status 400.
    assert_eq!(again, refused("ConflictException", if server.is_moto() { 400 } else { 409 }));

    let homeless = client.create_schedule().group_name("nowhere").name("wf-2-dev");
    let homeless = homeless.schedule_expression("cron(0 9 * * ? *)");
    let homeless = refusal(homeless.flexible_time_window(on_time()).target(target()).send().await);
    // moto: a missing group is a 500.
    assert_eq!(homeless.1, if server.is_moto() { 500 } else { 404 });
}

async fn validation(server: &Server) {
    let client = server.client();
    let elsewhere = Target::builder().arn("not an arn").role_arn(ROLE).build().unwrap();
    let role = Target::builder().arn(FUNCTION).role_arn("not a role").build().unwrap();
    let no_json = Target::builder().arn(FUNCTION).role_arn(ROLE).input("{").build().unwrap();
    let daily = "cron(0 9 * * ? *)";
    let too_long = "x".repeat(65);
    let wrong: [(&str, &str, &str, Target); 7] = [
        ("expression", "0 9 * * *", "UTC", target()),
        ("both-days", "cron(0 9 1 * MON *)", "UTC", target()),
        ("timezone", daily, "Mars/Phobos", target()),
        (&too_long, daily, "UTC", target()),
        ("target", daily, "UTC", elsewhere),
        ("role", daily, "UTC", role),
        ("input", daily, "UTC", no_json),
    ];
    for (name, expression, timezone, target) in wrong {
        let create = client.create_schedule().name(name).schedule_expression(expression);
        let create = create.schedule_expression_timezone(timezone).flexible_time_window(on_time()).target(target);
        let answer = create.send().await;
        if server.is_moto() {
            // moto: no field is validated.
            assert!(answer.is_ok(), "{name}");
        } else {
            assert_eq!(refusal(answer), refused("ValidationException", 400), "{name}");
        }
    }

    let late = client.create_schedule().name("late").schedule_expression("cron(0 9 * * ? *)");
    let late = late.start_date(aws_sdk_scheduler::primitives::DateTime::from_secs(1_000_000_000));
    let late = late.flexible_time_window(on_time()).target(target()).send().await.unwrap_err();
    assert_eq!(late.message(), Some("The StartDate you specify cannot be earlier than 5 minutes ago."));
}
