//! What only Prometheus sees: instances of the app, their clocks, their jobs and what they refuse.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tests::{Api, PATIENCE, Way};
use tokio::process::{Child, Command};

use crate::scene::Scene;

#[tokio::test]
async fn no_instance_answers() {
    let mut scene = Scene::new().await;
    scene.observe(5).await;
    scene.silent("", "CronboxAppDown");
    let url = scene.scraped.take();
    scene.observe(10).await;
    scene.rings("", "CronboxAppDown");
    scene.walk("app-down", &[]).await;
    scene.scraped = url;
    scene.observe(5).await;
    scene.silent("", "CronboxAppDown");
    scene.end().await;
}

#[tokio::test]
async fn an_instance_reaches_no_database() {
    let mut scene = Scene::new().await;
    let dsn = scene.dsn();
    let mut way = Way::to(&dsn).await;
    scene.scraped = Some(scene.story.another_url_at(way.dsn(&dsn)).await);
    scene.observe(5).await;
    scene.silent("", "CronboxDatabaseUnreachable");
    way.cut().await;
    scene.observe(6).await;
    scene.rings("", "CronboxDatabaseUnreachable");
    scene.walk("database-unreachable", &[]).await.shows("database").shows("active");
    way.mend().await;
    scene.observe(5).await;
    scene.silent("", "CronboxDatabaseUnreachable");
    scene.end().await;
}

/// An instance in its own process, whose clock is wrong by so many seconds.
async fn instance(scene: &Scene, offset_secs: &str) -> (Child, String) {
    let address = format!("127.0.0.1:{}", tests::find_kept_port());
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox-app"));
    command.arg("serve").env_clear().env("RUST_LOG", "off").kill_on_drop(true).stdout(Stdio::null());
    command.envs([("DATABASE_URL", &*scene.dsn()), ("CRONBOX_BIND_ADDR", &*address)]);
    let process = command.env("CRONBOX_CLOCK_OFFSET_SECS", offset_secs).spawn().unwrap();
    let url = format!("http://{address}");
    let (api, began) = (Api::without_key(&url), Instant::now());
    while !api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
        assert!(began.elapsed() < PATIENCE, "the instance is never ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (process, url)
}

#[tokio::test]
async fn a_clock_is_wrong() {
    let mut scene = Scene::on_the_machines_clock().await;
    let (right, url) = instance(&scene, "0").await;
    scene.scraped = Some(url);
    scene.observe(6).await;
    scene.silent("", "CronboxClockSkew");
    drop(right);
    let (wrong, url) = instance(&scene, "60").await;
    scene.scraped = Some(url);
    scene.observe(10).await;
    scene.rings("", "CronboxClockSkew");
    scene.walk("clock-skew", &[]).await.shows("\"takes_jobs\":false");
    drop(wrong);
    let (_right, url) = instance(&scene, "0").await;
    scene.scraped = Some(url);
    scene.observe(6).await;
    scene.silent("", "CronboxClockSkew");
    scene.end().await;
}

#[tokio::test]
async fn a_job_fails() {
    let mut scene = Scene::with(|config| config.jobs_enabled = true).await;
    scene.until("SELECT LEAST(count(*), 1) FROM jobs", 1).await;
    scene.skip(5).await;
    scene.until("SELECT LEAST(count(*), 1) FROM jobs WHERE name = 'audit' AND last_run IS NOT NULL", 1).await;
    scene.observe(6).await;
    scene.silent("", "CronboxJobFails");
    scene.execute("ALTER TABLE failed_logins RENAME TO elsewhere").await;
    scene.skip(5).await;
    scene.until("SELECT count(*) FROM jobs WHERE name = 'audit' AND last_error IS NOT NULL", 1).await;
    scene.observe(15).await;
    scene.rings("", "CronboxJobFails");
    scene.walk("jobs", &[]).await.shows("failed_logins");
    scene.execute("ALTER TABLE elsewhere RENAME TO failed_logins").await;
    scene.skip(5).await;
    scene.until("SELECT count(*) FROM jobs WHERE name = 'audit' AND last_error IS NOT NULL", 0).await;
    scene.observe(6).await;
    scene.silent("", "CronboxJobFails");
    scene.end().await;
}

#[tokio::test]
async fn a_client_tries_keys() {
    let mut scene = Scene::new().await;
    Api::new(scene.url(), "unknown").get("/api/v1/me").await.expect(401);
    scene.observe(12).await;
    scene.silent("", "CronboxKeysTried");
    let thief = Api::new(scene.url(), "cbt_unknown");
    for _ in 0..800 {
        thief.get("/api/v1/me").await.expect(401);
    }
    scene.observe(8).await;
    scene.rings("", "CronboxKeysTried");
    scene.walk("refusals", &[]).await.shows("reason=\"unauthorized\"");
    scene.observe(15).await;
    scene.silent("", "CronboxKeysTried");
    scene.end().await;
}
