//! Edits that were published cost the publisher nothing.

use super::statement::{assert_flat, buffers, execute};
use crate::world::World;

/// The open edit of a workflow that has 2,000 and then 40,000 published edits. Claims, settles and gauges do not read those.
#[tokio::test]
async fn published_edits_cost_claims_nothing() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let mut read = Vec::new();
    for edits in [2_000, 38_000] {
        let published = format!(
            "INSERT INTO outbox_events (aggregate_id, op, created_on, processed_on)
             SELECT {workflow}, 'upsert', now(), now() FROM generate_series(1, {edits})"
        );
        execute(&world, published).await;
        execute(&world, "VACUUM ANALYZE outbox_events".to_owned()).await;
        read.push([
            buffers(&world, "cover: ", &format!("(ARRAY[{workflow}], 'test', 60)")).await,
            buffers(&world, "superseded: ", &format!("(ARRAY[{workflow}], ARRAY[0])")).await,
            buffers(&world, "lag: ", "(NULL)").await,
            buffers(&world, "failed rows", "").await,
        ]);
    }
    for (nth, what) in ["cover", "superseded", "lag", "failed rows"].into_iter().enumerate() {
        assert_flat(what, read[0][nth], read[1][nth]);
    }
    assert!(read[1][0] < 30, "the claim reads {} buffers, so it reads each day", read[1][0]);
}
