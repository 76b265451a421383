//! Step 1 of 7: reads which version was in force, for one workflow or many.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::{Revision, WorkflowId};
use workflows::State;
use workflows::definition::spec::Timing;

use super::{EndedBy, Version};

/// Returns the version in force at a time; `None` before the first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_in_force(
    db: &mut PgConnection,
    workflow: WorkflowId,
    time: DateTime<Utc>,
) -> sqlx::Result<Option<Version>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- the version in force at a time, and the version after it
        SELECT v.workflow_id, v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State",
               v.starts_at, v.ends_at, n.valid_from AS "ended_on?", n.state AS "next_state?: State"
          FROM (SELECT * FROM schedule_versions
                 WHERE workflow_id = $1 AND valid_from <= $2
                 ORDER BY valid_from DESC
                 LIMIT 1) v
          LEFT JOIN LATERAL (SELECT valid_from, state FROM schedule_versions
                              WHERE workflow_id = $1 AND valid_from > v.valid_from
                              ORDER BY valid_from
                              LIMIT 1) n ON TRUE
        "#,
        workflow.0,
        time,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Version::from))
}

/// Returns the versions in force at any time after `after`, up to and including `until`, the earliest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_over(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<Vec<Version>> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        -- the versions over a span: the first is the version in force at its beginning
        SELECT workflow_id AS "workflow_id!", revision AS "revision!", valid_from AS "valid_from!", cron, timezone,
               state AS "state!: State", starts_at, ends_at, ended_on, next_state AS "next_state: State"
          FROM (SELECT *, lead(valid_from) OVER later AS ended_on, lead(state) OVER later AS next_state
                  FROM schedule_versions
                 WHERE workflow_id = $1
                   AND valid_from >= COALESCE((SELECT max(valid_from) FROM schedule_versions
                                                WHERE workflow_id = $1 AND valid_from <= $2), '-infinity')
                WINDOW later AS (ORDER BY valid_from)) v
         WHERE valid_from <= $3
         ORDER BY valid_from
        "#,
        workflow.0,
        after,
        until,
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(Version::from).collect())
}

/// Like [`read_over`] without an end, for many workflows, each from its own instant on.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_of_all(
    db: &mut PgConnection,
    workflows: &[(i64, DateTime<Utc>)],
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let (ids, after): (Vec<_>, Vec<_>) = workflows.iter().copied().unzip();
    let rows = sqlx::query_as!(
        Row,
        r#"
        -- the versions of many workflows: the first of each is the version in force at its instant
        SELECT requested.id AS "workflow_id!", v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State",
               v.starts_at, v.ends_at, v.ended_on, v.next_state AS "next_state: State"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS requested (id, after)
         CROSS JOIN LATERAL (
               SELECT *, lead(valid_from) OVER later AS ended_on, lead(state) OVER later AS next_state
                 FROM schedule_versions
                WHERE workflow_id = requested.id
                  AND valid_from >= COALESCE((SELECT max(valid_from) FROM schedule_versions
                                               WHERE workflow_id = requested.id AND valid_from <= requested.after), '-infinity')
               WINDOW later AS (ORDER BY valid_from)
         ) AS v
         ORDER BY requested.id, v.valid_from
        "#,
        &ids,
        &after,
    )
    .fetch_all(db)
    .await?;
    Ok(by_workflow(rows))
}

/// Returns the versions in force at any time from `from` until before `to`, the earliest first, for many workflows. The last one
/// has no end, whatever comes after `to`.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_during(
    db: &mut PgConnection,
    workflows: &[i64],
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        -- the versions in force during a span, of many workflows: of each, only from the version in force at its begin
        -- on, however many there are
        SELECT requested.id AS "workflow_id!", v.revision AS "revision!", v.valid_from AS "valid_from!", v.cron, v.timezone,
               v.state AS "state!: State", v.starts_at, v.ends_at, v.ended_on, v.next_state AS "next_state: State"
          FROM unnest($1::bigint[]) AS requested (id)
         CROSS JOIN LATERAL (
               SELECT *, lead(valid_from) OVER later AS ended_on, lead(state) OVER later AS next_state
                 FROM schedule_versions
                WHERE workflow_id = requested.id
                  AND valid_from >= COALESCE((SELECT max(valid_from) FROM schedule_versions
                                               WHERE workflow_id = requested.id AND valid_from <= $2), '-infinity')
                  AND valid_from < $3
               WINDOW later AS (ORDER BY valid_from)
         ) AS v
         WHERE v.ended_on IS NULL OR v.ended_on > $2
         ORDER BY requested.id, v.valid_from
        "#,
        workflows,
        from,
        to,
    )
    .fetch_all(db)
    .await?;
    Ok(by_workflow(rows))
}

fn by_workflow(rows: Vec<Row>) -> HashMap<i64, Vec<Version>> {
    let mut versions = HashMap::<i64, Vec<Version>>::new();
    for row in rows {
        versions.entry(row.workflow_id).or_default().push(Version::from(row));
    }
    versions
}

/// Returns one version by its revision.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_by_revision(
    db: &mut PgConnection,
    workflow: WorkflowId,
    revision: Revision,
) -> sqlx::Result<Option<Version>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- the version of a revision, and the version after it
        SELECT v.workflow_id, v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State",
               v.starts_at, v.ends_at, n.valid_from AS "ended_on?", n.state AS "next_state?: State"
          FROM schedule_versions v
          LEFT JOIN LATERAL (SELECT valid_from, state FROM schedule_versions
                              WHERE workflow_id = v.workflow_id AND valid_from > v.valid_from
                              ORDER BY valid_from
                              LIMIT 1) n ON TRUE
         WHERE v.workflow_id = $1 AND v.revision = $2
        "#,
        workflow.0,
        revision.0,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(Version::from))
}

/// A row of `schedule_versions`, and what came after it.
struct Row {
    workflow_id: i64,
    revision: i64,
    valid_from: DateTime<Utc>,
    cron: Option<String>,
    timezone: Option<String>,
    state: State,
    starts_at: Option<DateTime<Utc>>,
    ends_at: Option<DateTime<Utc>>,
    ended_on: Option<DateTime<Utc>>,
    next_state: Option<State>,
}

impl From<Row> for Version {
    fn from(row: Row) -> Self {
        Self {
            revision: row.revision,
            valid_from: row.valid_from,
            ended_on: row.ended_on,
            ended_by: row.next_state.map(|next| match next {
                State::Active => EndedBy::Edit,
                State::Paused => EndedBy::Pause,
                State::Archived => EndedBy::Archive,
            }),
            timing: Timing { cron: row.cron, timezone: row.timezone, starts_at: row.starts_at, ends_at: row.ends_at },
            state: row.state,
        }
    }
}
