//! Step 1 of 7: which timing was in force when. `:invoke` judges every fire by it.

use chrono::{DateTime, Utc};
use schedule::{Coverage, Cron, Revision, WorkflowId};
use sqlx::PgConnection;

use crate::workflows::{State, Workflow};

/// The timing in force over a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision that this timing is.
    pub revision: i64,
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
        let Some(cron) = &self.cron else { return Owes::NotDue };
        match (Cron::parse(cron), schedule::parse_timezone(self.timezone.as_deref().unwrap_or("UTC"))) {
            (Ok(cron), Ok(timezone)) if cron.matches(time, timezone) => Owes::Yes,
            (Ok(cron), Ok(timezone)) => match schedule::compile(&cron, timezone).coverage {
                Coverage::Exact => Owes::Disagrees,
                Coverage::Superset => Owes::NotDue,
            },
            _ => Owes::Unjudged,
        }
    }
}

/// Writes the version that an edit made, and says since when it is in force; the workflow's row is locked by then.
///
/// # Errors
/// The database's.
pub async fn record(tx: &mut PgConnection, workflow: &Workflow, now: DateTime<Utc>) -> sqlx::Result<DateTime<Utc>> {
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
        now,
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
    sqlx::query_as!(
        Version,
        r#"
        -- the version in force at a time
        SELECT revision, cron, timezone, state AS "state: State", starts_at, ends_at
          FROM schedule_versions
         WHERE workflow_id = $1 AND valid_from <= $2
         ORDER BY valid_from DESC
         LIMIT 1
        "#,
        workflow.0,
        time,
    )
    .fetch_optional(db)
    .await
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
    sqlx::query_as!(
        Version,
        r#"
        -- the version of a revision
        SELECT revision, cron, timezone, state AS "state: State", starts_at, ends_at
          FROM schedule_versions
         WHERE workflow_id = $1 AND revision = $2
        "#,
        workflow.0,
        revision.0,
    )
    .fetch_optional(db)
    .await
}
