//! Published workflows cost a settle nothing.

use serde_json::{Value, json};

use super::statement::{assert_flat, buffers, execute};
use crate::world::World;

const BATCH: i64 = 64;

/// A settle of 64 workflows beside 1,000 and then 30,000 published ones, of which Postgres has no statistics. No plan reads all
/// publications, neither one for these arguments nor the generic one.
#[tokio::test]
async fn a_settle_reads_its_own_publications() {
    let world = World::new().await;
    let settled: Vec<Value> = (1..=BATCH)
        .map(|workflow| {
            json!({
                "workflow_id": workflow, "seen": workflow, "attempt": 1, "revision": 1, "spec_hash": "hash",
                "was_known": false, "repairs": 0, "schedule_name": "name", "template": 1, "changes_on": null,
                "is_verified": false, "is_in_doubt": false, "is_superseded": false,
            })
        })
        .collect();
    let argument = format!("('{}')", Value::Array(settled));
    let mut read = Vec::new();
    for count in [1_000, 30_000] {
        let published = format!(
            "INSERT INTO publications (workflow_id, desired_revision, applied_revision, spec_hash)
             SELECT nth, 1, 1, 'hash' FROM generate_series(1, {count}) AS nth
             ON CONFLICT DO NOTHING"
        );
        execute(&world, published).await;
        read.push(buffers(&world, "settle published", &argument).await);
    }
    assert_flat("settle published", read[0], read[1]);
}
