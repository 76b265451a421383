//! Step 7 of 7: finds conditions that last too long: late and long runs, pauses, freezes, and workflows without success. A
//! job.
//!
//! Each statement writes the notifications of one event of one team, so no team waits for another one whose statements are
//! slow or fail. A notification that exists is not written again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use uuid::Uuid;

use crate::failures::{CONDITIONS_JOB, Part, skip_failed};

/// How many runs of a team that have not ended one pass checks for late ones; the next pass continues behind them.
const RUNS: i64 = 5_000;
/// How many notifications one statement writes; the next pass writes more.
const BATCH: i64 = 10_000;
/// The events, in the order in which a pass finds them.
const EVENTS: [&str; 5] = ["run_late", "run_long", "paused_long", "frozen_long", "no_success"];

/// Behind which run the next pass of this instance continues, of each team whose runs the last one did not read to the end.
#[derive(Debug, Default)]
pub struct ConditionCursors(Mutex<HashMap<i64, Uuid>>);

/// The result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Notifications that were written.
    pub notifications: u64,
    /// Events of teams whose statements failed.
    pub failed: u64,
}

/// A team that has rules with a duration, or conditions of such rules.
struct Team {
    team_id: i64,
    /// The events of the rules.
    events: Vec<String>,
}

/// A part of the runs of a team.
struct Checked {
    written: i64,
    runs: i64,
    last: Option<Uuid>,
}

impl ConditionCursors {
    fn position(&self, team_id: i64) -> Uuid {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        positions.get(&team_id).copied().unwrap_or(Uuid::nil())
    }

    /// Continues behind these runs, or with the first one if they are the last. If notifications are left, they are checked
    /// again.
    fn move_behind(&self, team_id: i64, checked: &Checked) {
        if checked.written >= BATCH {
            return;
        }
        let mut positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match checked.last.filter(|_| checked.runs >= RUNS) {
            Some(last) => positions.insert(team_id, last),
            None => positions.remove(&team_id),
        };
    }
}

/// Writes the notifications of the conditions that last too long at `now`.
///
/// An event of a team that fails is logged and counted, and the pass continues.
///
/// # Errors
/// Fails if the database fails; what was written stays.
pub async fn find_conditions(pool: &PgPool, cursors: &ConditionCursors, now: DateTime<Utc>) -> sqlx::Result<Found> {
    let mut found = Found::default();
    // Not within the `for`, which would keep the connection to its end.
    let teams = list_teams(&mut *pool.acquire().await?).await?;
    for Team { team_id, events } in teams {
        for event in EVENTS.into_iter().filter(|event| events.iter().any(|one| one == event)) {
            match find_of_team(&mut *pool.acquire().await?, team_id, event, cursors, now).await {
                Ok(written) => found.notifications += written,
                Err(error) => {
                    skip_failed(CONDITIONS_JOB, Part::Team(team_id), error)?;
                    found.failed += 1;
                }
            }
        }
    }
    Ok(found)
}

/// Writes the notifications of an event of a team; returns how many are new.
async fn find_of_team(
    db: &mut PgConnection,
    team_id: i64,
    event: &str,
    cursors: &ConditionCursors,
    now: DateTime<Utc>,
) -> sqlx::Result<u64> {
    match event {
        "run_late" => {
            let checked = find_late_runs(db, team_id, cursors.position(team_id), now).await?;
            cursors.move_behind(team_id, &checked);
            Ok(checked.written.unsigned_abs())
        }
        "run_long" => find_long_runs(db, team_id, now).await,
        "paused_long" => find_long_pauses(db, team_id, now).await,
        "frozen_long" => find_long_freezes(db, team_id, now).await,
        _ => {
            end_without_success(db, team_id, now).await?;
            find_without_success(db, team_id, now).await
        }
    }
}

