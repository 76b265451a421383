//! The proof recomputes the due times, and compares them with the recorded decisions.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Answer, Story};
use tokio::process::Command;

use crate::steps::story_without_executor;

/// An hour from 09:00, with fires at 09:00, 09:30 and 10:00.
pub(crate) const SPAN: &str = "from=2026-03-02T09:00:00Z&to=2026-03-02T10:01:00Z";

pub(crate) async fn verify(s: &Story, span: &str) -> Answer {
    s.admin().get(&format!("/api/v1/verify?{span}")).await
}

/// Each difference as `09:30 missing`.
pub(crate) fn differences(answer: &Answer) -> Vec<String> {
    let one = |difference: &Value| {
        let time = difference["scheduled_time"].as_str().unwrap()[11..16].to_owned();
        format!("{time} {}", difference["kind"].as_str().unwrap())
    };
    answer.json["differences"].as_array().unwrap().iter().map(one).collect()
}

/// The differences without those about runs, which remain when a row is deleted.
fn except_runs(answer: &Answer) -> Vec<String> {
    let of_runs = ["no_run", "run_without_decision", "contradicted"];
    let is_of_a_run = |line: &String| of_runs.iter().any(|kind| line.ends_with(kind));
    differences(answer).into_iter().filter(|line| !is_of_a_run(line)).collect()
}

/// A workflow that fired three times, at a time when all of its fires are decided.
pub(crate) async fn fired() -> (Story, WorkflowId) {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    settle(&s).await;
    (s, id)
}

/// Sets the state in which the watchdog leaves the workflows.
pub(crate) async fn settle(s: &Story) {
    s.execute("UPDATE ledger SET watch_at = '2026-03-02T10:30:00Z' WHERE watch_at IS NOT NULL").await;
}

#[tokio::test]
async fn a_complete_ledger_is_clean() {
    let (s, _) = fired().await;
    let clean = verify(&s, SPAN).await.expect(200);
    assert_eq!(differences(&clean), Vec::<String>::new());
    assert_eq!((&clean.json["due"], &clean.json["decided"]), (&json!(3), &json!(3)));
    assert_eq!(clean.json["next_cursor"], Value::Null);
    s.end().await;
}

#[tokio::test]
async fn early_fires_remain_valid_after_an_edit() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:28:00Z").await;
    let fire = json!({"scheduled_time": "2026-03-02T09:30:00Z"});
    s.scheduler_key().post(&format!("/api/v1/cron/workflows/{id}:invoke"), &fire).await.expect(202);
    s.edit(id, json!({"cron_schedule": "45 * * * *"})).await;
    s.now_is("2026-03-02T09:45:00Z").await;
    s.execute("UPDATE ledger SET watch_at = '2026-03-02T10:30:00Z' WHERE watch_at IS NOT NULL").await;

    let found = verify(&s, "from=2026-03-02T09:20:00Z&to=2026-03-02T09:38:00Z").await.expect(200);

    assert_eq!(differences(&found), Vec::<String>::new());
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn missing_and_not_due_times_are_found() {
    let (s, id) = fired().await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    s.execute(
        "UPDATE occurrences SET scheduled_time = '2026-03-02T09:07:00Z' WHERE scheduled_time = '2026-03-02T10:00:00Z'",
    )
    .await;
    let found = verify(&s, SPAN).await.expect(200);
    let decisions = |answer| except_runs(&answer);
    assert_eq!(decisions(found.clone()), ["09:07 not_owed", "09:30 missing", "10:00 missing"]);
    let first = &found.json["differences"][0];
    assert_eq!((&first["workflow_id"], &first["kind_code"]), (&json!(id.0), &json!("not_due")));
    assert_eq!(found.json["owed"], found.json["due"], "for one version");
    s.execute("UPDATE occurrences SET decision = 'skipped_paused' WHERE scheduled_time = '2026-03-02T09:07:00Z'").await;
    let found = verify(&s, SPAN).await.expect(200);
    assert_eq!(decisions(found), ["09:30 missing", "10:00 missing"], "skipped_paused is permitted, never demanded");
    s.end().await;
}

#[tokio::test]
async fn each_timing_is_verified_over_its_span() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    s.edit(id, json!({"cron_schedule": "45 * * * *"})).await;
    s.publish().await;
    s.clock_to("2026-03-02T09:50:00Z").await;
    s.pause(id).await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    s.archive(id).await;
    s.publish().await;
    settle(&s).await;
    let clean = verify(&s, SPAN).await.expect(200);
    assert_eq!((&clean.json["due"], &clean.json["differences"]), (&json!(2), &json!([])), "09:00 and 09:45");
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:00:00Z'").await;
    assert_eq!(except_runs(&verify(&s, SPAN).await.expect(200)), ["09:00 missing"]);
    s.end().await;
}

