//! One sweep at a time, by any publisher, also if a publisher dies during it.

use std::time::Duration;

use publisher::Swept;
use tests::PATIENCE;

use super::SETTLED;
use crate::proxy::THROTTLED;
use crate::world::{LIST, World, soon};

/// The time between two sweeps.
const QUARTER: Duration = Duration::from_secs(15 * 60);

/// A trigger function that fails once. A sequence counts its calls, because no rollback sets it back.
const FAIL_ONCE: &str = "
    CREATE SEQUENCE failures;
    CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF nextval('failures') = 1 THEN
            RAISE EXCEPTION 'the commit fails';
        END IF;
        RETURN NULL;
    END
    $$";

impl World {
    /// The next commit fails that makes the row of a sweep fulfil this condition.
    async fn fail_once_when(&self, condition: &str) {
        let failing = format!(
            "DROP TRIGGER IF EXISTS failing ON sweeps;
             ALTER SEQUENCE failures RESTART;
             CREATE CONSTRAINT TRIGGER failing AFTER UPDATE ON sweeps DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION fail_once()"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(failing)).execute(&self.pool).await.unwrap();
    }
}

async fn next_token(world: &World) -> Option<String> {
    let query = "SELECT next_token FROM sweeps ORDER BY id DESC LIMIT 1";
    sqlx::query_scalar::<_, Option<String>>(query).fetch_optional(&world.pool).await.unwrap().flatten()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_are_due_every_fifteen_minutes() {
    let world = World::new().await;
    let publisher = world.publisher().await;
    assert!(matches!(publisher.sweep_schedules(soon()).await.unwrap(), Swept::Done(_)));
    assert_eq!(publisher.sweep_schedules(soon()).await.unwrap(), Swept::NotNow);
    world.skip(Duration::from_secs(14 * 60)).await;
    assert_eq!(publisher.sweep_schedules(soon()).await.unwrap(), Swept::NotNow);
    world.skip(Duration::from_secs(15 * 60 + 1)).await;
    assert!(matches!(publisher.sweep_schedules(soon()).await.unwrap(), Swept::Done(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_publishers_share_one_sweep() {
    let world = World::new().await;
    world.published(3).await;
    world.front.take_calls();
    world.front.delay(LIST);
    let first = world.publisher().await;
    let sweeping = tokio::spawn(async move { first.sweep_schedules(soon()).await });
    world.front.arrival(LIST).await;
    assert_eq!(world.sweep_on_request().await, Swept::NotNow);
    world.front.release();
    assert!(matches!(sweeping.await.unwrap().unwrap(), Swept::Done(_)));
    assert_eq!(world.count_lists(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_sweep_is_continued() {
    let world = World::new().await;
    world.published(250).await;
    world.front.take_calls();
    world.front.delay_all();
    let killed = world.publisher().await;
    let sweeping = tokio::spawn(async move { killed.sweep_schedules(soon()).await });
    // The second page is requested while the first is compared.
    world.front.release_when_waiting(1).await;
    world.front.release_when_waiting(1).await;
    let written_down = async {
        while next_token(&world).await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, written_down).await.expect("the first page is written down");
    sweeping.abort();
    sweeping.await.unwrap_err();
    world.front.release_all();

    assert_eq!(world.sweep_on_request().await, Swept::NotNow, "its lease is still live");
    world.front.take_calls();
    world.skip(SETTLED).await;
    let found = world.sweep().await;
    assert_eq!((found.listed, found.missing), (250, 0), "what the first saw is not missing: {found:?}");
    assert_eq!(world.count_lists(), 2, "the first page is not listed again");
}

/// The commit of a page, of the last page, or of a step after it fails, and the process goes on. No page is skipped, and nothing
/// counts twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_commits_are_repeated() {
    let world = World::new().await;
    let workflows = world.in_step(250).await;
    world.execute(FAIL_ONCE).await;
    for (round, condition) in (1..).zip([
        "NEW.report ->> 'listed' = '200'",
        "NEW.listed_on IS NOT NULL AND OLD.listed_on IS NULL",
        "NEW.report ->> 'missing' = '1'",
    ]) {
        // Its name is on the second page.
        world.put_like(workflows[0], std::iter::once(format!("wf-250{round}-dev")));
        world.skip(SETTLED + QUARTER * (2 * round)).await;
        assert_eq!(world.sweep().await.orphans_waiting, 1, "{condition}");
        world.remove(workflows[7]).await;
        world.skip(SETTLED + QUARTER * (2 * round + 1)).await;
        world.fail_once_when(condition).await;
        let publisher = world.publisher().await;
        publisher.request_sweep("test").await.unwrap();
        publisher.sweep_schedules(soon()).await.unwrap_err();
        let Swept::Done(found) = publisher.sweep_schedules(soon()).await.unwrap() else { panic!("{condition}") };
        let counts = (found.listed, found.missing, found.orphan, found.orphans_deleted, found.repaired);
        assert_eq!(counts, (250, 1, 1, 1, 1), "{condition}: {found:?}");
        world.publish().await;
        assert_eq!(world.existing(&workflows).await, 250, "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_lists_continue_in_the_next_tick() {
    let world = World::new().await;
    world.published(3).await;
    world.front.next(LIST, [THROTTLED]);
    let Swept::Stopped(found) = world.sweep_on_request().await else { panic!() };
    assert_eq!((found.listed, found.stopped_by.unwrap().as_str()), (0, "EventBridge throttles our calls"));
    let another = world.publisher().await;
    let Swept::Done(found) = another.sweep_schedules(soon()).await.unwrap() else { panic!() };
    assert_eq!(found.listed, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_tokens_restart_the_list() {
    let world = World::new().await;
    world.published(3).await;
    sqlx::query(
        r#"INSERT INTO sweeps (requested_by, requested_on, next_token, report)
           VALUES ('x', cronbox_now(), 'of last week', '{"listed": 100, "skipped": 7}')"#,
    )
    .execute(&world.pool)
    .await
    .unwrap();
    assert!(matches!(world.sweep_on_request().await, Swept::Stopped(_)));
    let found = world.sweep().await;
    assert_eq!((found.listed, found.skipped), (3, 3), "what was counted before it started anew does not count");
}

/// Its lease has expired, and another publisher has finished the sweep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_sweepers_record_nothing() {
    let world = World::new().await;
    let workflow = world.in_step(1).await[0];
    world.front.delay(LIST);
    let slow = world.publisher().await;
    slow.request_sweep("test").await.unwrap();
    let sweeping = tokio::spawn(async move { slow.sweep_schedules(soon()).await });
    world.front.arrival(LIST).await;
    world.skip(SETTLED * 2).await;
    assert_eq!(world.sweep().await.listed, 1);
    world.remove(workflow).await;
    world.front.release();
    assert!(matches!(sweeping.await.unwrap().unwrap(), Swept::Stopped(_)));
    let report = sqlx::query_scalar::<_, serde_json::Value>("SELECT report FROM sweeps ORDER BY id DESC LIMIT 1");
    assert_eq!(report.fetch_one(&world.pool).await.unwrap()["missing"], 0);
    assert_eq!(world.publication(workflow).await.sync, "synced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeps_without_time_do_not_start() {
    let world = World::new().await;
    let publisher = world.publisher().await;
    assert_eq!(
        publisher.sweep_schedules(std::time::Instant::now() + Duration::from_secs(9)).await.unwrap(),
        Swept::NotNow
    );
    assert_eq!(world.count_lists(), 0);
}
