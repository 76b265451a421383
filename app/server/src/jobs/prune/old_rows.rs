//! Step 7 of 7: the rows that the prune removes: which are old, and to which workflows they belong.

use chrono::{DateTime, Utc};
use db::PgConnection;
use uuid::Uuid;

/// How many rows one statement removes: so few that no other statement waits for long.
pub(super) const BATCH: i64 = 1_000;

/// What kind of row is removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Outbox,
    Runs,
    /// The occurrences of a window.
    Occurrences(Window),
}

/// A part of the occurrences without a partition by day, in the order of their decisions. The windows of a turn do not
/// overlap, so a row that must stay is read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    after: (DateTime<Utc>, Uuid),
    through: (DateTime<Utc>, Uuid),
}

impl Window {
    /// The empty window before all occurrences.
    pub(super) fn before_all() -> Self {
        let start = (DateTime::UNIX_EPOCH, Uuid::nil());
        Self { after: start, through: start }
    }
}

/// How many occurrences a window has: as many as one statement can check in a fraction of a second.
const WINDOW: i64 = 10_000;

/// The instants before which rows are old.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Outbox rows, by `processed_on`.
    pub(super) processed: DateTime<Utc>,
    /// Outbox rows, by `failed_on`.
    pub(super) failed: DateTime<Utc>,
    /// Runs, by `finished_on`.
    pub(super) runs: DateTime<Utc>,
    /// Occurrences, by `decided_on` and `scheduled_time`.
    pub(super) occurrences: DateTime<Utc>,
    /// Entries of the audit log, by `at`; `None`: they are kept forever.
    pub(super) audit: Option<DateTime<Utc>>,
    /// The time of the turn, from which catch-up windows count.
    pub(super) now: DateTime<Utc>,
}

/// Whose rows are removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope<'a> {
    /// The rows of one workflow.
    Only(i64),
    /// The rows of all workflows except these.
    Except(&'a [i64]),
}

impl<'a> Scope<'a> {
    /// The scope as two parameters of a statement.
    fn parameters(self) -> (Option<i64>, &'a [i64]) {
        match self {
            Self::Only(workflow) => (Some(workflow), &[]),
            Self::Except(workflows) => (None, workflows),
        }
    }
}

/// Removes a batch of old rows; returns how many.
pub(super) async fn remove_rows(db: &mut PgConnection, kind: Kind, ages: &Ages, scope: Scope<'_>) -> sqlx::Result<u64> {
    match kind {
        Kind::Outbox => remove_outbox(db, ages, scope).await,
        Kind::Runs => remove_runs(db, ages, scope).await,
        Kind::Occurrences(window) => remove_occurrences(db, ages, window, scope).await,
    }
}

/// Returns the workflows whose rows the next batch removes, except these.
pub(super) async fn workflows_of_batch(
    db: &mut PgConnection,
    kind: Kind,
    ages: &Ages,
    except: &[i64],
) -> sqlx::Result<Vec<i64>> {
    match kind {
        Kind::Outbox => workflows_of_outbox(db, ages, except).await,
        Kind::Runs => workflows_of_runs(db, ages, except).await,
        Kind::Occurrences(window) => workflows_of_occurrences(db, ages, window, except).await,
    }
}

async fn remove_outbox(db: &mut PgConnection, ages: &Ages, scope: Scope<'_>) -> sqlx::Result<u64> {
    Ok(remove_processed(db, ages, scope).await? + remove_failed(db, ages, scope).await?)
}

