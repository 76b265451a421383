//! What sweeps find and do not repair, and what keeps vacuum from dead rows.

use local::stack::GROUP;
use schedule::WorkflowId;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::edits::{RARELY, plan_faults, recover};
use crate::scene::Scene;

/// Longer than the time between two sweeps.
const SWEPT: usize = 16;

#[tokio::test]
async fn a_deleted_schedule_is_not_repaired() {
    let mut scene = Scene::with_daemon().await;
    let workflow = scene.create(RARELY, "UTC").await;
    scene.observe(SWEPT).await;
    scene.silent("drift", "CronboxDrift");
    plan_faults(&scene, json!([{"kind": "error_before", "chance": 1.0, "operations": ["CreateSchedule"]}]));
    let name = format!("wf-{workflow}-dev");
    scene.scheduler.delete_schedule().group_name(GROUP).name(name).send().await.unwrap();
    for _ in 0..4 {
        scene.observe(SWEPT).await;
    }
    scene.rings("drift", "CronboxDrift");
    recover(&mut scene).await;
    scene.walk("drift", &[]).await.shows("missing");
    scene.observe(1).await;
    scene.observe(30).await;
    scene.silent("drift", "CronboxDrift");
    assert_ne!(scene.schedule(workflow), "none");
    scene.end().await;
}

#[tokio::test]
async fn many_schedules_belong_to_no_workflow() {
    let mut scene = Scene::with_daemon().await;
    scene.create(RARELY, "UTC").await;
    scene.observe(SWEPT).await;
    scene.silent("orphans-refused", "CronboxOrphansRefused");
    for id in 1001..=1012 {
        scene.create_orphan(WorkflowId(id)).await;
    }
    for _ in 0..3 {
        scene.observe(SWEPT).await;
    }
    scene.rings("orphans-refused", "CronboxOrphansRefused");
    scene.walk("orphans-refused", &[]).await.shows("orphan");
    scene.observe(1).await;
    scene.observe(SWEPT).await;
    scene.silent("orphans-refused", "CronboxOrphansRefused");
    assert_eq!(scene.schedule(WorkflowId(1001)), "none");
    scene.end().await;
}

#[tokio::test]
async fn many_changes_have_no_edit() {
    let mut scene = Scene::with_daemon().await;
    let mut workflows = Vec::new();
    for _ in 0..12 {
        workflows.push(scene.create(RARELY, "UTC").await);
    }
    scene.observe(SWEPT).await;
    scene.silent("changes-refused", "CronboxChangesRefused");
    let past_the_app = "SET session_replication_role = replica; UPDATE workflows SET cron_schedule = '0 1 29 2 *';
                        RESET session_replication_role";
    scene.execute(past_the_app).await;
    for _ in 0..2 {
        scene.observe(SWEPT).await;
    }
    scene.rings("changes-refused", "CronboxChangesRefused");
    scene.walk("changes-refused", &[]).await;
    scene.observe(1).await;
    scene.observe(SWEPT).await;
    scene.silent("changes-refused", "CronboxChangesRefused");
    assert_eq!(scene.schedule(workflows[0]), "cron(0 1 29 2 ? *) UTC ENABLED");
    scene.end().await;
}

#[tokio::test]
async fn no_sweep_can_list() {
    let mut scene = Scene::with_daemon().await;
    scene.create(RARELY, "UTC").await;
    scene.observe(6).await;
    scene.silent("sweep-age", "CronboxSweepOld");
    plan_faults(&scene, json!([{"kind": "throttle", "chance": 1.0, "operations": ["ListSchedules"]}]));
    scene.skip(65).await;
    scene.observe(1).await;
    scene.observe(11).await;
    scene.rings("sweep-age", "CronboxSweepOld");
    scene.walk("sweep-age", &[]).await.shows("throttles");
    recover(&mut scene).await;
    scene.observe(1).await;
    scene.observe(6).await;
    scene.silent("sweep-age", "CronboxSweepOld");
    scene.end().await;
}

/// Two million transactions take minutes: here each counts as a thousand.
const A_THOUSAND_FOLD: &str = "
    ALTER FUNCTION cronbox_xmin_age() RENAME TO real_xmin_age;
    CREATE FUNCTION cronbox_xmin_age() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
        AS 'SELECT 1000 * real_xmin_age()'";

#[tokio::test]
async fn an_open_transaction_blocks_vacuum() {
    let mut scene = Scene::with_daemon().await;
    scene.execute(A_THOUSAND_FOLD).await;
    scene.observe(6).await;
    scene.silent("xmin-age", "CronboxVacuumBlocked");
    let mut session = PgConnection::connect(&scene.owner_dsn()).await.unwrap();
    let open =
        "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM workflows";
    sqlx::raw_sql(open).execute(&mut session).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session).await.unwrap();
    scene.execute("DO $$ BEGIN FOR nth IN 1..2500 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$").await;
    scene.observe(12).await;
    scene.rings("xmin-age", "CronboxVacuumBlocked");
    scene.walk("xmin-age", &[("PID", pid.to_string())]).await.shows("idle in transaction");
    scene.observe(6).await;
    scene.silent("xmin-age", "CronboxVacuumBlocked");
    drop(session);
    scene.end().await;
}
