//! The stand-in as a program of its own, as its README shows it.

use std::process::Stdio;

use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use local::client;
use local::config::target_folder;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running program; dropping it ends the process.
struct Program {
    endpoint: String,
    _process: Child,
}

impl Program {
    /// Starts it on a free port, and reads its address from its first line.
    async fn start(clock: &str) -> Program {
        let program = target_folder().join("debug/cronbox-stand-in");
        assert!(program.exists(), "build the programs first: `make test` does");
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--clock", clock]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it prints its address");
        Program { endpoint: line.split_whitespace().nth(1).unwrap().to_owned(), _process: process }
    }

    async fn json(request: reqwest::RequestBuilder) -> Value {
        request.send().await.unwrap().json().await.unwrap()
    }
}

#[tokio::test]
async fn the_program_fires_by_its_clock() {
    let program = Program::start("2026-03-28T00:00:00Z").await;
    let on_time = FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build().unwrap();
    let target = Target::builder()
        .arn("arn:aws:lambda:us-east-1:123456789012:function:f")
        .role_arn("arn:aws:iam::123456789012:role/r")
        .input(r#"{"for": "<aws.scheduler.scheduled-time>"}"#)
        .build()
        .unwrap();
    let create = client::stand_in_client(&program.endpoint).create_schedule().name("nightly").target(target);
    let create = create.schedule_expression("cron(30 2 * * ? *)").schedule_expression_timezone("Europe/Paris");
    create.flexible_time_window(on_time).send().await.unwrap();

    let http = reqwest::Client::new();
    let until = json!({"now": "2026-03-30T12:00:00Z"});
    let moved = Program::json(http.post(format!("{}/_clock", program.endpoint)).json(&until)).await;
    assert_eq!(moved, until);
    let fires = Program::json(http.get(format!("{}/_fires", program.endpoint))).await;
    let times: Vec<_> = fires["items"].as_array().unwrap().iter().map(|fire| &fire["payload"]["for"]).collect();
    assert_eq!(times, ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"], "02:30 does not exist on 29 March");
}
