//! The notification that wakes a publisher: one for a burst of edits, and never before the commit.

use std::time::{Duration, Instant};

use app::nudge::Nudge;
use serde_json::json;
use sqlx::postgres::PgListener;
use tests::{PATIENCE, Story};

const CHANNEL: &str = "cronbox_outbox";
/// Edits within this time after a notification share the next one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// The payload of the next notification; the app sends none.
async fn heard(listener: &mut PgListener) -> String {
    let word = tokio::time::timeout(PATIENCE, listener.recv()).await.expect("no word").unwrap();
    assert_eq!(word.channel(), CHANNEL);
    word.payload().to_owned()
}

async fn say(s: &Story, payload: &str) {
    sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&s.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_edits_is_told_in_few_words_and_the_last_edit_is_told() {
    let s = Story::today().await;
    let mut listener = PgListener::connect(&s.dsn()).await.unwrap();
    listener.listen(CHANNEL).await.unwrap();
    let nudge = Nudge::default();
    let running = tokio::spawn(nudge.clone().run(s.pool.clone()));

    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        nudge.poke();
        tokio::task::yield_now().await;
    }
    let lasted = begun.elapsed();
    say(&s, "the storm is over").await;
    let mut words = 0;
    while heard(&mut listener).await.is_empty() {
        words += 1;
    }
    nudge.poke();
    assert_eq!(heard(&mut listener).await, "", "the last edit is told");

    let most = lasted.as_millis() / DEBOUNCE.as_millis() + 2;
    assert!((1..=most).contains(&words), "{lasted:?} of edits made {words} words");
    running.abort();
    s.end().await;
}

#[tokio::test]
async fn an_edit_that_is_refused_says_no_word() {
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
    let word = tokio::time::timeout(Duration::from_millis(200), listener.recv()).await;
    assert!(word.is_err(), "{word:?}");
    s.publish().await;
    s.end().await;
}
