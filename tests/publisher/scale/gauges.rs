//! The gauges cost the same, however many fires there were.

use sqlx::{Connection as _, PgConnection};

use super::statement::{assert_flat, buffers, execute};
use crate::world::World;

/// Fires of the last hour, of which one in a thousand of the first thousand was missed, with their runs.
fn fires(from: u32, to: u32, workflow: i64) -> String {
    format!(
        "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, run_id, lateness_s, decided_on, created_on, updated_on)
         SELECT gen_random_uuid(), {workflow}, date_trunc('minute', now(), 'UTC') - nth * INTERVAL '1 minute',
                CASE WHEN nth <= 10 THEN 'missed' ELSE 'fired' END, gen_random_uuid(), 0, cronbox_now(), now(), now()
           FROM generate_series({from}, {to}) AS nth;
         INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, finished_on)
         SELECT gen_random_uuid(), {workflow}, 'manual', CASE WHEN nth <= 10 THEN 'abandoned' ELSE 'succeeded' END,
                now(), now(), cronbox_now()
           FROM generate_series({from}, {to}) AS nth"
    )
}

/// A dump keeps the index entries of 2,000 published edits, and then of 40,000.
#[tokio::test]
async fn the_lag_is_read_from_its_mark() {
    let world = World::new().await;
    let mut dump = PgConnection::connect(&world.dsn).await.unwrap();
    let open = "SET idle_in_transaction_session_timeout = 0;
                BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox_events";
    sqlx::raw_sql(open).execute(&mut dump).await.unwrap();
    let mut read = Vec::new();
    for edits in [2_000, 38_000] {
        let edit = "INSERT INTO outbox_events (aggregate_id, op, created_on) SELECT nth, 'upsert', now()";
        execute(&world, format!("{edit} FROM generate_series(1, {edits}) AS nth")).await;
        execute(&world, "UPDATE outbox_events SET processed_on = now() WHERE processed_on IS NULL".to_owned()).await;
        execute(&world, "ANALYZE outbox_events".to_owned()).await;
        let newest: i64 = sqlx::query_scalar("SELECT max(id) FROM outbox_events").fetch_one(&world.pool).await.unwrap();
        read.push(buffers(&world, "lag: ", &format!("({})", newest - 100)).await);
    }
    assert_flat("lag", read[0], read[1]);
    dump.close().await.unwrap();
}

#[tokio::test]
async fn gauges_read_only_exceptions() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let mut read = Vec::new();
    for (from, to) in [(1, 2_000), (2_001, 40_000)] {
        execute(&world, fires(from, to, workflow.0)).await;
        execute(&world, "ANALYZE occurrences; ANALYZE runs".to_owned()).await;
        read.push([
            buffers(&world, "decisions of the last hour", "").await,
            buffers(&world, "runs abandoned in the last hour", "").await,
        ]);
    }
    assert_flat("decisions", read[0][0], read[1][0]);
    assert_flat("runs abandoned", read[0][1], read[1][1]);
}