async fn remove_processed(db: &mut PgConnection, ages: &Ages, scope: Scope<'_>) -> sqlx::Result<u64> {
    let (only, except) = scope.parameters();
    let removed = sqlx::query!(
        r#"
        -- remove processed outbox rows that have no partition by day: by created_on too, because it is indexed and never
        -- later than the other time
        WITH old AS MATERIALIZED (
            SELECT id FROM outbox_processed_before
             WHERE created_on < $1 AND processed_on < $1
               AND ($3::bigint IS NULL OR aggregate_id = $3) AND aggregate_id <> ALL($4)
             ORDER BY created_on
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM outbox_processed_before o USING old WHERE o.id = old.id
        "#,
        ages.processed,
        BATCH,
        only,
        except,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

async fn remove_failed(db: &mut PgConnection, ages: &Ages, scope: Scope<'_>) -> sqlx::Result<u64> {
    let (only, except) = scope.parameters();
    let removed = sqlx::query_scalar!(
        r#"
        -- remove failed outbox rows, and those that an operator discarded
        WITH failed AS MATERIALIZED (
            SELECT id FROM outbox_open
             WHERE failed_on < $1 AND ($3::bigint IS NULL OR aggregate_id = $3) AND aggregate_id <> ALL($4)
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), discarded AS MATERIALIZED (
            SELECT id FROM outbox_discarded
             WHERE failed_on < $1 AND ($3::bigint IS NULL OR aggregate_id = $3) AND aggregate_id <> ALL($4)
             LIMIT $2
               FOR UPDATE SKIP LOCKED
        ), removed_failed AS (
            DELETE FROM outbox_open o USING failed WHERE o.id = failed.id RETURNING o.id
        ), removed_discarded AS (
            DELETE FROM outbox_discarded o USING discarded WHERE o.id = discarded.id RETURNING o.id
        )
        SELECT (SELECT count(*) FROM removed_failed) + (SELECT count(*) FROM removed_discarded) AS "removed!"
        "#,
        ages.failed,
        BATCH,
        only,
        except,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
}

async fn workflows_of_outbox(db: &mut PgConnection, ages: &Ages, except: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- workflows of old outbox rows
        SELECT DISTINCT aggregate_id AS "aggregate_id!"
          FROM ((SELECT aggregate_id FROM outbox_processed_before
                  WHERE created_on < $1 AND processed_on < $1 AND aggregate_id <> ALL($4)
                  ORDER BY created_on
                  LIMIT $3)
                  UNION ALL
                (SELECT aggregate_id FROM outbox_open WHERE failed_on < $2 AND aggregate_id <> ALL($4) LIMIT $3)
                  UNION ALL
                (SELECT aggregate_id FROM outbox_discarded WHERE failed_on < $2 AND aggregate_id <> ALL($4) LIMIT $3)) AS old
        "#,
        ages.processed,
        ages.failed,
        BATCH,
        except,
    )
    .fetch_all(db)
    .await
}

async fn remove_runs(db: &mut PgConnection, ages: &Ages, scope: Scope<'_>) -> sqlx::Result<u64> {
    let (only, except) = scope.parameters();
    let removed = sqlx::query_scalar!(
        r#"
        -- remove old runs that have ended and have no partition by day; the runs of a backfill remain counted in it
        WITH old AS MATERIALIZED (
            SELECT id
              FROM (SELECT id, workflow_id, finished_on FROM runs_ended_before
                     UNION ALL
                    SELECT id, workflow_id, finished_on FROM runs_ended_later) AS single
             WHERE finished_on < $1
               AND ($3::bigint IS NULL OR workflow_id = $3) AND workflow_id <> ALL($4)
             ORDER BY finished_on
             LIMIT $2
        ), results AS (
            DELETE FROM run_results x USING old WHERE x.run_id = old.id
        ), removed_before AS (
            -- of these partitions by name: with the parent, Postgres reads all days
            DELETE FROM runs_ended_before r USING old WHERE r.id = old.id
            RETURNING r.backfill_id, r.state
        ), removed_later AS (
            DELETE FROM runs_ended_later r USING old WHERE r.id = old.id
            RETURNING r.backfill_id, r.state
        ), removed AS (
            SELECT backfill_id, state FROM removed_before UNION ALL SELECT backfill_id, state FROM removed_later
        ), counted AS (
            UPDATE backfills b
               SET pruned_succeeded = b.pruned_succeeded + s.succeeded
              FROM (SELECT backfill_id, count(*) AS succeeded FROM removed
                     WHERE backfill_id IS NOT NULL AND state = 'succeeded'
                     GROUP BY backfill_id) s
             WHERE b.id = s.backfill_id
        )
        SELECT count(*) AS "removed!" FROM removed
        "#,
        ages.runs,
        BATCH,
        only,
        except,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
}

async fn workflows_of_runs(db: &mut PgConnection, ages: &Ages, except: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- workflows of old runs
        SELECT DISTINCT workflow_id AS "workflow_id!"
          FROM (SELECT workflow_id
                  FROM (SELECT workflow_id, finished_on FROM runs_ended_before
                         UNION ALL
                        SELECT workflow_id, finished_on FROM runs_ended_later) AS single
                 WHERE finished_on < $1 AND workflow_id <> ALL($3)
                 ORDER BY finished_on
                 LIMIT $2) AS old
        "#,
        ages.runs,
        BATCH,
        except,
    )
    .fetch_all(db)
    .await
}

/// Advances the window to the next old occurrences; returns whether there are any.
pub(super) async fn advance_window(db: &mut PgConnection, ages: &Ages, window: &mut Window) -> sqlx::Result<bool> {
    let end = sqlx::query!(
        r#"
        -- advance_window: the last of the next rows by key
        SELECT decided_on AS "decided_on!", id AS "id!"
          FROM (SELECT decided_on, id
                  FROM (SELECT decided_on, id FROM occurrences_before
                         UNION ALL
                        SELECT decided_on, id FROM occurrences_later) AS o
                 WHERE decided_on < $1 AND decided_on >= $2 AND (decided_on, id) > ($2, $3)
                 ORDER BY decided_on, id
                 LIMIT $4) AS next
         ORDER BY decided_on DESC, id DESC
         LIMIT 1
        "#,
        ages.occurrences,
        window.through.0,
        window.through.1,
        WINDOW,
    )
    .fetch_optional(db)
    .await?;
    let Some(end) = end else { return Ok(false) };
    *window = Window { after: window.through, through: (end.decided_on, end.id) };
    Ok(true)
}

async fn remove_occurrences(db: &mut PgConnection, ages: &Ages, window: Window, scope: Scope<'_>) -> sqlx::Result<u64> {
    let (only, except) = scope.parameters();
    let removed = sqlx::query_scalar!(
        r#"
        -- remove old occurrences: of those that have no partition by day, but not one that a late fire may need, one that
        -- the watchdog has not passed, or the newest of a workflow
        WITH old AS MATERIALIZED (
            SELECT o.workflow_id, o.scheduled_time
              FROM (SELECT workflow_id, scheduled_time, decided_on, id FROM occurrences_before
                     UNION ALL
                    SELECT workflow_id, scheduled_time, decided_on, id FROM occurrences_later) AS o
              JOIN workflows w ON w.id = o.workflow_id
              JOIN ledger l ON l.workflow_id = o.workflow_id
              JOIN watchdog_shards s ON s.shard = l.shard
             WHERE o.decided_on >= $5 AND (o.decided_on, o.id) > ($5, $6)
               AND o.decided_on <= $7 AND (o.decided_on, o.id) <= ($7, $8)
               AND o.scheduled_time < $1
               AND o.scheduled_time < $2::timestamptz - make_interval(secs => w.catch_up_window_secs) - INTERVAL '1 day'
               AND o.scheduled_time <= ledger_decided_through(l.cursor, l.watch_at, s.decided_through)
               AND EXISTS (SELECT FROM occurrences newer
                            WHERE newer.workflow_id = o.workflow_id AND newer.scheduled_time > o.scheduled_time)
               AND ($3::bigint IS NULL OR o.workflow_id = $3) AND o.workflow_id <> ALL($4)
        ), removed_later AS (
            DELETE FROM occurrences_later o USING old
             WHERE o.workflow_id = old.workflow_id AND o.scheduled_time = old.scheduled_time AND o.decided_on < $1
            RETURNING o.id
        ), removed_before AS (
            -- a backfill may have decided it again meanwhile
            DELETE FROM occurrences_before o USING old
             WHERE o.workflow_id = old.workflow_id AND o.scheduled_time = old.scheduled_time AND o.decided_on < $1
            RETURNING o.id
        )
        SELECT (SELECT count(*) FROM removed_before) + (SELECT count(*) FROM removed_later) AS "removed!"
        "#,
        ages.occurrences,
        ages.now,
        only,
        except,
        window.after.0,
        window.after.1,
        window.through.0,
        window.through.1,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
}

async fn workflows_of_occurrences(
    db: &mut PgConnection,
    ages: &Ages,
    window: Window,
    except: &[i64],
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!(
        r#"
        -- workflows of old occurrences
        SELECT DISTINCT workflow_id AS "workflow_id!"
          FROM (SELECT workflow_id, scheduled_time, decided_on, id FROM occurrences_before
                 UNION ALL
                SELECT workflow_id, scheduled_time, decided_on, id FROM occurrences_later) AS o
         WHERE decided_on >= $3 AND (decided_on, id) > ($3, $4) AND decided_on <= $5 AND (decided_on, id) <= ($5, $6)
           AND scheduled_time < $1 AND workflow_id <> ALL($2)
        "#,
        ages.occurrences,
        except,
        window.after.0,
        window.after.1,
        window.through.0,
        window.through.1,
    )
    .fetch_all(db)
    .await
}
