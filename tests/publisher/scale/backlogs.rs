//! What waits costs the publisher nothing, until its time comes.

use std::time::Duration;

use serde_json::json;

use super::statement::{assert_flat, buffers, execute, stop_clock};
use crate::proxy::Answer;
use crate::world::{World, name, soon};

const BROKEN: Answer = Answer::Refuse(500, "InternalServerException", "");
const MINUTE: Duration = Duration::from_secs(60);

/// Publications that are due in a day, with this class of error, or NULL for none.
fn waiting(count: u32, class: &str) -> String {
    format!(
        "INSERT INTO publications (workflow_id, desired_revision, spec_hash, due_at, error_class)
         SELECT 1000000 + nth, 1, 'none', cronbox_now() + INTERVAL '1 day' + nth * INTERVAL '1 ms', {class}
           FROM generate_series(1, {count}) AS nth
         ON CONFLICT DO NOTHING"
    )
}

/// 20,000 workflows that end in a day are no backlog, and the count after each drain reads none of them.
#[tokio::test]
async fn ends_in_the_future_cost_nothing() {
    let world = World::new().await;
    let mut read = Vec::new();
    for count in [1_000, 20_000] {
        execute(&world, waiting(count, "NULL")).await;
        execute(&world, "ANALYZE publications".to_owned()).await;
        read.push(buffers(&world, "count remaining", "(NULL, NULL, NULL, 100000)").await);
    }
    assert_flat("count remaining", read[0], read[1]);
}

/// 40,000 workflows wait for the end of an outage: one statement releases a thousand, and the count ends at its limit.
#[tokio::test]
async fn a_release_takes_a_thousand() {
    let world = World::new().await;
    let mut read = Vec::new();
    for count in [2_000, 40_000] {
        execute(&world, waiting(count, "'transient'")).await;
        execute(&world, "ANALYZE publications".to_owned()).await;
        read.push([
            buffers(&world, "release: ", "(0, 200, 1000)").await,
            buffers(&world, "count remaining", "(NULL, NULL, NULL, 1000)").await,
        ]);
    }
    assert_flat("release", read[0][0], read[1][0]);
    assert_flat("count remaining", read[0][1], read[1][1]);
}

/// Notes how many of the workflows that wait each statement changes.
const NOTE_CHANGES: &str = "
    CREATE TABLE changes (of_rows bigint NOT NULL);
    CREATE FUNCTION note_changes() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.changes SELECT count(*) FROM changed WHERE workflow_id > 1000000;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_changes AFTER UPDATE ON publications REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION note_changes()";

/// 2,500 workflows wait when an outage ends: they are released by three statements, and become due at the rate of the calls.
#[tokio::test]
async fn releases_go_by_batches_and_rate() {
    let world = World::new().await;
    stop_clock(&world, Duration::ZERO).await;
    let publisher = world.publisher_with(publisher::Config { api_tps: 200, ..world.config() }).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(BROKEN));
        made.push(workflow);
    }
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().retried, 3);
    execute(&world, waiting(2_500, "'transient'")).await;
    execute(&world, NOTE_CHANGES.to_owned()).await;
    for workflow in &made {
        world.front.always(&name(*workflow), None);
    }
    stop_clock(&world, MINUTE * 15).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 3);

    let released = "SELECT of_rows FROM changes WHERE of_rows > 100 ORDER BY of_rows DESC";
    let released: Vec<i64> = sqlx::query_scalar(released).fetch_all(&world.pool).await.unwrap();
    assert_eq!(released, [1_000, 1_000, 500]);
    // The first one is due at once, and was processed.
    let due = "SELECT count(*), count(DISTINCT due_at), EXTRACT(EPOCH FROM max(due_at) - cronbox_now())::float8
                 FROM publications WHERE workflow_id > 1000001 AND due_at > cronbox_now()";
    let (left, instants, last): (i64, i64, f64) = sqlx::query_as(due).fetch_one(&world.pool).await.unwrap();
    assert_eq!((left, instants), (2_499, 2_499), "no two at the same instant");
    assert!((12.4..12.6).contains(&last), "2,500 of them at 200 a second, but the last one is due after {last} s");
}

