//! A restored or cloned database publishes nothing until its ledger is accepted.

use ledger::acceptance::{Keep, Lost, accept_ledger};
use publisher::Swept;
use schedule::WorkflowId;
use serde_json::{Value, json};
use workflows::State;
use workflows::audit::Edit;

use super::SETTLED;
use crate::proxy::DENIED;
use crate::world::{LIST, World, name, soon};

/// Before everything that a story does in EventBridge.
const ACCEPTED_LONG_AGO: &str = "UPDATE database_identity SET accepted_on = '2020-01-01'";
/// EventBridge's clock is at 10:00 when a story begins.
const ACCEPTED: &str = "UPDATE database_identity SET accepted_on = '2026-03-02T10:05:00Z';
     UPDATE sweeps SET started_on = '2026-03-02T10:00:00Z'";

/// Of the workflow with the highest id.
const TOMBSTONE: &str =
    "INSERT INTO deleted_workflows (workflow_id, deleted_on) SELECT max(workflow_id), cronbox_now() FROM publications";
const MARK: &str = "UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked'";
const SNAPSHOT: &str = "CREATE TABLE kept_workflows AS TABLE workflows;
     CREATE TABLE kept_versions AS TABLE schedule_versions;
     CREATE TABLE kept_publications AS TABLE publications";
const RESTORE: &str = "BEGIN; SET LOCAL session_replication_role = replica;
     DELETE FROM workflows; INSERT INTO workflows OVERRIDING SYSTEM VALUE TABLE kept_workflows;
     DELETE FROM schedule_versions; INSERT INTO schedule_versions TABLE kept_versions;
     DELETE FROM publications; INSERT INTO publications TABLE kept_publications; COMMIT";

impl World {
    async fn hold(&self) -> Option<String> {
        sqlx::query_scalar("SELECT cronbox_hold()").fetch_one(&self.pool).await.unwrap()
    }

    /// Edits and drains; returns the expression in EventBridge.
    async fn edited(&self, id: WorkflowId, cron: &str) -> Option<String> {
        self.patch(id, json!({"cron_schedule": cron})).await;
        self.publisher().await.drain_outbox(soon()).await.unwrap();
        self.expression(id).await
    }

    async fn accept(&self) {
        let now = chrono::DateTime::from_timestamp(0, 0).unwrap();
        let edit = Edit::without_request("test", now);
        accept_ledger(&self.pool, &"dev".parse().unwrap(), Lost::Until(now), Keep::Identity, &edit).await.unwrap();
    }

    /// The database of the snapshot is accepted at 10:05. Its sweeps are earlier, and EventBridge's clock is later than that.
    async fn restore_and_accept(&self) {
        self.execute(RESTORE).await;
        self.execute(MARK).await;
        self.accept().await;
        self.execute(ACCEPTED).await;
        for _ in 0..10 {
            self.later();
        }
    }

    /// The revision that a fire of the workflow's schedule carries.
    async fn fired_revision(&self, id: WorkflowId) -> Value {
        let schedule = self.schedule(id).await.unwrap();
        let input: Value = serde_json::from_str(schedule["Target"]["Input"].as_str().unwrap()).unwrap();
        input["revision"].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_databases_publish_nothing() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    for (reason, hold) in [
        ("restored", "UPDATE database_identity SET system_identifier = '4711'"),
        ("restored", "UPDATE database_identity SET database_oid = 4711"),
        ("cloned", "UPDATE database_identity SET environment = 'prod'"),
        ("marked", MARK),
    ] {
        world.execute(hold).await;
        let before = world.expression(workflow).await;
        assert_eq!(world.edited(workflow, "0 17 * * *").await, before, "{reason}");
        assert_eq!(world.hold().await.as_deref(), Some(reason));
        assert!(matches!(world.sweep_on_request().await, Swept::NotNow), "{reason}");
        let waits_for = world.publisher().await.publish_once().await.unwrap_err().to_string();
        assert!(waits_for.contains("run `cronbox-app ledger accept --until"), "{reason}: {waits_for}");
        assert!(waits_for.contains("| --nothing-lost`"), "{reason}: {waits_for}");
        world.accept().await;
        world.publish().await;
        assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 17 * * ? *)", "{reason}");
        assert_eq!(world.edited(workflow, "0 9 * * *").await.unwrap(), "cron(0 9 * * ? *)", "{reason}");
    }
}

