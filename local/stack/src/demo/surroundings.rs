//! What is around the history: teams, channels and rules, notifications, dead letters, a failed sync and a drift.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{SecondsFormat, TimeDelta};
use db::PgConnection;
use reqwest::Method;
use serde_json::{Value, json};
use stand_in::dead_letters::{DeadLetter, FailedEvent, UnsentFire};
use stand_in::invoke::FunctionError;
use uuid::Uuid;

use super::definitions::{DRIFTED, DemoWorkflow, TEAMS, UNSYNCED};
use super::span::Span;
use crate::stack::{RUNNER, RUNNER_DLQ, SCHEDULE_DLQ, Stack};

/// Where the channels lead: nothing sends to AWS here, so their messages wait.
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:oncall";

/// How often to check whether the publisher has published all workflows, and how many times.
const PUBLISH_CHECK: Duration = Duration::from_millis(100);
const PUBLISH_CHECKS: u32 = 300;

/// Creates the teams by the API, which makes their secrets.
pub(super) async fn create_teams(stack: &Stack) -> Result<[i64; 3]> {
    let mut ids = [0; 3];
    for (id, name) in ids.iter_mut().zip(TEAMS) {
        *id = post(stack, "/teams", json!({"name": name})).await?["id"].as_i64().context("the team has no id")?;
    }
    Ok(ids)
}

/// A POST as the admin, which must succeed.
async fn post(stack: &Stack, path: &str, body: Value) -> Result<Value> {
    let url = format!("{}/api/v1{path}", stack.url());
    let answer = stack.send_with_key(Method::POST, &url, &stack.keys.admin, Some(body)).await;
    if !(200..300).contains(&answer.status) {
        bail!("POST {path} was answered {}: {}", answer.status, answer.body);
    }
    Ok(answer.body)
}

/// EventBridge has refused the schedule of one workflow: its edit failed permanently.
pub(super) async fn plant_failed_sync(tx: &mut PgConnection, workflows: &[DemoWorkflow], span: Span) -> Result<()> {
    let id = id_of(workflows, UNSYNCED);
    let error = "ValidationException: the execution role may not invoke the runner";
    sqlx::query(
        "UPDATE publications SET error_class = 'permanent', last_error = $2, due_at = NULL, attempt_count = 10 WHERE workflow_id = $1",
    )
    .bind(id)
    .bind(error)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "UPDATE outbox_events SET failed_on = $3, error_message = $2, attempt_count = 10 WHERE aggregate_id = $1",
    )
    .bind(id)
    .bind(error)
    .bind(span.begin + TimeDelta::minutes(20))
    .execute(tx)
    .await?;
    Ok(())
}

/// Channels and rules, and the notifications of the failed runs of the last week. They were sent, except for one message.
pub(super) async fn add_notifications(stack: &Stack, teams: &[i64; 3], span: Span) -> Result<()> {
    for (team_id, name) in teams.iter().zip(TEAMS) {
        let channel = json!({"team_id": team_id, "name": format!("{name}-oncall"), "kind": "aws", "target_arn": TOPIC});
        let channel = post(stack, "/notification-channels", channel).await?["id"].clone();
        for (event, threshold) in
            [("run_failed", None), ("missed", None), ("auto_paused", None), ("recovered", Some(3))]
        {
            let mut rule = json!({"team_id": team_id, "event": event, "channel_ids": [channel]});
            if let Some(threshold) = threshold {
                rule["threshold"] = json!(threshold);
            }
            post(stack, "/notification-rules", rule).await?;
        }
    }
    let mut tx = db::begin_transaction(&stack.pool).await?;
    for statement in [NOTIFICATIONS, MESSAGES, ITEMS] {
        sqlx::query(statement).bind(span.days_ago(7)).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Of each failed run, and of the workflow that cronbox has paused.
const NOTIFICATIONS: &str = "
    -- notifications of the demo
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts, state, created_on)
    SELECT n.id, r.team_id, r.workflow_id, n.event, r.id::text, r.finished_on, r.id, r.scheduled_time,
           jsonb_build_object('state', r.state, 'error', r.error), 'routed', r.finished_on
      FROM runs r
      JOIN notification_rules n ON n.team_id = r.team_id AND n.event = 'run_failed'
     WHERE r.state IN ('failed', 'timed_out') AND r.finished_on >= $1
    UNION ALL
    SELECT n.id, w.team_id, w.id, n.event, w.id || '/' || w.revision, w.updated_on, NULL, NULL,
           jsonb_build_object('failures', w.pause_after_failures), 'routed', w.updated_on
      FROM workflows w
      JOIN notification_rules n ON n.team_id = w.team_id AND n.event = 'auto_paused'
     WHERE w.paused_by = 'cronbox' AND w.updated_on >= $1";

/// One message of each notification, sent a minute later; the last one of all failed.
const MESSAGES: &str = "
    -- messages of the demo
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, attempt_count, last_error, created_on, sent_on, failed_on)
    SELECT (lpad(to_hex((EXTRACT(EPOCH FROM n.happened_on) * 1000)::bigint), 12, '0') || '7' || substr(md5(n.subject), 1, 3)
            || '8' || substr(md5(n.subject), 4, 15))::uuid,
           rc.channel_id, n.team_id, n.event, 1,
           CASE WHEN n.last THEN 'failed' ELSE 'sent' END, CASE WHEN n.last THEN 8 ELSE 1 END,
           CASE WHEN n.last THEN 'the event bus does not exist' END, n.happened_on + INTERVAL '1 minute',
           CASE WHEN NOT n.last THEN n.happened_on + INTERVAL '61 seconds' END,
           CASE WHEN n.last THEN n.happened_on + INTERVAL '1 hour' END
      FROM (SELECT *, row_number() OVER (ORDER BY id DESC) = 1 AS last FROM notifications WHERE happened_on >= $1) AS n
      JOIN notification_rule_channels rc ON rc.rule_id = n.rule_id";

