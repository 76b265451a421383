//! Rows of `workflows` vanish without the app: a partial restore, a DELETE by SQL, or a bug in another program.

use std::time::Duration;

use schedule::WorkflowId;
use serde_json::json;
use workflows::outbox::{self, OrphanCleanup};

use super::SETTLED;
use crate::world::{World, name, soon};

const MINUTE: Duration = Duration::from_secs(60);

impl World {
    /// Deletes all rows of `workflows`, and nothing else.
    async fn lose_workflows(&self) {
        self.execute(
            "SET session_replication_role = replica; CREATE TABLE lost AS TABLE workflows; DELETE FROM workflows;
             RESET session_replication_role",
        )
        .await;
    }

    /// Deletes one row without the app.
    pub(super) async fn lose_workflow(&self, id: WorkflowId) {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await.unwrap();
        sqlx::query("DELETE FROM workflows WHERE id = $1").bind(id.0).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Workflows whose rows vanished, whose schedules an operator deleted with force, and whose rows were then
    /// restored.
    async fn forced_and_returned(&self, count: usize) -> Vec<WorkflowId> {
        let workflows = self.in_step(count).await;
        self.lose_workflows().await;
        self.sweep().await;
        self.skip(SETTLED + MINUTE * 12).await;
        assert_eq!(self.force_sweep().await.orphans_deleted, count as u64);
        self.publish().await;
        assert_eq!(self.existing(&workflows).await, 0);
        self.return_workflows().await;
        self.skip(SETTLED + MINUTE * 30).await;
        workflows
    }

    /// A fire of a workflow without a row requests a check of its schedule.
    async fn clean_up(&self, id: WorkflowId) -> OrphanCleanup {
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        let cleanup = outbox::enqueue_orphan_cleanup(&mut tx, id, self.clock.now()).await.unwrap();
        tx.commit().await.unwrap();
        cleanup
    }

    /// Restores the vanished rows.
    async fn return_workflows(&self) {
        self.execute(
            "SET session_replication_role = replica; INSERT INTO workflows OVERRIDING SYSTEM VALUE TABLE lost;
             DROP TABLE lost; RESET session_replication_role",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_of_vanished_workflows_stay() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    world.lose_workflows().await;
    for round in 1..=3 {
        world.skip(SETTLED + MINUTE * 12 * round).await;
        let found = world.sweep().await;
        assert_eq!((found.orphan, found.changed, found.orphans_deleted), (60, 0, 0), "{found:?}");
        assert_eq!(found.orphans_refused, if round == 1 { 0 } else { 60 }, "{found:?}");
        world.publish().await;
        assert_eq!(world.existing(&workflows).await, 60);
    }

    world.return_workflows().await;
    world.skip(SETTLED + MINUTE * 50).await;
    assert_eq!(world.sweep().await.total_drift(), 0);
    for id in workflows {
        assert_eq!(world.publication(id).await.sync, "synced");
    }
    world.assert_settled().await;
}

/// An operator forces the deletion, and then restores the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returned_workflows_get_their_schedules_back() {
    let world = World::new().await;
    let workflows = world.forced_and_returned(60).await;
    let found = world.sweep().await;
    assert_eq!((found.missing, found.repaired), (60, 60), "{found:?}");
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 60);
    world.assert_settled().await;
}

/// The operator's force does not apply when the same rows vanish a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_deletions_permit_no_second_one() {
    let world = World::new().await;
    let workflows = world.forced_and_returned(60).await;
    world.sweep().await;
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 60);

    world.lose_workflows().await;
    assert_eq!(world.clean_up(workflows[0]).await, OrphanCleanup::Enqueued);
    assert_eq!(world.publish().await.deleted, 0, "a fire deletes nothing");
    for round in 1..=3 {
        world.skip(SETTLED + MINUTE * (30 + 12 * round)).await;
        let found = world.sweep().await;
        assert_eq!((found.orphan, found.changed, found.orphans_deleted), (60, 0, 0), "{found:?}");
        assert_eq!(found.orphans_refused, if round == 1 { 0 } else { 60 }, "{found:?}");
        assert_eq!(world.publish().await.deleted, 0);
        assert_eq!(world.existing(&workflows).await, 60);
    }
}