/// Calls in flight are completed, and nothing is claimed after the mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marked_databases_end_a_running_drain() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..6 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    // All, because the first claim need not lead to the first call. If this machine pauses for longer than a call may
    // take, the next call waits, too.
    world.front.delay_all();
    // One call is in flight and one more workflow is claimed; the others are due.
    let config = publisher::Config { batch_size: 1, api_concurrency: 1, ..world.config() };
    let publisher = world.publisher_with(config).await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await.unwrap() });
    world.front.until_waiting(1).await;
    world.execute(MARK).await;
    world.front.release_all();
    let report = draining.await.unwrap();
    assert!((1..=2).contains(&report.created), "{report:?}");
    for id in &workflows[2..] {
        assert_eq!((world.publication(*id).await.epoch, world.expression(*id).await), (0, None));
    }
    world.accept().await;
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 6);
    world.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marked_databases_end_a_running_sweep() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.remove(workflow).await;
    world.front.delay(LIST);
    let publisher = world.publisher().await;
    publisher.request_sweep("test").await.unwrap();
    let sweeping = tokio::spawn(async move { publisher.sweep_schedules(soon()).await.unwrap() });
    world.front.arrival(LIST).await;
    world.execute(MARK).await;
    world.front.release();
    assert!(matches!(sweeping.await.unwrap(), Swept::Stopped(_)));
    assert_eq!(world.publication(workflow).await.due_in_secs, None, "nothing is enqueued");
    world.accept().await;
    assert_eq!(world.sweep().await.missing, 1);
}

/// A storage snapshot has the same identity, but EventBridge has later revisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_revisions_in_eventbridge_hold_the_database() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.execute(ACCEPTED_LONG_AGO).await;
    world.execute(SNAPSHOT).await;
    world.later();
    assert_eq!(world.edited(workflow, "0 17 * * *").await.unwrap(), "cron(0 17 * * ? *)");
    world.execute(RESTORE).await;
    world.skip(SETTLED * 2).await;
    assert!(!matches!(world.sweep_on_request().await, Swept::Done(_)));
    assert_eq!(world.hold().await.as_deref(), Some("eventbridge_ahead"));
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 17 * * ? *)", "nothing was undone");
    // After the operator has accepted the ledger, EventBridge follows the database.
    world.accept().await;
    world.sweep().await;
    world.publish().await;
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 9 * * ? *)");
    assert_eq!(world.hold().await, None);
}

/// A pause of the gap ended before the loss, so EventBridge has a later revision with the content of the backup. Long after the
/// acceptance a person disables the schedule: nothing was restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_of_an_accepted_gap_hold_nothing() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.execute(SNAPSHOT).await;
    world.later();
    for state in [State::Paused, State::Active] {
        world.set_state(workflow, state).await;
        world.publish().await;
    }
    assert_eq!(world.fired_revision(workflow).await, json!(3));
    world.restore_and_accept().await;
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.changed, found.repaired, found.changes_refused), (1, 1, 0), "{found:?}");
    world.publish().await;
    assert_eq!(world.fired_revision(workflow).await, json!(1), "the database's");

    world.skip(SETTLED * 4).await;
    assert_eq!(world.sweep().await.total_drift(), 0);
    world.change(workflow, json!({"State": "DISABLED"})).await;
    let found = world.sweep().await;
    assert_eq!((found.disabled_out_of_band, world.hold().await), (1, None), "{found:?}");
    world.publish().await;
    assert_eq!(world.schedule(workflow).await.unwrap()["State"], "ENABLED");
}

/// A person disables a schedule of the gap minutes after the acceptance, before a sweep has seen what the gap has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_changed_before_the_sweep_hold_nothing() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.execute(SNAPSHOT).await;
    world.later();
    assert_eq!(world.edited(workflow, "0 17 * * *").await.unwrap(), "cron(0 17 * * ? *)");
    world.restore_and_accept().await;
    world.change(workflow, json!({"State": "DISABLED"})).await;
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.changed, world.hold().await), (1, None), "{found:?}");
    world.publish().await;
    assert_eq!(world.expression(workflow).await.unwrap(), "cron(0 9 * * ? *)", "the database's");
}

