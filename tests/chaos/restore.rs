//! The restore drill: the database is lost, and an operator restores yesterday's backup. EventBridge still has today's
//! schedules, and must follow the backup.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use local::config::target_folder;
use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tests::{Api, PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Runs of workflows that are not in the database.
const RUNS_WITHOUT_WORKFLOW: &str = "SELECT count(*) FROM runs WHERE workflow_id NOT IN (SELECT id FROM workflows)";

/// A workflow that is not in the backup does not run, and its schedule is deleted as an orphan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eventbridge_follows_a_restored_backup() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let mut backed_up = Vec::new();
    for _ in 0..5 {
        backed_up.push(s.create("0 9 * * *", "UTC").await);
    }
    let [_untouched, edited, paused, archived, deleted] = backed_up[..] else { panic!("five workflows") };
    s.publish().await;
    let backup = Backup::of(&s).await;

    s.now_is("2026-03-02T08:30:00Z").await;
    s.edit(edited, json!({"cron_schedule": "30 17 * * *"})).await;
    s.pause(paused).await;
    s.archive(archived).await;
    s.delete(deleted).await;
    let [later, orphan] = [s.create("0 10 * * *", "UTC").await, s.create("0 10 * * *", "UTC").await];
    s.publish().await;
    s.clock_to("2026-03-02T09:01:00Z").await;

    backup.put_back(&s).await;
    accept(&s, "2026-03-02T09:01:00Z").await;

    // EventBridge fires the schedules that it has, and the app decides by the backup.
    s.clock_to("2026-03-02T10:01:00Z").await;
    let refused = s.invoke(orphan, "2026-03-02T10:00:00Z").await;
    assert_eq!((refused.status, refused.code()), (410, "workflow_gone"));
    assert_eq!(s.count(RUNS_WITHOUT_WORKFLOW).await, 0, "fires of workflows that are gone");

    // Ids are reused: the schedule of a lost workflow becomes that of the new one.
    let heir = s.create("0 11 * * *", "UTC").await;
    assert_eq!(heir, later);
    let not_its_own = s.invoke(heir, "2026-03-02T10:00:00Z").await;
    assert_eq!((not_its_own.status, &not_its_own.body["reason"]), (200, &json!("not_due")));
    s.publish().await;
    assert_eq!(s.schedule(heir), "cron(0 11 * * ? *) UTC ENABLED");

    // The first sweep is due without a request. Only the second, at least ten minutes later, deletes an orphan.
    tick(&s).await;
    for workflow in &backed_up {
        assert_eq!(s.schedule(*workflow), "cron(0 9 * * ? *) UTC ENABLED", "workflow {workflow} as in the backup");
    }
    assert_ne!(s.schedule(orphan), "none", "seen once");
    s.now_is("2026-03-02T10:20:00Z").await;
    tick(&s).await;
    assert_eq!(s.schedule(orphan), "none");

    s.clock_to("2026-03-03T11:01:00Z").await;
    for workflow in backed_up {
        assert!(ran_at(&s, workflow, "2026-03-03T09:00Z").await, "workflow {workflow} runs again");
    }
    assert!(ran_at(&s, heir, "2026-03-03T11:00Z").await);
    assert_eq!(s.count(RUNS_WITHOUT_WORKFLOW).await, 0);
    s.end().await;
}

