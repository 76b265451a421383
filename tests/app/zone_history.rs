//! Past times keep the zone data of their day: the proof, backfills, late fires and the watchdog use them.

use chrono::{DateTime, TimeDelta, Timelike as _, Utc};
use schedule::Clock;
use serde_json::{Value, json};
use tests::{Api, PATIENCE};
use tokio::process::Child;

use crate::startup::{serve_with, stop};
use crate::zones::{Environment, until_version};

/// All times of a span that ended at least this long ago are decided.
const UNSETTLED: TimeDelta = TimeDelta::minutes(8);

/// Starts an app whose clock and whose database's clock are ahead by this many seconds.
async fn serve_at(environment: &Environment, offset_secs: i64) -> (Child, String) {
    environment.set_clock(&format!("clock_timestamp() + make_interval(secs => {offset_secs})")).await;
    let offset = offset_secs.to_string();
    serve_with(&environment.dsn, &[("CRONBOX_CLOCK_OFFSET_SECS", &offset), ("CRONBOX_JOB_WATCHDOG", "1s")]).await
}

/// Waits until all times of a span are decided, and returns the proof.
async fn proof(admin: &Api, from: DateTime<Utc>, to: DateTime<Utc>) -> Value {
    let path = format!("/api/v1/verify?from={}&to={}", from.format("%FT%TZ"), to.format("%FT%TZ"));
    let waiting = async {
        loop {
            let answer = admin.get(&path).await;
            if answer.status == 200 {
                return answer.json;
            }
            answer.refused(400, "span_not_settled", Some("to"));
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the watchdog does not decide")
}

/// The decided times of a workflow, oldest first.
async fn decided(editor: &Api, workflow: i64) -> Vec<DateTime<Utc>> {
    let page = editor.get(&format!("/api/v1/schedules/{workflow}/occurrences?limit=200")).await.expect(200).json;
    let times = page["items"].as_array().unwrap().iter().rev();
    times.map(|item| item["scheduled_time"].as_str().unwrap().parse().unwrap()).collect()
}

/// The schedule's times are at :00 and :30 UTC until the zone data change, and at :15 and :45 afterwards.
#[tokio::test]
async fn past_times_keep_their_zone_data() {
    let environment = Environment::new("past").await;
    let hour = TimeDelta::hours(1);
    let created = Clock::System.now();
    let (changed, last) = (created + hour, created + hour * 2);
    let admin = environment.said(&["keys", "create", "--kind", "admin", "--name", "a"]).await;
    let scheduler = environment.said(&["keys", "create", "--kind", "scheduler", "--name", "s"]).await;
    let editor = environment.team_key().await;
    let apis = |url: &str| (Api::new(url, &admin), Api::new(url, &editor), Api::new(url, &scheduler));

    let (mut serving, url) = serve_at(&environment, 0).await;
    let body = json!({"name": "v", "cron_schedule": "*/30 * * * *", "timezone": "America/Vancouver",
                      "catch_up_policy": "none", "action": {"type": "log", "message": "hi"}});
    let id = apis(&url).1.post("/api/v1/workflows", &body).await.expect(201).id();
    stop(&mut serving).await;

    // One hour later, the zone data change. The decisions of the first hour must stay correct.
    let (mut serving, url) = serve_at(&environment, hour.num_seconds()).await;
    let (admin_api, editor_api, scheduler_api) = apis(&url);
    let before = proof(&admin_api, created, changed - UNSETTLED).await;
    assert!(before["due"].as_u64().unwrap() > 0 && before["differences"] == json!([]), "{before}");
    let border = environment.update("2199z", "Asia/Kathmandu").await;
    let border = border.in_force_from("2199z", "1 workflows have other next times");
    until_version(&admin_api, "2199z").await;
    let after = proof(&admin_api, created, changed - UNSETTLED).await;
    assert_eq!((&after["due"], &after["differences"]), (&before["due"], &json!([])), "{after}");

    // A backfill must select exactly these times, and a late fire is due only at one of them.
    let mut past = decided(&editor_api, id).await;
    past.retain(|time| *time < changed - UNSETTLED);
    let span = json!({"start": created, "end": changed - UNSETTLED, "dry_run": true});
    let selected = editor_api.post(&format!("/api/v1/schedules/{id}:backfill"), &span).await.expect(200).json;
    assert_eq!(serde_json::from_value::<Vec<DateTime<Utc>>>(selected["times"].clone()).unwrap(), past);
    let late = async |time: DateTime<Utc>| {
        let path = format!("/api/v1/cron/workflows/{id}:invoke");
        let answer = scheduler_api.post(&path, &json!({"scheduled_time": time, "revision": 1})).await;
        answer.expect(200).json["reason"].clone()
    };
    assert_eq!(late(past[0]).await, "too_old");
    assert_eq!(late(past[0] + TimeDelta::minutes(15)).await, "not_due");
    stop(&mut serving).await;

    // After another hour, the later times follow the new data, and the proof finds no difference.
    let (mut serving, url) = serve_at(&environment, 2 * hour.num_seconds()).await;
    let (admin_api, editor_api, _) = apis(&url);
    let proven = proof(&admin_api, created, last - UNSETTLED).await;
    assert_eq!(proven["differences"], json!([]), "{proven}");
    let (old, new): (Vec<_>, Vec<_>) = decided(&editor_api, id).await.into_iter().partition(|time| *time < border);
    assert!(!old.is_empty() && old.iter().all(|time| time.minute() % 30 == 0), "{old:?}");
    assert!(!new.is_empty() && new.iter().all(|time| time.minute() % 30 == 15), "{new:?}");
    stop(&mut serving).await;
    environment.end().await;
}