/// The end of an outage is noticed once. If its release fails, the drain succeeds, and the next one releases.
#[tokio::test]
async fn a_failed_release_is_repeated() {
    let world = World::new().await;
    let publisher = world.publisher().await;
    let mut made = Vec::new();
    for _ in 0..20 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(BROKEN));
        made.push(workflow);
    }
    for minute in 1..=15 {
        world.skip(MINUTE * minute).await;
        publisher.drain_outbox(soon()).await.unwrap();
    }
    let refuse = "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stay'; END $$;
                  CREATE TRIGGER stay BEFORE UPDATE ON publications FOR EACH ROW
                      WHEN (OLD.lease_owner IS NULL AND NEW.due_at < OLD.due_at) EXECUTE FUNCTION stay()";
    execute(&world, refuse.to_owned()).await;
    for workflow in &made {
        world.front.always(&name(*workflow), None);
    }
    // One of them is due soon, because of the jitter, and its success ends the outage.
    let mut minute = 15;
    let mut created = 0;
    while created == 0 {
        minute += 1;
        world.skip(MINUTE * minute).await;
        created = publisher.drain_outbox(soon()).await.expect("a failed release is no error").created;
    }
    execute(&world, "DROP TRIGGER stay ON publications".to_owned()).await;
    publisher.drain_outbox(soon()).await.unwrap();
    // What is released is due within milliseconds, one after the other.
    world.skip(MINUTE * minute + Duration::from_secs(2)).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().remaining, 0);
    world.assert_settled().await;
}

/// A workflow with 20,000 open edits fails: the error is written to the newest row.
#[tokio::test]
async fn a_failure_writes_one_row() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let mut read = Vec::new();
    for rows in [1_000, 19_000] {
        let edits = format!(
            "INSERT INTO outbox_events (aggregate_id, op, created_on)
             SELECT {workflow}, 'upsert', cronbox_now() FROM generate_series(1, {rows}); ANALYZE outbox_events"
        );
        execute(&world, edits).await;
        let failed = json!([{"workflow_id": workflow.0, "seen": 1_000_000, "attempt": 1, "is_attempt_returned": true,
                             "error_class": "transient", "message": "no answer", "is_superseded": false}]);
        read.push(buffers(&world, "mirror errors", &format!("('{failed}')")).await);
    }
    assert_flat("mirror errors", read[0], read[1]);
    world.front.always(&name(workflow), Some(BROKEN));
    world.publisher().await.drain_outbox(soon()).await.unwrap();
    let mirrored = "SELECT COUNT(*) FROM outbox_events WHERE error_message IS NOT NULL";
    assert_eq!(sqlx::query_scalar::<_, i64>(mirrored).fetch_one(&world.pool).await.unwrap(), 1);
}

/// A client edits a workflow in a loop during an outage: two failures were superseded by an edit, and so is the next one.
/// The publisher waits then, and no edit ends that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_in_a_loop_back_off() {
    let world = World::new().await;
    stop_clock(&world, Duration::ZERO).await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    execute(&world, "UPDATE publications SET superseded = 2".to_owned()).await;
    world.front.always(&name(workflow), Some(BROKEN));
    world.front.delay(&name(workflow));
    let publisher = world.publisher().await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    world.front.arrival(&name(workflow)).await;
    world.patch(workflow, json!({"cron_schedule": "10 9 * * *"})).await;
    world.front.release();
    assert_eq!(draining.await.unwrap().unwrap().retried, 1);
    assert_eq!(world.publication(workflow).await.due_in_secs, Some(2.0));

    world.patch(workflow, json!({"cron_schedule": "20 9 * * *"})).await;
    assert_eq!(world.publication(workflow).await.due_in_secs, Some(2.0), "the edit does not end the wait");
    assert_eq!(world.publish().await.retried, 0);

    world.front.always(&name(workflow), None);
    stop_clock(&world, Duration::from_secs(2)).await;
    assert_eq!(world.publish().await.created, 1);
    world.patch(workflow, json!({"cron_schedule": "30 9 * * *"})).await;
    assert_eq!(world.publication(workflow).await.due_in_secs, Some(0.0), "a success ends it");
}