/// The times between the backup and the loss have run already, but the backup does not contain these runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_databases_run_nothing_until_accepted() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create_with(json!({"cron_schedule": "* * * * *", "catch_up_policy": "run_all"})).await;
    let unfinished = s.create_with(json!({})).await;
    let in_the_backup = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
                         VALUES (gen_random_uuid(), $1, 'manual', 'accepted', '2026-03-02T08:15:00Z', '2026-03-02T08:00:00Z')";
    sqlx::query(in_the_backup).bind(unfinished.0).execute(&s.pool).await.unwrap();
    s.publish().await;
    let backup = Backup::of(&s).await;
    for minute in 1..=10 {
        s.clock_to(&format!("2026-03-02T08:{minute:02}:05Z")).await;
    }
    assert_eq!(s.runs(wf).await.matches("succeeded").count(), 10);

    backup.put_back(&s).await;
    s.now_is("2026-03-02T08:20:30Z").await;
    let manual = format!("/api/v1/schedules/{wf}:fire");
    let waiting = s.editor().post(&manual, &json!({})).await.expect(202).json["run_id"].clone();
    let late = s.invoke(wf, "2026-03-02T08:15:00Z").await;
    assert_eq!((late.status, late.code()), (503, "ledger_held"));
    assert!(until_held(&s).await.contains("cronbox-app ledger accept --until"), "it says what it waits for");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state <> 'accepted'").await, 0, "no run was started");

    accept(&s, "2026-03-02T08:20:00Z").await;
    s.runs_end().await;
    let ran = format!("/api/v1/runs/{}", waiting.as_str().unwrap());
    assert_eq!(s.editor().get(&ran).await.expect(200).json["state"], "succeeded");
    s.job("watchdog").await;
    assert_eq!(s.runs(unfinished).await, "untimed manual abandoned", "whether it ran is unknown");
    let gap = "SELECT count(*) FROM occurrences WHERE decision = 'missed' AND reason = 'restored'";
    assert_eq!(s.count(gap).await, 21, "08:00, at which it was created, to 08:20");
    let late = s.invoke(wf, "2026-03-02T08:15:00Z").await;
    assert_eq!((late.status, &late.body["reason"]), (200, &json!("missed")), "nor does a dead letter run it");
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE trigger <> 'manual'").await, 0);
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE verb = 'accept'").await, 1);
    s.clock_to("2026-03-02T08:21:05Z").await;
    assert!(ran_at(&s, wf, "2026-03-02T08:21Z").await, "from then on it runs");
    s.end().await;
}

/// A key was stolen and revoked. In the backup it is active, so it would open everything again. The acceptance names it, and one command revokes
/// such keys before an app serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_keys_are_revoked_again() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let create = async |name: &str| {
        s.admin().post("/api/v1/keys", &json!({"name": name, "kind": "admin"})).await.expect(201).json
    };
    let (stolen, other) = (create("stolen").await, create("other").await);
    let id = |key: &serde_json::Value| key["id"].as_str().unwrap().to_owned();
    let backup = Backup::of(&s).await;
    s.now_is("2026-03-02T08:30:00Z").await;
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", id(&stolen))).await.expect(200);

    backup.put_back(&s).await;
    s.now_is("2026-03-02T08:40:00Z").await;
    let active = "SELECT count(*) FROM api_keys WHERE name IN ('stolen', 'other') AND revoked_on IS NULL";
    assert_eq!(s.count(active).await, 2, "the backup knows of no revocation");
    run(&mut app_of(&s, &["keys", "create", "--kind", "admin", "--name", "successor"])).await;
    let accepted = app_of(&s, &["ledger", "accept", "--until", "2026-03-02T08:35:00Z"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&accepted.stderr).into_owned();
    assert!(accepted.status.success(), "{said}");
    let line = said.lines().find(|line| line.starts_with(&id(&stolen))).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("\tadmin\t") && line.contains("\tstolen\t") && line.ends_with("never used"), "{line}");
    assert!(said.contains(&id(&other)) && !said.contains("successor"), "{said}");
    assert!(!said.contains(stolen["key"].as_str().unwrap()), "{said}");

    let unknown = "0198c1d2-0000-7000-8000-000000000000";
    let refused = app_of(&s, &["keys", "revoke", &id(&stolen), unknown]).output().await.unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!(s.count(active).await, 2, "all of them, or none");
    run(&mut app_of(&s, &["keys", "revoke", &id(&stolen), &id(&other)])).await;
    assert_eq!(s.count(active).await, 0);
    Api::new(s.url(), stolen["key"].as_str().unwrap()).get("/api/v1/keys").await.expect(401);
    s.end().await;
}

