//! Step 1 of 7: which timing was in force when. `:invoke` judges every fire by it.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use schedule::{Coverage, Cron, Revision, WorkflowId};
use sqlx::PgConnection;

use crate::workflows::{State, Workflow};

/// The timing in force over a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision that this timing is.
    pub revision: i64,
    /// In force from here on.
    pub valid_from: DateTime<Utc>,
    /// Until here, where the next version begins; none while it is in force.
    pub ended_on: Option<DateTime<Utc>>,
    /// What ended it.
    pub ended_by: Option<EndedBy>,
    /// Canonical cron, none = owes nothing.
    pub cron: Option<String>,
    /// IANA name, none = UTC.
    pub timezone: Option<String>,
    /// The workflow's state over the span.
    pub state: State,
    /// Owes nothing before.
    pub starts_at: Option<DateTime<Utc>>,
    /// Owes nothing at or after.
    pub ends_at: Option<DateTime<Utc>>,
}

/// A timezone or a cron that is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

/// What ended a schedule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// A change of its timing, or a resume.
    Edit,
    /// A pause.
    Pause,
    /// The archiving of its workflow.
    Archive,
}

/// Whether a schedule version owed a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owes {
    /// It did.
    Yes,
    /// The workflow was paused (or archived) then.
    Paused,
    /// Before `starts_at`, or not before `ends_at`.
    OutsideWindow,
    /// The cron does not name this time, or there was none.
    NotDue,
    /// The cron does not name this time, and EventBridge can say exactly what the cron says.
    Disagrees,
    /// The timezone or the cron is not known any more: nobody can tell.
    Unjudged,
}

impl Version {
    /// Judges one time of this version's span.
    #[must_use]
    pub fn owes(&self, time: DateTime<Utc>) -> Owes {
        if self.state != State::Active {
            return Owes::Paused;
        }
        if self.starts_at.is_some_and(|start| time < start) || self.ends_at.is_some_and(|end| time >= end) {
            return Owes::OutsideWindow;
        }
        match self.parsed() {
            Ok(None) => Owes::NotDue,
            Ok(Some((cron, timezone))) if cron.matches(time, timezone) => Owes::Yes,
            Ok(Some((cron, timezone))) => match schedule::compile(&cron, timezone).coverage {
                Coverage::Exact => Owes::Disagrees,
                Coverage::Superset => Owes::NotDue,
            },
            Err(Unknown) => Owes::Unjudged,
        }
    }

    /// Its cron in its timezone, none if it has no cron.
    ///
    /// # Errors
    /// One of them is not known any more.
    pub fn parsed(&self) -> Result<Option<(Cron, Tz)>, Unknown> {
        let Some(cron) = &self.cron else { return Ok(None) };
        let cron = Cron::parse(cron).map_err(|_| Unknown)?;
        let timezone = schedule::parse_timezone(self.timezone.as_deref().unwrap_or("UTC")).map_err(|_| Unknown)?;
        Ok(Some((cron, timezone)))
    }
}

/// Writes the version that an edit made, in force since then or since just after the last one; says since when.
///
/// The workflow's row is locked by then.
///
/// # Errors
/// The database's.
pub async fn record(tx: &mut PgConnection, workflow: &Workflow, since: DateTime<Utc>) -> sqlx::Result<DateTime<Utc>> {
    let timing = &workflow.spec.timing;
    sqlx::query_scalar!(
        r#"
        -- record a schedule version: later than the last one, even if the clock stood still or went back
        INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, timezone, state, starts_at, ends_at)
        SELECT $1, $2, GREATEST($3, max(valid_from) + INTERVAL '1 microsecond'), $4, $5, $6, $7, $8
          FROM schedule_versions
         WHERE workflow_id = $1
        RETURNING valid_from
        "#,
        workflow.id.0,
        workflow.revision.0,
        since,
        timing.cron,
        timing.timezone,
        workflow.state as State,
        timing.starts_at,
        timing.ends_at,
    )
    .fetch_one(tx)
    .await
}

/// The version in force at a time; none before the first.
///
/// # Errors
/// The database's.
pub async fn in_force(
    db: &mut PgConnection,
    workflow: WorkflowId,
    time: DateTime<Utc>,
) -> sqlx::Result<Option<Version>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- the version in force at a time, and what came after it
        SELECT v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State", v.starts_at, v.ends_at,
               n.valid_from AS "ended_on?", n.state AS "next_state?: State"
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

/// The versions in force at any time after `after`, up to and including `until`, the earliest first.
///
/// # Errors
/// The database's.
pub async fn over(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> sqlx::Result<Vec<Version>> {
    let rows = sqlx::query_as!(
        Row,
        r#"
        -- the versions over a span: from the one in force at its beginning on
        SELECT revision AS "revision!", valid_from AS "valid_from!", cron, timezone, state AS "state!: State",
               starts_at, ends_at, ended_on, next_state AS "next_state: State"
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

/// As [`over`], without an end, for many workflows, each from its own instant on.
///
/// # Errors
/// The database's.
pub async fn of_all(
    db: &mut PgConnection,
    workflows: &[(i64, DateTime<Utc>)],
) -> sqlx::Result<HashMap<i64, Vec<Version>>> {
    let (ids, after): (Vec<_>, Vec<_>) = workflows.iter().copied().unzip();
    let rows = sqlx::query!(
        r#"
        -- the versions of many workflows: of each from the one in force at its instant on
        SELECT asked.id AS "workflow_id!", v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State",
               v.starts_at, v.ends_at, v.ended_on, v.next_state AS "next_state: State"
          FROM unnest($1::bigint[], $2::timestamptz[]) AS asked (id, after)
         CROSS JOIN LATERAL (
               SELECT *, lead(valid_from) OVER later AS ended_on, lead(state) OVER later AS next_state
                 FROM schedule_versions
                WHERE workflow_id = asked.id
                  AND valid_from >= COALESCE((SELECT max(valid_from) FROM schedule_versions
                                               WHERE workflow_id = asked.id AND valid_from <= asked.after), '-infinity')
               WINDOW later AS (ORDER BY valid_from)
         ) AS v
         ORDER BY asked.id, v.valid_from
        "#,
        &ids,
        &after,
    )
    .fetch_all(db)
    .await?;
    let mut versions: HashMap<i64, Vec<Version>> = HashMap::new();
    for row in rows {
        versions.entry(row.workflow_id).or_default().push(Version::from(Row {
            revision: row.revision,
            valid_from: row.valid_from,
            cron: row.cron,
            timezone: row.timezone,
            state: row.state,
            starts_at: row.starts_at,
            ends_at: row.ends_at,
            ended_on: row.ended_on,
            next_state: row.next_state,
        }));
    }
    Ok(versions)
}

/// One version by its revision.
///
/// # Errors
/// The database's.
pub async fn by_revision(
    db: &mut PgConnection,
    workflow: WorkflowId,
    revision: Revision,
) -> sqlx::Result<Option<Version>> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- the version of a revision, and what came after it
        SELECT v.revision, v.valid_from, v.cron, v.timezone, v.state AS "state: State", v.starts_at, v.ends_at,
               n.valid_from AS "ended_on?", n.state AS "next_state?: State"
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

struct Row {
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
            cron: row.cron,
            timezone: row.timezone,
            state: row.state,
            starts_at: row.starts_at,
            ends_at: row.ends_at,
        }
    }
}
