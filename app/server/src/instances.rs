//! Step 7 of 7: which instances of the app there are. For operators only: leases decide which instance owns a run or a job.

use std::time::Duration;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use executor::Shutdown;
use tokio::sync::watch;
use uuid::Uuid;

use crate::App;

/// How often an instance says that it is there.
const SEEN_EVERY: Duration = Duration::from_secs(10);
/// After this time without a sign an instance counts as lost.
const LOST_AFTER_SECS: f64 = 60.0;
/// After this time its row is removed.
const FORGOTTEN_SECS: f64 = 86_400.0;

/// An instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The id by which it owns leases.
    pub(crate) id: Uuid,
    /// The version of its program.
    pub(crate) version: String,
    /// When it started.
    pub(crate) started_on: DateTime<Utc>,
    /// Its last sign.
    pub(crate) seen_on: DateTime<Utc>,
    /// Whether it gave no sign for a minute.
    pub(crate) is_lost: bool,
    /// Whether it shuts down.
    pub(crate) stops: bool,
    /// How many runs it executes at once.
    pub(crate) slots: i32,
    /// How many it executes now.
    pub(crate) running: i64,
    /// Whether it takes background jobs.
    pub(crate) takes_jobs: bool,
    /// The background jobs that it runs now.
    pub(crate) jobs: Vec<String>,
}

/// Lists the instances that gave a sign within a day, the oldest first.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn list_instances(db: &mut PgConnection) -> sqlx::Result<Vec<Instance>> {
    sqlx::query_as!(
        Instance,
        r#"
        -- list instances: with what their leases say
        WITH executed AS (
            SELECT locked_by, count(*) AS runs FROM runs WHERE state = 'running' AND lease_until > cronbox_now() GROUP BY locked_by
        )
        SELECT i.id, i.version, i.started_on, i.seen_on, i.stops, i.slots, i.has_jobs AS takes_jobs,
               i.seen_on < cronbox_now() - make_interval(secs => $1) AS "is_lost!",
               COALESCE(e.runs, 0) AS "running!",
               ARRAY(SELECT j.name FROM jobs j WHERE j.locked_by = i.id AND j.locked_until > cronbox_now() ORDER BY j.name) AS "jobs!"
          FROM instances i
          LEFT JOIN executed e ON e.locked_by = i.id
         ORDER BY i.started_on, i.id
        "#,
        LOST_AFTER_SECS,
    )
    .fetch_all(db)
    .await
}

/// Says every 10 s that this instance is there, until the sender of `end` is dropped; then it removes its row. A sign that
/// cannot be given is given later.
///
/// One task does both in turn, because a sign that Postgres executes after the removal brings the row back.
pub(crate) async fn keep_seen(app: App, shutdown: Shutdown, mut end: watch::Receiver<()>) {
    loop {
        if let Err(error) = sign(&app.pools.work, &app, shutdown.is_draining()).await {
            tracing::debug!(%error, "sign of this instance not stored");
        }
        tokio::select! {
            () = tokio::time::sleep(SEEN_EVERY) => {}
            () = shutdown.wait_for_drain(), if !shutdown.is_draining() => {}
            _ = end.changed() => break,
        }
    }
    if let Err(error) = forget(&app.pools.work, app.instance).await {
        tracing::debug!(%error, "row of this instance not removed at shutdown; it is forgotten after a day");
    }
}

async fn forget(pool: &PgPool, id: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- forget an instance that has stopped
        DELETE FROM instances WHERE id = $1
        "#,
        id,
    )
    .execute(pool)
    .await
    .map(drop)
}

async fn sign(pool: &PgPool, app: &App, stops: bool) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- an instance is there; those that have given no sign for a day are forgotten
        WITH forgotten AS (
            DELETE FROM instances WHERE seen_on < cronbox_now() - make_interval(secs => $6) AND id <> $1
        )
        INSERT INTO instances (id, version, started_on, seen_on, slots, has_jobs, stops)
        VALUES ($1, $2, cronbox_now(), cronbox_now(), $3, $4, $5)
        ON CONFLICT (id) DO UPDATE SET seen_on = excluded.seen_on, stops = excluded.stops
        "#,
        app.instance,
        env!("CARGO_PKG_VERSION"),
        i32::try_from(app.config.executor_slots).unwrap_or(i32::MAX),
        app.config.jobs_enabled,
        stops,
        FORGOTTEN_SECS,
    )
    .execute(pool)
    .await
    .map(drop)
}