/// A forced deletion by an older version left a permission. After the migration, it permits nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_ends_permissions_of_wanted_schedules() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    world.delete(workflows[0]).await;
    world.execute("UPDATE publications SET removal_revision = desired_revision").await;
    world.execute(include_str!("../../../migrations/0037_removal_ends.sql")).await;
    world.lose_workflows().await;
    world.execute("UPDATE publications SET spec_hash = NULL, due_at = cronbox_now()").await;
    assert_eq!(world.publish().await.deleted, 1, "only the workflow that was deleted");
    assert!(world.schedule(workflows[1]).await.is_some());
}

/// A workflow is deleted while it is being published. The delete must still happen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_during_calls_remove_without_a_row() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.patch(workflow, json!({"cron_schedule": "30 17 * * *"})).await;
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.arrival(&name(workflow)).await;
    world.delete(workflow).await;
    world.front.release();
    let report = draining.await.unwrap();
    assert_eq!((report.updated, report.deleted), (1, 1), "{report:?}");
    assert_eq!(world.existing(&[workflow]).await, 0);
    world.assert_settled().await;
}

/// A fire of a vanished workflow requests a check of its schedule, but that is not a delete event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fire_deletes_no_vanished_workflow() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.lose_workflows().await;
    world.freeze_clock().await;
    assert_eq!(world.clean_up(workflow).await, OrphanCleanup::Enqueued);
    let report = world.publish().await;
    assert_eq!((report.deleted, report.retried), (0, 1), "{report:?}");
    let publication = world.publication(workflow).await;
    assert!(publication.last_error.unwrap().contains("row is missing"), "an operator reads why");

    world.return_workflows().await;
    world.skip(SETTLED + MINUTE * 16).await;
    world.publish().await;
    assert_eq!((world.existing(&[workflow]).await, world.publication(workflow).await.sync.as_str()), (1, "synced"));
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_event_removes_without_a_row() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    world.delete(workflows[0]).await;
    world.execute("DELETE FROM outbox_events").await;
    assert_eq!(world.publish().await.deleted, 1, "what the event asked for outlives the event");
    assert_eq!(world.existing(&workflows).await, 1);

    // An edit that restores the schedule is newer than the delete event.
    world.patch(workflows[1], json!({"cron_schedule": null})).await;
    world.publish().await;
    world.patch(workflows[1], json!({"cron_schedule": "30 17 * * *"})).await;
    world.publish().await;
    world.lose_workflows().await;
    world.execute("UPDATE publications SET spec_hash = NULL, due_at = cronbox_now()").await;
    assert_eq!(world.publish().await.deleted, 1, "only the workflow that was deleted");
    assert_eq!(world.existing(&workflows).await, 1);
}

/// The edit decides which op it enqueues: `delete` if no schedule is desired afterwards (ADR 14).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_edits_that_end_schedules_enqueue_deletes() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..5 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    let [edited, paused, cleared, archived, deleted] = workflows[..] else { panic!() };
    world.patch(edited, json!({"cron_schedule": "0 10 * * *"})).await;
    world.set_state(paused, workflows::State::Paused).await;
    world.patch(cleared, json!({"cron_schedule": null})).await;
    world.set_state(archived, workflows::State::Archived).await;
    world.delete(deleted).await;
    let newest = async |id: WorkflowId| {
        let query = "SELECT op FROM outbox_events WHERE aggregate_id = $1 ORDER BY id DESC LIMIT 1";
        sqlx::query_scalar::<_, String>(query).bind(id.0).fetch_one(&world.pool).await.unwrap()
    };
    for (id, op) in workflows.iter().zip(["upsert", "upsert", "delete", "delete", "delete"]) {
        assert_eq!(newest(*id).await, op);
    }
}
