//! The brake: if there are many unexplained deletes, disables and changes, they wait for force.

use std::time::Duration;

use publisher::{Findings, Swept};
use schedule::WorkflowId;
use serde_json::json;
use workflows::audit::Edit;

use super::SETTLED;
use crate::world::{LIST, World, soon};

impl World {
    /// 60 published and settled workflows; EventBridge's clock has advanced.
    async fn sixty(&self) -> Vec<WorkflowId> {
        let workflows = self.in_step(60).await;
        self.later();
        workflows
    }

    /// Changes all of them without cronbox.
    async fn change_crons(&self, workflows: &[WorkflowId]) {
        for id in workflows {
            self.change(*id, json!({"ScheduleExpression": "cron(0 1 * * ? *)"})).await;
        }
    }

    /// A sweep without force. While its call about `delayed` is delayed, an operator requests force.
    async fn sweep_forced_at(&self, delayed: &str) -> Findings {
        self.front.delay(delayed);
        let publisher = self.publisher().await;
        publisher.request_sweep("test").await.unwrap();
        let sweeping = tokio::spawn(async move { publisher.sweep_schedules(soon()).await.unwrap() });
        self.front.arrival(delayed).await;
        let edit = Edit::without_request("test", self.clock.now());
        let mut tx = db::begin_transaction(&self.pool).await.unwrap();
        workflows::drift::request_sweep(&mut tx, true, &edit).await.unwrap();
        tx.commit().await.unwrap();
        self.front.release();
        match sweeping.await.unwrap() {
            Swept::Done(findings) => findings,
            other => panic!("not done: {other:?}"),
        }
    }

    /// A sweep whose brake refuses all of these changes, and a drain that writes nothing.
    async fn sweep_is_braked(&self) -> Findings {
        let found = self.sweep().await;
        assert_eq!((found.changes_refused, found.repaired), (60, 0), "{found:?}");
        self.front.take_calls();
        self.publish().await;
        assert!(self.front.take_calls().is_empty());
        let columns = "SELECT changes_refused FROM sweeps ORDER BY id DESC LIMIT 1";
        assert_eq!(sqlx::query_scalar::<_, i64>(columns).fetch_one(&self.pool).await.unwrap(), 60);
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_changed_schedules_wait_for_force() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    world.change_crons(&workflows).await;
    assert_eq!(world.sweep_is_braked().await.changed, 60);
    let found = world.force_sweep().await;
    assert_eq!((found.changes_refused, found.repaired), (0, 60), "{found:?}");
    world.publish().await;
    for (minute, id) in workflows.iter().enumerate() {
        assert_eq!(world.expression(*id).await.unwrap(), format!("cron({minute} 9 * * ? *)"));
    }
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_reaches_a_running_sweep() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    world.change_crons(&workflows).await;
    let found = world.sweep_forced_at(LIST).await;
    assert_eq!((found.changed, found.changes_refused, found.repaired), (60, 0, 60), "{found:?}");
    world.publish().await;
    assert_eq!(world.expression(workflows[7]).await.unwrap(), "cron(7 9 * * ? *)");
    world.assert_settled().await;
}

/// The brake has already refused the changes, and the sweep is about to read its last orphan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_releases_what_its_sweep_refused() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    world.make_like(workflows[0], "wf-4711-dev").await;
    assert_eq!(world.sweep().await.orphans_waiting, 1);
    world.change_crons(&workflows).await;
    world.skip(SETTLED + Duration::from_secs(12 * 60)).await;
    let found = world.sweep_forced_at("wf-4711-dev").await;
    assert_eq!((found.changes_refused, found.repaired, found.orphans_deleted), (0, 60, 1), "{found:?}");
    world.publish().await;
    assert_eq!(world.expression(workflows[7]).await.unwrap(), "cron(7 9 * * ? *)");
    assert!(!world.exists("wf-4711-dev").await);
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_disabled_schedules_return_without_force() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    for id in &workflows {
        world.change(*id, json!({"State": "DISABLED"})).await;
    }
    let found = world.sweep().await;
    assert_eq!((found.disabled_out_of_band, found.repaired, found.changes_refused), (60, 60, 0), "{found:?}");
    world.publish().await;
    for id in workflows {
        assert_eq!(world.schedule(id).await.unwrap()["State"], "ENABLED");
    }
}

/// Neither an edit nor a generation explains these disables, not even during a rollout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_unexplained_disables_wait_for_force() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    world
        .execute(
            "SET session_replication_role = replica; UPDATE workflows SET state = 'paused';
             RESET session_replication_role; UPDATE config_generation SET rolled_out_on = NULL",
        )
        .await;
    world.sweep_is_braked().await;
    for id in workflows {
        assert_eq!(world.schedule(id).await.unwrap()["State"], "ENABLED");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_unexplained_deletes_wait_for_force() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    world
        .execute(
            "SET session_replication_role = replica; UPDATE workflows SET cron_schedule = NULL;
             RESET session_replication_role",
        )
        .await;
    world.sweep_is_braked().await;
    assert_eq!(world.existing(&workflows).await, 60);
    world.force_sweep().await;
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_without_generation_waits_for_force() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    let role = "arn:aws:iam::123456789012:role/another";
    let config = publisher::Config { scheduler_role_arn: role.to_owned(), ..world.config() };
    let publisher = world.publisher_with(config).await;
    publisher.request_sweep("test").await.unwrap();
    let Swept::Done(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!() };
    assert_eq!((found.changes_refused, found.explained, found.repaired), (60, 0, 0), "{found:?}");
    publisher.drain_outbox(soon()).await.unwrap();
    assert_ne!(world.schedule(workflows[0]).await.unwrap()["Target"]["RoleArn"], role);
}

/// The brake never stops edits, whatever their number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_are_never_braked() {
    let world = World::new().await;
    let workflows = world.sixty().await;
    for id in &workflows {
        world.set_state(*id, workflows::State::Paused).await;
    }
    assert_eq!(world.publish().await.updated, 60);
    world.skip(SETTLED + Duration::from_secs(600)).await;
    assert_eq!(world.sweep().await.total_drift(), 0);
}
