//! If all statements of one workflow fail, each job logs and counts the failure, and continues with the other
//! workflows.

use local::stack::Stack;
use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use crate::steps::{claimed, ended, fire, fire_on_time, hourly, story_without_executor};

/// Makes the database refuse every change of a workflow, its occurrences and its runs.
async fn refuse_changes_of(s: &Story, wf: WorkflowId) {
    let refuse = "CREATE FUNCTION refuse_changes() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN RAISE EXCEPTION 'a test refuses this'; END $$;";
    sqlx::raw_sql(refuse).execute(&s.pool).await.unwrap();
    for (table, workflow) in
        [("workflows", "id"), ("ledger", "workflow_id"), ("occurrences", "workflow_id"), ("runs", "workflow_id")]
    {
        let trigger = format!(
            "CREATE TRIGGER refuse_changes BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW
             WHEN (NEW.{workflow} = {wf}) EXECUTE FUNCTION refuse_changes()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&s.pool).await.unwrap();
    }
}

/// Makes the database refuse to delete a workflow's rows.
async fn refuse_removals_of(s: &Story, wf: WorkflowId) {
    let refuse = "CREATE FUNCTION refuse_removals() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN RAISE EXCEPTION 'a test refuses this'; END $$;";
    sqlx::raw_sql(refuse).execute(&s.pool).await.unwrap();
    for (table, workflow) in
        [("outbox_events", "aggregate_id"), ("occurrences", "workflow_id"), ("runs", "workflow_id")]
    {
        let trigger = format!(
            "CREATE TRIGGER refuse_removals BEFORE DELETE ON {table} FOR EACH ROW
             WHEN (OLD.{workflow} = {wf}) EXECUTE FUNCTION refuse_removals()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&s.pool).await.unwrap();
    }
}

/// Runs a job that must fail at its end, and count the failure in `/metrics`.
async fn fails_at_its_end(s: &Story, name: &str) {
    let job = app::jobs::all_jobs(&s.app().config).into_iter().find(|job| job.name == name).unwrap();
    let app = Stack::app(s).clone();
    let failed = (job.run)(app).await.expect_err("a workflow failed");
    assert!(failed.to_string().starts_with("1 workflows failed"), "{name}: {failed:#}");
    let metrics = s.admin().get("/metrics").await.expect(200).text;
    assert!(metrics.contains(&format!("cronbox_job_failures_total{{background_job=\"{name}\"}} 1")), "{metrics}");
}

#[tokio::test]
async fn watchdog_decides_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (first, failing, last) =
        (hourly(&s, json!({})).await, hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    let quiet = hourly(&s, json!({})).await;
    for wf in [failing, quiet] {
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
    }
    refuse_changes_of(&s, failing).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    fails_at_its_end(&s, "watchdog").await;
    for wf in [first, last] {
        assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z caught_up");
    }
    let watched =
        sqlx::query_scalar::<_, bool>("SELECT cursor >= '2026-03-02T09:05:00Z' FROM ledger WHERE workflow_id = $1");
    assert!(watched.bind(quiet.0).fetch_one(&s.pool).await.unwrap(), "the batch does not wait for it either");
    s.end_early().await;
}

/// The proof names the workflow that the watchdog cannot process, and covers all others.
#[tokio::test]
async fn verify_proves_around_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (failing, other) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    refuse_changes_of(&s, failing).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    let to_nine = "/api/v1/verify?from=2026-03-02T08:31:00Z&to=2026-03-02T09:03:00Z";
    s.admin().get(to_nine).await.refused(400, "span_not_settled", Some("to"));
    fails_at_its_end(&s, "watchdog").await;
    let proven = s.admin().get(to_nine).await.expect(200).json;
    assert_eq!(proven["undecided_workflows"], json!([failing.0]));
    assert_eq!((&proven["differences"], &proven["due"], &proven["decided"]), (&json!([]), &json!(2), &json!(1)));
    assert_eq!(s.occurrences(other).await, "2026-03-02T09:00Z caught_up");

    s.now_is("2026-03-02T10:10:00Z").await;
    let to_ten = "/api/v1/verify?from=2026-03-02T08:31:00Z&to=2026-03-02T10:03:00Z";
    s.admin().get(to_ten).await.refused(400, "span_not_settled", Some("to"));
    s.execute(
        "DROP TRIGGER refuse_changes ON workflows;
         DROP TRIGGER refuse_changes ON ledger;
         DROP TRIGGER refuse_changes ON occurrences;
         DROP TRIGGER refuse_changes ON runs",
    )
    .await;
    s.job("watchdog").await;
    let proven = s.admin().get(to_ten).await.expect(200).json;
    assert_eq!((&proven["undecided_workflows"], &proven["differences"]), (&json!([]), &json!([])));
    s.end_early().await;
}

/// Its versions say that it is paused, although times have been due since the end of the pause.
#[tokio::test]
async fn verify_names_a_workflow_whose_pause_cannot_be_ended() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let failing = hourly(&s, json!({})).await;
    let until = json!({"reason": "test", "until": "2026-03-02T08:40:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{failing}:pause"), &until).await.expect(200);
    refuse_changes_of(&s, failing).await;
    s.now_is("2026-03-02T09:10:00Z").await;
    fails_at_its_end(&s, "watchdog").await;
    let proven = s.admin().get("/api/v1/verify?from=2026-03-02T08:31:00Z&to=2026-03-02T09:03:00Z").await;
    assert_eq!(proven.expect(200).json["undecided_workflows"], json!([failing.0]));
    s.end_early().await;
}

