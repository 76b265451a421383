//! Edits overtake repairs, and the edits of one team delay no other team, however many there are.

use std::time::Duration;

use publisher::{Config, Swept};
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::json;
use tests::PATIENCE;

use super::statement::{assert_flat, buffers, count_rows, execute, stop_clock};
use crate::proxy::{Answer, Call};
use crate::world::{World, name, soon};

/// Sixty workflows whose schedules another program deleted, enqueued by a sweep, and one that is in step.
async fn mass_repair(world: &World) -> (Vec<WorkflowId>, WorkflowId) {
    let mut workflows = Vec::new();
    for minute in 0..61 {
        workflows.push(world.create(&format!("{} 9 * * *", minute % 60), "UTC").await);
    }
    world.publish().await;
    world.skip(Duration::from_secs(120)).await;
    let edited = workflows.pop().unwrap();
    for id in &workflows {
        world.meddle(Method::DELETE, *id, json!({})).await;
    }
    assert_eq!(world.sweep().await.missing, 60);
    let in_order =
        "UPDATE publications SET due_at = due_at - INTERVAL '1 minute' + workflow_id * INTERVAL '1 ms' WHERE is_repair";
    execute(world, in_order.to_owned()).await;
    world.front.take_calls();
    (workflows, edited)
}

/// How many calls were made before the first one about this workflow.
fn place(calls: &[Call], workflow: WorkflowId) -> usize {
    calls.iter().position(|call| call.name == name(workflow)).unwrap()
}

/// At 10 calls a second sixty repairs take six seconds. An edit of another workflow waits for those in flight, and so does
/// an edit of a workflow that is to be repaired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_overtake_a_mass_repair() {
    let world = World::new().await;
    let (repaired, edited) = mass_repair(&world).await;
    let publisher = world.publisher_with(Config { api_tps: 10, ..world.config() }).await;
    world.front.delay(&name(repaired[0]));
    // No repair is answered meanwhile, so no more of them are claimed, however long the edits take on a loaded machine.
    world.front.delay_all();
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    world.front.arrival(&name(repaired[0])).await;
    world.patch(edited, json!({"cron_schedule": "0 12 * * *"})).await;
    world.patch(repaired[59], json!({"cron_schedule": "0 13 * * *"})).await;
    world.front.release();
    world.front.release_all();
    draining.await.unwrap().unwrap();
    let calls = world.front.take_calls();
    assert!(place(&calls, edited) < 15, "after {} of {} calls", place(&calls, edited), calls.len());
    assert!(place(&calls, repaired[59]) < 15, "after {} of {} calls", place(&calls, repaired[59]), calls.len());
    assert_eq!(world.expression(repaired[59]).await.unwrap(), "cron(0 13 * * ? *)");
    assert_eq!(world.existing(&repaired).await, 60);
    world.assert_settled().await;
}

/// 10,000 repairs are due. A sweep that finds another missing schedule continues when some of them are published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_waits_for_its_repairs() {
    let world = World::new().await;
    let (_, edited) = mass_repair(&world).await;
    world.publish().await;
    world.skip(Duration::from_secs(240)).await;
    world.meddle(Method::DELETE, edited, json!({})).await;
    let repairs = "INSERT INTO publications (workflow_id, desired_revision, due_at, is_repair)
                   SELECT 1000000 + nth, 1, cronbox_now(), TRUE FROM generate_series(1, 10000) AS nth";
    execute(&world, repairs.to_owned()).await;
    let publisher = world.publisher().await;
    publisher.request_sweep("test").await.unwrap();
    let Swept::Stopped(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("it does not wait") };
    assert_eq!((found.listed, found.missing), (60, 0));

    execute(&world, "DELETE FROM publications WHERE workflow_id > 1000000".to_owned()).await;
    let Swept::Done(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("it is not done") };
    assert_eq!((found.listed, found.missing), (60, 1));
    world.publish().await;
    assert!(world.schedule(edited).await.is_some());
}

