//! Step 3 of 7: what the database knows about the schedules on one page of the list.

use chrono::{DateTime, Utc};
use db::PgPool;
use schedule::{Revision, WorkflowId};

use crate::claim::workflows::{Removal, Workflow, joined_row};
use crate::scheduler::identity::Identity;

/// What the database knows about one schedule of this environment.
#[derive(Debug)]
pub(crate) struct WorkflowRecord {
    pub(crate) workflow: Workflow,
    /// `None` = this workflow was never published.
    pub(crate) publication: Option<Publication>,
}

/// The last known state of the schedule, as far as a sweep needs it.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// A claim since then makes a comparison void.
    pub(crate) epoch: i64,
    pub(crate) spec_hash: Option<String>,
    pub(crate) template: Option<i32>,
    /// AWS's time of the last change that is known to be as required.
    pub(crate) seen_modified_at: Option<DateTime<Utc>>,
    /// A publisher processes it, has just done so, or will soon, so its schedule may be changing.
    pub(crate) is_busy: bool,
    /// A publisher has claimed it.
    pub(crate) is_leased: bool,
}

/// Reads what is known about these workflows, in one snapshot.
pub(crate) async fn read_records(pool: &PgPool, ids: &[i64]) -> sqlx::Result<Vec<WorkflowRecord>> {
    let rows = sqlx::query!(
        r#"
        -- known: a workflow is also busy if it was published within half a minute, because AWS's reads lag behind its
        -- writes; and if it is backed off or failed, because that is reported elsewhere
        SELECT requested.workflow_id AS "workflow_id!",
               p.epoch AS "epoch?",
               p.desired_revision AS "desired_revision?",
               p.spec_hash AS "spec_hash?",
               p.template AS "template?",
               p.seen_modified_at AS "seen_modified_at?",
               COALESCE(p.lease_owner IS NOT NULL
                        OR p.due_at <= cronbox_now() + INTERVAL '60 seconds'
                        OR p.error_class IS NOT NULL
                        OR p.applied_on > cronbox_now() - INTERVAL '30 seconds', FALSE) AS "is_busy!",
               p.lease_owner IS NOT NULL AS "is_leased!",
               COALESCE(p.removal_revision >= p.desired_revision, FALSE) AS "is_removal_requested!",
               (SELECT uuid FROM database_identity) AS "identity!",
               w.revision AS "revision?",
               w.cron_schedule AS "cron_schedule?",
               w.timezone AS "timezone?",
               w.state AS "state?",
               w.starts_at AS "starts_at?",
               w.ends_at AS "ends_at?",
               w.pause_until AS "pause_until?"
          FROM unnest($1::bigint[]) AS requested (workflow_id)
          LEFT JOIN publications AS p ON p.workflow_id = requested.workflow_id
          LEFT JOIN workflows AS w ON w.id = requested.workflow_id
        "#,
        ids,
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|read| {
            let row = joined_row!(read);
            let revision = Revision(read.revision.or(read.desired_revision).unwrap_or(0));
            let publication = read.epoch.map(|epoch| Publication {
                epoch,
                spec_hash: read.spec_hash,
                template: read.template,
                seen_modified_at: read.seen_modified_at,
                is_busy: read.is_busy,
                is_leased: read.is_leased,
            });
            let workflow = Workflow {
                id: WorkflowId(read.workflow_id),
                revision,
                row,
                removal: Removal::from_request(read.is_removal_requested),
                identity: Identity(read.identity),
            };
            WorkflowRecord { workflow, publication }
        })
        .collect())
}
