//! The publisher's process: its output, and its error message if it cannot start.

use std::process::{Command, Output};
use std::time::Instant;

use tests::{PATIENCE, find_kept_port};

use crate::database::publisher_binary;
use crate::proxy::INVALID;
use crate::world::{World, name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_prints_its_report_as_one_line() {
    let world = World::new().await;
    world.create("0 9 * * *", "UTC").await;
    let done = world.process(&["--once"], None).wait_with_output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "{\"processed\":1,\"coalesced\":0,\"created\":1,\"updated\":0,\"deleted\":0,\"unchanged\":0,\"retried\":0,\"failed\":0,\"remaining\":0}\n"
    );
}

/// One query reads the lines of the daemon, of `--once` and of the Lambda.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_two_forms() {
    let world = World::new().await;
    for (nth, form) in ["text", "json"].into_iter().enumerate() {
        world.create(&format!("{nth} 9 * * *"), "UTC").await;
        let mut command = world.command();
        let done = command.arg("--once").env("CRONBOX_LOG_FORMAT", form).output().await.unwrap();
        let log = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success() && log.contains("created") && !log.contains('\u{1b}'), "{log}");
        let are_objects = log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        assert_eq!(are_objects, form == "json", "{log}");
    }
}

const ENVIRONMENT: [(&str, &str); 6] = [
    ("CRONBOX_ENV", "dev"),
    ("CRONBOX_RUNNER_LAMBDA_ARN", "arn:aws:lambda:us-east-1:123456789012:function:runner"),
    ("CRONBOX_SCHEDULER_ROLE_ARN", "arn:aws:iam::123456789012:role/scheduler"),
    ("CRONBOX_SCHEDULE_GROUP", "group"),
    ("CRONBOX_SCHEDULE_DLQ_ARN", "arn:aws:sqs:us-east-1:123456789012:queue"),
    ("AWS_REGION", "us-east-1"),
];

fn run(arguments: &[&str], more: &[(&str, &str)]) -> Output {
    Command::new(publisher_binary())
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT)
        .envs(more.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn a_failed_start_says_what_to_do() {
    let port = find_kept_port();
    let away = format!("postgres://u:hunter2@127.0.0.1:{port}/d");
    for (arguments, more, says) in [
        (&["--once"][..], &[][..], "set CRONBOX_DB_DSN in the environment".to_owned()),
        (
            &["--once"],
            &[("CRONBOX_DB_DSN", "hunter2")],
            "the database DSN cannot be read: write postgres://".to_owned(),
        ),
        (
            &["--listen"],
            &[("CRONBOX_DB_DSN", &away)],
            format!("the database at 127.0.0.1:{port} does not answer: start it"),
        ),
        (&[], &[("CRONBOX_DB_DSN", &away)], "write --once or --listen".to_owned()),
        (
            &["--once"],
            &[("CRONBOX_DB_DSN", &away), ("CRONBOX_ENV", "Prod!")],
            "invalid value 'Prod!' for '--env <ENV>'".to_owned(),
        ),
        (
            &["--once"],
            &[("CRONBOX_DB_DSN", &away), ("CRONBOX_BATCH_SIZE", "0")],
            "invalid value '0' for '--batch-size".to_owned(),
        ),
    ] {
        let output = run(arguments, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("cronbox-publisher: {says}")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[tokio::test]
async fn a_daemon_serves_counters_and_gauges() {
    let world = World::new().await;
    let port = tests::find_kept_port();
    let address = format!("127.0.0.1:{port}");
    let [wrong, right] = [world.create("0 9 * * *", "UTC").await, world.create("0 9 * * *", "UTC").await];
    world.front.next(&name(wrong), [INVALID]);
    let daemon = world.process(&["--listen", "--metrics-addr", &address], None);
    let wanted = [
        "cronbox_publisher_created_total 1",
        "cronbox_publisher_failed_total 1",
        // The create, and the list call of the sweep at a daemon's start.
        "cronbox_publisher_api_calls_total{answer=\"done\"} 2",
        "cronbox_publisher_api_calls_total{answer=\"invalid\"} 1",
        "cronbox_publisher_outbox_failed_rows 1",
        "cronbox_publisher_outbox_lag_seconds 0.0",
        "cronbox_publisher_missed 0",
        "cronbox_publisher_abandoned 0",
        "cronbox_publisher_fires_disagree 0",
        "cronbox_publisher_figures_unread 0",
        "cronbox_publisher_held 0",
        "cronbox_publisher_remaining 0",
    ];
    // A call is counted when it is answered, a workflow when its drain has ended.
    let started = Instant::now();
    loop {
        let text = match reqwest::get(format!("http://{address}/metrics")).await {
            Ok(answer) => answer.text().await.unwrap(),
            Err(_) => String::new(),
        };
        let missing = wanted.iter().find(|wanted| !text.lines().any(|line| line == **wanted));
        let Some(missing) = missing else { break };
        assert!(started.elapsed() < PATIENCE, "{missing} is not in\n{text}");
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (world.publication(wrong).await.sync, world.publication(right).await.sync),
        ("failed".to_owned(), "synced".to_owned())
    );
    drop(daemon);
}

/// Each variable is read by its old name, with a warning.
#[test]
fn old_variables_are_read_with_a_warning() {
    let old = [
        ("METRICS_ADDR", "127.0.0.1:0"),
        ("DB_DSN", "postgres://u@127.0.0.1:9/d"),
        ("DB_SECRET_ARN", "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"),
        ("DB_CA_FILE", "/dev/null"),
        ("ENV", "dev"),
        ("RUNNER_LAMBDA_ARN", "arn:aws:lambda:us-east-1:123456789012:function:runner"),
        ("SCHEDULER_ROLE_ARN", "arn:aws:iam::123456789012:role/scheduler"),
        ("SCHEDULE_GROUP", "group"),
        ("SCHEDULE_DLQ_ARN", "arn:aws:sqs:us-east-1:123456789012:queue"),
        ("BATCH_SIZE", "1"),
        ("MAX_ATTEMPTS", "1"),
        ("API_CONCURRENCY", "1"),
        ("API_TPS", "1"),
        ("CONFIG_GENERATION", "1"),
    ];
    let mut listen = Command::new(publisher_binary());
    let output = listen.arg("--listen").env_clear().envs(old).env("NO_COLOR", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (name, _) in old {
        let warning = format!("old=\"{name}\" new=\"{}{name}\"", old_names::PREFIX);
        assert!(said.contains(&warning), "{warning} is not in\n{said}");
    }
    assert!(said.contains("the database at 127.0.0.1:9 does not answer"), "{said}");
}

/// A setting that AWS would refuse for every schedule stops the start.
#[test]
fn a_malformed_arn_stops_the_start() {
    for (name, wrong) in [
        ("CRONBOX_SCHEDULER_ROLE_ARN", "arn:aws:iam::12345678901:role/x"),
        ("CRONBOX_RUNNER_LAMBDA_ARN", "runner"),
        ("CRONBOX_SCHEDULE_DLQ_ARN", "arn:aws:sqs:us-east-1:123456789012:x.fifo"),
        ("CRONBOX_SCHEDULE_GROUP", "no group"),
        ("CRONBOX_DB_SECRET_ARN", "db"),
    ] {
        let output = run(&["--once"], &[("CRONBOX_DB_DSN", "postgres://u@127.0.0.1:1/d"), (name, wrong)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let option = name.trim_start_matches(old_names::PREFIX);
        assert!(said.contains(option) && said.contains("write a"), "{said}");
    }
}
