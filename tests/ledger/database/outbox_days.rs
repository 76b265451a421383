//! The outbox by day: a day has only rows that a publisher has settled, and goes after the retention.

use app::jobs::Did;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tests::Story;

use super::partition_plans::{plan, shipped_statements};
use crate::steps::{hourly, session_without_limits, story_without_executor};

/// Later than the days for which the migration made partitions.
const MORNING: &str = "2035-03-02T08:30:00Z";
/// More than the retention of published rows later.
const THREE_WEEKS_LATER: &str = "2035-03-23T08:30:00Z";
const FIRST_DAY: &str = "SELECT count(*) FROM pg_class WHERE relname = 'outbox_processed_20350302'";

/// The partitions of a workflow's rows, oldest row first.
async fn partitions_of(s: &Story, wf: WorkflowId) -> Vec<String> {
    let partitions = "SELECT tableoid::regclass::text FROM outbox_events WHERE aggregate_id = $1 ORDER BY id";
    sqlx::query_scalar(partitions).bind(wf.0).fetch_all(&s.pool).await.unwrap()
}

async fn status_of_list(s: &Story, status: &str) -> Vec<(i64, String)> {
    let listed = s.admin().get(&format!("/api/v1/outbox?status={status}")).await.expect(200).json;
    let items = listed["items"].as_array().unwrap();
    items.iter().map(|row| (row["id"].as_i64().unwrap(), row["status"].as_str().unwrap().to_owned())).collect()
}

/// No publisher runs for three weeks. The day on which the edit was made goes; the edit is published.
#[tokio::test]
async fn open_rows_outlive_their_day() {
    let s = story_without_executor(MORNING).await;
    s.job("prune").await;
    let published = hourly(&s, json!({})).await;
    s.publish().await;
    assert_eq!(partitions_of(&s, published).await, ["outbox_processed_20350302"]);
    let open = hourly(&s, json!({})).await;
    s.now_is(THREE_WEEKS_LATER).await;
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 0);
    assert!(partitions_of(&s, published).await.is_empty(), "it went with its day");
    assert_eq!(partitions_of(&s, open).await, ["outbox_open"]);
    s.publish().await;
    assert_eq!(partitions_of(&s, open).await, ["outbox_processed_20350323"], "its settle has moved it");
    assert_eq!(s.schedule(open), "cron(0 * * * ? *) UTC ENABLED");
    s.end_early().await;
}

/// Failed and discarded rows are kept for 90 days, published ones for 7.
#[tokio::test]
async fn failed_rows_outlive_their_day() {
    let s = story_without_executor(MORNING).await;
    s.job("prune").await;
    hourly(&s, json!({})).await;
    s.publish().await;
    let [failed, discarded] = [hourly(&s, json!({})).await, hourly(&s, json!({})).await];
    s.execute(
        "UPDATE outbox_events SET failed_on = cronbox_now(), attempt_count = 1, error_message = 'refused' WHERE processed_on IS NULL;
         UPDATE publications SET error_class = 'permanent', due_at = NULL WHERE applied_on IS NULL",
    )
    .await;
    let listed = status_of_list(&s, "failed").await;
    let (discarded_row, failed_row) = (listed[0].0, listed[1].0);
    s.admin().post_empty(&format!("/api/v1/outbox/{discarded_row}:discard")).await.expect(200);
    assert_eq!(partitions_of(&s, discarded).await, ["outbox_discarded"]);
    s.now_is(THREE_WEEKS_LATER).await;
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 0);
    assert_eq!(partitions_of(&s, failed).await, ["outbox_open"]);
    assert_eq!(status_of_list(&s, "failed").await, [(failed_row, "failed".to_owned())]);
    assert_eq!(status_of_list(&s, "discarded").await, [(discarded_row, "discarded".to_owned())]);
    s.now_is("2035-07-02T08:30:00Z").await;
    s.job("prune").await;
    assert_eq!(s.count("SELECT count(*) FROM outbox_events").await, 0, "four months later they are removed");
    s.end_early().await;
}