/// A backfill ended before the loss, but in the backup it has not started. If it continued, its times would run twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_backfills_wait_for_an_operator() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create_with(json!({"cron_schedule": "0 * * * *", "catch_up_policy": "none"})).await;
    s.publish().await;
    s.now_is("2026-03-02T12:10:00Z").await;
    s.job("watchdog").await;
    let span = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T12:00:00Z"});
    let requested = s.editor().post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202).json;
    let backup = Backup::of(&s).await;
    finish_backfill(&s).await;
    assert_eq!(s.runs(wf).await.matches("backfill succeeded").count(), 3);

    backup.put_back(&s).await;
    s.now_is("2026-03-02T12:20:00Z").await;
    let accepted = app_of(&s, &["ledger", "accept", "--until", "2026-03-02T12:15:00Z"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&accepted.stdout).into_owned();
    assert!(accepted.status.success() && said.contains(r#""backfills_paused":1"#), "{said}");
    s.job("backfills").await;
    assert_eq!(s.runs(wf).await, "", "what ran before the loss does not run again");
    let path = format!("/api/v1/backfills/{}", requested["id"].as_str().unwrap());
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "paused");

    s.editor().post_empty(&format!("{path}:resume")).await.expect(200);
    finish_backfill(&s).await;
    assert_eq!(s.runs(wf).await.matches("backfill succeeded").count(), 3, "an operator decides that it does");
    s.end().await;
}

/// A major upgrade gives the server another identity, and the database is complete. If its times became missed and its unfinished runs
/// abandoned, the upgrade would lose what no crash loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgraded_databases_lose_nothing() {
    let s = Story::with(StackOptions {
        now: Some("2026-03-02T08:30:00Z".parse().unwrap()),
        app: |config| config.executor_slots = 0,
        ..StackOptions::default()
    })
    .await;
    let filled = s.create_with(json!({"cron_schedule": "0 * * * *", "catch_up_policy": "none"})).await;
    s.now_is("2026-03-02T12:10:00Z").await;
    s.job("watchdog").await;
    let span = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T12:00:00Z"});
    s.editor().post(&format!("/api/v1/schedules/{filled}:backfill"), &span).await.expect(202);
    let late = s.create_with(json!({"cron_schedule": "15 * * * *", "catch_up_policy": "run_all"})).await;
    let (waiting, queued) = (s.create_with(json!({})).await, s.create_with(json!({})).await);
    for (workflow, state, handed_over) in [(waiting, "accepted", 0), (waiting, "accepted", 1), (queued, "queued", 0)] {
        let run = "INSERT INTO runs (id, workflow_id, trigger, state, attempt, handed_over, run_after, created_on)
                   VALUES (gen_random_uuid(), $1, 'manual', $2, $3, $3, cronbox_now(), cronbox_now())";
        sqlx::query(run).bind(workflow.0).bind(state).bind(handed_over).execute(&s.pool).await.unwrap();
    }
    s.publish().await;
    // No task decides 12:15, because the operator has stopped all of them.
    s.now_is("2026-03-02T12:30:00Z").await;
    s.execute("UPDATE database_identity SET system_identifier = '4711'").await;
    let held = until_held(&s).await;
    assert!(held.contains("restored") && held.contains("--nothing-lost"), "it names both options: {held}");

    let both = ["ledger", "accept", "--nothing-lost", "--until", "2026-03-02T12:30:00Z"];
    assert!(!app_of(&s, &both).output().await.unwrap().status.success(), "one of the two");
    let accepted = app_of(&s, &["ledger", "accept", "--nothing-lost"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&accepted.stdout).into_owned();
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(said.contains(r#""missed":0,"abandoned":0,"backfills_paused":0"#), "{said}");
    assert_eq!(s.count("SELECT count(*) FROM database_identity WHERE held_on IS NOT NULL").await, 0);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'abandoned'").await, 0);
    assert_eq!(s.count("SELECT count(*) FROM backfills WHERE state = 'running'").await, 1);

    s.job("watchdog").await;
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE reason = 'restored'").await, 0);
    assert!(s.runs(late).await.contains("2026-03-02T12:15Z catch_up accepted"), "{}", s.runs(late).await);
    s.end_early().await;
}

async fn finish_backfill(s: &Story) {
    s.job("backfills").await;
    s.until("SELECT count(*) FROM backfills WHERE state = 'finished'", 1).await;
    s.runs_end().await;
}

/// A storage snapshot has the identity of the lost database, so only the operator can mark it as restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marked_databases_wait_for_acceptance() {
    let s = Story::with(StackOptions {
        now: Some("2026-03-02T08:00:00Z".parse().unwrap()),
        app: |config| config.executor_slots = 0,
        ..StackOptions::default()
    })
    .await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    let mut serving = app_of(&s, &["serve"]);
    let mut serving = serving.env("CRONBOX_RESTORED", "true").spawn().unwrap();
    assert!(line_with(&mut serving, "ledger held").await.contains("marked"));
    assert_eq!(s.admin().get("/readyz").await.expect(200).json["held"], "marked", "it serves, and says that it waits");
    let run = s.editor().post(&format!("/api/v1/schedules/{wf}:fire"), &json!({})).await.expect(202).json;
    s.now_is("2026-03-02T08:00:30Z").await;
    accept(&s, "2026-03-02T07:59:00Z").await;
    // The last answer of the database is cached for a second.
    let began = Instant::now();
    while s.admin().get("/readyz").await.expect(200).json["held"] != json!(null) {
        assert!(began.elapsed() < PATIENCE, "it still waits");
    }
    // The instance that waited executes the run, although its log is no longer read.
    s.runs_end().await;
    let path = format!("/api/v1/runs/{}", run["run_id"].as_str().unwrap());
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "succeeded");
    serving.kill().await.unwrap();
    s.end().await;
}

/// Accepting the ledger abandons only runs from the backup. A fire on time was accepted after the restore, so it must
/// run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_accepted_during_a_hold_survive() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create("30 8 * * *", "UTC").await;
    s.publish().await;
    let backup = Backup::of(&s).await;
    backup.put_back(&s).await;
    s.now_is("2026-03-02T08:20:00Z").await;
    until_held(&s).await;
    s.now_is("2026-03-02T08:30:05Z").await;
    assert_eq!(s.invoke(wf, "2026-03-02T08:30:00Z").await.status, 202, "on time");
    s.now_is("2026-03-02T08:31:00Z").await;
    accept(&s, "2026-03-02T08:31:00Z").await;
    s.runs_end().await;
    assert!(ran_at(&s, wf, "2026-03-02T08:30Z").await, "{}", s.runs(wf).await);
    let again = app_of(&s, &["ledger", "accept", "--until", "2026-03-02T08:31:00Z"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("the ledger is not held"), "{said}");
    s.end().await;
}

/// A clone uses the schedule group of the original. It must not overwrite the original's schedules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_overwrite_no_schedule_of_the_original() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    let mut serving = app_of(&s, &["serve"]);
    let mut serving = serving.env("CRONBOX_RESTORED", "true").spawn().unwrap();
    line_with(&mut serving, "ledger held").await;
    serving.kill().await.unwrap();
    run(&mut app_of(&s, &["ledger", "accept", "--clone", "--env", "dev", "--until", "2026-03-02T07:59:00Z"])).await;
    s.edit(wf, json!({"cron_schedule": "0 17 * * *"})).await;
    let report = s.publish().await;
    assert_eq!((report.retried, report.updated), (1, 0), "{report:?}");
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) UTC ENABLED", "the original's");
    s.end_early().await;
}

