//! The notification that wakes a publisher: one for a burst of edits, and never before the commit.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::postgres::PgListener;
use tests::{PATIENCE, Story};
use workflows::notify::Notifier;

const CHANNEL: &str = "cronbox_outbox";
/// Edits within this time after a notification share the next one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// The payload of the next notification; the app sends none.
async fn next_payload(listener: &mut PgListener) -> String {
    let notification = tokio::time::timeout(PATIENCE, listener.recv()).await.expect("a notification").unwrap();
    assert_eq!(notification.channel(), CHANNEL);
    notification.payload().to_owned()
}

async fn say(s: &Story, payload: &str) {
    sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&s.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_edits_share_few_notifications() {
    let s = Story::today().await;
    let mut listener = PgListener::connect(&s.dsn()).await.unwrap();
    listener.listen(CHANNEL).await.unwrap();
    let notifier = Notifier::default();
    let running = tokio::spawn(notifier.clone().send_notifications(s.pool.clone()));

    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(500) {
        notifier.request_notification();
        tokio::task::yield_now().await;
    }
    let lasted = started.elapsed();
    say(&s, "the storm is over").await;
    let mut notifications = 0;
    while next_payload(&mut listener).await.is_empty() {
        notifications += 1;
    }
    notifier.request_notification();
    assert_eq!(next_payload(&mut listener).await, "", "the last edit is notified");

    let most = lasted.as_millis() / DEBOUNCE.as_millis() + 2;
    assert!((1..=most).contains(&notifications), "{lasted:?} of edits made {notifications} notifications");
    running.abort();
    s.end().await;
}

#[tokio::test]
async fn refused_edits_send_no_notification() {
    let s = Story::today().await;
    let mut listener = PgListener::connect(&s.dsn()).await.unwrap();
    listener.listen(CHANNEL).await.unwrap();
    let wf = s.create("0 9 * * *", "UTC").await;
    listener.recv().await.unwrap();
    let path = format!("/api/v1/workflows/{wf}");
    s.editor().patch(&path, &json!({"cron_schedule": "0 99 * * *"})).await.refused(
        400,
        "invalid_field",
        Some("cron_schedule"),
    );
    // An edit that does not change the timing sends no notification, either.
    s.editor().patch(&path, &json!({"description": "for people"})).await.expect(200);
    let notification = tokio::time::timeout(Duration::from_millis(200), listener.recv()).await;
    assert!(notification.is_err(), "{notification:?}");
    s.publish().await;
    s.end().await;
}
