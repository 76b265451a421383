//! Step 7 of 7: reads freezes, and removes old ones.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;
use workflows::keyset::KeysetPage;

use super::Freeze;

/// How many freezes one statement of the job `prune` removes.
const REMOVED_A_BATCH: i64 = 1_000;

/// Whose freezes a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Those of every team, and those of all teams together.
    Everything,
    /// Those of one team.
    OfTeam(i64),
    /// Those of all teams together.
    OfAllTeams,
}

/// Finds a freeze that a caller of this team may see: its own, and those of all teams; without a team every one.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_freeze(db: &mut PgConnection, id: Uuid, team_id: Option<i64>) -> sqlx::Result<Option<Freeze>> {
    sqlx::query_as!(
        Freeze,
        r#"
        -- find a freeze
        SELECT id, team_id, reason, starts_on, NULLIF(ends_on, 'infinity') AS ends_on, actor, actor_name, created_on,
               lifted_by, lifted_on
          FROM freezes
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id IS NULL OR team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Lists freezes, the newest first; with `open_on` only those that have not ended by then.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_freezes(
    db: &mut PgConnection,
    listed: Listed,
    open_on: Option<DateTime<Utc>>,
    before: Option<Uuid>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Freeze, Uuid>> {
    let (is_everything, team_id) = match listed {
        Listed::Everything => (true, None),
        Listed::OfTeam(team_id) => (false, Some(team_id)),
        Listed::OfAllTeams => (false, None),
    };
    let rows = sqlx::query_as!(
        Freeze,
        r#"
        -- list freezes by key
        SELECT id, team_id, reason, starts_on, NULLIF(ends_on, 'infinity') AS ends_on, actor, actor_name, created_on,
               lifted_by, lifted_on
          FROM freezes
         WHERE id < $3
           AND ($1 OR team_id IS NOT DISTINCT FROM $2)
           AND ($4::timestamptz IS NULL OR ends_on > $4 AND ends_on > starts_on)
         ORDER BY id DESC
         LIMIT $5
        "#,
        is_everything,
        team_id,
        before.unwrap_or(Uuid::max()),
        open_on,
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    Ok(KeysetPage::of_rows(rows, limit, |freeze| freeze.id))
}

/// Removes some freezes that ended before a time: no kept time was due under them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old(db: &mut PgConnection, before: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove old freezes
        WITH old AS MATERIALIZED (
            SELECT id FROM freezes WHERE ends_on < $1 AND created_on < $1 ORDER BY ends_on LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        DELETE FROM freezes f USING old WHERE f.id = old.id
        "#,
        before,
        REMOVED_A_BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}
