//! Step 1 of 7: counts the workflows that an older version wrote towards the usage of their teams.

use db::{PgConnection, PgPool};
use schedule::{Cron, WorkflowId};

/// Workflows that one statement counts.
const BATCH: i64 = 500;

/// A workflow that is not counted yet.
struct Uncounted {
    id: i64,
    team_id: i64,
    cron: Option<String>,
    input_bytes: i32,
}

/// Counts the workflows that an older version wrote; returns their number.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement; the workflows counted so far stay counted.
pub async fn count_uncounted_workflows(pool: &PgPool) -> sqlx::Result<u64> {
    let (mut last, mut counted) = (WorkflowId(0), 0);
    loop {
        let mut connection = pool.acquire().await?;
        let mut batch = list_uncounted(&mut connection, last).await?;
        let Some(newest) = batch.last() else { return Ok(counted) };
        last = WorkflowId(newest.id);
        // One team in each statement, so that the jobs of two instances cannot lock the usages of two teams crosswise.
        batch.sort_by_key(|one| one.team_id);
        for of_team in batch.chunk_by(|one, other| one.team_id == other.team_id) {
            counted += count_batch(&mut connection, of_team).await?;
        }
    }
}

async fn list_uncounted(db: &mut PgConnection, after: WorkflowId) -> sqlx::Result<Vec<Uncounted>> {
    sqlx::query_as!(
        Uncounted,
        r#"
        -- workflows that an older version wrote, by the primary key
        SELECT id, team_id, cron_schedule AS cron,
               octet_length(starting_inputs::text) + octet_length(action::text) AS "input_bytes!"
          FROM workflows
         WHERE id > $1 AND fires_per_hour IS NULL AND state <> 'archived'
         ORDER BY id
         LIMIT $2
        "#,
        after.0,
        BATCH,
    )
    .fetch_all(db)
    .await
}

async fn count_batch(db: &mut PgConnection, batch: &[Uncounted]) -> sqlx::Result<u64> {
    let ids: Vec<i64> = batch.iter().map(|one| one.id).collect();
    let fires: Vec<i16> = batch.iter().map(Uncounted::fires_per_hour).collect();
    let bytes: Vec<i32> = batch.iter().map(|one| one.input_bytes).collect();
    let counted = sqlx::query!(
        r#"
        -- count workflows: an edit that this statement waited for has counted its own
        UPDATE workflows w
           SET fires_per_hour = counted.fires, input_bytes = counted.bytes
          FROM unnest($1::bigint[], $2::smallint[], $3::integer[]) AS counted (id, fires, bytes)
         WHERE w.id = counted.id AND w.fires_per_hour IS NULL
        "#,
        &ids,
        &fires,
        &bytes,
    )
    .execute(db)
    .await?;
    Ok(counted.rows_affected())
}

impl Uncounted {
    fn fires_per_hour(&self) -> i16 {
        let cron = self.cron.as_deref().and_then(|cron| Cron::parse(cron).ok());
        cron.map_or(0, |cron| i16::try_from(cron.fires_per_hour()).unwrap_or(i16::MAX))
    }
}
