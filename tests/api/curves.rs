//! What a curve shows: what was decided and what ended by buckets of time, and what comes.

use serde_json::{Value, json};
use tests::Story;

use crate::tenant_isolation::another_team;

#[tokio::test]
async fn stats_by_bucket_add_up_to_the_whole() {
    let s = Story::at("2026-03-02T08:58:30Z").await;
    let workflow = s.create("* * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:12:30Z").await;
    s.runs_end().await;
    for moved in [false, true] {
        if moved {
            s.job("statistics").await;
        }
        let stats = s.editor().get("/api/v1/stats?hours=1&bucket_secs=300").await.expect(200).json;
        let buckets = stats["buckets"].as_array().unwrap();
        let fired: Vec<_> = buckets.iter().map(|bucket| bucket["occurrences"]["fired"].as_i64().unwrap()).collect();
        // The span begins at 08:12, and so do its buckets of five minutes.
        assert_eq!(fired, [3, 5, 5, 1], "{buckets:?}");
        assert_eq!(buckets[0]["from"], "2026-03-02T08:57:00Z");
        assert_eq!(fired.iter().sum::<i64>(), stats["occurrences"]["fired"].as_i64().unwrap());
        let sum = |name: &str| buckets.iter().map(|bucket| bucket[name].as_i64().unwrap()).sum::<i64>();
        assert_eq!(
            json!([sum("runs"), sum("successful")]),
            json!([stats["executions"]["total"], stats["executions"]["successful"]])
        );
        let admin = s.admin().get("/api/v1/stats?hours=1&bucket_secs=300").await.expect(200).json;
        assert_eq!(&admin["buckets"], &stats["buckets"], "all teams are this team");
    }
    assert_eq!(s.editor().get("/api/v1/stats").await.expect(200).json["buckets"], Value::Null);
    let stranger = another_team(&s, "strangers").await;
    assert_eq!(stranger.get("/api/v1/stats?bucket_secs=60").await.expect(200).json["buckets"], json!([]));
    let too_many = "/api/v1/stats?hours=168&bucket_secs=60";
    for refused in
        [too_many, "/api/v1/stats?bucket_secs=90", &format!("/api/v1/stats?bucket_secs=60&workflow_id={workflow}")]
    {
        s.editor().get(refused).await.refused(400, "invalid_field", Some("bucket_secs"));
    }
    s.end_early().await;
}

#[tokio::test]
async fn what_comes_is_counted_by_bucket() {
    let s = Story::at("2026-03-02T08:58:30Z").await;
    for name in ["a", "b", "c"] {
        s.create_with(json!({"name": name, "cron_schedule": "0 * * * *", "timezone": "UTC"})).await;
    }
    let paused = s.create_with(json!({"name": "paused", "cron_schedule": "* * * * *", "timezone": "UTC"})).await;
    s.pause(paused).await;
    s.create_with(json!({"name": "paris", "cron_schedule": "30 10 * * *", "timezone": "Europe/Paris"})).await;
    let upcoming = s.editor().get("/api/v1/upcoming?hours=2&bucket_secs=600").await.expect(200).json;
    let buckets = json!([
        {"from": "2026-03-02T08:58:00Z", "due": 3},
        {"from": "2026-03-02T09:28:00Z", "due": 1},
        {"from": "2026-03-02T09:58:00Z", "due": 3},
    ]);
    assert_eq!(upcoming["buckets"], buckets, "{upcoming}");
    assert_eq!((&upcoming["from"], &upcoming["to"]), (&json!("2026-03-02T08:58:00Z"), &json!("2026-03-02T10:58:00Z")));
    let stranger = another_team(&s, "strangers").await;
    assert_eq!(stranger.get("/api/v1/upcoming").await.expect(200).json["buckets"], json!([]));
    for (refused, field) in [("hours=49", "hours"), ("bucket_secs=61", "bucket_secs"), ("bucket_secs=0", "bucket_secs")]
    {
        s.editor().get(&format!("/api/v1/upcoming?{refused}")).await.refused(400, "invalid_field", Some(field));
    }
    s.publish().await;
    s.end_early().await;
}
