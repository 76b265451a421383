//! Step 1 of 7: the history of a workflow's timing. `:invoke` decides every fire by the version in force at its time.

mod read;

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::{Cron, Timezone, TimezoneHistory, ZoneHistory};

use crate::workflows::{State, Workflow};

pub use read::{by_revision, in_force, of_all, over};

/// The timing in force over a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The revision of this timing.
    pub revision: i64,
    /// Start of the span, inclusive.
    pub valid_from: DateTime<Utc>,
    /// End of the span, where the next version begins; `None` while it is in force.
    pub ended_on: Option<DateTime<Utc>>,
    /// What ended it.
    pub ended_by: Option<EndedBy>,
    /// Canonical cron; `None` = no time is due.
    pub cron: Option<String>,
    /// IANA name; `None` = UTC.
    pub timezone: Option<String>,
    /// The workflow's state over the span.
    pub state: State,
    /// No time before this one is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this one is due.
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

/// Whether a time is due by a schedule version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owes {
    /// It is due.
    Yes,
    /// The workflow was paused or archived at that time.
    Paused,
    /// Before `starts_at`, or not before `ends_at`.
    OutsideWindow,
    /// The cron does not name this time, or there was none.
    NotDue,
    /// The timezone or the cron is not known any more, so it cannot be computed.
    Unjudged,
}

impl Version {
    /// Evaluates one time of this version's span, by the zone data that were in force at it.
    #[must_use]
    pub fn owes(&self, time: DateTime<Utc>) -> Owes {
        if self.state != State::Active {
            return Owes::Paused;
        }
        if self.starts_at.is_some_and(|start| time < start) || self.ends_at.is_some_and(|end| time >= end) {
            return Owes::OutsideWindow;
        }
        match self.parsed_at(time) {
            Ok(None) => Owes::NotDue,
            Ok(Some((cron, timezone))) if cron.matches(time, timezone) => Owes::Yes,
            Ok(Some(_)) => Owes::NotDue,
            Err(Unknown) => Owes::Unjudged,
        }
    }

    /// Returns its cron and its timezone by the zone data that were in force at a time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn parsed_at(&self, time: DateTime<Utc>) -> Result<Option<(Cron, Timezone)>, Unknown> {
        let Some((cron, timezone)) = self.timing(&ZoneHistory::installed())? else { return Ok(None) };
        Ok(Some((cron, timezone.at(time).ok_or(Unknown)?)))
    }

    /// Returns its cron and its timezone's rules over time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn timing(&self, zones: &ZoneHistory) -> Result<Option<(Cron, TimezoneHistory)>, Unknown> {
        let Some(cron) = &self.cron else { return Ok(None) };
        let cron = Cron::parse(cron).map_err(|_| Unknown)?;
        let timezone = zones.find(self.timezone.as_deref().unwrap_or("UTC")).ok_or(Unknown)?;
        Ok(Some((cron, timezone)))
    }
}

/// Writes the first version of a new workflow.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn begin(tx: &mut PgConnection, workflow: &Workflow, since: DateTime<Utc>) -> sqlx::Result<()> {
    let timing = &workflow.spec.timing;
    sqlx::query!(
        r#"
        -- begin the schedule versions of a workflow; the later ones are written with its row
        INSERT INTO schedule_versions (workflow_id, revision, valid_from, cron, timezone, state, starts_at, ends_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
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
    .execute(tx)
    .await
    .map(drop)
}
