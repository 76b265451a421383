//! The audit log by month: a month is dropped after the retention, and no login of the app removes an entry.

use std::time::Instant;

use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::error::DatabaseError;
use sqlx::{Connection as _, PgConnection};
use tests::{PATIENCE, Story};

use super::partition_plans::{plan, shipped_statements};
use crate::steps::{hourly, pruned, session_without_limits, story_without_executor};

/// Later than the months for which the migration made partitions.
const MORNING: &str = "2035-03-02T08:30:00Z";
/// 400 days after the end of March 2035.
const AFTER_RETENTION: &str = "2036-05-06T08:30:00Z";

/// The months of the entries about workflows, a line for each.
async fn months(s: &Story) -> String {
    s.table(
        "SELECT DISTINCT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM') FROM audit_log
          WHERE subject LIKE 'workflow:%' ORDER BY 1",
    )
    .await
}

/// A story with a workflow whose entry is in the partition of its month.
async fn story_with_entry() -> (Story, WorkflowId) {
    let s = story_without_executor(MORNING).await;
    pruned(&s).await;
    let wf = hourly(&s, json!({})).await;
    let partition = "SELECT DISTINCT tableoid::regclass::text FROM audit_log WHERE subject LIKE 'workflow:%'";
    assert_eq!(s.table(partition).await, "audit_log_20350331");
    (s, wf)
}

#[tokio::test]
async fn old_months_go_newer_months_stay() {
    let (s, wf) = story_with_entry().await;
    s.now_is("2036-04-02T08:30:00Z").await;
    s.edit(wf, json!({"name": "later"})).await;
    pruned(&s).await;
    assert_eq!(months(&s).await, "2035-03\n2036-04", "March is not 400 days old");
    s.now_is(AFTER_RETENTION).await;
    pruned(&s).await;
    assert_eq!(months(&s).await, "2036-04");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn zero_days_keep_the_log_forever() {
    let s = Story::with(StackOptions {
        now: Some(MORNING.parse().unwrap()),
        app: |config| {
            config.executor_slots = 0;
            config.audit_keep_days = 0;
        },
        ..StackOptions::default()
    })
    .await;
    hourly(&s, json!({})).await;
    s.job("prune").await;
    s.now_is(AFTER_RETENTION).await;
    s.job("prune").await;
    assert_eq!(months(&s).await, "2035-03");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn a_dropped_month_waits_for_readers() {
    let (s, wf) = story_with_entry().await;
    s.now_is(AFTER_RETENTION).await;
    let mut reader = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM audit_log").execute(&mut reader).await.unwrap();
    s.job("prune").await;
    assert_eq!(months(&s).await, "2035-03", "a reader uses it");
    s.edit(wf, json!({"name": "edited"})).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut reader).await.unwrap();
    pruned(&s).await;
    assert_eq!(months(&s).await, "2036-05", "the next turn drops it, and the edit did not wait");
    s.publish().await;
    s.end_early().await;
}

/// Each instance reads them every five seconds, and there may be any number of edits since the last one.
#[tokio::test]
async fn deletions_are_read_without_edits() {
    let (s, _) = story_with_entry().await;
    s.execute(
        "INSERT INTO audit_log (at, actor, verb, subject)
         SELECT '2035-03-02T08:30:00Z', 'key', 'update', 'workflow:1' FROM generate_series(1, 5000)",
    )
    .await;
    s.execute("ANALYZE audit_log").await;
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    let texts = shipped_statements();
    let text = texts.iter().find(|text| text.trim_start().starts_with("-- deleted workflows:")).unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let plan = plan(&mut session, text, mode, s.clock.now()).await.to_string();
        // The name that Postgres gives the index of the month.
        assert!(plan.contains("audit_log_20350331_id_idx"), "{plan}");
    }
    session.close().await.unwrap();
    s.publish().await;
    s.end_early().await;
}

/// Neither by a statement nor by the owner's function, which keeps 30 days whatever its caller says.
#[tokio::test]
async fn the_app_removes_no_audit_entry() {
    let (s, _) = story_with_entry().await;
    let entries = s.count("SELECT count(*) FROM audit_log").await;
    let mut app = PgConnection::connect(&s.dsn()).await.unwrap();
    for statement in [
        "DELETE FROM audit_log",
        "UPDATE audit_log SET actor = 'x'",
        "DELETE FROM audit_chain",
        "UPDATE audit_chain SET entry_count = 1",
        "UPDATE audit_chain_start SET first_day = 'infinity'",
        "DELETE FROM audit_log_20350331",
        "UPDATE audit_log_20350331 SET actor = 'x'",
        "TRUNCATE audit_log_20350331",
        "DROP TABLE audit_log_20350331",
        "ALTER TABLE audit_log DETACH PARTITION audit_log_20350331",
    ] {
        let refused = sqlx::query(statement).execute(&mut app).await.expect_err(statement);
        let code = refused.as_database_error().and_then(DatabaseError::code);
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused}");
    }
    let drop = "SELECT drop_oldest_partition('audit_log', 'infinity', 'infinity')";
    assert_eq!(sqlx::query_scalar::<_, String>(drop).fetch_one(&mut app).await.unwrap(), "none");
    // The trigger is of the partitions, too, so the owner cannot do it by mistake.
    let refused = sqlx::query("DELETE FROM audit_log_20350331").execute(&s.pool).await.unwrap_err();
    assert!(refused.to_string().contains("audit_log is append-only"), "{refused}");
    assert_eq!(s.count("SELECT count(*) FROM audit_log").await, entries);
    s.publish().await;
    s.end_early().await;
}