/// EventBridge follows the database again after an accepted gap. A snapshot of this time is restored, and nothing marks it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_gaps_hide_no_later_restore() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.execute(SNAPSHOT).await;
    world.later();
    for state in [State::Paused, State::Active] {
        world.set_state(workflow, state).await;
        world.publish().await;
    }
    world.restore_and_accept().await;
    world.skip(SETTLED * 2).await;
    assert_eq!(world.sweep().await.repaired, 1);
    world.publish().await;
    world.skip(SETTLED * 4).await;
    assert_eq!(world.sweep().await.total_drift(), 0);

    world.execute("DROP TABLE kept_workflows, kept_versions, kept_publications").await;
    world.execute(SNAPSHOT).await;
    world.later();
    for cron in ["0 16 * * *", "0 17 * * *"] {
        world.edited(workflow, cron).await;
    }
    assert_eq!(world.fired_revision(workflow).await, json!(3), "that of the gap");
    world.execute(RESTORE).await;
    world.skip(SETTLED * 6).await;
    assert!(!matches!(world.sweep_on_request().await, Swept::Done(_)));
    assert_eq!(world.hold().await.as_deref(), Some("eventbridge_ahead"));
}

/// The brake refuses what the gap has changed, so EventBridge keeps the later revisions until an operator decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_revisions_of_a_gap_hold_nothing() {
    let world = World::new().await;
    let workflows = world.in_step(12).await;
    world.execute(SNAPSHOT).await;
    world.later();
    for id in &workflows {
        world.patch(*id, json!({"cron_schedule": "0 17 * * *"})).await;
    }
    world.publish().await;
    world.restore_and_accept().await;
    world.skip(SETTLED * 2).await;
    assert_eq!(world.sweep().await.changes_refused, 12);

    world.change(workflows[0], json!({"State": "DISABLED"})).await;
    let found = world.sweep().await;
    assert_eq!((found.changes_refused, world.hold().await), (12, None), "{found:?}");
    assert_eq!(world.force_sweep().await.repaired, 12);
    world.publish().await;
    assert_eq!(world.fired_revision(workflows[0]).await, json!(1));
}

/// The gap has created a workflow and edited none, so no revision shows the restore. Its schedule is all that is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_never_given_hold_the_database() {
    let world = World::new().await;
    world.in_step(1).await;
    world.execute(ACCEPTED_LONG_AGO).await;
    world.execute(SNAPSHOT).await;
    world.later();
    let created = world.create("0 17 * * *", "UTC").await;
    world.publish().await;
    world.execute(RESTORE).await;
    // A recovery sets the sequence to the value in the log, which is ahead.
    world.execute("SELECT setval('workflows_id_seq', (SELECT max(id) FROM workflows) + 32)").await;
    world.skip(SETTLED * 2).await;
    world.front.next(&name(created), [DENIED]);
    let found = world.sweep().await;
    assert_eq!((found.orphan, found.unread, found.orphans_waiting), (1, 1, 0), "not read: {found:?}");
    assert!(!matches!(world.sweep_on_request().await, Swept::Done(_)));
    assert_eq!(world.hold().await.as_deref(), Some("eventbridge_ahead"));

    let edit = Edit::without_request("test", world.clock.now());
    let refused =
        accept_ledger(&world.pool, &"dev".parse().unwrap(), Lost::Nothing, Keep::Identity, &edit).await.unwrap_err();
    assert!(refused.to_string().starts_with("--nothing-lost: EventBridge has a later state"), "{refused}");
    assert_eq!(world.hold().await.as_deref(), Some("eventbridge_ahead"), "what has run would run again");

    // After the acceptance it is an orphan like any other, also if a person changes it.
    world.accept().await;
    world.execute(ACCEPTED).await;
    for _ in 0..10 {
        world.later();
    }
    world.change(created, json!({"State": "DISABLED"})).await;
    let found = world.sweep().await;
    assert_eq!((found.orphans_waiting, world.hold().await), (1, None), "{found:?}");
    world.skip(SETTLED * 8).await;
    assert_eq!(world.sweep().await.orphans_deleted, 1);
    world.publish().await;
    assert!(!world.exists(&name(created)).await);
}

