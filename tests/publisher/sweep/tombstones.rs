//! Records of deleted workflows are removed when nothing can need them.

use std::time::Duration;

use schedule::WorkflowId;

use crate::world::World;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tombstones_go_after_a_month() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    world.delete(workflows[0]).await;
    world.publish().await;
    // An orphan that disappears without us leaves no row, either.
    world.make_like(workflows[1], "wf-4711-dev").await;
    assert_eq!(world.sweep().await.orphan, 1);
    world.remove(WorkflowId(4711)).await;
    let count = async || {
        let publications = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM publications");
        publications.fetch_one(&world.pool).await.unwrap()
    };
    world.skip(DAY * 29).await;
    world.sweep().await;
    assert_eq!(count().await, 2);
    world.skip(DAY * 31).await;
    world.sweep().await;
    assert_eq!(count().await, 1, "the publication of the existing workflow stays");
    let left = sqlx::query_scalar::<_, i64>(
        "SELECT (SELECT COUNT(*) FROM sweep_sightings) + (SELECT COUNT(*) FROM orphans) + (SELECT COUNT(*) FROM sweep_changes)",
    );
    assert_eq!(left.fetch_one(&world.pool).await.unwrap(), 1, "the sighting of the existing workflow");
}
