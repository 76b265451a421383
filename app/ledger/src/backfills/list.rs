//! Step 7 of 7: lists backfills by key, the newest first.

use db::PgConnection;
use uuid::Uuid;
use workflows::id::{first_run_id_of, time_of_id};
use workflows::keyset::KeysetPage;

use super::table::Row;
use super::{Backfill, Only, Order, State, Timing};

/// Which backfills the caller may see, and filters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Only this team's.
    pub team_id: Option<i64>,
    /// Only this workflow's.
    pub workflow_id: Option<i64>,
    /// Only backfills in this state.
    pub state: Option<State>,
    /// Only backfills before this one, the last of the previous page.
    pub before: Option<Uuid>,
    /// Backfills on a page at most.
    pub limit: i64,
}

/// Lists backfills, the newest first. Both statements need the same snapshot.
///
/// A backfill counts its runs, so a page ends early if its backfills have started more than 20,000.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_backfills(db: &mut PgConnection, filter: &Filter) -> sqlx::Result<KeysetPage<Backfill, Uuid>> {
    let before = filter.before.unwrap_or(Uuid::max());
    let (ids, next) = select_ids(db, filter, before).await?;
    let rows: Vec<Backfill> = read_backfills(db, &ids).await?.into_iter().map(Backfill::from).collect();
    let next = match next {
        Next::OnThisScan(last) => Some(last),
        Next::AfterThisScan => end_of_scan(db, before).await?,
    };
    Ok(KeysetPage { rows, next })
}

/// Where the next page begins.
enum Next {
    /// After this backfill, the last of the page.
    OnThisScan(Uuid),
    /// After all that the statement has read.
    AfterThisScan,
}

/// Returns the backfills of a page.
async fn select_ids(db: &mut PgConnection, filter: &Filter, before: Uuid) -> sqlx::Result<(Vec<Uuid>, Next)> {
    let rows = sqlx::query!(
        r#"
        -- the backfills of a page by key: ids ascend with time (uuid v7); `is_next` is the first one without room
        SELECT b.id, (row_number() OVER by_id > $5 OR sum(b.started) OVER by_id - b.started > 20000) AS "is_next!"
          FROM (SELECT * FROM backfills WHERE id < $1 ORDER BY id DESC LIMIT 5000) AS b
          JOIN workflows w ON w.id = b.workflow_id
         WHERE ($2::bigint IS NULL OR w.team_id = $2)
           AND ($3::bigint IS NULL OR b.workflow_id = $3)
           AND ($4::text IS NULL OR b.state = $4)
        WINDOW by_id AS (ORDER BY b.id DESC)
         ORDER BY b.id DESC
         LIMIT $5::bigint + 1
        "#,
        before,
        filter.team_id,
        filter.workflow_id,
        filter.state as Option<State>,
        filter.limit,
    )
    .fetch_all(db)
    .await?;
    let ids: Vec<Uuid> = rows.iter().take_while(|row| !row.is_next).map(|row| row.id).collect();
    let next = match ids.last() {
        Some(last) if ids.len() < rows.len() => Next::OnThisScan(*last),
        _ => Next::AfterThisScan,
    };
    Ok((ids, next))
}

async fn end_of_scan(db: &mut PgConnection, before: Uuid) -> sqlx::Result<Option<Uuid>> {
    sqlx::query_scalar!(
        r#"
        -- the last backfill that the list read; none: it read all
        SELECT id FROM backfills WHERE id < $1 ORDER BY id DESC OFFSET 4999 LIMIT 1
        "#,
        before,
    )
    .fetch_optional(db)
    .await
}

async fn read_backfills(db: &mut PgConnection, ids: &[Uuid]) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"
        -- the backfills of a page, with the counts of their runs
        SELECT b.id, b.workflow_id, b.start_at, b.end_at, b.run_order AS "run_order: Order",
               b.only_decided AS "only_decided: Only", b.max_concurrent, b.state AS "state: State", b.cursor_at,
               b.timing AS "timing: Timing", b.timing_revision, b.total, b.started, b.requested_by, b.created_on,
               b.updated_on, b.finished_on,
               (SELECT count(*) FROM runs_live r WHERE r.backfill_id = b.id) AS "live!",
               -- their runs are newer than the oldest of them, so no earlier day is read
               (SELECT count(*) FROM runs r WHERE r.backfill_id = b.id AND r.state = 'succeeded' AND r.id >= $2)
                   + b.pruned_succeeded AS "succeeded!"
          FROM backfills b
         WHERE b.id = ANY($1)
         ORDER BY b.id DESC
        "#,
        ids,
        ids.iter().min().map(|oldest| first_run_id_of(time_of_id(*oldest))),
    )
    .fetch_all(db)
    .await
}
