//! The gauges cost the same, however many fires there were.

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
