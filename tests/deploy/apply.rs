//! `terraform apply`, a run through the deployed functions, and `terraform destroy` to an empty account.

use std::time::{Duration, SystemTime};

use chrono::{SecondsFormat, SubsecRound, TimeDelta, Timelike};
use serde_json::{Value, json};
use tests::{Runtime, Story};
use tokio::net::TcpListener;

use crate::account::{Account, text};
use crate::functions::{Function, Room, fired, give_room};
use crate::policies;
use crate::terraform::Dev;

/// Attributes that moto does not store, so that every plan would set them again.
/// A function that would be changed would have another version.
const FORGOTTEN_BY_MOTO: [(&str, &str); 14] = [
    ("module.cron.aws_lambda_alias.publisher", "function_version"),
    ("module.cron.aws_lambda_alias.runner", "function_version"),
    ("module.cron.aws_lambda_function.publisher", "logging_config"),
    ("module.cron.aws_lambda_function.publisher", "qualified_arn"),
    ("module.cron.aws_lambda_function.publisher", "qualified_invoke_arn"),
    ("module.cron.aws_lambda_function.publisher", "version"),
    ("module.cron.aws_lambda_function.runner", "logging_config"),
    ("module.cron.aws_lambda_function.runner", "qualified_arn"),
    ("module.cron.aws_lambda_function.runner", "qualified_invoke_arn"),
    ("module.cron.aws_lambda_function.runner", "version"),
    ("module.cron.aws_vpc_security_group_egress_rule.publisher_to_database", "description"),
    ("module.cron.aws_vpc_security_group_egress_rule.publisher_to_endpoints[\"created\"]", "description"),
    ("module.cron.aws_vpc_security_group_egress_rule.runner_to_endpoints[\"created\"]", "description"),
    ("module.cron.aws_vpc_security_group_ingress_rule.database_from_publisher", "description"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_is_applied_used_and_destroyed() {
    let s = Story::today().await;
    let account = Account::with_secrets(&s.publisher_dsn(), &s.keys.scheduler).await;
    let dev = Dev::filled_in(&account, s.url()).await;
    dev.init().await;
    dev.apply().await;

    let again = dev.changes().await;
    let again: Vec<_> = again.iter().map(|(address, attribute, _)| (address.as_str(), attribute.as_str())).collect();
    assert_eq!(again, FORGOTTEN_BY_MOTO, "a second plan changes nothing");

    policies::are_least(&account, &text(&dev.output("scheduler_role_arn").await)).await;
    policies::trust_one_group(&account, &text(&dev.output("schedule_group_name").await)).await;
    policies::name_what_is_there(&account).await;
    dead_letters_are_kept(&account, &dev.output("dead_letter_queue_urls").await).await;

    assert_eq!(account.inventory().await.lines().count(), 58, "everything that is destroyed below");

    let publisher = Function::deployed(&account, "publisher").await;
    let runner = Function::deployed(&account, "runner").await;
    let schedule = a_workflow_is_published(&s, &publisher, &account, &dev).await;
    the_schedule_s_fire_becomes_a_run(&s, &runner, &text(&schedule["Target"]["Input"])).await;
    the_publisher_without_time_or_database(&s, publisher).await;
    the_runner_without_an_answer(runner).await;
    // The story's own publisher has another configuration, so it publishes nothing here.
    s.end_published().await;

    dev.destroy().await;
    assert_eq!(dev.state().await, "");
    assert_eq!(account.inventory().await, "");
}

async fn dead_letters_are_kept(account: &Account, queues: &Value) {
    for name in ["schedules", "runner", "publisher"] {
        let url = text(&queues[name]);
        let requested = ["sqs", "get-queue-attributes", "--attribute-names", "All", "--queue-url", &url];
        let queue = &account.aws(requested).await["Attributes"];
        assert_eq!(
            (&queue["MessageRetentionPeriod"], &queue["SqsManagedSseEnabled"]),
            (&json!("1209600"), &json!("true"))
        );
        assert!(text(&queue["Policy"]).contains("aws:SecureTransport"), "{name}: {queue}");
    }
    for name in ["runner", "publisher"] {
        let function = format!("cronbox-dev-{name}");
        let requested =
            ["lambda", "get-function-event-invoke-config", "--function-name", &function, "--qualifier", "live"];
        let failed = account.aws(requested).await["DestinationConfig"]["OnFailure"]["Destination"].clone();
        assert!(text(&failed).ends_with(&format!(":cronbox-dev-{name}-dlq")), "{failed}");
    }
}

/// Steps 1 to 4: the app's edit, the deployed publisher, moto's schedule.
async fn a_workflow_is_published(s: &Story, publisher: &Function, account: &Account, dev: &Dev) -> Value {
    let workflow = s.create("* * * * *", "UTC").await;
    let mut runtime = Runtime::start().await;
    let _sandbox = publisher.start(&runtime);
    let report = runtime.invoke(json!({"source": "aws.events"})).await.returned();
    assert_eq!((&report["created"], &report["remaining"]), (&json!(1), &json!(0)));

    let name = format!("wf-{workflow}-dev");
    let group = text(&dev.output("schedule_group_name").await);
    let schedule = account.aws(["scheduler", "get-schedule", "--group-name", &group, "--name", &name]).await;
    let target = &schedule["Target"];
    assert_eq!(target["Arn"], dev.output("runner_lambda_arn").await);
    assert_eq!(target["RoleArn"], dev.output("scheduler_role_arn").await);
    assert!(text(&target["DeadLetterConfig"]["Arn"]).ends_with(":cronbox-dev-schedules-dlq"));
    schedule
}

/// Steps 5 to 7: the input after EventBridge's replacements, the deployed runner, the app's run.
async fn the_schedule_s_fire_becomes_a_run(s: &Story, runner: &Function, input: &str) {
    for attribute in ["scheduled-time", "execution-id", "attempt-number", "schedule-arn"] {
        let placeholder = format!("\"<aws.scheduler.{attribute}>\"");
        assert!(input.contains(&placeholder), "escaped, and so never replaced: {input}");
    }
    let mut runtime = Runtime::start().await;
    let _sandbox = runner.start(&runtime);
    // The next minute, which is due in any case. The app accepts fires that are a little early.
    let minute = (s.clock.now() + TimeDelta::minutes(1)).trunc_subsecs(0).with_second(0).unwrap();
    let fire = fired(input, &minute.to_rfc3339_opts(SecondsFormat::Secs, true));
    let delivered = runtime.invoke(fire.clone()).await.returned();
    assert_eq!(delivered["accepted"], true, "{delivered}");
    let twice = runtime.invoke(fire).await.returned();
    assert_eq!(twice["reason"], "duplicate", "{twice}");
    let unreplaced = runtime.invoke(serde_json::from_str(input).unwrap()).await.failed();
    assert!(!unreplaced.is_empty());
    s.runs_end().await;
    // The watchdog of a slow machine may have caught up an earlier minute.
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'succeeded' AND trigger = 'schedule'").await, 1);
}

async fn the_publisher_without_time_or_database(s: &Story, publisher: Function) {
    s.create("0 10 * * *", "UTC").await;
    let mut runtime = Runtime::start().await;
    let sandbox = publisher.start(&runtime);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let late = runtime.invoke_until(json!({}), past).await.returned();
    assert_eq!((&late["created"], &late["remaining"]), (&json!(0), &json!(1)), "the next tick does it");
    assert_eq!(runtime.invoke(json!({})).await.returned()["created"], 1);
    drop(sandbox);

    let nowhere = publisher.with("CRONBOX_DB_DSN", "postgres://cronbox:x@127.0.0.1:9/cronbox?sslmode=disable");
    let mut runtime = Runtime::start().await;
    let _sandbox = nowhere.start(&runtime);
    let error = runtime.invoke(json!({})).await.failed();
    assert!(!error.is_empty(), "an error result, which Lambda counts and sends to the queue");

    panics_and_serves_the_next(
        &nowhere.with("CRONBOX_DB_DSN", "postgres://cronbox:x@localhost:9/cronbox?sslmode=disable"),
    )
    .await;
}

/// A function panics because it has no memory for the thread that resolves a name. The next invocation must not panic.
async fn panics_and_serves_the_next(function: &Function) {
    let mut runtime = Runtime::start().await;
    let sandbox = function.start(&runtime);
    runtime.wait_for_polls(1).await;
    let fire = json!({"workflow_id": 1, "scheduled_time": "2026-03-29T07:00:00Z"});
    give_room(&sandbox, Room::ForNoThread).await;
    let panicked = runtime.invoke(fire.clone()).await.failed();
    assert!(panicked.starts_with("Lambda panicked: OS can't spawn worker thread"), "{panicked}");
    give_room(&sandbox, Room::ForAll).await;
    let failed = runtime.invoke(fire).await.failed();
    assert!(!failed.contains("panicked"), "no server answers, but it was called: {failed}");
}

/// The app accepts a request and never answers. The runner must fail with a timeout before Lambda's.
async fn the_runner_without_an_answer(runner: Function) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let runner = runner.with("CRONBOX_APP_BASE_URL", &address);
    let mut runtime = Runtime::start().await;
    let _sandbox = runner.start(&runtime);
    let fire = json!({"workflow_id": 1, "scheduled_time": "2026-03-29T07:00:00Z"});
    let error = runtime.invoke(fire).await.failed();
    assert!(error.contains("the app did not answer: timeout"), "it says why: {error}");
    panics_and_serves_the_next(&runner.with("CRONBOX_APP_BASE_URL", "http://localhost:9")).await;
}
