//! Workflows that a file defines: the app loads all of them at its start, or none.

use std::process::Stdio;

use app::schedules_file::load_schedules;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::catch_up::watchdog_races::WAITING;

const TWO: &str = r#"
workflows:
  - team: team
    name: payroll
    cron_schedule: 0 9 L * *
    timezone: Europe/Paris
    catch_up_policy: run_all
    timeout_secs: 600
    action:
      type: log
      message: pay everybody
  - team: team
    name: report
    cron_schedule: "*/30 * * * *"
    action: {type: log, message: report}
"#;

/// A file in a new folder.
struct Definitions(std::path::PathBuf);

impl Definitions {
    fn new(text: &str) -> Self {
        Self::called("schedules.yaml", text)
    }

    fn called(name: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cronbox-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
        Self(folder.join(name))
    }

    fn becomes(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.parent().unwrap()).ok();
    }
}

fn serving(s: &Story, file: &Definitions) -> Child {
    serving_with(s, file, &[])
}

fn serving_with(s: &Story, file: &Definitions, more: &[(&str, &str)]) -> Child {
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox-app"));
    command.args(["serve", "--schedules"]).arg(&file.0).env_clear().env("DATABASE_URL", s.dsn());
    command.envs(more.iter().copied());
    command.env("CRONBOX_BIND_ADDR", "127.0.0.1:0").env("NO_COLOR", "1").stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// Waits until the app listens (`Ok`), or returns what it has logged when it ends.
async fn starts(mut app: Child) -> Result<(), String> {
    let mut lines = BufReader::new(app.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let listening = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listens on ") {
                return true;
            }
            said += &line;
            said.push('\n');
        }
        false
    };
    if tokio::time::timeout(PATIENCE, listening).await.expect("it neither listens nor ends") {
        app.kill().await.unwrap();
        return Ok(());
    }
    assert_eq!(app.wait().await.unwrap().code(), Some(1));
    Err(said)
}

async fn named(s: &Story, name: &str) -> Vec<Value> {
    let listed = s.editor().get("/api/v1/workflows?archived=true&limit=200").await.expect(200);
    let items = listed.json["items"].as_array().unwrap().clone();
    items.into_iter().filter(|workflow| workflow["name"] == name).collect()
}

/// Another instance loads the same file. A time that passes meanwhile is not due, so the watchdog does not run it late.
#[tokio::test]
async fn workflows_begin_when_the_load_has_its_turn() {
    let s = Story::at("2026-03-02T08:59:58Z").await;
    let file = Definitions::new(TWO);
    let mut holder = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT FROM teams FOR NO KEY UPDATE").execute(&mut *holder).await.unwrap();
    let release = async {
        s.until(WAITING, 1).await;
        s.now_is("2026-03-02T09:00:03Z").await;
        holder.rollback().await.unwrap();
    };
    let (loaded, ()) = tokio::join!(load_schedules(s.app(), &file.0), release);
    assert_eq!(loaded.unwrap().created, 2);
    let begun = "SELECT count(*) FROM schedule_versions WHERE valid_from = '2026-03-02T09:00:03Z'";
    assert_eq!(s.count(begun).await, 2);
    s.end().await;
}

/// An instance that cannot start because of another setting changes no workflow.
#[tokio::test]
async fn a_start_that_fails_applies_nothing() {
    let s = Story::today().await;
    let file = Definitions::new(TWO);
    let provider = [
        ("CRONBOX_OIDC_ISSUER", "https://issuer.example"),
        ("CRONBOX_OIDC_AUDIENCE", "cronbox"),
        ("CRONBOX_OIDC_GROUPS_FILE", "/nowhere"),
    ];
    let said = starts(serving_with(&s, &file, &provider)).await.unwrap_err();
    assert!(said.contains("CRONBOX_OIDC_GROUPS_FILE"), "{said}");
    assert!(named(&s, "payroll").await.is_empty());
    s.end().await;
}