#[tokio::test]
async fn unsettled_and_too_old_spans_are_refused() {
    let (s, _) = fired().await;
    let at = |from: &str, to: &str| format!("from={from}&to={to}");
    let late = verify(&s, &at("2026-03-02T09:00:00Z", "2026-03-02T10:04:00Z")).await;
    late.refused(400, "span_not_settled", Some("to"));
    assert!(late.json["detail"].as_str().unwrap().contains("2026-03-02T10:03:00Z"), "{}", late.text);
    s.execute("UPDATE ledger SET watch_at = '2026-03-02T09:30:00Z'").await;
    let behind = verify(&s, SPAN).await;
    behind.refused(400, "span_not_settled", Some("to"));
    assert!(behind.json["detail"].as_str().unwrap().contains("2026-03-02T09:30:00Z"), "{}", behind.text);
    let old = verify(&s, &at("2025-11-01T00:00:00Z", "2026-03-02T09:30:00Z")).await;
    old.refused(400, "span_too_old", Some("from"));
    verify(&s, &at("2026-03-02T09:30:00Z", "2026-03-02T09:30:00Z")).await.refused(400, "invalid_field", Some("to"));
    verify(&s, "from=2026-03-02T09:30:00Z").await.refused(400, "missing_field", Some("to"));
    s.end().await;
}

/// A fire, an edit or the watchdog writes the end of a pause later, dated back. Until then no version says that times are
/// due since.
#[tokio::test]
async fn times_after_a_pause_are_not_settled_before_its_end_is_written() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = s.create("0 * * * *", "UTC").await;
    let pause = json!({"reason": "test", "until": "2026-03-02T10:00:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{workflow}:pause"), &pause).await.expect(200);
    s.now_is("2026-03-02T10:20:00Z").await;
    let span = "from=2026-03-02T09:00:00Z&to=2026-03-02T10:13:00Z";
    let behind = verify(&s, span).await;
    behind.refused(400, "span_not_settled", Some("to"));
    assert!(behind.json["detail"].as_str().unwrap().contains("2026-03-02T10:00:00Z"), "{}", behind.text);
    s.job("watchdog").await;
    let proven = verify(&s, span).await.expect(200).json;
    assert_eq!((&proven["due"], &proven["decided"], &proven["differences"]), (&json!(1), &json!(1), &json!([])));
    s.end_early().await;
}

#[tokio::test]
async fn no_time_before_the_ledger_is_due() {
    let (s, _) = fired().await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:00:00Z'").await;
    s.execute("UPDATE workflows SET ledger_since = '2026-03-02T09:15:00Z'").await;
    let clean = verify(&s, SPAN).await.expect(200);
    assert_eq!((&clean.json["due"], &clean.json["differences"]), (&json!(2), &json!([])));
    s.end().await;
}

/// A page names at most 1,000 differences, so the proof takes several pages.
#[tokio::test]
async fn long_spans_are_compared_in_full() {
    let (s, _) = fired().await;
    // 1,200 workflows for which every hour of ten days was due, without any decision.
    s.execute(
        "INSERT INTO workflows (team_id, name, action, cron_schedule, revision, created_on, updated_on, watch_at)
         SELECT 1, 'w' || n, '{\"type\":\"log\",\"message\":\"m\"}', '0 * * * *', 1, now(), now(), '2026-03-02T10:30:00Z'
           FROM generate_series(1, 1200) n;
         INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, state)
         SELECT id, 1, '2026-02-20T00:00:00Z', '0 * * * *', 'active' FROM workflows WHERE name LIKE 'w%' AND name <> 'workflow'
            AND NOT EXISTS (SELECT 1 FROM schedule_versions v WHERE v.workflow_id = workflows.id);",
    )
    .await;
    let (mut missing, mut parts, mut cursor) = (0, 0, String::new());
    loop {
        let span = format!("from=2026-02-21T00:00:00Z&to=2026-02-22T00:00:00Z{cursor}");
        let part = verify(&s, &span).await.expect(200).json;
        let named = part["differences"].as_array().unwrap().len();
        assert!(named <= 1_000, "{named} differences in one answer");
        missing += named;
        parts += 1;
        let Some(next) = part["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(missing, 1200 * 24);
    assert!(parts >= 29, "one answer names no more than a page of differences: {parts}");
    s.end().await;
}

#[tokio::test]
async fn the_command_exits_1_with_the_differences() {
    let zones = schedule::ZoneSet::bundled().version().to_string();
    let (s, id) = fired().await;
    let words = ["verify", "--from", "2026-03-02T09:00:00Z", "--to", "2026-03-02T10:01:00Z"];
    assert_eq!(
        cronbox(&s, &words).await,
        (Some(0), format!("3 due times, 3 decided: nothing differs (zone data {zones})\n"))
    );
    s.execute("DELETE FROM runs WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    s.execute("DELETE FROM occurrences WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    let (code, said) = cronbox(&s, &words).await;
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("\n{:<8}  missing  2026-03-02T09:30:00Z", id.0)), "{said}");
    assert!(said.ends_with(&format!("3 due times, 2 decided: 1 differ (zone data {zones})\n")), "{said}");
    let (code, said) = cronbox(&s, &["verify", "--from", "2026-03-02T09:00:00Z", "--to", "2026-03-02T10:09:00Z"]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("span_not_settled"), "{said}");
    s.end().await;
}

pub(crate) async fn cronbox(s: &Story, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
    command.args(arguments).env("CRONBOX_URL", s.url()).env("CRONBOX_KEY", &s.keys.admin);
    let output = command.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}
