//! The database of the walks of one model, whose clock the test sets.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use db::PgPool;
use local::stack::Database;
use schedule::{Clock, WorkflowId};
use serde_json::Value;
use workflows::audit::Edit;
use workflows::definition::body::{WorkflowBody, patch_workflow};
use workflows::definition::patch::PatchKind;
use workflows::definition::spec::Bounds;
use workflows::{Workflow, create_workflow, lock_workflow, save_workflow};

/// How long a step may take; a liveness limit, not a bound.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The clock of the database is a row, and each verify pass waits equally long.
const CLOCK: &str = "
    CREATE TABLE walk_clock (now timestamptz NOT NULL);
    INSERT INTO walk_clock VALUES ('epoch');
    CREATE OR REPLACE FUNCTION cronbox_now() RETURNS timestamptz
        LANGUAGE plpgsql STABLE PARALLEL SAFE AS 'BEGIN RETURN (SELECT now FROM walk_clock); END';
    CREATE OR REPLACE FUNCTION verify_wait(workflow_id bigint) RETURNS interval
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT INTERVAL '16 minutes' $$;
    DELETE FROM database_identity;
    INSERT INTO database_identity (uuid, environment) VALUES ('00000000-0000-4000-8000-000000000001', 'dev');
";

/// A migrated database with a settable clock.
pub(crate) struct Ground {
    pub(crate) pool: PgPool,
    pub(crate) clock: Clock,
    dsn: String,
    team: i64,
}

impl Ground {
    pub(crate) async fn new() -> Self {
        let dsn = Database::clone_template().await.unwrap().dsn();
        let pool = pool(&dsn);
        sqlx::raw_sql(CLOCK).execute(&mut *pool.acquire().await.unwrap()).await.unwrap();
        let team = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('t', 's', cronbox_now()) RETURNING id";
        let team = sqlx::query_scalar(team).fetch_one(&mut *pool.acquire().await.unwrap()).await.unwrap();
        let ground = Self { pool, clock: Clock::fixed(DateTime::UNIX_EPOCH), dsn, team };
        ground.set_clock("2026-03-02T10:00:00Z".parse().unwrap()).await;
        ground
    }

    /// A pool of another process.
    pub(crate) fn pool_of_process(&self) -> PgPool {
        pool(&self.dsn)
    }

    pub(crate) async fn set_clock(&self, now: DateTime<Utc>) {
        self.clock.set(now);
        let set = sqlx::query("UPDATE walk_clock SET now = $1").bind(now);
        set.execute(&mut *self.pool.acquire().await.unwrap()).await.unwrap();
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.set_clock(self.clock.now() + by).await;
    }

    pub(crate) async fn create(&self, body: Value) -> WorkflowId {
        let body: WorkflowBody = serde_json::from_value(body).unwrap();
        let spec = body.into_spec(None, &self.bounds()).unwrap();
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let made = create_workflow(&mut tx, self.team, spec, None, &self.edit()).await.unwrap();
        tx.commit().await.unwrap();
        made.id
    }

    pub(crate) async fn patch(&self, id: WorkflowId, fields: Value) {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let before = lock_workflow(&mut tx, id, None, self.clock.now()).await.unwrap().unwrap();
        let fields = fields.as_object().unwrap().clone();
        let spec = patch_workflow(&before.spec, fields, PatchKind::Merge, &self.bounds()).unwrap();
        let next = Workflow { spec, ..before.clone() };
        save_workflow(&mut tx, &before, next, "update", &self.edit()).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn edit(&self) -> Edit {
        Edit::without_request("model", self.clock.now())
    }

    fn bounds(&self) -> Bounds {
        Bounds { now: self.clock.now(), retention: KEPT }
    }
}

/// How long the ledger keeps its rows.
pub(crate) const KEPT: TimeDelta = TimeDelta::days(90);

fn pool(dsn: &str) -> PgPool {
    let (dsn, application_name) = (dsn.to_owned(), "cronbox model");
    let (pooler, direct_dsn) = (db::Pooler::None, None);
    let options =
        db::Options { dsn, pooler, direct_dsn, max_connections: 4, acquire_timeout: PATIENCE, application_name };
    db::create_pool(&options).unwrap()
}
