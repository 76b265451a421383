//! `/metrics` of the app: what operators, rules and the dashboard read.

use std::time::Duration;

use local::stack::StackOptions;
use reqwest::Method;
use serde_json::json;
use tests::metric_names::{check_with_promtool, documented_names, metric_names, sampled_names, used_names};
use tests::{Api, PATIENCE, Story, find_kept_port};

async fn page_of(s: &Story) -> String {
    Api::without_key(s.url()).get("/metrics").await.expect(200).text
}

fn has(page: &str, line: &str) -> bool {
    page.lines().any(|one| one == line)
}

/// The first page that has these lines. An instance counts an end and frees its slot only after Postgres has committed
/// the end, so a test that reads Postgres may see the end before the page has it.
async fn page_with(s: &Story, lines: &[&str]) -> String {
    let waiting = async {
        loop {
            let page = page_of(s).await;
            if lines.iter().all(|line| has(&page, line)) {
                return page;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("no page has {lines:?}"))
}

/// Every metric has a sample after a fire, a refused request and the start of the jobs.
#[tokio::test]
async fn the_page_has_what_rules_and_documents_name() {
    let options = StackOptions {
        now: Some("2026-03-02T08:59:00Z".parse().unwrap()),
        app: |config| config.jobs_enabled = true,
        ..StackOptions::default()
    };
    let s = Story::with(options).await;
    s.until("SELECT LEAST(count(*), 1) FROM jobs", 1).await;
    s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    Api::new(s.url(), "wrong").get("/api/v1/workflows").await.expect(401);
    s.job("queue").await;

    let page = page_of(&s).await;
    let is_ours = |name: &&String| !name.starts_with("cronbox_publisher_");
    let (used, sampled) = (used_names(), sampled_names(&page));
    let missing: Vec<_> = used.iter().filter(is_ours).filter(|name| !sampled.contains(*name)).collect();
    assert!(missing.is_empty(), "rules or dashboard use {missing:?}, which is not in\n{page}");
    let (documented, shown) = (documented_names(), metric_names(&page));
    assert_eq!(documented.iter().filter(is_ours).collect::<Vec<_>>(), shown.iter().collect::<Vec<_>>());
    check_with_promtool(&page);
    s.end().await;
}

/// A client may request any path with any method: no series names it.
#[tokio::test]
async fn requests_are_counted_by_route() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.editor().get(&format!("/api/v1/workflows/{wf}")).await.expect(200);
    s.editor().get("/api/v1/workflows/999999").await.expect(404);
    s.editor().post("/api/v1/workflows/999999:pause", &json!({})).await.expect(404);
    Api::without_key(s.url()).get("/canary-1").await.expect(404);
    let odd = Method::from_bytes(b"CANARY2").unwrap();
    tests::send_request(Api::without_key(s.url()).request(odd, "/canary-3")).await;
    let page = page_of(&s).await;
    for line in [
        "cronbox_http_requests_total{method=\"GET\",route=\"/api/v1/workflows/{id}\",status=\"2xx\"} 1",
        "cronbox_http_requests_total{method=\"GET\",route=\"/api/v1/workflows/{id}\",status=\"4xx\"} 1",
        "cronbox_http_requests_total{method=\"POST\",route=\"/api/v1/workflows/{id}:pause\",status=\"4xx\"} 1",
        "cronbox_http_requests_total{method=\"GET\",route=\"other\",status=\"4xx\"} 1",
        "cronbox_http_request_duration_seconds_count{method=\"GET\",route=\"/api/v1/workflows/{id}\"} 2",
        // The one for this page.
        "cronbox_http_requests_in_flight 1",
    ] {
        assert!(has(&page, line), "{line} is not in\n{page}");
    }
    assert!(!page.to_lowercase().contains("canary"), "{page}");
    s.end().await;
}

/// Ends of actions, attempts and the use of slots, of this instance.
#[tokio::test]
async fn actions_are_counted_by_outcome() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    // Nothing listens there.
    let url = format!("http://127.0.0.1:{}/", find_kept_port());
    let action = json!({"type": "http", "method": "POST", "url": url});
    let fields = json!({"action": action, "cron_schedule": "0 9 * * *", "timezone": "UTC", "pause_after_failures": 1});
    s.create_with(fields).await;
    s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    s.until("SELECT count(*) FROM workflows WHERE state = 'paused'", 1).await;
    let ended = [
        "cronbox_action_duration_seconds_count{action=\"http\",outcome=\"no_answer\"} 1",
        "cronbox_action_duration_seconds_count{action=\"log\",outcome=\"succeeded\"} 1",
        "cronbox_executor_slots_used 0",
    ];
    let page = page_with(&s, &ended).await;
    for line in [
        "cronbox_action_duration_seconds_count{action=\"http\",outcome=\"succeeded\"} 0",
        "cronbox_fire_delay_seconds_count 2",
        "cronbox_executor_slots 1000",
        "cronbox_workflows{state=\"active\",paused_by=\"\"} 1",
        "cronbox_workflows{state=\"paused\",paused_by=\"cronbox\"} 1",
        "cronbox_workflows{state=\"paused\",paused_by=\"client\"} 0",
        "cronbox_runs_unfinished{state=\"running\"} 0",
        "cronbox_runs_waiting_seconds 0.0",
        "cronbox_runs_total{state=\"failed\"} 0",
        // No job has taken a turn yet.
        "cronbox_notification_attempts_total{outcome=\"sent\"} 0",
        "cronbox_notification_attempts_total{outcome=\"failed\"} 0",
        "cronbox_database_up 1",
        concat!("cronbox_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(has(&page, line), "{line} is not in\n{page}");
    }
    let attempts: u64 = page
        .lines()
        .filter_map(|line| line.strip_prefix("cronbox_executor_attempts_total{")?.split_once("} "))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum();
    assert_eq!(attempts, 2);
    s.end().await;
}

/// Without the database, the page has the values of this instance, and says why the others are missing.
#[tokio::test]
async fn the_page_needs_no_database() {
    let s = Story::today().await;
    s.execute("ALTER TABLE jobs RENAME TO elsewhere").await;
    let page = page_of(&s).await;
    assert!(has(&page, "cronbox_database_up 0"), "{page}");
    assert!(!page.contains("cronbox_workflows{") && page.contains("cronbox_executor_slots "), "{page}");
    s.execute("ALTER TABLE elsewhere RENAME TO jobs").await;
    s.end().await;
}
