//! Step 1 of 7: lists the versions of one workflow's schedule with who made them, the newest first.

use chrono::{DateTime, Utc};
use db::PgConnection;
use schedule::WorkflowId;
use workflows::State;
use workflows::keyset::KeysetPage;

/// A version in a list.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// The revision.
    pub revision: i64,
    /// Since when it was in force.
    pub valid_from: DateTime<Utc>,
    /// Until when; `None` while it is in force.
    pub ended_on: Option<DateTime<Utc>>,
    /// The cron; `None` without a schedule.
    pub cron: Option<String>,
    /// The timezone of the cron.
    pub timezone: Option<String>,
    /// The start of the window.
    pub starts_at: Option<DateTime<Utc>>,
    /// The end of the window.
    pub ends_at: Option<DateTime<Utc>>,
    /// The state of the workflow.
    pub state: State,
    /// Who made it; `None`: the entry of the audit log is older than its retention.
    pub actor: Option<String>,
    /// The name of the key.
    pub actor_name: Option<String>,
    /// What was done: `create`, `update`, `pause`, ..
    pub verb: Option<String>,
}

/// Lists the versions of a workflow before this revision. The caller has checked that the workflow may be seen.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_versions(
    db: &mut PgConnection,
    workflow: WorkflowId,
    before: Option<i64>,
    limit: i64,
) -> sqlx::Result<KeysetPage<ListedVersion, i64>> {
    let rows = sqlx::query_as!(
        ListedVersion,
        r#"
        -- list the versions of a schedule, each with the audit entry of its change, which was written when it began
        WITH page AS (SELECT * FROM schedule_versions
                       WHERE workflow_id = $1 AND revision < $2
                       ORDER BY revision DESC
                       LIMIT $3),
             changes AS (SELECT DISTINCT ON (revision) (after ->> 'revision')::bigint AS revision, actor, actor_name, verb
                           FROM audit_log
                          WHERE subject = 'workflow:' || $1::bigint
                            AND at >= (SELECT min(valid_from) FROM page) - INTERVAL '1 hour'
                            AND at <= (SELECT max(valid_from) FROM page) + INTERVAL '1 hour'
                            AND after ? 'revision'
                          ORDER BY revision, id)
        SELECT v.revision, v.valid_from, v.cron, v.timezone, v.starts_at, v.ends_at, v.state AS "state: State",
               (SELECT min(n.valid_from) FROM schedule_versions n
                 WHERE n.workflow_id = v.workflow_id AND n.valid_from > v.valid_from) AS ended_on,
               c.actor AS "actor?", c.actor_name, c.verb AS "verb?"
          FROM page v
          LEFT JOIN changes c ON c.revision = v.revision
         ORDER BY v.revision DESC
        "#,
        workflow.0,
        before.unwrap_or(i64::MAX),
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |version| version.revision))
}
