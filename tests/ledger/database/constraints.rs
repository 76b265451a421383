//! The constraints of the ledger: the database refuses what would break the protocol.

use chrono::{DateTime, Utc};
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use crate::steps::{fire_on_time, hourly, story_without_executor};

/// A copy of the only run, under another id.
const SECOND_RUN: &str = "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on)
    SELECT gen_random_uuid(), workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on FROM runs";

/// Restores the schema of the version before migration 26.
const BEFORE_26: &str = "CREATE INDEX idx_runs_occurrence_id ON runs (occurrence_id) WHERE occurrence_id IS NOT NULL;
    DO $$
    DECLARE
        part regclass;
    BEGIN
        FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'occurrences'::regclass LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT occurrences_run', part);
        END LOOP;
    END $$;
    ALTER TABLE backfills DROP COLUMN timing, DROP COLUMN timing_revision, DROP COLUMN pruned_succeeded;
    DROP TABLE prune_marks;
    DELETE FROM _sqlx_migrations WHERE version = 26";

async fn fired() -> (Story, WorkflowId) {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let wf = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    (s, wf)
}

/// Migrates like `cronbox-app migrate`.
async fn migrate(s: &Story) -> Result<(), String> {
    let options = db::Options { application_name: "migrate", ..app::config::database_options(&s.owner_dsn(), 1) };
    db::migrate_schema(&options).await.map_err(|error| format!("{error:#}"))
}

async fn refused(s: &Story, statement: &'static str) -> String {
    let refused = sqlx::raw_sql(statement).execute(&s.pool).await.unwrap_err();
    refused.as_database_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_occurrence_takes_one_automatic_run() {
    let (s, _) = fired().await;
    assert_eq!(refused(&s, SECOND_RUN).await, "idx_runs_automatic");
    assert_eq!(refused(&s, "UPDATE occurrences SET run_id = NULL").await, "occurrences_run");
    // A retry is another run of the same occurrence.
    let retry = "INSERT INTO runs (id, workflow_id, occurrence_id, trigger, state, scheduled_time, run_after, created_on)
                 SELECT gen_random_uuid(), workflow_id, occurrence_id, 'retry', 'queued', scheduled_time, run_after, created_on FROM runs";
    s.execute(retry).await;
    s.publish().await;
    s.end_early().await;
}

/// A time that was missed may still run, once. A run that a newer fire replaced is not replaced by another one.
#[tokio::test]
async fn a_decision_names_one_run() {
    let (s, _) = fired().await;
    assert_eq!(refused(&s, "UPDATE occurrences SET run_id = gen_random_uuid()").await, "occurrences_run_once");
    s.execute("UPDATE occurrences SET decision = 'skipped_overlap', run_id = NULL").await;
    assert_eq!(refused(&s, "UPDATE occurrences SET run_id = gen_random_uuid()").await, "occurrences_run_once");
    s.execute("UPDATE occurrences SET decision = 'missed'").await;
    s.execute("UPDATE occurrences SET decision = 'fired', run_id = gen_random_uuid()").await;
    assert_eq!(refused(&s, "UPDATE occurrences SET run_id = gen_random_uuid()").await, "occurrences_run_once");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn decisions_without_runs_stop_no_migration() {
    let (s, _) = fired().await;
    s.execute(BEFORE_26).await;
    s.execute("UPDATE occurrences SET run_id = NULL").await;
    migrate(&s).await.unwrap();
    assert_eq!(s.count("SELECT count(*) FROM occurrences WHERE run_id IS NULL").await, 1);
    assert_eq!(
        refused(&s, "UPDATE occurrences SET lateness_s = 7").await,
        "occurrences_run",
        "no later write keeps it"
    );
    s.publish().await;
    s.end_early().await;
}

/// The prune never removes a workflow's newest row, and it keeps rows within a long catch-up window. So neither shows
/// how far it has come.
#[tokio::test]
async fn migration_marks_how_far_prune_came() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let month = json!({"catch_up_window_secs": 30 * 24 * 3600});
    let (usual, newest_only) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    let long_window = hourly(&s, month).await;
    let missed = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
                  VALUES (gen_random_uuid(), $1, $2::timestamptz, 'missed', 0, $2, $2, $2)";
    for (wf, time) in [
        (usual, "2026-02-20T09:00:00Z"),
        (usual, "2026-02-21T09:00:00Z"),
        (newest_only, "2026-01-01T09:00:00Z"),
        (long_window, "2026-02-01T09:00:00Z"),
        (long_window, "2026-02-02T09:00:00Z"),
    ] {
        let time: DateTime<Utc> = time.parse().unwrap();
        sqlx::query(missed).bind(wf.0).bind(time).execute(&s.pool).await.unwrap();
    }
    s.execute(BEFORE_26).await;
    migrate(&s).await.unwrap();
    let marks = "SELECT subject || ' ' || (pruned_before AT TIME ZONE 'UTC')::date FROM prune_marks";
    assert_eq!(s.table(marks).await, "occurrences 2026-02-20");
    s.publish().await;
    s.end_early().await;
}
