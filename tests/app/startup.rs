//! Start and stop: the app reports a missing or wrong setting in one sentence, and stops in order on a signal.

use std::process::{Output, Stdio};

use serde_json::json;
use sqlx::Executor as _;
use tests::{Api, PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// The app's program.
pub(super) fn app() -> Command {
    program("cronbox-app")
}

/// A program, which `cargo build --workspace --bins` puts next to the folder of this test.
pub(super) fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join(name);
    assert!(program.exists(), "{} is missing: run `cargo build --workspace --bins`", program.display());
    let mut command = Command::new(program);
    command.env_clear().kill_on_drop(true);
    command
}

pub(super) async fn run(command: &mut Command) -> Output {
    tokio::time::timeout(PATIENCE, command.output()).await.expect("it does not end").unwrap()
}

/// Asserts one sentence on stderr, exit code 1, and no secret in the output.
pub(super) fn expect_error(output: &Output, words: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains(words), "{error:?} lacks {words:?}");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.trim().lines().count() == 1, "more than one sentence: {error}");
    assert!(!error.contains("hunter2"), "the password is printed: {error}");
}

#[tokio::test]
async fn a_wrong_setting_has_one_sentence() {
    let s = Story::today().await;
    let serve = |dsn: &str| {
        let mut command = app();
        command.arg("serve").env("DATABASE_URL", dsn).env("CRONBOX_BIND_ADDR", "127.0.0.1:0");
        command
    };
    expect_error(&run(app().arg("serve")).await, "DATABASE_URL");
    expect_error(&run(&mut serve("hunter2")).await, "the database DSN cannot be read");
    expect_error(&run(&mut serve("postgres://a:hunter2@127.0.0.1:9/x")).await, "127.0.0.1:9");
    let (before, _) = s.dsn().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    expect_error(&run(&mut serve(&format!("{before}/nowhere"))).await, "nowhere");
    let wrong = s.dsn().replace("_login:", "_login:hunter2");
    expect_error(&run(&mut serve(&wrong)).await, "password");
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    expect_error(&run(serve(&s.dsn()).env("CRONBOX_BIND_ADDR", &address)).await, "cannot listen on");
    expect_error(&run(serve(&s.dsn()).env("CRONBOX_BIND_ADDR", "here")).await, "BIND_ADDR");
    expect_error(&run(serve(&s.dsn()).env("CRONBOX_ENV", "Not An Env")).await, "ENV");
    s.end().await;
}

#[tokio::test]
async fn an_empty_database_must_be_migrated() {
    let s = Story::today().await;
    let (server, database) = s.owner_dsn().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let empty = format!("{database}_empty");
    s.pool.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {empty}"))).await.unwrap();
    let dsn = format!("{server}/{empty}");
    expect_error(&run(app().arg("serve").env("DATABASE_URL", &dsn)).await, "run `cronbox-app migrate`");
    let with = |words: &[&str]| {
        let mut command = app();
        command.args(words).env("DATABASE_URL", &dsn);
        command
    };
    assert!(run(&mut with(&["migrate"])).await.status.success());
    assert!(run(&mut with(&["migrate"])).await.status.success(), "a second time changes nothing");
    let team = run(&mut with(&["teams", "create", "--name", "books"])).await;
    let team = String::from_utf8(team.stdout).unwrap().trim().to_owned();
    expect_error(&run(&mut with(&["teams", "create", "--name", "books"])).await, "cannot create the team");
    expect_error(&run(&mut with(&["keys", "create", "--kind", "team", "--name", "k"])).await, "team_id");
    let words = ["keys", "create", "--kind", "team", "--team", &team, "--role", "editor", "--name", "k"];
    let key = String::from_utf8(run(&mut with(&words)).await.stdout).unwrap().trim().to_owned();
    let (mut serving, url) = serve(&dsn).await;
    let body = json!({"name": "a", "cron_schedule": "@daily", "action": {"type": "log", "message": "hi"}});
    Api::new(&url, &key).post("/api/v1/workflows", &body).await.expect(201);
    stop(&mut serving).await;
    s.pool.execute(sqlx::AssertSqlSafe(format!("DROP DATABASE {empty} WITH (FORCE)"))).await.unwrap();
    s.end().await;
}

