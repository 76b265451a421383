//! The ledger's statistics: correct in an example, limited to the caller's team, and zero for alarms if all is well.

use serde_json::{Value, json};
use tests::{Api, Story};

async fn stats(api: &Api, query: &str) -> Value {
    api.get(&format!("/api/v1/stats{query}")).await.expect(200).json
}

#[tokio::test]
async fn a_healthy_day_counts_no_failures() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    let reply = stats(&s.editor(), "").await;
    assert_eq!(reply["fire_delay"], json!({"count": 3, "p50_s": 0.0, "p95_s": 0.0, "max_s": 0}));
    assert_eq!((&reply["occurrences"]["fired"], &reply["executions"]["successful"]), (&json!(3), &json!(3)));
    assert_eq!(reply["executions"]["success_rate"], json!(1.0));
    for alarming in
        ["/occurrences/missed", "/occurrences/abandoned", "/executions/lost", "/recoveries/attempts", "/live_runs"]
    {
        assert_eq!(reply.pointer(alarming), Some(&json!(0)), "{alarming}");
    }
    assert_eq!(reply["oldest_unresolved"], Value::Null);
    assert_eq!(stats(&s.editor(), &format!("?workflow_id={id}&hours=1")).await["occurrences"]["fired"], json!(2));
    s.editor().get("/api/v1/stats?hours=0").await.refused(400, "invalid_field", Some("hours"));
    s.end().await;
}

#[tokio::test]
async fn missed_late_and_lost_runs_are_counted() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/15 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T10:10:00Z").await;
    s.execute(
        "UPDATE occurrences SET decision = 'missed', run_id = NULL WHERE scheduled_time = '2026-03-02T09:15:00Z'",
    )
    .await;
    s.execute("UPDATE occurrences SET lateness_s = 40 WHERE scheduled_time = '2026-03-02T09:30:00Z'").await;
    s.execute("UPDATE runs SET recoveries = 2 WHERE scheduled_time = '2026-03-02T09:45:00Z'").await;
    s.execute(
        "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on, finished_on, recoveries)
         SELECT gen_random_uuid(), id, 'catch_up', 'abandoned', '2026-03-02T09:15:00Z', '2026-03-02T09:20:00Z',
                '2026-03-02T09:20:00Z', '2026-03-02T10:00:00Z', 3 FROM workflows",
    )
    .await;
    s.execute("UPDATE ledger SET watch_at = '2026-03-02T10:00:00Z'").await;
    let reply = stats(&s.editor(), &format!("?workflow_id={id}")).await;
    assert_eq!((&reply["occurrences"]["missed"], &reply["fire_delay"]["max_s"]), (&json!(1), &json!(40)));
    assert_eq!(
        reply["executions"],
        json!({"total": 6, "successful": 5, "lost": 1, "handed_over": 0, "cut_off": 0, "success_rate": 5.0 / 6.0})
    );
    let recoveries = json!({"attempts": 5, "successful": 1, "failed": 0, "abandoned": 1, "success_rate": 0.5});
    assert_eq!(reply["recoveries"], recoveries);
    assert_eq!(reply["ledger_lag_s"], json!(5 * 60), "ten minutes less the grace");
    let text = Api::without_key(s.url()).get("/metrics").await.expect(200).text;
    for line in [
        "cronbox_occurrences{decision=\"missed\"} 1",
        "cronbox_occurrences{decision=\"caught_up\"} 0",
        "cronbox_runs_lost 1",
        "cronbox_recovery_attempts 5",
        "cronbox_ledger_lag_seconds 300",
    ] {
        assert!(text.lines().any(|reply| reply == line), "{line} is not in\n{text}");
    }
    s.end_early().await;
}

#[tokio::test]
async fn a_team_sees_its_own_figures() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let id = s.create("*/30 * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:10:00Z").await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let stranger = Api::new(s.url(), key["key"].as_str().unwrap());
    assert_eq!(stats(&stranger, "").await["occurrences"]["fired"], json!(0));
    stranger.get(&format!("/api/v1/stats?workflow_id={id}")).await.refused(404, "not_found", None);
    assert_eq!(stats(&s.admin(), "").await["occurrences"]["fired"], json!(1));
    s.end().await;
}
