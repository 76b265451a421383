//! People use the console in a real Chromium: the stories are in `stories.py`, which Playwright drives.
//!
//! `make console` runs it, because it needs a venv of its own and a browser; `cargo test` skips it. The stories say on
//! stdout what the stack must do: let time pass, publish, take a turn of a job. All addresses are of this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use local::stack::StackOptions;
use serde_json::{Value, json};
use tests::{Canaille, Story};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// The day on which the stories begin: two days before clocks in Paris go forward.
const BEGIN: &str = "2026-03-27T08:00:30Z";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_use_the_console() {
    let now = Some(BEGIN.parse().unwrap());
    let s = Story::with(StackOptions { now, mirrors_dead_letters: true, ..StackOptions::default() }).await;
    let organisation = Organisation::start().await;
    let mut browser = start_browser(&s, &organisation);
    let mut asked = BufReader::new(browser.stdout.take().unwrap()).lines();
    let mut answers = browser.stdin.take().unwrap();
    while let Some(line) = asked.next_line().await.unwrap() {
        match line.strip_prefix("do ") {
            Some(step) => {
                take_step(&s, step).await;
                let now = s.clock.now().to_rfc3339_opts(SecondsFormat::Secs, true);
                answer(&mut answers, json!({"now": now})).await;
            }
            None => println!("{line}"),
        }
    }
    let ended = browser.wait().await.unwrap();
    assert!(ended.success(), "the stories failed: see above");
    organisation.s.end().await;
    s.end().await;
}

/// A stack whose people sign in with Canaille. Its clock is the machine's, by which Canaille signs.
struct Organisation {
    s: Story,
    url: String,
    _canaille: Canaille,
}

impl Organisation {
    async fn start() -> Self {
        let mut canaille = Canaille::start().await;
        let mut s = Story::today().await;
        let oidc = canaille.settings(s.keys.team_id);
        let url = s.another_app_with(|config| {
            config.mail.public_url = Some(format!("http://{}", config.bind_addr).parse().unwrap());
            config.oidc = oidc;
        });
        let url = url.await.unwrap();
        canaille.register_callback(&format!("{url}/sign-in/callback")).await;
        Self { s, url, _canaille: canaille }
    }
}

fn start_browser(s: &Story, organisation: &Organisation) -> Child {
    let python = local::config::target_folder().join("venv-console/bin/python");
    assert!(python.exists(), "{} is missing: run `make console`", python.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("console/stories.py");
    let mut command = Command::new(python);
    command
        .arg(script)
        .env("CRONBOX_URL", s.url())
        .env("CRONBOX_ADMIN_KEY", &s.keys.admin)
        .env("CRONBOX_EDITOR_KEY", &s.keys.editor)
        .env("CRONBOX_TEAM_ID", s.keys.team_id.to_string())
        .env("CRONBOX_ORGANISATION_URL", &organisation.url)
        .env("CRONBOX_ORGANISATION_KEY", &organisation.s.keys.admin)
        .env("CRONBOX_ORGANISATION_TEAM_ID", organisation.s.keys.team_id.to_string())
        .env("CRONBOX_PICTURES", local::config::target_folder().join("console"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().unwrap()
}

/// One step that a browser cannot take.
async fn take_step(s: &Story, step: &str) {
    let after = |minutes: &str| s.clock.now() + TimeDelta::minutes(minutes.parse().unwrap());
    match step.split_once(' ').unwrap_or((step, "")) {
        ("wait", minutes) => s.set_clock(after(minutes)).await,
        ("wait_and_fire", minutes) => s.clock_to(&after(minutes).to_rfc3339()).await,
        ("publish", _) => drop(s.publish().await),
        ("job", name) => drop(s.job(name).await),
        ("runs_end", _) => s.runs_end().await,
        // A port on which nothing listens.
        ("app_is_away", _) => s.deliver_to("http://127.0.0.1:9").unwrap(),
        ("app_is_back", _) => s.deliver_to(s.url()).unwrap(),
        ("mirror", _) => s.publisher.mirror_dead_letters().await,
        ("lose_decision", of) => lose_decision(s, of).await,
        (unknown, _) => panic!("no step {unknown}"),
    }
}

/// Removes the decision about `<workflow> <time>`, as no program does.
async fn lose_decision(s: &Story, of: &str) {
    let (workflow, time) = of.split_once(' ').unwrap();
    let (workflow, time): (i64, DateTime<Utc>) = (workflow.parse().unwrap(), time.parse().unwrap());
    let statement = "DELETE FROM occurrences WHERE workflow_id = $1 AND scheduled_time = $2";
    let lost = sqlx::query(statement).bind(workflow).bind(time).execute(&s.pool).await.unwrap();
    assert_eq!(lost.rows_affected(), 1, "{of} was decided");
}

async fn answer(answers: &mut ChildStdin, answer: Value) {
    answers.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
}
