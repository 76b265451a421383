//! Step 7 of 7: finds conditions that last too long: late and long runs, pauses, freezes, and workflows without success. A
//! job.
//!
//! Each statement writes the notifications of one event. A notification that exists is not written again.

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};

/// Writes the notifications of the conditions that last too long at `now`; returns how many are new.
///
/// # Errors
/// Fails if the database cannot be reached or refuses a statement; what was written stays.
pub async fn find_conditions(pool: &PgPool, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let mut db = pool.acquire().await?;
    if !has_rules(&mut db).await? {
        return Ok(0);
    }
    end_without_success(&mut db, now).await?;
    Ok(find_late_runs(&mut db, now).await?
        + find_long_runs(&mut db, now).await?
        + find_long_pauses(&mut db, now).await?
        + find_long_freezes(&mut db, now).await?
        + find_without_success(&mut db, now).await?)
}

async fn has_rules(db: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- has any rule a duration
        SELECT EXISTS (SELECT FROM notification_rules WHERE after_secs IS NOT NULL AND is_enabled) AS "has!"
        "#
    )
    .fetch_one(db)
    .await
}

async fn find_late_runs(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of late runs: fires that are accepted and have not started
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
        SELECT r.id, l.team_id, l.workflow_id, r.event, l.id::text, $1, l.id, l.scheduled_time,
               jsonb_build_object('after_secs', r.after_secs)
          FROM notification_rules r
          JOIN runs_live l ON l.team_id = r.team_id AND (r.workflow_id IS NULL OR r.workflow_id = l.workflow_id)
         WHERE r.is_enabled AND r.event = 'run_late'
           AND l.state IN ('accepted', 'queued') AND l.started_on IS NULL AND l.trigger = 'schedule'
           AND l.scheduled_time + make_interval(secs => r.after_secs) <= $1
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn find_long_runs(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of long runs
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
        SELECT r.id, l.team_id, l.workflow_id, r.event, l.id::text, $1, l.id, l.scheduled_time,
               jsonb_build_object('after_secs', r.after_secs)
          FROM notification_rules r
          JOIN runs_live l ON l.team_id = r.team_id AND (r.workflow_id IS NULL OR r.workflow_id = l.workflow_id)
         WHERE r.is_enabled AND r.event = 'run_long'
           AND l.state = 'running' AND l.started_on + make_interval(secs => r.after_secs) <= $1
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn find_long_pauses(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of long pauses, since the version that paused; without a schedule since the last edit
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
        SELECT r.id, w.team_id, w.id, r.event, w.id || '/' || EXTRACT(EPOCH FROM p.since)::bigint, $1,
               jsonb_build_object('after_secs', r.after_secs, 'since', p.since)
          FROM notification_rules r
          JOIN workflows w ON w.team_id = r.team_id AND (r.workflow_id IS NULL OR r.workflow_id = w.id)
         CROSS JOIN LATERAL (
               SELECT COALESCE((SELECT v.valid_from FROM schedule_versions v WHERE v.workflow_id = w.id AND v.revision = w.revision),
                               w.updated_on) AS since) AS p
         WHERE r.is_enabled AND r.event = 'paused_long'
           AND w.state = 'paused' AND p.since + make_interval(secs => r.after_secs) <= $1
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn find_long_freezes(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of long freezes, of the team or of all teams
        INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, facts)
        SELECT r.id, r.team_id, r.event, f.id::text, $1,
               jsonb_build_object('after_secs', r.after_secs, 'since', f.starts_on, 'reason', f.reason)
          FROM notification_rules r
          JOIN freezes f ON f.team_id IS NULL OR f.team_id = r.team_id
         WHERE r.is_enabled AND r.event = 'frozen_long'
           AND f.ends_on > $1 AND f.starts_on + make_interval(secs => r.after_secs) <= $1
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

/// The condition has a row, so that it becomes one notification however long it lasts, and another one the next time.
async fn find_without_success(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of workflows without success: active for the complete time. A run that takes longer than a day has an older id
        WITH begun AS (
            INSERT INTO notification_conditions (rule_id, workflow_id, since)
            SELECT r.id, w.id, $1
              FROM notification_rules r
              JOIN workflows w ON w.id = r.workflow_id
              JOIN ledger l ON l.workflow_id = w.id
             WHERE r.is_enabled AND r.event = 'no_success'
               AND w.state = 'active' AND w.cron_schedule IS NOT NULL
               AND l.activated_on + make_interval(secs => r.after_secs) <= $1
               AND NOT EXISTS (
                   SELECT FROM runs_ended e
                    WHERE e.workflow_id = w.id AND e.state = 'succeeded'
                      AND e.id >= uuid_v7_floor($1 - make_interval(secs => r.after_secs) - INTERVAL '1 day')
                      AND e.finished_on > $1 - make_interval(secs => r.after_secs))
            ON CONFLICT DO NOTHING
            RETURNING rule_id, workflow_id, since
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
        SELECT r.id, r.team_id, b.workflow_id, r.event, b.workflow_id || '/' || EXTRACT(EPOCH FROM b.since)::bigint, $1,
               jsonb_build_object('after_secs', r.after_secs)
          FROM begun b JOIN notification_rules r ON r.id = b.rule_id
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn end_without_success(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end the condition of workflows that have succeeded since, or that are not active any more
        DELETE FROM notification_conditions c
         USING notification_rules r, workflows w
         WHERE r.id = c.rule_id AND w.id = c.workflow_id
           AND (r.event <> 'no_success' OR w.state <> 'active'
                OR EXISTS (SELECT FROM runs_ended e
                            WHERE e.workflow_id = c.workflow_id AND e.state = 'succeeded'
                              AND e.id >= uuid_v7_floor(c.since - INTERVAL '1 day') AND e.finished_on >= c.since
                              AND e.finished_on <= $1))
        "#,
        now,
    )
    .execute(db)
    .await
    .map(drop)
}
