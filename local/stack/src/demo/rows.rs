//! Writes the history in bulk. Triggers of the tables add it up for the statistics, as for the rows of the app. What the app counts
//! when a run ends is counted here at the end.

use anyhow::Result;
use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;

use super::definitions::DemoWorkflow;
use super::history::{FREEZE_REASON, History, Occurrence, Run, freeze_of};
use super::span::Span;

/// Rows of one statement.
const BATCH: usize = 5_000;

pub(super) async fn write_history(
    tx: &mut PgConnection,
    history: &History,
    workflows: &[DemoWorkflow],
    span: Span,
) -> Result<()> {
    write_freeze(tx, workflows, span).await?;
    for batch in history.occurrences.chunks(BATCH) {
        write_occurrences(tx, batch).await?;
    }
    for batch in history.runs.chunks(BATCH) {
        write_runs(tx, batch).await?;
    }
    count_failures_in_a_row(tx).await?;
    // The watchdog continues after the history, and the statistics have all of it.
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.id).collect();
    sqlx::query("UPDATE ledger SET cursor = $2, watch_at = $2 + INTERVAL '1 microsecond' WHERE workflow_id = ANY($1)")
        .bind(&ids)
        .bind(span.end)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE statistics_start SET counted_since = $1").bind(span.begin).execute(&mut *tx).await?;
    Ok(())
}

async fn write_freeze(tx: &mut PgConnection, workflows: &[DemoWorkflow], span: Span) -> Result<()> {
    let (begin, end) = freeze_of(span);
    let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, begin.timestamp().unsigned_abs(), 0));
    sqlx::query(
        "INSERT INTO freezes (id, team_id, reason, starts_on, ends_on, actor, created_on) VALUES ($1, $2, $3, $4, $5, 'key:demo', $4)",
    )
    .bind(id)
    .bind(workflows.first().map(|workflow| workflow.team_id))
    .bind(FREEZE_REASON)
    .bind(begin)
    .bind(end)
    .execute(tx)
    .await?;
    Ok(())
}

async fn write_occurrences(tx: &mut PgConnection, rows: &[Occurrence]) -> Result<()> {
    let column = |of: fn(&Occurrence) -> DateTime<Utc>| rows.iter().map(of).collect::<Vec<_>>();
    sqlx::query(
        "
        -- decisions of the demo
        INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, reason, revision, run_id, lateness_s, decided_on,
                                 created_on, updated_on)
        SELECT id, workflow_id, time, decision, reason, revision, run_id, EXTRACT(EPOCH FROM decided_on - time)::bigint,
               decided_on, decided_on, decided_on
          FROM UNNEST($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[], $7::uuid[], $8::timestamptz[])
               AS d (id, workflow_id, time, decision, reason, revision, run_id, decided_on)
        ",
    )
    .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.workflow_id).collect::<Vec<_>>())
    .bind(column(|row| row.time))
    .bind(rows.iter().map(|row| row.decision).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.reason.as_deref()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.revision).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.run_id).collect::<Vec<_>>())
    .bind(column(|row| row.decided_on))
    .execute(tx)
    .await?;
    Ok(())
}

async fn write_runs(tx: &mut PgConnection, rows: &[Run]) -> Result<()> {
    let column = |of: fn(&Run) -> DateTime<Utc>| rows.iter().map(of).collect::<Vec<_>>();
    sqlx::query(
        r#"
        -- ended runs of the demo
        INSERT INTO runs (id, workflow_id, team_id, occurrence_id, trigger, state, scheduled_time, run_after, attempt, created_on,
                          started_on, finished_on, result, error, duration_ms)
        SELECT id, workflow_id, team_id, occurrence_id, trigger, state, time, started_on, 1, started_on, started_on, finished_on,
               CASE state WHEN 'succeeded' THEN '{"status": 200}'::jsonb END,
               CASE error WHEN 'timed_out' THEN 'timed_out:' || EXTRACT(EPOCH FROM finished_on - started_on)::bigint ELSE error END,
               (EXTRACT(EPOCH FROM finished_on - started_on) * 1000)::bigint
          FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[], $8::timestamptz[],
                      $9::timestamptz[], $10::text[])
               AS r (id, workflow_id, team_id, occurrence_id, trigger, state, time, started_on, finished_on, error)
        "#,
    )
    .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.workflow_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.team_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.occurrence_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.trigger).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.state).collect::<Vec<_>>())
    .bind(column(|row| row.time))
    .bind(column(|row| row.started_on))
    .bind(column(|row| row.finished_on))
    .bind(rows.iter().map(|row| row.error).collect::<Vec<_>>())
    .execute(tx)
    .await?;
    Ok(())
}

/// The app counts them by a trigger of statements on the table of ended runs, which no statement on `runs` fires.
async fn count_failures_in_a_row(tx: &mut PgConnection) -> Result<()> {
    sqlx::query(
        "
        -- failures in a row of the demo
        INSERT INTO failure_streaks (workflow_id, team_id, failures, since, first_run_id, last_failed_on, last_run_id)
        SELECT r.workflow_id, r.team_id, count(*), min(r.finished_on), (array_agg(r.id ORDER BY r.finished_on, r.id))[1],
               max(r.finished_on), (array_agg(r.id ORDER BY r.finished_on DESC, r.id DESC))[1]
          FROM runs r
          LEFT JOIN (SELECT workflow_id, max(finished_on) AS at FROM runs WHERE state = 'succeeded' GROUP BY workflow_id) success
            ON success.workflow_id = r.workflow_id
         WHERE r.state IN ('failed', 'timed_out') AND (success.at IS NULL OR r.finished_on > success.at)
         GROUP BY r.workflow_id, r.team_id
        ",
    )
    .execute(tx)
    .await?;
    Ok(())
}
