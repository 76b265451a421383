//! Claims begin at a mark before which nothing is due, and forget nothing.

use std::sync::Arc;
use std::time::Duration;

use db::PgPool;
use futures::FutureExt as _;
use publisher::{Hook, Publisher, Report, Stopwatch};
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tests::PATIENCE;

use super::statement::{assert_flat, buffers, execute, stop_clock};
use crate::world::World;

const STEP: Duration = Duration::from_secs(5);
/// After so many steps the marks have passed what was published before, whatever transactions other tests keep open.
const STEPS: u32 = 8;

/// A publisher with one connection, so that Postgres reports its reads at once, and with a time that the test sets.
struct Scene {
    world: World,
    publisher: Publisher,
    pool: PgPool,
    stopwatch: Stopwatch,
    passed: Duration,
}

impl Scene {
    async fn new() -> Scene {
        let world = World::new().await;
        let options = db::Options {
            acquire_timeout: PATIENCE,
            application_name: "one",
            ..app::config::database_options(&world.dsn, 1)
        };
        let (pool, stopwatch) = (db::create_pool(&options).unwrap(), Stopwatch::new_stopped());
        let at = Arc::new(|_| std::future::ready(()).boxed());
        let hook = Hook { at, stopwatch: stopwatch.clone(), seed: 0 };
        let publisher = world.publisher_hooked_on(pool.clone(), hook).await;
        let mut scene = Scene { world, publisher, pool, stopwatch, passed: Duration::ZERO };
        scene.set_clock(Duration::ZERO).await;
        scene
    }

    async fn set_clock(&mut self, passed: Duration) {
        self.passed = passed;
        stop_clock(&self.world, passed).await;
    }

    /// A workflow whose schedule exists, and marks that have moved past its edit.
    async fn with_marks() -> (Scene, WorkflowId) {
        let mut scene = Scene::new().await;
        let workflow = scene.world.create("0 9 * * *", "UTC").await;
        scene.move_marks().await;
        assert_eq!(scene.world.publication(workflow).await.sync, "synced");
        (scene, workflow)
    }

    /// A drain at a later time.
    async fn drain_after(&mut self, time: Duration) -> Report {
        self.set_clock(self.passed + time).await;
        self.stopwatch.advance_by(time);
        self.drain().await
    }

    async fn move_marks(&mut self) {
        for _ in 0..STEPS {
            self.drain_after(STEP).await;
        }
    }

    async fn drain(&self) -> Report {
        self.publisher.drain_outbox(self.stopwatch.now() + PATIENCE).await.unwrap()
    }

    /// How many buffers of the publications the drains so far have touched.
    async fn touched(&self) -> i64 {
        sqlx::query("SELECT pg_stat_force_next_flush()").execute(&self.pool).await.unwrap();
        let touched = "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
                         FROM pg_statio_user_tables WHERE relname = 'publications'";
        sqlx::query_scalar(touched).fetch_one(&self.pool).await.unwrap()
    }
}

/// A session like a dump's: it sees the database as it is now until it ends.
async fn open_snapshot(world: &World) -> PgConnection {
    let mut dump = PgConnection::connect(&world.dsn).await.unwrap();
    let open = "SET idle_in_transaction_session_timeout = 0;
                BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM publications";
    sqlx::raw_sql(open).execute(&mut dump).await.unwrap();
    dump
}

/// Leaves what `edits` published edits leave in the index.
async fn leave_edits(world: &World, edits: u32) {
    let edit = "INSERT INTO publications (workflow_id, desired_revision, spec_hash, due_at)
                SELECT 1000000 + nth, 1, 'none', cronbox_now() - INTERVAL '10 seconds' - nth * INTERVAL '1 ms'";
    let settle = "UPDATE publications SET due_at = NULL WHERE workflow_id > 1000000 AND due_at IS NOT NULL";
    let rest = format!("FROM generate_series(1, {edits}) AS nth");
    let again = "ON CONFLICT (workflow_id) DO UPDATE SET due_at = excluded.due_at";
    execute(world, format!("{edit} {rest} {again}")).await;
    execute(world, settle.to_owned()).await;
}

/// A dump keeps the index entries of 1,000 edits, and then of 20,000. The drain finds nothing to do.
#[tokio::test]
async fn an_open_snapshot_slows_no_drain() {
    let mut scene = Scene::new().await;
    let dump = open_snapshot(&scene.world).await;
    let mut read = Vec::new();
    for edits in [1_000, 19_000] {
        leave_edits(&scene.world, edits).await;
        scene.move_marks().await;
        let before = scene.touched().await;
        scene.drain().await;
        read.push(scene.touched().await - before);
    }
    assert_flat("a drain that finds nothing", read[0], read[1]);
    dump.close().await.unwrap();
}