/// The hashes of a dropped month remain, so that the later months can still be verified.
#[tokio::test]
async fn dropped_months_leave_anchors() {
    let (s, wf) = story_with_entry().await;
    for name in ["a", "b", "c"] {
        s.job("audit").await;
        s.edit(wf, json!({"name": name})).await;
    }
    s.job("audit").await;
    s.now_is("2036-04-02T08:30:00Z").await;
    s.edit(wf, json!({"name": "later"})).await;
    s.now_is(AFTER_RETENTION).await;
    let of_team = "SELECT count(*) FROM audit_chain WHERE team_id > 0 AND month < '2035-04-01T00:00:00Z'";
    s.job("audit").await;
    assert!(s.count(of_team).await > 2);

    pruned(&s).await;

    assert_eq!(months(&s).await, "2036-04");
    assert_eq!(s.count(of_team).await, 1, "the last block before the kept months is their anchor");
    s.edit(wf, json!({"name": "last"})).await;
    s.job("audit").await;
    let verified = s.admin().get("/api/v1/audit:verify").await.expect(200).json;
    assert_eq!((&verified["differences"], verified["anchors"].as_i64() > Some(0)), (&json!([]), true), "{verified}");
    s.execute("BEGIN; SET LOCAL session_replication_role = replica; UPDATE audit_log SET actor = 'x' WHERE verb = 'update'; COMMIT").await;
    let verified = s.admin().get("/api/v1/audit:verify").await.expect(200).json;
    assert_eq!(verified["differences"][0]["kind"], "changed", "{verified}");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn months_stay_until_they_are_chained() {
    let (s, _) = story_with_entry().await;
    s.now_is(AFTER_RETENTION).await;
    let mut other = session_without_limits(&s).await;
    // An instance that extends the chain.
    sqlx::raw_sql("BEGIN; SELECT pg_advisory_xact_lock(7022629598041172065)").execute(&mut other).await.unwrap();
    s.job("prune").await;
    assert_eq!(months(&s).await, "2035-03", "its entries are not in the chain");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    pruned(&s).await;
    assert_eq!(months(&s).await, "");
    s.publish().await;
    s.end_early().await;
}

/// Only the audit log waits for its chain: all other rows would fill the disk.
#[tokio::test]
async fn a_failing_chain_stops_no_other_prune() {
    let (s, _) = story_with_entry().await;
    s.publish().await;
    s.execute(
        "CREATE FUNCTION refuse_block() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no block'; END $$;
         CREATE TRIGGER refuse_block BEFORE INSERT ON audit_chain EXECUTE FUNCTION refuse_block()",
    )
    .await;
    let processed = "SELECT count(*) FROM outbox_processed";
    assert!(s.count(processed).await > 0);
    s.now_is(AFTER_RETENTION).await;

    let failed = s.try_job("prune").await.unwrap_err();

    assert!(format!("{failed:#}").contains("no block"), "{failed:#}");
    assert_eq!(s.count(processed).await, 0, "published outbox rows are old");
    assert_eq!(months(&s).await, "2035-03", "its entries are not in the chain");
    s.execute("DROP TRIGGER refuse_block ON audit_chain").await;
    pruned(&s).await;
    assert_eq!(months(&s).await, "");
    s.end_early().await;
}

/// The drop of a month and the move of its bound are one change for a verification.
#[tokio::test]
async fn a_drop_during_a_verification_is_no_tampering() {
    let (s, wf) = story_with_entry().await;
    s.now_is("2036-04-02T08:30:00Z").await;
    s.edit(wf, json!({"name": "later"})).await;
    pruned(&s).await;
    s.job("audit").await;
    s.now_is(AFTER_RETENTION).await;
    let mut prune = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN").execute(&mut prune).await.unwrap();
    let drop = "SELECT drop_oldest_partition('audit_log', '2035-05-01', '2036-05-06')";
    let began = Instant::now();
    // It is `locked` as long as the instance reads deleted workflows, and `none` when all old months are dropped.
    while sqlx::query_scalar::<_, String>(drop).fetch_one(&mut prune).await.unwrap() != "none" {
        assert!(began.elapsed() < PATIENCE, "an old month stays");
    }
    let admin = s.admin();
    let verifying = tokio::spawn(async move { admin.get("/api/v1/audit:verify").await });
    // The instance also reads deleted workflows from time to time.
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query NOT LIKE '%deleted workflows%'";
    s.until(waiting, 1).await;

    sqlx::raw_sql("COMMIT").execute(&mut prune).await.unwrap();

    assert_eq!(months(&s).await, "2036-04");
    let verified = verifying.await.unwrap().expect(200).json;
    assert_eq!(verified["differences"], json!([]), "{verified}");
    s.publish().await;
    s.end_early().await;
}
