//! Step 1 of 7: reads which version was in force, for one workflow or many.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
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

/// Returns the versions that can name a due time from `after` on, up to and including `until`, the earliest first: see
/// [`read_of_all`].
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_over(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<Vec<Version>> {
    let rows = read_at_minutes(db, &[workflow.0], &[after], until).await?;
    Ok(rows.into_iter().map(Version::from).collect())
}

/// Returns the versions that can name a due time, of many workflows, each from its own instant on, the earliest first.
///
/// A due time is a full minute, so a version that was in force at no full minute names none and is left out. `ended_on` and
/// `ended_by` of the others are those of the version that followed, even if it is left out. The newest version is always
/// among them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_of_all(
    db: &mut PgConnection,
    workflows: &[(i64, DateTime<Utc>)],
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let (ids, since): (Vec<_>, Vec<_>) = workflows.iter().copied().unzip();
    Ok(by_workflow(read_at_minutes(db, &ids, &since, DateTime::<Utc>::MAX_UTC).await?))
}

/// Returns the versions that can name a due time from `from` until before `to`, of many workflows, the earliest first: see
/// [`read_of_all`]. Of one workflow there are at most as many as the span has minutes.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_during(
    db: &mut PgConnection,
    workflows: &[i64],
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let since = vec![from; workflows.len()];
    Ok(by_workflow(read_at_minutes(db, workflows, &since, to - TimeDelta::microseconds(1)).await?))
}

/// Reads the versions that were in force at a full minute from `since` on, up to and including `until`.
async fn read_at_minutes(
    db: &mut PgConnection,
    workflows: &[i64],
    since: &[DateTime<Utc>],
    until: DateTime<Utc>,
) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"
        -- the versions that were in force at a full minute, of many workflows. From the end of one, two steps in the index
        -- find the version in force at the next full minute and its end, so those between are not read. They name no due
        -- time, because a decision is of a full minute (occurrences_minute)
        SELECT requested.id AS "workflow_id!", (s.version).revision AS "revision!", (s.version).valid_from AS "valid_from!",
               (s.version).cron, (s.version).timezone, (s.version).state AS "state!: State", (s.version).starts_at,
               (s.version).ends_at, s.ended_on, s.next_state AS "next_state: State"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS requested (id, since)
         CROSS JOIN LATERAL (
               WITH RECURSIVE steps (version, ended_on, next_state) AS (
                   -- no version: the first step is from the instant, or from the first version after it
                   SELECT NULL::schedule_versions,
                          GREATEST(requested.since,
                                   (SELECT min(valid_from) FROM schedule_versions WHERE workflow_id = requested.id)),
                          NULL::text
                   UNION ALL
                   SELECT v.version, n.valid_from, n.state
                     FROM steps p
                    CROSS JOIN LATERAL (SELECT date_trunc('minute', p.ended_on - INTERVAL '1 microsecond', 'UTC')
                                               + INTERVAL '1 minute' AS minute) AS next
                    CROSS JOIN LATERAL (SELECT o AS version FROM schedule_versions o
                                         WHERE o.workflow_id = requested.id AND o.valid_from <= next.minute
                                         ORDER BY o.valid_from DESC
                                         LIMIT 1) AS v
                     LEFT JOIN LATERAL (SELECT o.valid_from, o.state FROM schedule_versions o
                                         WHERE o.workflow_id = requested.id AND o.valid_from > (v.version).valid_from
                                         ORDER BY o.valid_from
                                         LIMIT 1) AS n ON TRUE
                    WHERE next.minute <= $3
               )
               SELECT * FROM steps WHERE (version).revision IS NOT NULL
         ) AS s
         ORDER BY requested.id, (s.version).valid_from
        "#,
        workflows,
        since,
        until,
    )
    .fetch_all(db)
    .await
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
