//! A client that has what it reads gets 304, and what it has leads its next edit.

use serde_json::{Value, json};
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

/// Two admins have read the same, and both write at once. One of them learns that another edit came first.
#[tokio::test]
async fn limits_and_hosts_are_not_overwritten_unseen() {
    let s = Story::today().await;
    let (admin, team) = (s.admin(), format!("/api/v1/teams/{}", s.keys.team_id));
    for (path, bodies) in [
        (format!("{team}/limits"), [json!({"workflows": 50}), json!({"workflows": 60})]),
        (format!("{team}/hosts"), [json!({"allowed_hosts": ["a.example"]}), json!({"allowed_hosts": ["b.example"]})]),
    ] {
        let put = async |seen: &str, body: &Value| {
            send_request(admin.request(reqwest::Method::PUT, &path).header("if-match", seen).json(body)).await
        };
        let seen = etag(&admin.get(&path).await.expect(200));
        // What the team uses is no edit of its limits.
        s.create("0 9 * * *", "UTC").await;
        let (one, other) = tokio::join!(put(&seen, &bodies[0]), put(&seen, &bodies[1]));
        let (made, refused) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!(made.status, 200, "{}", made.text);
        refused.refused(412, "version_mismatch", None);
        let shown = admin.get(&path).await.expect(200);
        for member in ["set", "allowed_hosts"] {
            assert_eq!(shown.json[member], made.json[member]);
        }
        // The answer to a write has the next version, and without If-Match the last write wins.
        put(&etag(&made), &bodies[0]).await.expect(200);
        send_request(admin.request(reqwest::Method::PUT, &path).json(&bodies[1])).await.expect(200);
    }
    s.end_early().await;
}