/// A dump reads the outbox while the job tries to drop a day.
#[tokio::test]
async fn days_wait_for_readers_not_edits() {
    let s = story_without_executor(MORNING).await;
    s.job("prune").await;
    hourly(&s, json!({})).await;
    s.publish().await;
    s.now_is(THREE_WEEKS_LATER).await;
    let mut reader = session_without_limits(&s).await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM outbox_events").execute(&mut reader).await.unwrap();
    assert!(matches!(s.job("prune").await, Did::Waits(_)), "the next turn is a minute later");
    assert_eq!(s.count(FIRST_DAY).await, 1, "a reader uses it");
    let edited = hourly(&s, json!({})).await;
    s.publish().await;
    assert_eq!(partitions_of(&s, edited).await.len(), 1, "the reader delays neither the edit nor its publication");
    sqlx::raw_sql("ROLLBACK").execute(&mut reader).await.unwrap();
    reader.close().await.unwrap();
    s.job("prune").await;
    assert_eq!(s.count(FIRST_DAY).await, 0, "the next turn drops it");
    s.end_early().await;
}

/// A day is made or dropped under a lock of the table of all days, which no edit names.
#[tokio::test]
async fn edits_wait_for_no_day() {
    let s = story_without_executor(MORNING).await;
    let mut maintenance = session_without_limits(&s).await;
    let lock = "BEGIN; LOCK TABLE outbox_processed IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut maintenance).await.unwrap();
    let edited = hourly(&s, json!({})).await;
    s.edit(edited, json!({"cron_schedule": "30 * * * *"})).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut maintenance).await.unwrap();
    assert_eq!(partitions_of(&s, edited).await, ["outbox_open"; 2]);
    s.publish().await;
    s.end_early().await;
}

/// The job did not run for longer than it makes partitions ahead.
#[tokio::test]
async fn a_settle_without_a_partition_succeeds() {
    let s = story_without_executor(MORNING).await;
    let wf = hourly(&s, json!({})).await;
    s.publish().await;
    assert_eq!(partitions_of(&s, wf).await, ["outbox_processed_later"]);
    s.job("prune").await;
    assert_eq!(partitions_of(&s, wf).await, ["outbox_processed_20350302"]);
    s.end_early().await;
}

/// Statements about rows of any status, and why they may read all days.
const OF_ALL_ROWS: [(&str, &str); 4] = [
    ("list the outbox by key", "an operator's list of all rows, by an index of each day"),
    ("the last outbox row that the list read", "the end of that list"),
    ("find an outbox row", "an operator names the row"),
    ("lock: the publication is locked before the row", "an operator names the row"),
];

/// Claims, settles and gauges are about open or failed rows, and their plans have no day.
#[tokio::test]
async fn statements_on_open_rows_plan_no_day() {
    let s = story_without_executor(MORNING).await;
    s.job("prune").await;
    let mut session = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for text in shipped_statements() {
        let label = text.trim_start().trim_start_matches("-- ").lines().next().unwrap_or_default().to_owned();
        let is_about_rows =
            ["FROM outbox_events", "JOIN outbox_events", "UPDATE outbox_events"].iter().any(|part| text.contains(part));
        if !is_about_rows || OF_ALL_ROWS.iter().any(|(prefix, _)| label.starts_with(prefix)) {
            continue;
        }
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let plan = plan(&mut session, &text, mode, s.clock.now()).await;
            if plan.to_string().contains("outbox_processed") {
                wrong.push(format!("{label}: {mode}"));
            }
        }
        checked += 1;
    }
    assert!(checked >= 10, "the statements were not found");
    assert!(wrong.is_empty(), "`processed_on IS NULL` is missing, or a reason in OF_ALL_ROWS:\n{}", wrong.join("\n"));
    session.close().await.unwrap();
    s.end_early().await;
}
