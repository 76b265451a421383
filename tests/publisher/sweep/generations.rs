//! A raised generation is rolled out with canaries. Publishers of an older generation publish nothing.

use publisher::{Config, Findings, Publisher, Swept};
use schedule::WorkflowId;
use serde_json::json;

use super::SETTLED;
use crate::proxy::{DENIED, INVALID};
use crate::world::{GROUP, World, name, soon};

const ROLE: &str = "arn:aws:iam::123456789012:role/another";

impl World {
    /// A publisher of the deployment `generation`, which gives schedules another role.
    async fn publisher_of(&self, generation: i64) -> Publisher {
        self.publisher_with(self.config_of(generation)).await
    }

    fn config_of(&self, generation: i64) -> Config {
        Config { scheduler_role_arn: ROLE.to_owned(), config_generation: generation, api_tps: 100, ..self.config() }
    }

    /// How many schedules have the new role.
    async fn count_rolled_out(&self, workflows: &[WorkflowId]) -> usize {
        let mut rolled_out = 0;
        for id in workflows {
            let schedule = self.schedule(*id).await.unwrap();
            rolled_out += usize::from(schedule["Target"]["RoleArn"] == ROLE);
        }
        rolled_out
    }

    async fn is_rolled_out(&self) -> bool {
        let query = "SELECT rolled_out_on IS NOT NULL FROM config_generation";
        sqlx::query_scalar(query).fetch_one(&self.pool).await.unwrap()
    }
}

async fn sweep_by(publisher: &Publisher) -> Findings {
    publisher.request_sweep("test").await.unwrap();
    match publisher.sweep_schedules(soon()).await.unwrap() {
        Swept::Done(found) => found,
        other => panic!("not done: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_generation_rolls_out_behind_canaries() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    assert!(world.is_rolled_out().await);
    let publisher = world.publisher_of(1).await;
    let found = sweep_by(&publisher).await;
    assert_eq!((found.explained, found.changes_refused, found.repaired), (60, 0, 0), "{found:?}");
    assert!(!world.is_rolled_out().await);
    world.front.take_calls();
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().updated, 60);
    let canaries: Vec<String> = workflows[..10].iter().map(|id| name(*id)).collect();
    let calls = world.front.take_calls();
    assert!(calls[..10].iter().all(|call| canaries.contains(&call.name)), "{calls:?}");
    assert_eq!(world.count_rolled_out(&workflows).await, 60);
    world.skip(SETTLED * 2).await;
    assert_eq!(sweep_by(&publisher).await.total_drift(), 0);
    assert!(world.is_rolled_out().await);
    world.assert_settled().await;
}

/// EventBridge refuses each read of the first sweep. If that ended the rollout, the brake would refuse the sixty changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_schedules_keep_the_rollout_open() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    let publisher = world.publisher_of(1).await;
    for id in &workflows {
        world.front.next(&name(*id), [DENIED]);
    }
    let found = sweep_by(&publisher).await;
    assert_eq!((found.unread, found.explained), (60, 0), "{found:?}");
    assert!(!world.is_rolled_out().await);

    let found = sweep_by(&publisher).await;
    assert_eq!((found.unread, found.explained, found.changes_refused), (0, 60, 0), "{found:?}");
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.count_rolled_out(&workflows).await, 60);
    world.skip(SETTLED * 2).await;
    assert_eq!(sweep_by(&publisher).await.total_drift(), 0);
    assert!(world.is_rolled_out().await);
}

/// SQL statements have changed twelve of sixty crons without the API. A new configuration does not explain that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_generation_explains_no_other_cron() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    let (changed, others) = workflows.split_at(12);
    world
        .execute(
            "UPDATE workflows SET cron_schedule = '0 1 * * *', revision = revision + 1
              WHERE id IN (SELECT id FROM workflows ORDER BY id LIMIT 12)",
        )
        .await;
    let publisher = world.publisher_of(1).await;
    let found = sweep_by(&publisher).await;
    assert_eq!((found.explained, found.changes_refused, found.repaired), (48, 12, 0), "{found:?}");
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!((world.count_rolled_out(others).await, world.count_rolled_out(changed).await), (48, 0));
    for (minute, id) in changed.iter().enumerate() {
        assert_eq!(world.expression(*id).await.unwrap(), format!("cron({minute} 9 * * ? *)"));
    }

    world.execute("INSERT INTO sweeps (requested_by, force, requested_on) VALUES ('key:x', TRUE, cronbox_now())").await;
    assert_eq!(sweep_by(&publisher).await.repaired, 12);
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.count_rolled_out(&workflows).await, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_canary_stops_the_rollout() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    let publisher = world.publisher_of(1).await;
    sweep_by(&publisher).await;
    world.front.always(&name(workflows[3]), Some(INVALID));
    publisher.drain_outbox(soon()).await.unwrap();
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.count_rolled_out(&workflows).await, 9, "nine of ten canaries, and nothing else");

    world.front.always(&name(workflows[3]), None);
    world.patch(workflows[3], json!({"cron_schedule": "0 12 * * *"})).await;
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.count_rolled_out(&workflows).await, 60, "the canary has succeeded: the rest follows");
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_passes_a_failing_canary() {
    let world = World::new().await;
    let workflows = world.in_step(30).await;
    let publisher = world.publisher_of(1).await;
    sweep_by(&publisher).await;
    world.front.always(&name(workflows[3]), Some(INVALID));
    publisher.drain_outbox(soon()).await.unwrap();
    world.execute("INSERT INTO sweeps (requested_by, force, requested_on) VALUES ('key:x', TRUE, cronbox_now())").await;
    sweep_by(&publisher).await;
    publisher.drain_outbox(soon()).await.unwrap();
    assert_eq!(world.count_rolled_out(&workflows).await, 29);
}