/// Two environments use one database, by mistake or after a clone. Neither may run the other's workflows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_another_environment_are_held() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let mut serving = app_of(&s, &["serve"]);
    let mut serving = serving.env("CRONBOX_ENV", "staging").spawn().unwrap();
    assert!(line_with(&mut serving, "ledger held").await.contains("cloned"));
    serving.kill().await.unwrap();
    let identity = "SELECT uuid::text FROM database_identity";
    let original = s.table(identity).await;
    let clone = ["ledger", "accept", "--env", "staging", "--clone", "--until", "2026-03-02T07:00:00Z"];
    run(&mut app_of(&s, &clone)).await;
    assert_ne!(s.table(identity).await, original, "a clone never deletes the original's schedules");
    let future = ["ledger", "accept", "--env", "dev", "--until", "2999-01-01T00:00:00Z"];
    let future = app_of(&s, &future).output().await.unwrap();
    let said = String::from_utf8_lossy(&future.stderr).into_owned();
    assert!(!future.status.success() && said.contains("--until must not be in the future"), "{said}");
    run(&mut app_of(&s, &["ledger", "accept", "--env", "dev", "--until", "2026-03-02T07:00:00Z"])).await;
    s.end().await;
}

/// An operator of prod forgets `CRONBOX_ENV`. The database must not pass to dev.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptances_guess_no_environment() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let until = ["--until", "2026-03-02T07:00:00Z"];
    let accept = |named: &[&str]| app_of(&s, &[&["ledger", "accept"][..], named, &until[..]].concat());
    run(&mut accept(&["--env", "prod"])).await;
    let unnamed = accept(&[]).output().await.unwrap();
    let said = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    assert!(
        !unnamed.status.success() && said.contains("belongs to environment prod, and CRONBOX_ENV is not set"),
        "{said}"
    );
    assert_eq!(s.table("SELECT environment FROM database_identity WHERE held_on IS NULL").await, "prod");
    run(accept(&[]).env("CRONBOX_ENV", "dev")).await;
    s.end().await;
}

