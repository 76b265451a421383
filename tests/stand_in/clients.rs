//! Other clients than our SDK can use the stand-in: the unmodified AWS CLI and boto3.

use std::process::{Command, Output};

use local::config::target_folder;
use serde_json::Value;
use stand_in::{Clock, Options, StandIn, StandInServer};

const TARGET: &str = r#"{"Arn":"arn:aws:lambda:us-east-1:123456789012:function:runner","RoleArn":"arn:aws:iam::123456789012:role/scheduler","Input":"{\"workflow_id\":1}"}"#;

const BOTO3: &str = r#"
import sys, boto3, datetime
client = boto3.client("scheduler", endpoint_url=sys.argv[1])
client.create_schedule_group(Name="cronbox", Tags=[{"Key": "env", "Value": "dev"}])
spec = dict(GroupName="cronbox", ScheduleExpression="cron(0 9 ? * MON-FRI *)", ScheduleExpressionTimezone="Europe/Paris",
            FlexibleTimeWindow={"Mode": "OFF"}, EndDate=datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc),
            Target={"Arn": "arn:aws:lambda:us-east-1:123456789012:function:runner",
                    "RoleArn": "arn:aws:iam::123456789012:role/scheduler"})
for n in range(5):
    client.create_schedule(Name=f"wf-{n}-dev", **spec)
try:
    client.create_schedule(Name="wf-1-dev", **spec)
except client.exceptions.ConflictException as refusal:
    print(refusal.response["ResponseMetadata"]["HTTPStatusCode"], refusal.response["Error"]["Message"])
pages = client.get_paginator("list_schedules").paginate(GroupName="cronbox", PaginationConfig={"PageSize": 2})
print([item["Name"] for page in pages for item in page["Schedules"]])
schedule = client.get_schedule(Name="wf-3-dev", GroupName="cronbox")
print(schedule["EndDate"].astimezone(datetime.timezone.utc).isoformat(), schedule["State"])
client.update_schedule(Name="wf-3-dev", State="DISABLED", **spec)
print(client.get_schedule(Name="wf-3-dev", GroupName="cronbox")["State"])
arn = client.get_schedule_group(Name="cronbox")["Arn"]
print(client.list_tags_for_resource(ResourceArn=arn)["Tags"])
client.delete_schedule(Name="wf-3-dev", GroupName="cronbox")
client.delete_schedule_group(Name="cronbox")
try:
    client.list_schedules(GroupName="cronbox")
except client.exceptions.ResourceNotFoundException as refusal:
    print(refusal.response["Error"]["Message"])
"#;

/// Runs a program from the Python venv, without the user's AWS settings.
async fn run(program: &str, args: Vec<String>) -> Output {
    let path = target_folder().join("venv/bin").join(program);
    assert!(path.exists(), "{program} is not installed: run `make setup`");
    let mut command = Command::new(path);
    command.args(args).env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
    command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_CONFIG_FILE", "/dev/null").env("AWS_MAX_ATTEMPTS", "1");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_aws_cli_creates_lists_and_deletes() {
    let served = StandInServer::start_anywhere(StandIn::new(Options::default(), Clock::System)).await.unwrap();
    let aws = async |args: &[&str]| {
        let common = ["scheduler", "--endpoint-url", &served.endpoint, "--output", "json"];
        run("aws", common.iter().chain(args).map(|arg| (*arg).to_owned()).collect()).await
    };
    let create = ["create-schedule", "--name", "wf-1-dev", "--schedule-expression", "cron(0 9 * * ? *)"];
    let rest = ["--flexible-time-window", "Mode=OFF", "--target", TARGET];
    let created = aws(&[&create[..], &rest[..]].concat()).await;
    assert!(created.status.success(), "{}", text(&created.stderr));
    let listed: Value = serde_json::from_slice(&aws(&["list-schedules"]).await.stdout).unwrap();
    assert_eq!(listed["Schedules"][0]["Name"], "wf-1-dev");
    let got: Value = serde_json::from_slice(&aws(&["get-schedule", "--name", "wf-1-dev"]).await.stdout).unwrap();
    assert_eq!(got["ScheduleExpression"], "cron(0 9 * * ? *)");
    assert_eq!(got["Target"]["RetryPolicy"]["MaximumRetryAttempts"], 185);
    assert!(aws(&["delete-schedule", "--name", "wf-1-dev"]).await.status.success());
    let refused = aws(&["delete-schedule", "--name", "wf-1-dev"]).await;
    let said = text(&refused.stderr);
    assert!(
        said.contains("(ResourceNotFoundException)") && said.contains("Schedule wf-1-dev does not exist."),
        "{said}"
    );
}

#[tokio::test]
async fn boto3_sees_typed_errors_pages_and_times() {
    let served = StandInServer::start_anywhere(StandIn::new(Options::default(), Clock::System)).await.unwrap();
    let ran = run("python", vec!["-c".to_owned(), BOTO3.to_owned(), served.endpoint.clone()]).await;
    assert_eq!(
        text(&ran.stdout).lines().collect::<Vec<_>>(),
        [
            "409 Schedule wf-1-dev already exists.",
            "['wf-0-dev', 'wf-1-dev', 'wf-2-dev', 'wf-3-dev', 'wf-4-dev']",
            "2100-01-01T00:00:00+00:00 ENABLED",
            "DISABLED",
            "[{'Key': 'env', 'Value': 'dev'}]",
            "Schedule group cronbox does not exist.",
        ],
        "{}",
        text(&ran.stderr)
    );
}