/// The claim by itself, for both lanes: with its mark, and at its limit of a batch.
#[tokio::test]
async fn a_claim_reads_from_its_mark() {
    let world = World::new().await;
    world.publish().await;
    let dump = open_snapshot(&world).await;
    let mark = "cronbox_now(), cronbox_now() - INTERVAL '1 second', cronbox_now() - INTERVAL '1 second'";
    let mut read = Vec::new();
    for edits in [1_000, 19_000] {
        leave_edits(&world, edits).await;
        execute(&world, "ANALYZE publications".to_owned()).await;
        let claim = format!("('x', 60, 100, 10, FALSE, 2, 0, 1000000, FALSE, {mark}, 100, 100, '{{}}')");
        read.push([
            buffers(&world, "claim: ", &claim).await,
            buffers(&world, "read marks", "(cronbox_now() - INTERVAL '1 second', cronbox_now(), NULL)").await,
            buffers(&world, "count remaining", &format!("({mark}, 100000)")).await,
            buffers(&world, "next due", "").await,
            buffers(&world, "next retry", "").await,
        ]);
    }
    for (nth, what) in ["claim", "read marks", "count remaining", "next due", "next retry"].into_iter().enumerate() {
        assert_flat(what, read[0][nth], read[1][nth]);
    }
    dump.close().await.unwrap();
}

/// Its transaction is open for longer than any margin. The marks wait for it, so the first drain after its commit finds it.
#[tokio::test]
async fn edits_that_commit_late_are_found() {
    let (mut scene, workflow) = Scene::with_marks().await;
    let edit = scene.world.open_patch(workflow, json!({"cron_schedule": "0 17 * * *"})).await;
    for _ in 0..4 {
        scene.drain_after(STEP).await;
    }
    edit.commit().await.unwrap();
    assert_eq!(scene.drain().await.updated, 1);
}

/// A publisher has died with a lease. The mark stays before it, so it is taken over when the lease ends, although no
/// complete reading is due.
#[tokio::test]
async fn marks_stay_before_leases() {
    let (mut scene, workflow) = Scene::with_marks().await;
    let lease = "UPDATE publications SET due_at = cronbox_now(), lease_owner = 'dead', attempt_count = 1,
                                         lease_until = cronbox_now() + INTERVAL '22 seconds'";
    execute(&scene.world, lease.to_owned()).await;
    for _ in 0..4 {
        assert_eq!(scene.drain_after(STEP).await.unchanged, 0);
        assert!(scene.world.publication(workflow).await.is_leased);
    }
    scene.drain_after(STEP).await;
    assert!(!scene.world.publication(workflow).await.is_leased);
}

/// A repair has waited for an hour when its workflow is edited, and the mark of the edits is later than that.
#[tokio::test]
async fn edits_of_old_repairs_are_found() {
    let (scene, workflow) = Scene::with_marks().await;
    let repair =
        "UPDATE publications SET is_repair = TRUE, due_at = cronbox_now() - INTERVAL '1 hour', drift = 'missing'";
    execute(&scene.world, repair.to_owned()).await;
    scene.world.patch(workflow, json!({"cron_schedule": "0 17 * * *"})).await;
    assert_eq!(scene.drain().await.updated, 1);
}

/// Only a manual statement makes a workflow due in the past.
#[tokio::test]
async fn past_due_times_are_found_each_minute() {
    let (mut scene, workflow) = Scene::with_marks().await;
    let past = "UPDATE publications SET due_at = cronbox_now() - INTERVAL '1 hour', spec_hash = NULL";
    execute(&scene.world, past.to_owned()).await;
    let mut drains = 0;
    while scene.world.publication(workflow).await.spec_hash.is_none() {
        drains += 1;
        assert!(STEP * drains <= Duration::from_secs(65), "it is not found");
        scene.drain_after(STEP).await;
    }
    assert!(drains > 1, "the marks were before it: this proves nothing");
}

/// The database's clock is set back by an hour, so edits are due before the marks.
#[tokio::test]
async fn a_clock_set_back_hides_no_edit() {
    let mut scene = Scene::new().await;
    scene.set_clock(Duration::from_secs(3600)).await;
    let workflow = scene.world.create("0 9 * * *", "UTC").await;
    scene.move_marks().await;
    scene.set_clock(Duration::ZERO).await;
    scene.world.patch(workflow, json!({"cron_schedule": "0 17 * * *"})).await;
    assert_eq!(scene.drain().await.updated, 1);
}
