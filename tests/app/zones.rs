//! The zone data of an environment: all instances use the set that its database names.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use chrono::{DateTime, Timelike as _, Utc};
use schedule::{Clock, ZoneSet};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tests::{Api, PATIENCE, Story};

use crate::startup::{app, run, serve, stop};

/// A database for programs of its own, because a process uses only one set of zone data.
pub(super) struct Environment {
    story: Story,
    name: String,
    pub(super) dsn: String,
    team: String,
}

impl Environment {
    pub(super) async fn new(suffix: &str) -> Self {
        let story = Story::today().await;
        let dsn = story.owner_dsn();
        let (server, database) = dsn.rsplit_once('/').unwrap();
        let name = format!("{database}_{suffix}");
        story.pool.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        let mut environment = Self { dsn: format!("{server}/{name}"), name, story, team: String::new() };
        environment.said(&["migrate"]).await;
        environment.team = environment.said(&["teams", "create", "--name", "books"]).await;
        environment
    }

    async fn output(&self, words: &[&str]) -> Output {
        run(app().args(words).env("DATABASE_URL", &self.dsn).env("NO_COLOR", "1")).await
    }

    /// The output of a `cronbox-app` command.
    pub(super) async fn said(&self, words: &[&str]) -> String {
        let output = self.output(words).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Replaces the database's clock with an SQL expression.
    pub(super) async fn set_clock(&self, expression: &str) {
        let mut connection = PgConnection::connect(&self.dsn).await.unwrap();
        let clock = format!(
            "CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE
             AS $$ BEGIN RETURN {expression}; END $$"
        );
        connection.execute(AssertSqlSafe(clock)).await.unwrap();
        connection.close().await.unwrap();
    }

    pub(super) async fn team_key(&self) -> String {
        let words = ["keys", "create", "--kind", "team", "--team", &self.team, "--role", "editor", "--name", "k"];
        self.said(&words).await
    }

    /// Activates the bundled zones as `version`, in which America/Vancouver has the rules of another zone.
    pub(super) async fn update(&self, version: &str, vancouver: &str) -> Updated {
        self.update_with(version, Some(vancouver), &[]).await
    }

    /// The same with options; without rules, America/Vancouver is no timezone of the data.
    async fn update_with(&self, version: &str, vancouver: Option<&str>, options: &[&str]) -> Updated {
        let file = zone_file(version, vancouver);
        let words = [&["zones", "update", file.to_str().unwrap()], options].concat();
        let Output { status, stdout, stderr } = self.output(&words).await;
        std::fs::remove_file(file).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().trim().to_owned();
        Updated { is_done: status.success(), said: text(stdout), logged: text(stderr) }
    }

    pub(super) async fn end(self) {
        self.story.pool.execute(AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name))).await.unwrap();
        self.story.end().await;
    }
}

/// The result of a zone data update.
pub(super) struct Updated {
    is_done: bool,
    said: String,
    logged: String,
}

impl Updated {
    /// The time from which the data are in force. Asserts that the rest of the output is `rest`.
    #[track_caller]
    pub(super) fn in_force_from(&self, version: &str, rest: &str) -> DateTime<Utc> {
        assert!(self.is_done, "{}", self.logged);
        let reply = self.said.strip_prefix(&format!("zone data {version} are in force from "));
        let (from, reply) =
            reply.and_then(|reply| reply.split_once(" on; ")).unwrap_or_else(|| panic!("{}", self.said));
        assert_eq!(reply, rest);
        from.parse().unwrap()
    }
}

fn zone_file(version: &str, vancouver: Option<&str>) -> PathBuf {
    let bundled = ZoneSet::bundled();
    let files = bundled.names().filter_map(|name| {
        let source = if name == "America/Vancouver" { vancouver? } else { name };
        Some((name.to_owned(), bundled.tzif(source).unwrap().to_vec()))
    });
    let set = ZoneSet::from_files(&version.parse().unwrap(), files).unwrap();
    let path = std::env::temp_dir().join(format!("zones-{}-{version}", uuid::Uuid::new_v4()));
    std::fs::write(&path, set.archive()).unwrap();
    path
}

