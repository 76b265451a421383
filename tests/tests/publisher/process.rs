//! The publisher's process: what it prints, and what it says when it cannot start.

use std::process::{Command, Output};

use crate::database::publisher_binary;
use crate::world::World;

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

const ENVIRONMENT: [(&str, &str); 6] = [
    ("ENV", "dev"),
    ("RUNNER_LAMBDA_ARN", "arn:runner"),
    ("SCHEDULER_ROLE_ARN", "arn:role"),
    ("SCHEDULE_GROUP", "group"),
    ("SCHEDULE_DLQ_ARN", "arn:queue"),
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
fn whoever_cannot_start_says_in_one_sentence_what_to_do() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let away = format!("postgres://u:hunter2@127.0.0.1:{port}/d");
    for (arguments, more, says) in [
        (&["--once"][..], &[][..], "set DB_DSN in the environment".to_owned()),
        (&["--once"], &[("DB_DSN", "hunter2")], "the database DSN cannot be read: write postgres://".to_owned()),
        (&["--listen"], &[("DB_DSN", &away)], format!("the database at 127.0.0.1:{port} does not answer: start it")),
        (&[], &[("DB_DSN", &away)], "say --once or --listen".to_owned()),
        (&["--once"], &[("DB_DSN", &away), ("ENV", "Prod!")], "invalid value 'Prod!' for '--env <ENV>'".to_owned()),
        (&["--once"], &[("DB_DSN", &away), ("BATCH_SIZE", "0")], "invalid value '0' for '--batch-size".to_owned()),
    ] {
        let output = run(arguments, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("publisher: {says}")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
