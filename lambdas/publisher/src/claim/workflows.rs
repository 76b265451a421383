//! Step 3 of 7: the current state of the workflows, read after the claim.

use chrono::{DateTime, Utc};
use db::PgPool;
use schedule::{Revision, WorkflowId};

use crate::scheduler::identity::Identity;

/// A workflow, or the remains of a deleted one.
#[derive(Debug)]
pub(crate) struct Workflow {
    pub(crate) id: WorkflowId,
    /// The revision that a success applies.
    pub(crate) revision: Revision,
    /// `None` if it was deleted, or if the row vanished.
    pub(crate) row: Option<Row>,
    /// Whether a delete event requested that there be no schedule; used only if there is no row.
    pub(crate) removal: Removal,
    /// The identity of the database that it was read from.
    pub(crate) identity: Identity,
}

/// Whether the outbox permits the removal of a schedule whose workflow has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// A delete event with the newest revision requested the removal.
    Requested,
    /// No delete event requested it: the row vanished without the app, and the orphan guard decides.
    NotRequested,
}

impl Removal {
    pub(crate) fn from_request(is_requested: bool) -> Removal {
        if is_requested { Removal::Requested } else { Removal::NotRequested }
    }
}

/// The timing of a workflow, not parsed yet, because an older dialect may have written it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) revision: Revision,
    pub(crate) cron: Option<String>,
    pub(crate) timezone: Option<String>,
    pub(crate) state: String,
    pub(crate) starts_at: Option<DateTime<Utc>>,
    pub(crate) ends_at: Option<DateTime<Utc>>,
    pub(crate) pause_until: Option<DateTime<Utc>>,
}

/// The workflow's row in the record of an outer join; `None` if it was deleted.
macro_rules! joined_row {
    ($record:ident) => {
        $record.revision.zip($record.state).map(|(revision, state)| $crate::claim::workflows::Row {
            revision: schedule::Revision(revision),
            cron: $record.cron_schedule,
            timezone: $record.timezone,
            state,
            starts_at: $record.starts_at,
            ends_at: $record.ends_at,
            pause_until: $record.pause_until,
        })
    };
}
pub(crate) use joined_row;

/// Reads the workflows of the claimed publications, in one snapshot.
pub(crate) async fn read_workflows(pool: &PgPool, ids: &[i64]) -> sqlx::Result<Vec<Workflow>> {
    let rows = sqlx::query!(
        r#"
        -- read: the publication too, because only it has the revision of a deleted workflow
        SELECT p.workflow_id AS "workflow_id!",
               p.desired_revision AS "desired_revision!",
               COALESCE(p.removal_revision >= p.desired_revision, FALSE) AS "is_removal_requested!",
               (SELECT uuid FROM database_identity) AS "identity!",
               w.revision AS "revision?",
               w.cron_schedule AS "cron_schedule?",
               w.timezone AS "timezone?",
               w.state AS "state?",
               w.starts_at AS "starts_at?",
               w.ends_at AS "ends_at?",
               w.pause_until AS "pause_until?"
          FROM publications AS p
          LEFT JOIN workflows AS w ON w.id = p.workflow_id
         WHERE p.workflow_id = ANY($1)
        "#,
        ids,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|read| {
            let row = joined_row!(read);
            let revision = row.as_ref().map_or(Revision(read.desired_revision), |row| row.revision);
            Workflow {
                id: WorkflowId(read.workflow_id),
                revision,
                row,
                removal: Removal::from_request(read.is_removal_requested),
                identity: Identity(read.identity),
            }
        })
        .collect())
}
