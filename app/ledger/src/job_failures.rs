//! Step 7 of 7: a workflow or run whose statements always fail delays only itself.
//!
//! A pass logs the failure, continues with all others and reports it, so that its turn fails and `GET /jobs` shows it.

use db::PgConnection;

/// Logs that a job could not process one workflow; its pass continues with the others.
///
/// # Errors
/// Returns the same error if it concerns the database and not the workflow, because all others would fail, too.
pub fn skip_failed(job: &'static str, workflow_id: i64, error: sqlx::Error) -> sqlx::Result<()> {
    if !concerns_one_workflow(&error) {
        return Err(error);
    }
    tracing::error!(job, workflow_id, %error, "job skips workflow {workflow_id}: {error}");
    Ok(())
}

/// Stores which workflows a pass could not process, after it has processed all others of these shards. Verification
/// skips them.
///
/// # Errors
/// Fails if the database fails; then the rows of the previous pass remain.
pub(crate) async fn store_failed(
    db: &mut PgConnection,
    job: &'static str,
    shards: &[i16],
    failed: &[i64],
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- store failed workflows: only those of this pass; a workflow that failed before keeps its time
        WITH recovered AS (
            DELETE FROM job_failures f
             WHERE f.job = $1 AND f.workflow_id <> ALL($2::bigint[])
               AND (f.workflow_id % 8 = ANY($3::smallint[])
                    -- a pass leases no shard in which no time is due
                    OR NOT EXISTS (SELECT FROM ledger l
                                    WHERE l.workflow_id = f.workflow_id AND (l.watch_at IS NOT NULL OR l.cron IS NOT NULL)))
        )
        INSERT INTO job_failures (job, workflow_id, failed_on)
        SELECT $1, workflow_id, cronbox_now() FROM UNNEST($2::bigint[]) AS failed (workflow_id)
        ON CONFLICT (job, workflow_id) DO NOTHING
        "#,
        job,
        failed,
        shards,
    )
    .execute(db)
    .await
    .map(drop)
}

/// Whether a failure says nothing about other workflows: the server works, and it refused one statement.
#[must_use]
pub fn concerns_one_workflow(error: &sqlx::Error) -> bool {
    db::concerns_one_statement(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_failures_concern_all_workflows() {
        assert!(!concerns_one_workflow(&sqlx::Error::PoolTimedOut));
        assert!(!concerns_one_workflow(&sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into())));
        assert!(concerns_one_workflow(&sqlx::Error::RowNotFound));
    }
}