/// Which notification is in which message.
const ITEMS: &str = "
    -- items of the demo
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on, message_id)
    SELECT n.id, m.channel_id, n.event, m.created_on, m.id
      FROM notifications n
      JOIN notification_messages m ON m.team_id = n.team_id AND m.event = n.event AND m.created_on = n.happened_on + INTERVAL '1 minute'
     WHERE n.happened_on >= $1
    ON CONFLICT DO NOTHING";

/// Three messages in the queues of the stand-in: two fires of an hour ago, and one that is no fire.
pub(super) async fn add_dead_letters(stack: &Stack, workflows: &[DemoWorkflow], span: Span) -> Result<()> {
    let time = (span.end - TimeDelta::hours(1)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let fire = |workflow: i64| {
        json!({"workflow_id": workflow, "scheduled_time": time, "execution_id": "demo", "attempt": "1",
            "schedule_arn": arn_of(workflow), "revision": 1, "template": 1})
    };
    let unsent = id_of(workflows, "fx-rates");
    stack.stand_in.dead_letters.push(DeadLetter::of_schedule(
        SCHEDULE_DLQ,
        &UnsentFire {
            schedule_arn: &arn_of(unsent),
            scheduled_time: &time,
            execution_id: "demo",
            target_arn: RUNNER,
            payload: &fire(unsent).to_string(),
            error_code: "TooManyRequestsException",
            error_message: "Rate Exceeded",
            exhausted: Some("MaximumRetryAttempts"),
        },
    ));
    let undelivered = fire(id_of(workflows, "warehouse-load"));
    for payload in [undelivered, json!({"what": "a test event of another program"})] {
        let event = FailedEvent { request_id: Uuid::new_v4(), function: RUNNER, payload: &payload, tries: 3 };
        let error = FunctionError {
            error_type: "NoAnswer".to_owned(),
            message: "the app did not answer: cannot connect".to_owned(),
        };
        stack.stand_in.dead_letters.push(DeadLetter::of_function(RUNNER_DLQ, &event, &error, stack.clock.now()));
    }
    stack.publisher.mirror_dead_letters().await;
    Ok(())
}

fn arn_of(workflow: i64) -> String {
    format!("arn:aws:scheduler:us-east-1:123456789012:schedule/cronbox/wf-{workflow}-dev")
}

/// Waits until the publisher has published all workflows, then marks one as changed by another program.
pub(super) async fn publish_and_plant_drift(stack: &Stack, workflows: &[DemoWorkflow]) -> Result<()> {
    sqlx::query("SELECT pg_notify('cronbox_outbox', '')").execute(&stack.pool).await?;
    for _ in 0..PUBLISH_CHECKS {
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM publications WHERE due_at IS NOT NULL OR lease_owner IS NOT NULL")
                .fetch_one(&stack.pool)
                .await?;
        if open == 0 {
            break;
        }
        tokio::time::sleep(PUBLISH_CHECK).await;
    }
    sqlx::query("UPDATE publications SET drift = 'changed' WHERE workflow_id = $1")
        .bind(id_of(workflows, DRIFTED))
        .execute(&stack.pool)
        .await?;
    Ok(())
}

/// The id of a workflow of the table; 0, which is of none, for another name.
fn id_of(workflows: &[DemoWorkflow], name: &str) -> i64 {
    workflows.iter().find(|workflow| workflow.name == name).map_or(0, |workflow| workflow.id)
}