/// Normally the database had a workflow for each schedule with its identity, also if its tombstone is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_of_given_ids_hold_nothing() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    let [kept, purged] = workflows[..] else { panic!("two workflows") };
    world.execute(ACCEPTED_LONG_AGO).await;
    world.later();
    world.lose_workflow(purged).await;
    world.execute(TOMBSTONE).await;
    world.execute("DELETE FROM publications WHERE workflow_id NOT IN (SELECT id FROM workflows)").await;
    let mut tx = db::begin_transaction(&world.pool).await.unwrap();
    let rolled_back = world.create_in(&mut tx, json!({"cron_schedule": "0 9 * * *"})).await;
    tx.rollback().await.unwrap();
    world.make_like(kept, &name(rolled_back)).await;
    // A person copies a schedule, with its identity.
    world.make_like(kept, "wf-4710-dev").await;
    // Another database's, and one of an older version, which wrote no identity.
    for (id, description) in [(4711, "cronbox 11111111-2222-4333-8444-555555555555"), (4712, "by cronbox")] {
        world.make_like(kept, &name(WorkflowId(id))).await;
        world.change(WorkflowId(id), json!({"Description": description})).await;
    }
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.orphan, found.orphans_waiting, world.hold().await), (5, 5, None), "{found:?}");

    let settings =
        app::jobs::prune::Settings { outbox_days: 7, outbox_failed_days: 30, retention_days: 90, audit_days: 400 };
    app::jobs::prune::remove_old_rows(&world.pool, settings, world.clock.now()).await.unwrap();
    let tombstones = "SELECT count(*) FROM deleted_workflows";
    assert_eq!(sqlx::query_scalar::<_, i64>(tombstones).fetch_one(&world.pool).await.unwrap(), 0);
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.orphan, world.hold().await), (5, None), "{found:?}");
}

/// A person copies the target of one schedule to another one, whose workflow has a lower revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_targets_hold_nothing() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    let [edited, other] = workflows[..] else { panic!("two workflows") };
    world.execute(ACCEPTED_LONG_AGO).await;
    world.later();
    world.edited(edited, "0 17 * * *").await;
    let target = world.schedule(edited).await.unwrap()["Target"].clone();
    world.change(other, json!({"Target": target})).await;
    world.skip(SETTLED * 2).await;
    let found = world.sweep().await;
    assert_eq!((found.changed, world.hold().await), (1, None), "{found:?}");
}

/// The backup has a sweep of the day before: it had listed both schedules, found an orphan and a change, and queued a rollout.
const SWEEP_OF_THE_BACKUP: &str = "
    INSERT INTO sweeps (requested_by, force, requested_on, started_on, listed_on)
         VALUES ('publisher', TRUE, cronbox_now() - INTERVAL '1 day', cronbox_now() - INTERVAL '1 day', cronbox_now() - INTERVAL '1 day');
    UPDATE sweep_sightings SET sweep_id = (SELECT id FROM sweeps WHERE finished_on IS NULL);
    INSERT INTO sweep_changes (sweep_id, workflow_id, epoch, revision, class)
         SELECT id, 1, 1, 1, 'changed' FROM sweeps WHERE finished_on IS NULL;
    INSERT INTO orphans (name, first_seen, last_seen)
         VALUES ('wf-4711-dev', cronbox_now() - INTERVAL '1 day', cronbox_now() - INTERVAL '1 day');
    INSERT INTO rollout_queue (workflow_id, class) VALUES (1, 'changed')";

/// The first sweep after an acceptance lists everything itself, and finds each orphan for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptances_end_the_sweep_of_the_backup() {
    let world = World::new().await;
    let workflows = world.in_step(2).await;
    world.execute(SWEEP_OF_THE_BACKUP).await;
    // Since then the schedule of a workflow that the backup has again was deleted.
    world.remove(workflows[1]).await;
    world.make_like(workflows[0], "wf-4711-dev").await;
    world.execute(MARK).await;
    world.accept().await;
    let left = "SELECT (SELECT COUNT(*) FROM sweep_changes) + (SELECT COUNT(*) FROM rollout_queue)
                     + (SELECT COUNT(*) FROM orphans) + (SELECT COUNT(*) FROM sweeps WHERE finished_on IS NULL)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&world.pool).await.unwrap(), 0);
    let found = world.sweep().await;
    assert_eq!((found.listed, found.missing, found.repaired), (2, 1, 1), "{found:?}");
    assert_eq!((found.orphans_waiting, found.orphans_deleted), (1, 0), "{found:?}");
    world.publish().await;
    assert_eq!(world.existing(&workflows).await, 2);
}

/// A publisher with the wrong database makes it held, but must not make the generation of its own publishers outdated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_publishers_raise_no_generation() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    let generation = "SELECT generation::text || ' ' || template FROM config_generation";
    let raised = async || sqlx::query_scalar::<_, String>(generation).fetch_one(&world.pool).await.unwrap();
    let before = raised().await;
    let config = publisher::Config { env: "staging".parse().unwrap(), config_generation: 5, ..world.config() };
    world.publisher_with(config).await.drain_outbox(soon()).await.unwrap();
    assert_eq!((world.hold().await.as_deref(), raised().await), (Some("cloned"), before));
    world.accept().await;
    assert_eq!(world.edited(workflow, "0 17 * * *").await.unwrap(), "cron(0 17 * * ? *)");
}
