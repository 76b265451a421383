//! A client that has what it reads gets 304, and what it has leads its next edit.

use serde_json::json;
use tests::{Answer, Api, Story, send_request};

async fn read(api: &Api, path: &str, known: &str) -> Answer {
    send_request(api.request(reqwest::Method::GET, path).header("if-none-match", known)).await
}

fn etag(answer: &Answer) -> String {
    answer.headers["etag"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
    let s = Story::today().await;
    let id = s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    s.publish().await;
    let fired = s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
    s.runs_end().await;
    let run = fired.json["run_id"].as_str().unwrap();
    let workflow = format!("/api/v1/workflows/{id}");
    let paths = [
        &workflow,
        &format!("/api/v1/schedules/{id}"),
        &format!("/api/v1/runs/{run}"),
        "/api/v1/workflows",
        "/api/v1/runs",
        "/api/v1/me",
    ];
    for path in paths {
        let tag = etag(&s.editor().get(path).await.expect(200));
        let again = read(&s.editor(), path, &format!("\"other\", {tag}")).await.expect(304);
        assert_eq!((etag(&again), again.text.as_str()), (tag, ""), "{path}");
        assert_eq!(again.headers["cache-control"], "private, no-cache");
        assert!(!read(&s.editor(), path, "\"other\"").await.expect(200).text.is_empty());
    }
    // Without an edit, only what EventBridge has is other.
    let (tag, page) = (etag(&s.editor().get(&workflow).await), etag(&s.editor().get("/api/v1/workflows").await));
    s.execute(
        "UPDATE publications SET applied_on = applied_on - INTERVAL '1 hour', desired_revision = desired_revision + 1",
    )
    .await;
    let other = read(&s.editor(), &workflow, &tag).await.expect(200);
    assert_ne!(etag(&other), tag);
    read(&s.editor(), "/api/v1/workflows", &page).await.expect(200);
    s.end_early().await;
}
