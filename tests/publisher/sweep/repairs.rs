//! Each way in which a schedule can differ from its workflow.

use std::time::Duration;

use publisher::Findings;
use serde_json::json;

use super::SETTLED;
use crate::proxy::{DENIED, INVALID};
use crate::world::{LIST, World, name, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_undoes_manual_changes() {
    let world = World::new().await;
    let workflows = world.in_step(6).await;
    let [deleted, disabled, changed, retargeted, outdated, _untouched] = workflows[..] else { panic!() };
    let mut before = Vec::new();
    for id in &workflows {
        before.push(world.shown(*id).await);
    }
    world.later();
    world.remove(deleted).await;
    world.change(disabled, json!({"State": "DISABLED"})).await;
    world.change(changed, json!({"ScheduleExpression": "cron(0 1 * * ? *)"})).await;
    let mut target = world.shown(retargeted).await.unwrap()["Target"].clone();
    target["Arn"] = json!("arn:aws:lambda:us-east-1:123456789012:function:other");
    world.change(retargeted, json!({"Target": target})).await;
    let mut target = world.shown(outdated).await.unwrap()["Target"].clone();
    target["Input"] = json!(target["Input"].as_str().unwrap().replace(r#""template":1"#, r#""template":0"#));
    world.change(outdated, json!({"Target": target})).await;

    let found = world.sweep().await;
    let classes = (found.missing, found.disabled_out_of_band, found.changed, found.stale_template, found.orphan);
    assert_eq!((classes, found.repaired), ((1, 1, 2, 1, 0), 5), "{found:?}");
    for id in &workflows[..5] {
        assert_eq!(world.publication(*id).await.sync, "drifted");
    }

    world.publish().await;
    for (id, before) in workflows.iter().zip(before) {
        assert_eq!(world.shown(*id).await, before);
        assert_eq!(world.publication(*id).await.sync, "synced");
    }
    world.assert_settled().await;
    world.skip(SETTLED * 2).await;
    assert_eq!(world.sweep().await.total_drift(), 0);
}

/// EventBridge returns both dates without their seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_with_seconds_are_no_drift() {
    let world = World::new().await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let fields = json!({
        "cron_schedule": "0 9 * * *", "starts_at": "2026-03-03T10:00:30.5Z", "ends_at": "2027-03-02T10:00:30.5Z",
    });
    let workflow = world.create_in(&mut tx, fields).await;
    tx.commit().await.unwrap();
    world.publish().await;
    for sweeps in 1..=2 {
        world.skip(SETTLED * sweeps).await;
        // With another modification date, it is read in full each time.
        world.later();
        world.change(workflow, json!({})).await;
        let found = world.sweep().await;
        assert_eq!((found.read, found.total_drift()), (1, 0), "{found:?}");
    }
}

/// Both stop the fires of a schedule without a change of its timing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_actions_and_keys_are_undone() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    let before = [world.shown(workflows[0]).await, world.shown(workflows[1]).await];
    world.later();
    world.change(workflows[0], json!({"ActionAfterCompletion": "DELETE"})).await;
    let key = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-4000-8000-000000000000";
    world.change(workflows[1], json!({"KmsKeyArn": key})).await;
    let found = world.sweep().await;
    assert_eq!((found.changed, found.repaired), (2, 2), "{found:?}");
    world.publish().await;
    assert_eq!([world.shown(workflows[0]).await, world.shown(workflows[1]).await], before);
}

/// A repair resets the failures of a workflow: the first backoff is at most 2 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_forgets_earlier_failures() {
    let world = World::new().await;
    let workflows = world.in_step(4).await;
    let [changed, missing, explained, orphan] = workflows[..] else { panic!() };
    world.later();
    world.change(changed, json!({"State": "DISABLED"})).await;
    world.remove(missing).await;
    let set = async |sql: &'static str, id: schedule::WorkflowId| {
        sqlx::query(sql).bind(id.0).execute(&world.pool).await.unwrap();
    };
    set("UPDATE publications SET failures = 12 WHERE workflow_id > $1", schedule::WorkflowId(0)).await;
    set("UPDATE publications SET spec_hash = 'of an older generation' WHERE workflow_id = $1", explained).await;
    world.lose_workflow(orphan).await;
    let publisher = world.publisher_with(publisher::Config { config_generation: 1, ..world.config() }).await;
    // The second sweep deletes the orphan.
    for minutes in [3, 15] {
        world.skip(Duration::from_secs(60 * minutes)).await;
        publisher.request_sweep("test").await.unwrap();
        assert!(matches!(publisher.sweep_schedules(soon()).await.unwrap(), publisher::Swept::Done(_)));
    }
    for id in [changed, missing, explained, orphan] {
        let broken = crate::proxy::Answer::Refuse(500, "InternalServerException", "");
        world.front.always(&name(id), Some(broken));
    }
    publisher.drain_outbox(soon()).await.unwrap();
    let failures = "SELECT failures FROM publications ORDER BY workflow_id";
    let failures = sqlx::query_scalar::<_, i32>(failures).fetch_all(&world.pool).await.unwrap();
    assert!(failures.iter().all(|failures| (1..12).contains(failures)), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tick_sweeps_and_repairs() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.remove(workflow).await;
    let publisher = world.publisher().await;
    assert_eq!(publisher.run_tick(soon()).await.unwrap().created, 0, "the last sweep is not old enough");
    world.skip(Duration::from_secs(18 * 60)).await;
    assert_eq!(publisher.run_tick(soon()).await.unwrap().created, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_templates_and_roles_are_republished() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    sqlx::query("UPDATE publications SET template = 0, spec_hash = 'older' WHERE workflow_id = $1")
        .bind(workflows[0].0)
        .execute(&world.pool)
        .await
        .unwrap();
    let found = world.sweep().await;
    assert_eq!((found.stale_template, found.changed), (1, 0));

    let mut config = world.config();
    config.scheduler_role_arn = "arn:aws:iam::123456789012:role/another".to_owned();
    let publisher = world.publisher_with(config).await;
    publisher.drain_outbox(soon()).await.unwrap();
    world.skip(SETTLED * 2).await;
    publisher.request_sweep("test").await.unwrap();
    publisher.sweep_schedules(soon()).await.unwrap();
    publisher.drain_outbox(soon()).await.unwrap();
    for id in workflows {
        assert_eq!(world.schedule(id).await.unwrap()["Target"]["RoleArn"], "arn:aws:iam::123456789012:role/another");
    }
}

/// The workflow exists, so the next drain deletes the schedule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unneeded_schedules_are_changes_not_orphans() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    let archived = workflows[0];
    world.set_state(archived, workflows::State::Archived).await;
    world.publish().await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let never = world.create_in(&mut tx, json!({})).await;
    tx.commit().await.unwrap();
    world.make_like(workflows[1], &name(archived)).await;
    world.make_like(workflows[1], &name(never)).await;

    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.changed, found.orphan, found.repaired), (2, 0, 2), "{found:?}");
    world.publish().await;
    assert_eq!((world.schedule(archived).await, world.schedule(never).await), (None, None));
    assert!(world.schedule(workflows[1]).await.is_some());
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_find_changes_with_old_dates() {
    let world = World::new().await;
    let workflows = world.in_step(250).await;
    // EventBridge's clock does not advance, so the list does not show the change.
    world.change(workflows[7], json!({"ScheduleExpression": "cron(0 1 * * ? *)"})).await;
    let mut found = 0;
    for round in 0..3 {
        let findings = world.sweep().await;
        assert!(findings.sampled <= 100 && findings.read == findings.sampled, "round {round}: {findings:?}");
        found += findings.changed;
    }
    assert_eq!(found, 1, "three sweeps read all of 250 workflows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_skips_claimed_workflows() {
    let world = World::new().await;
    let workflows = world.in_step(4).await;
    let [due, leased, settling, failed] = workflows[..] else { panic!() };
    world.later();
    for id in &workflows {
        world.change(*id, json!({"ScheduleExpression": "cron(0 1 * * ? *)"})).await;
    }
    let set = async |sql: &'static str, id: schedule::WorkflowId| {
        sqlx::query(sql).bind(id.0).execute(&world.pool).await.unwrap();
    };
    set("UPDATE publications SET due_at = cronbox_now() WHERE workflow_id = $1", due).await;
    let lease = "UPDATE publications SET lease_owner = 'x', lease_until = cronbox_now() + INTERVAL '1 minute', due_at = cronbox_now() WHERE workflow_id = $1";
    set(lease, leased).await;
    set("UPDATE publications SET applied_on = cronbox_now() WHERE workflow_id = $1", settling).await;
    set("UPDATE publications SET error_class = 'permanent' WHERE workflow_id = $1", failed).await;

    let found = world.sweep().await;
    assert_eq!((found.skipped, found.total_drift(), found.read), (4, 0, 0), "{found:?}");
    // Workflows in these states are not missing, either, if the list does not contain their schedules.
    for id in [due, leased, settling] {
        world.remove(id).await;
    }
    assert_eq!(world.sweep().await.total_drift(), 0);
    assert_eq!(world.publication(failed).await.sync, "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_during_a_comparison_need_no_repair() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    publisher.request_sweep("test").await.unwrap();
    let sweeping = tokio::spawn(async move { publisher.sweep_schedules(soon()).await });
    world.front.arrival(&name(workflow)).await;
    world.patch(workflow, json!({"cron_schedule": "30 17 * * *"})).await;
    world.publish().await;
    world.front.release();
    let publisher::Swept::Done(found) = sweeping.await.unwrap().unwrap() else { panic!() };
    assert_eq!((found.changed, found.repaired), (1, 0), "seen as different, and left to its edit");
    assert_eq!(world.publication(workflow).await.sync, "synced");
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(30 17 * * ? *)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_retry_no_failed_workflow() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.front.next(&name(workflow), [INVALID]);
    world.patch(workflow, json!({"cron_schedule": "30 17 * * *"})).await;
    world.publish().await;
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.skipped, found.total_drift()), (1, 0), "{found:?}");
    world.calls();
    world.publish().await;
    assert!(world.calls().is_empty());
    assert_eq!(world.publication(workflow).await.sync, "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_schedules_stop_no_sweep() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    world.later();
    for id in &workflows {
        world.change(*id, json!({"State": "DISABLED"})).await;
    }
    world.front.next(&name(workflows[0]), [DENIED]);
    let found = world.sweep().await;
    assert_eq!((found.unread, found.disabled_out_of_band), (1, 1), "{found:?}");
    assert!(found.stopped_by.unwrap().contains("may not"));
    let Findings { disabled_out_of_band, .. } = world.sweep().await;
    assert_eq!(disabled_out_of_band, 1, "the next sweep reads it");
    assert!(world.count_calls(|name| name == LIST) >= 2);
}