/// After an outage each workflow may need a verify pass in the same minute.
#[tokio::test]
async fn verify_passes_wait_behind_edits() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.next(&name(workflow), [Answer::DoneButBroken]);
    assert_eq!(world.publish().await.retried, 1);
    world.skip(Duration::from_secs(60)).await;
    world.publish().await;
    assert!(world.publication(workflow).await.verify_in_secs.is_some_and(|secs| secs > 0.0));
    assert!(is_repair(&world).await);
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    assert!(!is_repair(&world).await, "an edit comes first");
    assert_eq!(world.publish().await.updated, 1);
    world.skip(Duration::from_secs(30 * 60)).await;
    assert_eq!(world.publish().await.unchanged, 1);
    assert!(!is_repair(&world).await, "the pass is done");
    world.assert_settled().await;
}

/// EventBridge executes 150 calls, and fails to answer. Each workflow needs a verify pass, when no signature is valid any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_passes_are_spread_over_minutes() {
    let world = World::new().await;
    stop_clock(&world, Duration::ZERO).await;
    for _ in 0..150 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(Answer::DoneButBroken));
    }
    assert_eq!(world.publish().await.retried, 150);
    let outside = "SELECT COUNT(*) FROM publications
                  WHERE (verify_at BETWEEN cronbox_now() + INTERVAL '16 minutes' AND cronbox_now() + INTERVAL '30 minutes') IS NOT TRUE";
    assert_eq!(sqlx::query_scalar::<_, i64>(outside).fetch_one(&world.pool).await.unwrap(), 0, "from 16 to 30 minutes");
    let passes = "SELECT COUNT(*) FROM publications GROUP BY date_trunc('minute', verify_at)";
    let passes: Vec<i64> = sqlx::query_scalar(passes).fetch_all(&world.pool).await.unwrap();
    assert!(passes.iter().all(|passes| *passes <= 60), "passes of each minute: {passes:?}");
}

/// Whether the only publication is in the lane of the repairs.
async fn is_repair(world: &World) -> bool {
    sqlx::query_scalar("SELECT is_repair FROM publications").fetch_one(&world.pool).await.unwrap()
}

/// Its drift stays until it is published.
#[tokio::test]
async fn an_edit_leaves_the_repair_lane() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    execute(&world, "UPDATE publications SET is_repair = TRUE, drift = 'missing'".to_owned()).await;
    world.patch(workflow, json!({"cron_schedule": "0 10 * * *"})).await;
    assert!(!is_repair(&world).await);
    world.publish().await;
    world.assert_settled().await;
}

/// A team beside that of the world.
async fn other_team(world: &World) -> i64 {
    let made = "INSERT INTO teams (name, signing_secret, created_on) VALUES ('other', 's', cronbox_now()) RETURNING id";
    sqlx::query_scalar(made).fetch_one(&world.pool).await.unwrap()
}

/// So many workflows of the world's team, each edited after its schedule was made; and a workflow of another team whose
/// schedule exists.
async fn backlog_of_a_team(world: &mut World, count: usize) -> (Vec<WorkflowId>, WorkflowId) {
    let mut crowd = Vec::new();
    for _ in 0..count {
        crowd.push(world.create("0 9 * * *", "UTC").await);
    }
    world.team = other_team(world).await;
    let other = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    for id in &crowd {
        world.patch(*id, json!({"cron_schedule": "0 10 * * *"})).await;
    }
    world.front.take_calls();
    (crowd, other)
}

/// At 10 calls a second the forty edits of a team take four seconds. When the two batches in flight have been claimed,
/// another team makes one edit: the next claim takes the oldest edits, the one after it takes edits team by team.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_teams_backlog_delays_no_other_team() {
    let mut world = World::new().await;
    let (crowd, edited) = backlog_of_a_team(&mut world, 40).await;
    let publisher = world.publisher_with(Config { api_tps: 10, batch_size: 2, ..world.config() }).await;
    for id in &crowd[..4] {
        world.front.delay(&name(*id));
    }
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    for id in &crowd[..4] {
        world.front.arrival(&name(*id)).await;
    }
    world.patch(edited, json!({"cron_schedule": "0 12 * * *"})).await;
    for _ in 0..4 {
        world.front.release();
    }
    draining.await.unwrap().unwrap();
    let calls = world.front.take_calls();
    assert!(place(&calls, edited) < 10, "after {} of {} calls", place(&calls, edited), calls.len());
    assert_eq!(world.expression(edited).await.unwrap(), "cron(0 12 * * ? *)");
    world.assert_settled().await;
}

