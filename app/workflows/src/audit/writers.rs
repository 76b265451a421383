//! Step 1 of 7: which entries of the audit log are settled: no entry with a lower id can appear any more.
//!
//! An entry gets its id before its transaction commits, so an older transaction may commit a lower id later. Each
//! writer locks the table before it takes an id and until its transaction ends. So if the newest committed entry is read
//! first and then the writers, all lower ids are committed or lost as soon as these writers have ended. A column with
//! the id of the transaction would need a comparison across servers after a restore; locks do not.

use std::time::{Duration, Instant};

use db::{PgConnection, PgPool};

/// How often to check whether the writers have ended.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Returns the newest entry below which all are settled; `None` if an open transaction has written for longer than
/// `patience`. Writers that begin meanwhile do not matter.
///
/// # Errors
/// Fails if the database does not answer.
pub(super) async fn settled_through(pool: &PgPool, patience: Duration) -> sqlx::Result<Option<i64>> {
    let began = Instant::now();
    let mut connection = pool.acquire().await?;
    let newest = super::newest_id(&mut connection).await?;
    let mut open = list_writers(&mut connection).await?;
    while !open.is_empty() {
        if began.elapsed() >= patience {
            return Ok(None);
        }
        tokio::time::sleep(CHECK_EVERY).await;
        let now = list_writers(&mut connection).await?;
        open.retain(|writer| now.contains(writer));
    }
    Ok(Some(newest))
}

/// The transactions that have written to the audit log, or are about to.
async fn list_writers(db: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- open writers of the audit log
        SELECT virtualtransaction AS "writer!"
          FROM pg_locks
         WHERE locktype = 'relation' AND relation = 'audit_log'::regclass AND mode = 'RowExclusiveLock' AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        "#
    )
    .fetch_all(db)
    .await
}