async fn accept(s: &Story, until: &str) {
    run(&mut app_of(s, &["ledger", "accept", "--until", until])).await;
}

/// The app's binary on the story's database.
fn app_of(s: &Story, arguments: &[&str]) -> Command {
    let mut command = Command::new(target_folder().join("debug/cronbox-app"));
    command.args(arguments).env_clear().env("DATABASE_URL", s.dsn()).env("CRONBOX_BIND_ADDR", "127.0.0.1:0");
    command.env("NO_COLOR", "1").stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Starts an instance that takes jobs, waits until it logs that the ledger is held, and returns the log line.
async fn until_held(s: &Story) -> String {
    let mut serving = app_of(s, &["serve"]).spawn().unwrap();
    let line = line_with(&mut serving, "ledger held").await;
    serving.kill().await.unwrap();
    line
}

async fn line_with(serving: &mut Child, text: &str) -> String {
    let mut lines = BufReader::new(serving.stderr.take().unwrap()).lines();
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("it ends without saying {text}")
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it says so")
}

/// One tick of the publisher: a drain, a sweep if it is due, and the repairs.
async fn tick(s: &Story) {
    s.publisher.run_tick(Instant::now() + Duration::from_secs(60)).await.unwrap();
}

async fn ran_at(s: &Story, workflow: WorkflowId, time: &str) -> bool {
    s.runs(workflow).await.contains(&format!("{time} schedule succeeded"))
}

/// A file that `pg_dump` has written.
struct Backup(PathBuf);

impl Backup {
    async fn of(s: &Story) -> Backup {
        let file = target_folder().join(format!("backup-{}.dump", uuid::Uuid::new_v4()));
        run(postgres("pg_dump")
            .await
            .args(["--format=custom", "--file"])
            .arg(&file)
            .args(["--dbname", &s.owner_dsn()]))
        .await;
        Backup(file)
    }

    /// Drops the database with all its connections, creates it again, and restores the backup.
    async fn put_back(self, s: &Story) {
        let dsn = s.owner_dsn();
        let (server, name) = dsn.rsplit_once('/').unwrap();
        let mut admin = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        for statement in [format!("DROP DATABASE {name} WITH (FORCE)"), format!("CREATE DATABASE {name}")] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        }
        run(postgres("pg_restore").await.args(["--exit-on-error", "--dbname", &dsn]).arg(&self.0)).await;
        std::fs::remove_file(self.0).unwrap();
        // The test's clock is stored in the database, so the restore has set it back, too.
        s.set_clock(s.clock.now()).await;
    }
}

/// One of the programs that come with the Postgres server.
async fn postgres(program: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/postgres-bin.sh");
    let found = Command::new("sh").arg(script).output().await.unwrap();
    Command::new(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim()).join(program))
}

async fn run(command: &mut Command) {
    let done = command.output().await.unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