/// Two teams edit one workflow each without end. What one of these teams has edited before is published nevertheless, and
/// few of the endless edits come between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_edits_starve_no_older_edit() {
    let mut world = World::new().await;
    let (crowd, other) = backlog_of_a_team(&mut world, 20).await;
    let publisher = world.publisher_with(Config { api_tps: 20, batch_size: 2, ..world.config() }).await;
    let draining = tokio::spawn(async move { publisher.drain_outbox(soon()).await });
    let last = crowd[19];
    let mut minute = 0;
    let editing = async {
        while world.expression(last).await.unwrap() != "cron(0 10 * * ? *)" {
            minute = (minute + 1) % 60;
            for id in [crowd[0], other] {
                world.patch(id, json!({"cron_schedule": format!("{minute} 11 * * *")})).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, editing).await.expect("the oldest edit starves");
    draining.await.unwrap().unwrap();
    let calls = world.front.take_calls();
    assert!(place(&calls, last) < 40, "after {} of {} calls", place(&calls, last), calls.len());
    // The drain may have ended before the last edits.
    world.publish().await;
    world.assert_settled().await;
}

/// The version before enqueues without the team, and a publication of before the migration has none.
#[tokio::test]
async fn edits_without_a_team_are_claimed_by_age() {
    let world = World::new().await;
    for _ in 0..9 {
        world.create("0 9 * * *", "UTC").await;
    }
    execute(&world, "UPDATE publications SET team_id = NULL WHERE workflow_id % 2 = 0".to_owned()).await;
    let publisher = world.publisher_with(Config { batch_size: 2, ..world.config() }).await;
    assert_eq!(publisher.drain_outbox(soon()).await.unwrap().created, 9);
    world.assert_settled().await;
}

/// So many due edits of one team, the oldest first.
async fn due_edits(world: &World, team: i64, count: u32) {
    let due = format!(
        "INSERT INTO publications (workflow_id, desired_revision, spec_hash, team_id, due_at)
         SELECT 1000000 * {team} + nth, 1, 'none', {team}, cronbox_now() - INTERVAL '1 hour' + nth * INTERVAL '1 ms'
           FROM generate_series(1, {count}) AS nth
         ON CONFLICT DO NOTHING"
    );
    execute(world, due).await;
    execute(world, "ANALYZE publications".to_owned()).await;
}

/// The arguments of a choice for a batch of 100.
const OF_A_BATCH: &str = "(NULL, NULL, 100, 10, 2)";

/// A team has 1,000 due edits, and then 100,000; another team has one. A claim by team chooses by reading about a batch,
/// and takes what was chosen by its key.
#[tokio::test]
async fn claims_by_team_read_a_batch() {
    let world = World::new().await;
    let (team, other) = (world.team, other_team(&world).await);
    due_edits(&world, other, 1).await;
    let chosen: Vec<String> = (501..=550).map(|nth: i64| (1_000_000 * team + nth).to_string()).collect();
    let chosen = chosen.join(",");
    let claim = format!("('x', 60, 100, 10, FALSE, 2, 0, 1000000, FALSE, NULL, NULL, NULL, 100, 100, '{{{chosen}}}')");
    let mut read = Vec::new();
    for count in [1_000, 100_000] {
        due_edits(&world, team, count).await;
        read.push([buffers(&world, "choose by team", OF_A_BATCH).await, buffers(&world, "claim: ", &claim).await]);
    }
    assert_flat("choose by team", read[0][0], read[1][0]);
    assert_flat("a claim of what was chosen", read[0][1], read[1][1]);
}

/// The edits of a single team are the same team by team and by age, so its claims take nothing by its key.
#[tokio::test]
async fn a_backlog_of_one_team_is_not_shared() {
    let world = World::new().await;
    let (team, other) = (world.team, other_team(&world).await);
    due_edits(&world, team, 1_000).await;
    assert_eq!(count_rows(&world, "choose by team", OF_A_BATCH).await, 0);
    due_edits(&world, other, 1).await;
    assert_eq!(
        count_rows(&world, "choose by team", OF_A_BATCH).await,
        51,
        "the edit of the other team, and half a batch"
    );
}