async fn list_teams(db: &mut PgConnection) -> sqlx::Result<Vec<Team>> {
    sqlx::query_as!(
        Team,
        r#"
        -- teams with rules that have a duration. A condition of a rule that is disabled, or is about another event now, may end, too
        SELECT team_id AS "team_id!", array_agg(event) AS "events!"
          FROM (SELECT team_id, event FROM notification_rules WHERE after_secs IS NOT NULL AND is_enabled
                 UNION
                SELECT r.team_id, 'no_success'
                  FROM notification_conditions c
                  JOIN notification_rules r ON r.id = c.rule_id) AS of_rules
         GROUP BY team_id
         ORDER BY team_id
        "#
    )
    .fetch_all(db)
    .await
}

/// One pass reads a part of the runs, because a backlog may have any number of them, and most were notified by a pass before.
async fn find_late_runs(db: &mut PgConnection, team_id: i64, after: Uuid, now: DateTime<Utc>) -> sqlx::Result<Checked> {
    sqlx::query_as!(
        Checked,
        r#"
        -- notify of late runs of a team: fires that are accepted and have not started
        WITH page AS MATERIALIZED (
            -- Two columns are compared and sorted, because an index without the team could read the runs of all teams.
            SELECT id, workflow_id, scheduled_time, state, trigger, started_on
              FROM runs_live
             WHERE (team_id, id) > ($1, $2) AND (team_id, id) <= ($1, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
             ORDER BY team_id, id
             LIMIT $4
        ), late AS MATERIALIZED (
            SELECT r.id AS rule_id, r.event, r.after_secs, p.id, p.workflow_id, p.scheduled_time
              FROM page p
              JOIN notification_rules r ON r.workflow_id IS NULL OR r.workflow_id = p.workflow_id
             WHERE r.team_id = $1 AND r.is_enabled AND r.event = 'run_late'
               AND p.state IN ('accepted', 'queued') AND p.started_on IS NULL AND p.trigger = 'schedule'
               AND p.scheduled_time + make_interval(secs => r.after_secs) <= $3
               -- a scalar subquery, because a join could read all notifications
               AND (SELECT TRUE FROM notifications n WHERE n.rule_id = r.id AND n.subject = p.id::text) IS NULL
             LIMIT $5
        ), written AS (
            INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
            SELECT rule_id, $1, workflow_id, event, id::text, $3, id, scheduled_time, jsonb_build_object('after_secs', after_secs)
              FROM late
            ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
            RETURNING id
        )
        SELECT (SELECT count(*) FROM written) AS "written!", (SELECT count(*) FROM page) AS "runs!",
               (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS "last?"
        "#,
        team_id,
        after,
        now,
        RUNS,
        BATCH,
    )
    .fetch_one(db)
    .await
}

async fn find_long_runs(db: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of long runs of a team
        WITH running AS MATERIALIZED (
            -- once, not once for each rule
            SELECT id, workflow_id, scheduled_time, started_on FROM runs_live WHERE team_id = $1 AND state = 'running'
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, run_id, scheduled_time, facts)
        SELECT r.id, r.team_id, l.workflow_id, r.event, l.id::text, $2, l.id, l.scheduled_time,
               jsonb_build_object('after_secs', r.after_secs)
          FROM running l
          JOIN notification_rules r ON r.workflow_id IS NULL OR r.workflow_id = l.workflow_id
         WHERE r.team_id = $1 AND r.is_enabled AND r.event = 'run_long'
           AND l.started_on + make_interval(secs => r.after_secs) <= $2
           -- a scalar subquery, because a join could read all notifications
           AND (SELECT TRUE FROM notifications n WHERE n.rule_id = r.id AND n.subject = l.id::text) IS NULL
         LIMIT $3
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        team_id,
        now,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn find_long_pauses(db: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of long pauses of a team, since the version that paused; without a schedule since the last edit
        WITH paused AS MATERIALIZED (
            -- once, not once for each rule
            SELECT w.id, p.since, w.id || '/' || EXTRACT(EPOCH FROM p.since)::bigint AS subject
              FROM workflows w
             CROSS JOIN LATERAL (
                   SELECT COALESCE((SELECT v.valid_from FROM schedule_versions v WHERE v.workflow_id = w.id AND v.revision = w.revision),
                                   w.updated_on) AS since) AS p
             WHERE w.team_id = $1 AND w.state = 'paused'
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
        SELECT r.id, r.team_id, p.id, r.event, p.subject, $2, jsonb_build_object('after_secs', r.after_secs, 'since', p.since)
          FROM paused p
          JOIN notification_rules r ON r.workflow_id IS NULL OR r.workflow_id = p.id
         WHERE r.team_id = $1 AND r.is_enabled AND r.event = 'paused_long'
           AND p.since + make_interval(secs => r.after_secs) <= $2
           -- a scalar subquery, because a join could read all notifications
           AND (SELECT TRUE FROM notifications n WHERE n.rule_id = r.id AND n.subject = p.subject) IS NULL
         LIMIT $3
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        team_id,
        now,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn find_long_freezes(db: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify a team of long freezes, of the team or of all teams
        INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, facts)
        SELECT r.id, r.team_id, r.event, f.id::text, $2,
               jsonb_build_object('after_secs', r.after_secs, 'since', f.starts_on, 'reason', f.reason)
          FROM notification_rules r
          JOIN freezes f ON f.team_id IS NULL OR f.team_id = r.team_id
         WHERE r.team_id = $1 AND r.is_enabled AND r.event = 'frozen_long'
           AND f.ends_on > $2 AND f.starts_on + make_interval(secs => r.after_secs) <= $2
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        team_id,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

/// The condition has a row, so that it becomes one notification however long it lasts, and another one the next time.
async fn find_without_success(db: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let written = sqlx::query!(
        r#"
        -- notify of workflows of a team without success: active for the complete time. A run that takes longer than a day has an older
        -- id. Scalar subqueries, because a join could read the runs of all days
        WITH begun AS (
            INSERT INTO notification_conditions (rule_id, workflow_id, since)
            SELECT r.id, w.id, $2
              FROM notification_rules r
              JOIN workflows w ON w.id = r.workflow_id
              JOIN ledger l ON l.workflow_id = w.id
             WHERE r.team_id = $1 AND r.is_enabled AND r.event = 'no_success'
               AND w.state = 'active' AND w.cron_schedule IS NOT NULL
               AND l.activated_on + make_interval(secs => r.after_secs) <= $2
               AND (SELECT TRUE FROM notification_conditions c WHERE c.rule_id = r.id AND c.workflow_id = w.id) IS NULL
               AND (SELECT TRUE FROM runs_ended e
                     WHERE e.workflow_id = w.id AND e.state = 'succeeded'
                       AND e.id >= uuid_v7_floor($2 - make_interval(secs => r.after_secs) - INTERVAL '1 day')
                       AND e.finished_on > $2 - make_interval(secs => r.after_secs)
                     LIMIT 1) IS NULL
            ON CONFLICT DO NOTHING
            RETURNING rule_id, workflow_id, since
        )
        INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, facts)
        SELECT r.id, r.team_id, b.workflow_id, r.event, b.workflow_id || '/' || EXTRACT(EPOCH FROM b.since)::bigint, $2,
               jsonb_build_object('after_secs', r.after_secs)
          FROM begun b JOIN notification_rules r ON r.id = b.rule_id
        ON CONFLICT ON CONSTRAINT notifications_once DO NOTHING
        "#,
        team_id,
        now,
    )
    .execute(db)
    .await?;
    Ok(written.rows_affected())
}

async fn end_without_success(db: &mut PgConnection, team_id: i64, now: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- end the condition of workflows of a team that have succeeded since, or that are not active any more
        DELETE FROM notification_conditions c
         USING notification_rules r, workflows w
         WHERE r.team_id = $1 AND r.id = c.rule_id AND w.id = c.workflow_id
           AND (r.event <> 'no_success' OR w.state <> 'active'
                OR EXISTS (SELECT FROM runs_ended e
                            WHERE e.workflow_id = c.workflow_id AND e.state = 'succeeded'
                              AND e.id >= uuid_v7_floor(c.since - INTERVAL '1 day') AND e.finished_on >= c.since
                              AND e.finished_on <= $2))
        "#,
        team_id,
        now,
    )
    .execute(db)
    .await
    .map(drop)
}