/// The first start creates the workflows. A start with the same file changes nothing.
#[tokio::test]
async fn a_start_applies_only_the_files_changes() {
    let s = Story::today().await;
    let file = Definitions::new(TWO);
    starts(serving(&s, &file)).await.unwrap();
    let [payroll] = &named(&s, "payroll").await[..] else { panic!("there is one payroll") };
    let expected = json!({"cron_schedule": "0 9 L * *", "timezone": "Europe/Paris", "catch_up_policy": "run_all",
        "timeout_secs": 600, "managed_by": "schedules.yaml", "version": 1, "revision": 1, "team_id": s.keys.team_id});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&payroll[field], value, "{field}");
    }
    starts(serving(&s, &file)).await.unwrap();
    assert_eq!(named(&s, "payroll").await[0]["version"], 1, "a second start changes nothing");
    let (only_payroll, _) = TWO.split_once("  - team: team\n    name: report").unwrap();
    file.becomes(&only_payroll.replace("0 9 L", "0 8 L"));
    starts(serving(&s, &file)).await.unwrap();
    let payroll = &named(&s, "payroll").await[0];
    assert_eq!((&payroll["cron_schedule"], &payroll["version"]), (&json!("0 8 L * *"), &json!(2)));
    assert_eq!(named(&s, "report").await[0]["state"], "active", "what the file does not name stays");
    let verbs = s.table("SELECT verb || ' by ' || actor FROM audit_log WHERE actor LIKE 'file:%' ORDER BY id").await;
    assert_eq!(verbs, "create by file:schedules.yaml\ncreate by file:schedules.yaml\nload by file:schedules.yaml");
    s.end().await;
}

/// It can still pause and archive them.
#[tokio::test]
async fn the_api_cannot_edit_managed_workflows() {
    let s = Story::today().await;
    let file = Definitions::new(TWO);
    starts(serving(&s, &file)).await.unwrap();
    let id = named(&s, "payroll").await[0]["id"].as_i64().unwrap();
    let (workflow, schedule) = (format!("/api/v1/workflows/{id}"), format!("/api/v1/schedules/{id}"));
    let cron = json!({"cron_schedule": "0 9 * * *"});
    s.editor().patch(&workflow, &cron).await.refused(409, "managed", None);
    s.editor().patch(&schedule, &cron).await.refused(409, "managed", None);
    tests::send_request(s.editor().request(reqwest::Method::PUT, &schedule).json(&cron))
        .await
        .refused(409, "managed", None);
    s.editor().delete(&schedule).await.refused(409, "managed", None);
    s.editor().post(&format!("{workflow}:pause"), &json!({"reason": "wrong figures"})).await.expect(200);
    starts(serving(&s, &file)).await.unwrap();
    assert_eq!(named(&s, "payroll").await[0]["state"], "paused", "a start resumes nothing");
    s.editor().post_empty(&format!("{workflow}:archive")).await.expect(200);
    starts(serving(&s, &file)).await.unwrap();
    let states: Vec<_> = named(&s, "payroll").await.iter().map(|workflow| workflow["state"].clone()).collect();
    assert_eq!(states, ["archived", "active"], "while the file names it, an archived one is followed by a new one");
    s.end().await;
}

/// The edit that gives it its schedule pauses it, so that no version of it is ever active. A start pauses nothing else.
#[tokio::test]
async fn paused_definitions_are_never_active() {
    for exists in [false, true] {
        let s = Story::today().await;
        if exists {
            let manual = json!({"name": "payroll", "action": {"type": "log", "message": "by request"}});
            s.editor().post("/api/v1/workflows", &manual).await.expect(201);
        }
        let file = Definitions::new(&TWO.replace("    name: payroll\n", "    name: payroll\n    paused: true\n"));
        starts(serving(&s, &file)).await.unwrap();
        let [payroll] = &named(&s, "payroll").await[..] else { panic!("there is one payroll") };
        assert_eq!((&payroll["state"], &payroll["cron_schedule"]), (&json!("paused"), &json!("0 9 L * *")));
        let versions = "SELECT string_agg(DISTINCT w.name || ' ' || v.state, ', ') AS versions
                          FROM schedule_versions v JOIN workflows w ON w.id = v.workflow_id";
        assert_eq!(s.table(versions).await, "payroll paused, report active");
        let id = payroll["id"].as_i64().unwrap();
        s.editor().post_empty(&format!("/api/v1/workflows/{id}:resume")).await.expect(200);
        starts(serving(&s, &file)).await.unwrap();
        assert_eq!(named(&s, "payroll").await[0]["state"], "active");
        s.end().await;
    }
}