#[tokio::test]
async fn watchdog_resumes_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (failing, last) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    for wf in [failing, last] {
        let until = json!({"reason": "test", "until": "2026-03-02T08:40:00Z"});
        s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &until).await.expect(200);
    }
    refuse_changes_of(&s, failing).await;
    s.now_is("2026-03-02T08:41:00Z").await;
    fails_at_its_end(&s, "watchdog").await;
    assert_eq!(s.workflow(last).await["state"], "active");
    s.publish().await;
    s.end_early().await;
}

#[tokio::test]
async fn queue_promotes_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let mut workflows = Vec::new();
    for _ in 0..2 {
        let wf = hourly(&s, json!({"overlap_policy": "queue"})).await;
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
        claimed(&s, wf).await;
        assert_eq!(fire_on_time(&s, wf, "2026-03-02T10:00:00Z").await, "accepted", "it waits");
        workflows.push(wf);
        s.now_is("2026-03-02T08:30:00Z").await;
    }
    let end = "UPDATE runs SET state = 'succeeded', finished_on = $1, locked_by = NULL, locked_at = NULL
                WHERE state = 'running'";
    sqlx::query(end).bind(s.clock.now()).execute(&s.pool).await.unwrap();
    refuse_changes_of(&s, workflows[0]).await;
    s.now_is("2026-03-02T10:01:00Z").await;
    fails_at_its_end(&s, "queue").await;
    assert!(s.runs(workflows[0]).await.ends_with("schedule queued"));
    assert!(s.runs(workflows[1]).await.ends_with("schedule accepted"), "{}", s.runs(workflows[1]).await);
    s.end_early().await;
}

#[tokio::test]
async fn backfills_start_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (failing, last) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    s.now_is("2026-03-02T12:10:00Z").await;
    s.job("watchdog").await;
    for wf in [failing, last] {
        ended(&s, wf).await;
        let span = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T11:00:00Z"});
        s.editor().post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202);
    }
    refuse_changes_of(&s, failing).await;
    fails_at_its_end(&s, "backfills").await;
    assert!(!s.runs(failing).await.contains("backfill"));
    assert!(s.runs(last).await.contains("backfill"), "{}", s.runs(last).await);
    s.end_early().await;
}

#[tokio::test]
async fn recovery_takes_over_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (failing, last) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    for wf in [failing, last] {
        s.now_is("2026-03-02T08:59:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
        claimed(&s, wf).await;
    }
    refuse_changes_of(&s, failing).await;
    s.now_is("2026-03-02T09:30:00Z").await;
    fails_at_its_end(&s, "recovery").await;
    assert_eq!(s.runs(failing).await, "2026-03-02T09:00Z schedule running");
    assert_eq!(s.runs(last).await, "2026-03-02T09:00Z schedule accepted");
    s.end_early().await;
}

#[tokio::test]
async fn timeouts_end_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (failing, last) = (hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    for wf in [failing, last] {
        s.now_is("2026-03-02T08:59:00Z").await;
        assert_eq!(fire(&s, wf, "2026-03-02T09:00:00Z").await, "accepted");
        claimed(&s, wf).await;
    }
    s.now_is("2026-03-02T09:30:00Z").await;
    // Their executor renews their leases long after the timeout of 5 minutes.
    s.execute("UPDATE runs SET locked_at = cronbox_now() WHERE state = 'running'").await;
    refuse_changes_of(&s, failing).await;
    fails_at_its_end(&s, "timeouts").await;
    assert_eq!(s.runs(failing).await, "2026-03-02T09:00Z schedule running");
    assert_eq!(s.runs(last).await, "2026-03-02T09:00Z schedule timed_out");
    s.end_early().await;
}

#[tokio::test]
async fn prune_removes_behind_a_failing_workflow() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let (first, failing, last) =
        (hourly(&s, json!({})).await, hourly(&s, json!({})).await, hourly(&s, json!({})).await);
    for time in ["2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z"] {
        for wf in [first, failing, last] {
            assert_eq!(fire_on_time(&s, wf, time).await, "accepted");
            ended(&s, wf).await;
        }
    }
    s.publish().await;
    s.execute("UPDATE ledger SET cursor = '2026-03-02T10:30:00Z'").await;
    refuse_removals_of(&s, failing).await;
    s.now_is("2026-07-02T12:00:00Z").await;
    fails_at_its_end(&s, "prune").await;
    for wf in [first, last] {
        assert_eq!(s.occurrences(wf).await, "2026-03-02T10:00Z fired", "the newest stays");
        assert_eq!((s.runs(wf).await.as_str(), s.outbox_rows(wf).await), ("", 0));
    }
    assert_eq!(s.occurrences(failing).await, "2026-03-02T09:00Z fired\n2026-03-02T10:00Z fired");
    assert_eq!((s.runs(failing).await.lines().count(), s.outbox_rows(failing).await), (2, 1));
    s.end_early().await;
}