/// The command names what it refuses, and leaves the limits that it does not name.
#[tokio::test]
async fn operators_set_limits_by_command() {
    let s = Story::today().await;
    let limits = |team: &str, words: &[&str]| {
        let mut command = app();
        command.args(["teams", "limits", "--team", team]).args(words).env("DATABASE_URL", s.dsn());
        command
    };
    let team = s.keys.team_id.to_string();
    assert!(run(&mut limits(&team, &["--workflows", "1", "--running-runs", "2"])).await.status.success());
    let output = run(&mut limits(&team, &["--workflows", "3"])).await;
    let set: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&set["workflows"], &set["running_runs"], &set["input_bytes"]), (&json!(3), &json!(2), &json!(null)));
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'limits' AND actor LIKE 'cli:_%'";
    assert_eq!(s.count(audited).await, 2, "the audit log names the user of the operating system");
    for wrong in ["--workflows=-1", "--workflows=1000000000001", "--workflows=many"] {
        expect_error(&run(&mut limits(&team, &[wrong])).await, "--workflows");
    }
    expect_error(&run(&mut limits("999999", &["--workflows", "3"])).await, "no team has the id 999999");
    s.end().await;
}

/// A run that does not end within `CRONBOX_SHUTDOWN_DRAIN_SECS` is for another instance.
#[tokio::test]
async fn stopping_apps_hand_over_long_runs() {
    let s =
        Story::with(local::stack::StackOptions { app: |config| config.executor_slots = 0, ..Default::default() }).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let wf = s
        .create_with(json!({"cron_schedule": "@daily", "action": {"type": "http", "method": "GET", "url": url}}))
        .await;
    let accepted = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
                    VALUES (gen_random_uuid(), $1, 'manual', 'accepted', now(), now())";
    sqlx::query(accepted).bind(wf.0).execute(&s.pool).await.unwrap();
    let (mut serving, _) = serve(&s.dsn()).await;
    let (_kept, _) = silent.accept().await.unwrap();
    s.until("SELECT count(*) FROM runs WHERE state = 'running'", 1).await;
    stop(&mut serving).await;
    let free = "SELECT count(*) FROM runs
                 WHERE state = 'accepted' AND locked_by IS NULL AND attempt = 1 AND recoveries = 0 AND handed_over = 1";
    assert_eq!(s.count(free).await, 1, "handed over, for another instance");
    s.publish().await;
    s.end_early().await;
}

pub(super) async fn serve(dsn: &str) -> (Child, String) {
    serve_with(dsn, &[]).await
}

/// Starts an app with additional environment variables; returns it and its address.
pub(super) async fn serve_with(dsn: &str, more: &[(&str, &str)]) -> (Child, String) {
    let mut command = app();
    command
        .envs(more.iter().copied())
        .arg("serve")
        .env("DATABASE_URL", dsn)
        .env("CRONBOX_BIND_ADDR", "127.0.0.1:0")
        .env("CRONBOX_SHUTDOWN_DRAIN_SECS", "1");
    command.env("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8").env("NO_COLOR", "1").stderr(Stdio::piped());
    let mut serving = command.spawn().unwrap();
    let mut lines = BufReader::new(serving.stderr.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, rest)) = line.split_once("listens on ") {
            let url = rest.split_whitespace().next().unwrap().to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (serving, url);
        }
    }
    panic!("the app ended before it listened");
}

pub(super) async fn stop(serving: &mut Child) {
    let pid = serving.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let ended = tokio::time::timeout(PATIENCE, serving.wait()).await;
    assert!(ended.expect("it does not stop").unwrap().success());
}
