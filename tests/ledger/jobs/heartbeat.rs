//! The heartbeat: an outside service is pinged while cronbox is healthy, and only then.

use std::time::Duration;

use tests::{Api, Story, Way};

use crate::receiver::Receiver;

/// The first turn of a job is due within 5 s after the start.
const FIRST: &str = "2026-03-02T08:30:06Z";
/// More than 66 s later, which is the interval with its jitter.
const SECOND: &str = "2026-03-02T08:31:13Z";

/// A stack, and a second instance that runs all jobs, pings the receiver, and reaches the database by this DSN. Its address.
async fn pinging(s: &mut Story, receiver: &Receiver, dsn: String) -> String {
    let url = format!("{}/secret", receiver.url);
    let instance = s.another_app_with(|config| {
        config.jobs_enabled = true;
        config.heartbeat_url = Some(url);
        config.database_url = dsn;
    });
    let instance = instance.await.unwrap();
    s.until("SELECT count(*) FROM jobs WHERE name = 'heartbeat'", 1).await;
    instance
}

async fn pings(instance: &str, outcome: &str) -> u64 {
    let page = Api::without_key(instance).get("/metrics").await.expect(200).text;
    let name = format!("cronbox_heartbeat_pings_total{{outcome=\"{outcome}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&*name)).unwrap().parse().unwrap()
}

async fn until_failed(s: &Story) -> String {
    s.until("SELECT count(*) FROM jobs WHERE name = 'heartbeat' AND last_result = 'failed'", 1).await;
    s.table("SELECT last_error FROM jobs WHERE name = 'heartbeat'").await
}

#[tokio::test]
async fn a_healthy_service_pings_every_minute() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let receiver = Receiver::kind().await;
    let dsn = s.dsn();
    let instance = pinging(&mut s, &receiver, dsn).await;
    s.now_is(FIRST).await;
    receiver.until(1).await;
    s.until("SELECT count(*) FROM jobs WHERE locked_by IS NOT NULL", 0).await;
    s.now_is(SECOND).await;
    receiver.until(2).await;
    // A turn is counted when it begins, and the result is that of the one before until it ends.
    let ended = "SELECT count(*) FROM jobs
                  WHERE name = 'heartbeat' AND run_count = 2 AND locked_by IS NULL AND last_result = 'success'";
    s.until(ended, 1).await;
    assert_eq!(pings(&instance, "sent").await, 2);
    assert!(receiver.received().iter().all(|ping| ping.body.is_empty()));
    s.end().await;
}

/// An instance that is lost has the leases of all watchdogs, and its clock says that it has them for hours.
#[tokio::test]
async fn no_ping_while_the_watchdog_is_stuck() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let receiver = Receiver::kind().await;
    let dsn = s.dsn();
    let instance = pinging(&mut s, &receiver, dsn).await;
    s.now_is(FIRST).await;
    receiver.until(1).await;
    s.until("SELECT count(*) FROM jobs WHERE locked_by IS NOT NULL", 0).await;
    s.execute(
        "UPDATE jobs SET locked_by = gen_random_uuid(), locked_until = '2026-03-02T12:00:00Z', next_run = '2026-03-02T08:31:00Z'
          WHERE name LIKE 'watchdog%'",
    )
    .await;
    s.now_is("2026-03-02T08:37:10Z").await;
    let error = until_failed(&s).await;
    assert!(error.starts_with("no ping sent: no turn of the watchdog"), "{error}");
    assert_eq!((receiver.received().len(), pings(&instance, "withheld").await), (1, 1));
    s.execute("UPDATE jobs SET locked_by = NULL, locked_until = NULL WHERE name LIKE 'watchdog%'").await;
    s.until("SELECT LEAST(count(*), 1) FROM jobs WHERE name LIKE 'watchdog%' AND next_run > cronbox_now()", 1).await;
    s.now_is("2026-03-02T08:38:20Z").await;
    receiver.until(2).await;
    s.end().await;
}

#[tokio::test]
async fn no_ping_without_the_database() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let receiver = Receiver::kind().await;
    let mut way = Way::to(&s.dsn()).await;
    let dsn = way.dsn(&s.dsn());
    pinging(&mut s, &receiver, dsn).await;
    s.now_is(FIRST).await;
    receiver.until(1).await;
    s.until("SELECT count(*) FROM jobs WHERE locked_by IS NOT NULL", 0).await;
    way.cut().await;
    s.now_is(SECOND).await;
    // By then the instance has checked twice for due jobs.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(receiver.received().len(), 1);
    way.mend().await;
    receiver.until(2).await;
    s.end().await;
}

/// The receiver is down: that is an error of the job and a metric, and all other jobs run.
#[tokio::test]
async fn a_failed_ping_delays_no_other_job() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let receiver = Receiver::answering(&[(503, "")]).await;
    let dsn = s.dsn();
    let instance = pinging(&mut s, &receiver, dsn).await;
    s.now_is(FIRST).await;
    let error = until_failed(&s).await;
    assert_eq!(error, "ping failed: the receiver answered 503 Service Unavailable");
    assert_eq!(pings(&instance, "failed").await, 1);
    s.until("SELECT count(*) FROM jobs WHERE name = 'recovery' AND last_result = 'skipped'", 1).await;
    s.now_is(SECOND).await;
    receiver.until(2).await;
    s.end().await;
}