/// The error names the line, and no workflow of the file is created.
#[tokio::test]
async fn a_wrong_line_stops_the_start() {
    let s = Story::today().await;
    let file = Definitions::new(&TWO.replace("*/30 * * * *", "*/30 25 * * *").replace("Europe/Paris", "Europe/Pari"));
    let reply = starts(serving(&s, &file)).await.unwrap_err();
    assert!(reply.contains("schedules.yaml:6: timezone: unknown timezone Europe/Pari; did you mean"), "{reply}");
    assert!(reply.contains("schedules.yaml:14: cron_schedule: hour field: 25 is above 23"), "{reply}");
    file.becomes(&TWO.replace("team: team\n    name: report", "team: missing\n    name: report"));
    let reply = starts(serving(&s, &file)).await.unwrap_err();
    assert!(reply.contains("schedules.yaml:12: team: the team does not exist"), "{reply}");
    file.becomes(&TWO.replace("\"*/30 * * * *\"", "*/30 * * * *"));
    let reply = starts(serving(&s, &file)).await.unwrap_err();
    assert!(reply.contains("schedules.yaml:14: "), "{reply}");
    let inside = "action: {type: http, method: GET, url: \"http://169.254.169.254/latest/meta-data\"}";
    file.becomes(&TWO.replace("action: {type: log, message: report}", inside));
    let reply = starts(serving(&s, &file)).await.unwrap_err();
    assert!(reply.contains("schedules.yaml:15: action.url: "), "{reply}");
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    s.end().await;
}

/// A workflow whose only date has passed must not stop the start of the app, in any spelling of its cron.
#[tokio::test]
async fn spent_crons_do_not_stop_the_start() {
    let s = Story::today().await;
    let id = s.create_with(json!({"name": "payroll", "cron_schedule": "0 12 23 21 NOV ? 2126"})).await;
    let dated = |cron: &str| Definitions::new(&TWO.replace("0 9 L * *", cron));
    // The date passes. The row is written as an earlier start of the app has stored it.
    s.execute(
        "BEGIN; SET LOCAL session_replication_role = replica;
         UPDATE workflows SET cron_schedule = '0 12 23 21 11 * 2025', timezone = 'Europe/Paris'; COMMIT",
    )
    .await;
    for spelling in ["0 12 23 21 NOV ? 2025", "0 12 23 21 11 * 2025"] {
        starts(serving(&s, &dated(spelling))).await.unwrap();
        let [payroll] = &named(&s, "payroll").await[..] else { panic!("there is one payroll") };
        assert_eq!((&payroll["id"], &payroll["revision"]), (&json!(id.0), &json!(1)), "{spelling}");
    }
    // Another past date would be a change: the app logs it and does not change the workflow.
    starts(serving(&s, &dated("0 13 23 21 11 * 2025"))).await.unwrap();
    assert_eq!(named(&s, "payroll").await[0]["cron_schedule"], "0 12 23 21 11 * 2025");
    s.editor().post_empty(&format!("/api/v1/workflows/{id}:archive")).await.expect(200);
    starts(serving(&s, &dated("0 12 23 21 NOV ? 2025"))).await.unwrap();
    assert_eq!(named(&s, "payroll").await.len(), 1, "an archived one is not made again");
    assert_eq!(named(&s, "report").await[0]["state"], "active", "what has times left is loaded");
    s.end_early().await;
}

#[tokio::test]
async fn spent_crons_do_not_stop_empty_databases() {
    let s = Story::today().await;
    let file = Definitions::new(&TWO.replace("0 9 L * *", "0 12 23 21 11 * 2025"));
    starts(serving(&s, &file)).await.unwrap();
    assert_eq!((named(&s, "payroll").await.len(), named(&s, "report").await.len()), (0, 1));
    s.end().await;
}