/// With `CRONBOX_API_TPS` 10, at most ten repairs are due at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_overtakes_the_rollout() {
    let world = World::new().await;
    let workflows = world.in_step(40).await;
    let edited = workflows[39];
    let publisher = world.publisher_with(Config { api_tps: 10, ..world.config_of(1) }).await;
    sweep_by(&publisher).await;
    world.front.take_calls();
    world.front.delay(&name(workflows[0]));
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    world.front.arrival(&name(workflows[0])).await;
    world.patch(edited, json!({"cron_schedule": "0 12 * * *"})).await;
    world.front.release();
    draining.await.unwrap().unwrap();
    let calls = world.front.take_calls();
    let place = calls.iter().position(|call| call.name == name(edited)).unwrap();
    assert!(place < 25, "after {place} of {} calls", calls.len());
    assert_eq!(world.expression(edited).await.unwrap(), "cron(0 12 * * ? *)");
    assert_eq!(world.count_rolled_out(&workflows).await, 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_generation_publishes_nothing() {
    let world = World::new().await;
    let workflows = world.in_step(3).await;
    let newer = world.publisher_of(2).await;
    newer.drain_outbox(soon()).await.unwrap();
    world.patch(workflows[0], json!({"cron_schedule": "0 12 * * *"})).await;
    world.front.take_calls();

    let older = world.publisher_with(Config { config_generation: 1, ..world.config() }).await;
    let report = older.drain_outbox(soon()).await.unwrap();
    assert_eq!((report.processed, report.remaining), (0, 1), "{report:?}");
    older.request_sweep("test").await.unwrap();
    assert_eq!(older.sweep_schedules(soon()).await.unwrap(), Swept::NotNow);
    assert!(older.publish_once().await.unwrap_err().to_string().contains("CRONBOX_CONFIG_GENERATION"));
    assert!(world.front.take_calls().is_empty());

    assert_eq!(newer.drain_outbox(soon()).await.unwrap().updated, 1);
    assert_eq!(world.schedule(workflows[0]).await.unwrap()["Target"]["RoleArn"], ROLE);
}

#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_in_mid_drain_stops_claims() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.patch(workflow, json!({"cron_schedule": "0 12 * * *"})).await;
    let pool = world.pool.clone();
    let at = std::sync::Arc::new(move |point| -> futures::future::BoxFuture<'static, ()> {
        let pool = pool.clone();
        Box::pin(async move {
            if point == publisher::Point::P2 {
                sqlx::raw_sql("UPDATE config_generation SET generation = 7").execute(&pool).await.unwrap();
            }
        })
    });
    let hook = publisher::Hook { at, stopwatch: publisher::Stopwatch::default(), seed: 1 };
    let older = world.publisher_hooked(hook).await;
    assert_eq!(older.drain_outbox(soon()).await.unwrap().processed, 0);
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 9 * * ? *)");
}

/// The schedules of an older version have no identity. The upgrade must not count as an unexplained mass change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_adds_the_identity_without_force() {
    let world = World::new().await;
    let workflows = world.in_step(60).await;
    for id in &workflows {
        world.change(*id, json!({"Description": "Published by cronbox; changes made here are undone"})).await;
    }
    // The state after the migration.
    world
        .execute(
            "UPDATE publications SET spec_hash = 'of an older version';
             DELETE FROM config_generation; INSERT INTO config_generation DEFAULT VALUES",
        )
        .await;
    let found = world.sweep().await;
    assert_eq!((found.explained, found.changes_refused), (60, 0), "{found:?}");
    world.publish().await;
    for id in workflows {
        assert_eq!(world.schedule(id).await.unwrap()["Description"], world.description().await);
    }
    world.assert_settled().await;
}

/// As docs/deploy.md says: the old schedules go on firing, each fire a duplicate, until an operator deletes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_group_leaves_the_old_schedules() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.make_group("another").await;
    let config = Config { schedule_group: "another".to_owned(), config_generation: 1, ..world.config() };
    let publisher = world.publisher_with(config).await;
    assert_eq!(sweep_by(&publisher).await.missing, 1);
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 1);
    assert!(world.exists_in("another", workflow).await && world.exists_in(GROUP, workflow).await);

    world.delete(workflow).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().deleted, 1);
    world.skip(SETTLED * 10).await;
    sweep_by(&publisher).await;
    publisher.drain_outbox(soon()).await.unwrap();
    assert!(!world.exists_in("another", workflow).await && world.exists_in(GROUP, workflow).await);
}
