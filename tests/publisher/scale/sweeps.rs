//! The statements of a sweep read a slice, and leave nothing to delete.

use std::time::Duration;

use publisher::Swept;

use super::statement::{assert_flat, buffers, execute};
use crate::world::{World, soon};

/// Workflows that are published and were listed by the sweep 1, except every thousandth.
fn swept(from: u32, to: u32) -> String {
    format!(
        "SET session_replication_role = replica;
         INSERT INTO workflows (id, team_id, name, action, cron_schedule, timezone, revision, created_on, updated_on)
             OVERRIDING SYSTEM VALUE
             SELECT nth, 1, 'many ' || nth, '{{}}', '0 9 * * *', 'UTC', 1, cronbox_now(), cronbox_now()
               FROM generate_series({from}, {to}) AS nth;
         INSERT INTO publications (workflow_id, desired_revision, applied_revision, applied_on, spec_hash, schedule_name)
             SELECT nth, 1, 1, cronbox_now() - INTERVAL '1 day', 'x', 'wf-' || nth || '-dev'
               FROM generate_series({from}, {to}) AS nth;
         INSERT INTO sweep_sightings (workflow_id, sweep_id)
             SELECT nth, 1 FROM generate_series({from}, {to}) AS nth WHERE nth % 1000 <> 0;
         RESET session_replication_role"
    )
}

/// The statements at the end of a sweep of 3,000 and then of 60,000 workflows, with slices of 1,000.
#[tokio::test]
async fn sweep_ends_read_a_slice() {
    let world = World::new().await;
    let open = "INSERT INTO sweeps (requested_by, requested_on, started_on, listed_on)
                VALUES ('test', cronbox_now(), cronbox_now(), cronbox_now())";
    execute(&world, open.to_owned()).await;
    let mut read = Vec::new();
    for (from, to) in [(1, 3_000), (3_001, 60_000)] {
        execute(&world, swept(from, to)).await;
        execute(&world, "VACUUM ANALYZE workflows".to_owned()).await;
        execute(&world, "VACUUM ANALYZE publications".to_owned()).await;
        execute(&world, "VACUUM ANALYZE sweep_sightings".to_owned()).await;
        read.push([
            buffers(&world, "end of slice", "(1000, 1000)").await,
            buffers(&world, "enqueue missing", "(1, 1000, 2000, cronbox_now(), 2000)").await,
            buffers(&world, "enqueue never published", "(1, 2000, cronbox_now(), 1000, 2000)").await,
            buffers(&world, "forget unlisted", "(2, 1000, 1100)").await,
            buffers(&world, "tombstones: ", "(1000, 2000, 1000)").await,
            buffers(&world, "sight: ", "(2, ARRAY[1001, 1002, 1003, 1004, 1005])").await,
            buffers(&world, "finish: ", "(1)").await,
        ]);
    }
    let statements = [
        "end of slice",
        "enqueue missing",
        "enqueue never published",
        "forget unlisted",
        "tombstones",
        "sight",
        "finish",
    ];
    for (nth, what) in statements.into_iter().enumerate() {
        assert_flat(what, read[0][nth], read[1][nth]);
    }
}

/// A sweep was killed after it had searched the first half for missing schedules. The next publisher searches the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_search_is_continued() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..6 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    world.publish().await;
    world.skip(Duration::from_secs(120)).await;
    let killed = format!(
        "INSERT INTO sweeps (requested_by, requested_on, started_on, listed_on, missing_after)
         VALUES ('test', cronbox_now(), cronbox_now(), cronbox_now(), {})",
        workflows[2]
    );
    execute(&world, killed).await;
    let publisher = world.publisher().await;
    let Swept::Done(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("it is not done") };
    assert_eq!((found.missing, found.repaired), (3, 3), "none of the six was listed: {found:?}");
    let due =
        "SELECT array_agg(workflow_id ORDER BY workflow_id) FROM publications WHERE drift = 'missing' AND is_repair";
    let due: Vec<i64> = sqlx::query_scalar(due).fetch_one(&world.pool).await.unwrap();
    assert_eq!(due, workflows[3..].iter().map(|id| id.0).collect::<Vec<i64>>());
}

/// The version before writes what it lists to another table. A sweep that it had begun found all of that missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_older_versions_begin_again() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    world.skip(Duration::from_secs(120)).await;
    let listed = format!(
        "WITH open AS (
            INSERT INTO sweeps (requested_by, requested_on, started_on, listed_on)
            VALUES ('test', cronbox_now(), cronbox_now(), cronbox_now())
            RETURNING id
         )
         INSERT INTO sightings (sweep_id, workflow_id) SELECT id, {workflow} FROM open"
    );
    execute(&world, listed).await;
    let publisher = world.publisher().await;
    let Swept::Done(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("it is not done") };
    assert_eq!((found.listed, found.missing, found.repaired), (1, 0, 0), "{found:?}");
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM sightings").fetch_one(&world.pool).await.unwrap();
    assert_eq!(kept, 0);
}

/// Each sweep updates the sightings in place: after three sweeps there is one row per schedule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_leave_one_sighting_each() {
    let world = World::new().await;
    for _ in 0..5 {
        world.create("0 9 * * *", "UTC").await;
    }
    world.publish().await;
    for sweep in 1..=3 {
        world.skip(Duration::from_secs(120 * sweep)).await;
        assert_eq!(world.sweep().await.total_drift(), 0);
        let seen = "SELECT COUNT(*), COUNT(DISTINCT sweep_id) FROM sweep_sightings";
        let seen: (i64, i64) = sqlx::query_as(seen).fetch_one(&world.pool).await.unwrap();
        assert_eq!(seen, (5, 1));
    }
}

/// A sweep begins, the first one and a later one; and `--once` asks whether a workflow is due.
#[tokio::test]
async fn sweeps_begin_without_a_count() {
    let world = World::new().await;
    let requested = "INSERT INTO sweeps (requested_by, requested_on) VALUES ('test', cronbox_now())";
    execute(&world, requested.to_owned()).await;
    let mut read = Vec::new();
    for (from, to) in [(1, 3_000), (3_001, 60_000)] {
        execute(&world, swept(from, to)).await;
        execute(&world, "VACUUM ANALYZE publications".to_owned()).await;
        read.push([buffers(&world, "take: ", "('test', 60, 100)").await, buffers(&world, "has due: ", "").await]);
    }
    for (nth, what) in ["take", "has due"].into_iter().enumerate() {
        assert_flat(what, read[0][nth], read[1][nth]);
    }
}

/// A sweep reads a hundred of the schedules, however many there are; their number is what the last sweep listed.
#[tokio::test]
async fn samples_follow_the_last_sweep() {
    let world = World::new().await;
    let last = "INSERT INTO sweeps (requested_by, requested_on, started_on, finished_on, report)
                VALUES ('test', cronbox_now(), cronbox_now(), cronbox_now(), '{\"listed\": 25000}')";
    execute(&world, last.to_owned()).await;
    let publisher = world.publisher().await;
    publisher.request_sweep("test").await.unwrap();
    let Swept::Done(_) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("it is not done") };
    let sample = sqlx::query_scalar::<_, i64>("SELECT sample_every FROM sweeps ORDER BY id DESC LIMIT 1");
    assert_eq!(sample.fetch_one(&world.pool).await.unwrap(), 251);
}