#[tokio::test]
async fn concurrent_starts_create_each_workflow_once() {
    let s = Story::today().await;
    let file = Definitions::new(TWO);
    let apps: Vec<Child> = (0..4).map(|_| serving(&s, &file)).collect();
    let started = futures::future::join_all(apps.into_iter().map(starts)).await;
    assert_eq!(started, vec![Ok(()); 4]);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 2);
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE subject LIKE 'workflow:%'").await, 2);
    s.end().await;
}

/// The file of examples/, for a team that exists here.
#[tokio::test]
async fn the_example_file_is_loaded() {
    let s = Story::today().await;
    let example = include_str!("../../examples/schedules.yaml").replace("team: demo", "team: team");
    let file = Definitions::new(&example);
    starts(serving(&s, &file)).await.unwrap();
    let names = s.table("SELECT name FROM workflows WHERE managed_by = 'schedules.yaml' ORDER BY name").await;
    assert_eq!(names, "heartbeat\nimport orders\npayroll");
    s.publish().await;
    assert_eq!(s.count("SELECT count(*) FROM publications WHERE applied_revision = 1").await, 3);
    s.end().await;
}

/// After the retention a time is unknown: it may have run, so it must not be caught up.
#[tokio::test]
async fn windows_above_retention_stop_the_start() {
    let s = Story::today().await;
    let file = Definitions::new(&TWO.replace("timeout_secs: 600", "catch_up_window_secs: 2592000"));
    let reply = starts(serving_with(&s, &file, &[("CRONBOX_RETENTION_DAYS", "15")])).await.unwrap_err();
    assert!(reply.contains("schedules.yaml:8: catch_up_window_secs"), "{reply}");
    assert!(reply.contains("must be at most 1296000: occurrences are kept for 15 days"), "{reply}");
    assert_eq!(named(&s, "payroll").await.len(), 0);
    starts(serving(&s, &file)).await.unwrap();
    s.end().await;
}

/// A workflow that belongs to another file stops the start.
#[tokio::test]
async fn a_file_adopts_workflows_without_a_file() {
    let s = Story::today().await;
    let made = s.create_with(json!({"name": "payroll", "cron_schedule": "0 7 * * *"})).await;
    let file = Definitions::new(TWO);
    starts(serving(&s, &file)).await.unwrap();
    let [payroll] = &named(&s, "payroll").await[..] else { panic!("there is one payroll") };
    assert_eq!((&payroll["id"], &payroll["managed_by"]), (&json!(made.0), &json!("schedules.yaml")));
    assert_eq!(payroll["cron_schedule"], "0 9 L * *");
    let reply = starts(serving(&s, &Definitions::called("other.yaml", TWO))).await.unwrap_err();
    assert!(reply.contains("other.yaml:4: name: workflow 1 belongs to the file schedules.yaml"), "{reply}");
    s.end().await;
}

/// Each start reads the values as text. Encrypted anew, they would be a change.
#[tokio::test]
async fn encrypted_headers_of_a_file_stay_unchanged() {
    let s = Story::today().await;
    let file = Definitions::new(
        r#"
workflows:
  - team: team
    name: call
    action: {type: http, method: POST, url: "https://192.0.2.1/hook", headers: {authorization: canary}}
"#,
    );
    let settings = [
        ("CRONBOX_SECRETS_KEY", "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ("CRONBOX_ACTION_ALLOW_CIDRS", "192.0.2.0/24"),
    ];
    for _ in 0..2 {
        starts(serving_with(&s, &file, &settings)).await.unwrap();
        assert_eq!(named(&s, "call").await[0]["version"], 1);
        assert!(!s.table("SELECT action::text FROM workflows").await.contains("canary"));
    }
    file.becomes(&std::fs::read_to_string(&file.0).unwrap().replace("192.0.2.1", "192.0.2.2"));
    starts(serving_with(&s, &file, &settings)).await.unwrap();
    assert_eq!(named(&s, "call").await[0]["version"], 2, "a file has all values, so it may change the origin");
    s.end().await;
}