/// Waits until the instance reports that it uses this version.
pub(super) async fn until_version(api: &Api, version: &str) {
    let waiting = async {
        while api.get("/readyz").await.json["zone_data"] != version {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it does not load the zone data");
}

#[tokio::test]
async fn instances_follow_the_zone_data_in_force() {
    let environment = Environment::new("zones").await;
    let bundled = ZoneSet::bundled().version().to_string();
    let (mut first, url) = serve(&environment.dsn).await;
    let api = Api::new(&url, &environment.team_key().await);
    until_version(&api, &bundled).await;
    // New data come into force after a minute, and a time before that is one of the old data. So the next time is hours away, in
    // six or seven hours in Vancouver, and in seventeen by the rules of Kathmandu.
    let cron = format!("0 {} * * *", (Clock::System.now().hour() + 23) % 24);
    let make = async |name: &str, timezone: &str| {
        let body = json!({"name": name, "cron_schedule": cron, "timezone": timezone,
                          "action": {"type": "log", "message": "hi"}});
        api.post("/api/v1/workflows", &body).await.expect(201).id()
    };
    let (vancouver, paris) = (make("v", "America/Vancouver").await, make("p", "Europe/Paris").await);
    let listed = async |changed: bool| {
        let page = api.get(&format!("/api/v1/workflows?timezone_changed={changed}")).await.expect(200).json;
        let ids = page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap());
        ids.collect::<Vec<_>>()
    };
    let next = async || {
        let next = api.get(&format!("/api/v1/schedules/{vancouver}/next?n=1")).await.expect(200).json;
        next["items"][0]["offset"].as_str().unwrap().to_owned()
    };
    assert!(listed(true).await.is_empty());
    let updated = environment.update("1999a", "Asia/Kathmandu").await;
    updated.in_force_from("1999a", "1 workflows have other next times");
    let changed: Vec<_> = updated.logged.lines().filter(|line| line.contains("next times changed")).collect();
    let named = format!("workflow_id={vancouver} version=1999a");
    assert!(matches!(changed.as_slice(), [line] if line.contains(&named)), "{}", updated.logged);
    let again = environment.update("1999a", "Asia/Kathmandu").await;
    assert_eq!(again.said, "zone data 1999a are already in force");
    until_version(&api, "1999a").await;
    assert_eq!(next().await, "+05:45");
    assert_eq!((listed(true).await, listed(false).await), (vec![vancouver], vec![paris]));
    let metrics = api.get("/metrics").await.text;
    assert!(metrics.contains(r#"cronbox_zone_data{version="1999a"} 1"#), "{metrics}");

    // A new instance uses them at once; `migrate` activates a newer bundle.
    let (mut second, url) = serve(&environment.dsn).await;
    assert_eq!(Api::without_key(&url).get("/readyz").await.json["zone_data"], "1999a");
    environment.said(&["migrate"]).await;
    until_version(&api, &bundled).await;
    assert_ne!(next().await, "+05:45");
    // `migrate` does not activate the bundle of an older binary.
    environment.update("2199z", "Asia/Kathmandu").await.in_force_from("2199z", "1 workflows have other next times");
    environment.said(&["migrate"]).await;
    until_version(&Api::without_key(&url), "2199z").await;
    stop(&mut first).await;
    stop(&mut second).await;
    environment.end().await;
}

/// A fire is due by data that the instance has not loaded yet. It must load them before it refuses.
#[tokio::test]
async fn fires_due_by_new_zone_data_run() {
    let environment = Environment::new("refusals").await;
    environment.set_clock("'2099-06-15T12:00:00Z'::timestamptz").await;
    // A fire may come up to five minutes early, and new data come into force after one minute.
    let soon = "2099-06-15T12:03:00Z";
    let (mut serving, url) = serve(&environment.dsn).await;
    let body = json!({"name": "v", "cron_schedule": "48 17 * * *", "timezone": "America/Vancouver",
                      "action": {"type": "log", "message": "hi"}});
    let made = Api::new(&url, &environment.team_key().await).post("/api/v1/workflows", &body).await.expect(201);
    let scheduler = environment.said(&["keys", "create", "--kind", "scheduler", "--name", "s"]).await;
    let fire = json!({"scheduled_time": soon, "revision": 1});
    let path = format!("/api/v1/cron/workflows/{}:invoke", made.id());
    let refused = Api::new(&url, &scheduler).post(&path, &fire).await.expect(200);
    assert_eq!(refused.json["reason"], "not_due");
    let updated = environment.update("2199z", "Asia/Kathmandu").await;
    let in_force_from = updated.in_force_from("2199z", "1 workflows have other next times");
    assert_eq!(in_force_from, "2099-06-15T12:01:00Z".parse::<DateTime<Utc>>().unwrap());
    Api::new(&url, &scheduler).post(&path, &fire).await.expect(202);
    stop(&mut serving).await;
    environment.end().await;
}

/// EventBridge still fires at all times of its expression, of which the cron names one a month.
#[tokio::test]
async fn a_dropped_timezone_runs_no_surplus_fires() {
    let environment = Environment::new("dropped").await;
    environment.set_clock("'2099-06-28T00:00:00Z'::timestamptz").await;
    let (mut serving, url) = serve(&environment.dsn).await;
    let body = json!({"name": "v", "cron_schedule": "0 9 LW * *", "timezone": "America/Vancouver",
                      "action": {"type": "log", "message": "hi"}});
    let editor = Api::new(&url, &environment.team_key().await);
    let made = editor.post("/api/v1/workflows", &body).await.expect(201);
    let refused = environment.update_with("2199z", None, &[]).await;
    assert!(!refused.is_done && refused.logged.contains("America/Vancouver"), "{}", refused.logged);
    let dropped = environment.update_with("2199z", None, &["--drop-timezones"]).await;
    dropped.in_force_from("2199z", "1 workflows have other next times");
    until_version(&editor, "2199z").await;
    environment.set_clock("'2099-06-30T16:00:10Z'::timestamptz").await;
    let scheduler = Api::new(&url, &environment.said(&["keys", "create", "--kind", "scheduler", "--name", "s"]).await);
    let path = format!("/api/v1/cron/workflows/{}:invoke", made.id());
    let surplus = scheduler.post(&path, &json!({"scheduled_time": "2099-06-29T16:00:00Z", "revision": 1})).await;
    assert_eq!(surplus.expect(200).json["reason"], "not_due");
    scheduler.post(&path, &json!({"scheduled_time": "2099-06-30T16:00:00Z", "revision": 1})).await.expect(202);
    stop(&mut serving).await;
    environment.end().await;
}

/// Past times are evaluated by the data of their day, which instances find by version. So the contents of a version
/// must never change.
#[tokio::test]
async fn stored_zone_data_keep_their_contents() {
    let environment = Environment::new("contents").await;
    let first =
        environment.update("2199y", "Asia/Kathmandu").await.in_force_from("2199y", "0 workflows have other next times");
    let refused = async || {
        let updated = environment.update("2199y", "Asia/Tokyo").await;
        assert!(
            !updated.is_done && updated.logged.contains("zone data 2199y are already stored with other contents"),
            "{}",
            updated.logged
        );
    };
    refused().await;
    let second =
        environment.update("2199z", "Asia/Tokyo").await.in_force_from("2199z", "0 workflows have other next times");
    refused().await;
    // Back to the older set, which is already stored. A clock that goes back does not change the order.
    environment.set_clock("clock_timestamp() - INTERVAL '1 hour'").await;
    let third =
        environment.update("2199y", "Asia/Kathmandu").await.in_force_from("2199y", "0 workflows have other next times");
    assert!(first <= second && second <= third, "{first} {second} {third}");
    environment.end().await;
}
