//! reliability.md, G29: the restore drill. The database is lost, yesterday's backup is put back, and EventBridge,
//! which stands as today, follows it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use local::config::target_folder;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tests::Story;
use tokio::process::Command;

/// What nobody who is in the database has run.
const RUNS_OF_NOBODY: &str = "SELECT count(*) FROM runs WHERE workflow_id NOT IN (SELECT id FROM workflows)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eventbridge_follows_a_restored_backup_and_who_is_not_in_it_does_not_run() {
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

    // EventBridge fires what it has; the app judges it by the backup.
    s.clock_to("2026-03-02T10:01:00Z").await;
    let refused = s.invoke(orphan, "2026-03-02T10:00:00Z").await;
    assert_eq!((refused.status, refused.code()), (410, "workflow_gone"));
    assert_eq!(s.count(RUNS_OF_NOBODY).await, 0, "fires of workflows that are gone");

    // Ids are given again: the schedule of a lost workflow becomes that of the new one.
    let heir = s.create("0 11 * * *", "UTC").await;
    assert_eq!(heir, later);
    let not_its_own = s.invoke(heir, "2026-03-02T10:00:00Z").await;
    assert_eq!((not_its_own.status, &not_its_own.body["reason"]), (200, &json!("not_due")));
    s.publish().await;
    assert_eq!(s.schedule(heir), "cron(0 11 * * ? *) UTC ENABLED");

    // The sweep is due by itself; the second, ten minutes later at least, believes that an orphan is one.
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
        assert!(ran(&s, workflow, "2026-03-03T09:00Z").await, "workflow {workflow} runs again");
    }
    assert!(ran(&s, heir, "2026-03-03T11:00Z").await);
    assert_eq!(s.count(RUNS_OF_NOBODY).await, 0);
    s.end().await;
}

/// A minute of the publisher: a drain, the sweep if it is due, and what that has found.
async fn tick(s: &Story) {
    s.publisher.tick(Instant::now() + Duration::from_secs(60)).await.unwrap();
}

async fn ran(s: &Story, workflow: WorkflowId, time: &str) -> bool {
    s.runs(workflow).await.contains(&format!("{time} schedule succeeded"))
}

/// A file of `pg_dump`.
struct Backup(PathBuf);

impl Backup {
    async fn of(s: &Story) -> Backup {
        let file = target_folder().join(format!("backup-{}.dump", uuid::Uuid::new_v4()));
        run(postgres("pg_dump").await.args(["--format=custom", "--file"]).arg(&file).args(["--dbname", &s.dsn()]))
            .await;
        Backup(file)
    }

    /// The database is dropped with all that is connected to it, made again, and filled.
    async fn put_back(self, s: &Story) {
        let dsn = s.dsn();
        let (server, name) = dsn.rsplit_once('/').unwrap();
        let mut admin = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        for statement in [format!("DROP DATABASE {name} WITH (FORCE)"), format!("CREATE DATABASE {name}")] {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
        }
        run(postgres("pg_restore").await.args(["--exit-on-error", "--dbname", &dsn]).arg(&self.0)).await;
        std::fs::remove_file(self.0).unwrap();
        // The set clock is kept in the database, and so is yesterday's, too.
        s.set_clock(s.clock.now()).await;
    }
}

/// One of the programs that belong to the server.
async fn postgres(program: &str) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/postgres-bin.sh");
    let found = Command::new("sh").arg(script).output().await.unwrap();
    Command::new(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim()).join(program))
}

async fn run(command: &mut Command) {
    let done = command.output().await.unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
