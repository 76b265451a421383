//! The audit log: who changed what, from where and in which request.

use reqwest::Method;
use serde_json::json;
use tests::Story;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn entries_name_key_address_and_trace() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let request = s.editor().request(Method::PATCH, &format!("/api/v1/workflows/{wf}"));
    let request = request.header("traceparent", format!("00-{TRACE}-1111111111111111-01")).json(&json!({"name": "n"}));
    tests::send_request(request).await.expect(200);
    let origin = "SELECT concat_ws(' ', verb, team_id, actor_name, source_address, trace_id) FROM audit_log
                   WHERE subject LIKE 'workflow:%' AND verb = 'update'";
    assert_eq!(s.table(origin).await, format!("update {} local editor 127.0.0.1 {TRACE}", s.keys.team_id));
    let untraced = "SELECT count(*) FROM audit_log WHERE verb = 'create' AND subject LIKE 'workflow:%'
                       AND length(trace_id) = 32 AND source_address = '127.0.0.1'";
    assert_eq!(s.count(untraced).await, 1, "the app gives a trace to a request that has none");
    s.publish().await;
    s.end().await;
}

/// So that the members of the team may read them.
#[tokio::test]
async fn entries_name_the_team_of_their_object() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    let run = s.editor().post_empty(&format!("/api/v1/schedules/{wf}:fire")).await.expect(202).json;
    s.runs_end().await;
    s.editor().post_empty(&format!("/api/v1/runs/{}:retry", run["run_id"].as_str().unwrap())).await.expect(202);
    s.runs_end().await;
    let span = json!({"start": "2026-03-01T08:00:00Z", "end": "2026-03-02T08:00:00Z", "only": "all", "timing": "now"});
    let backfill = s.editor().post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202).json;
    let backfill = format!("/api/v1/backfills/{}:cancel", backfill["id"].as_str().unwrap());
    s.editor().post_empty(&backfill).await.expect(200);
    let team = s.keys.team_id;
    let key = json!({"name": "k", "kind": "team", "team_id": team, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap())).await.expect(200);
    s.admin().post("/api/v1/drift:check", &json!({})).await.expect(202);
    let without = "SELECT DISTINCT split_part(subject, ':', 1) FROM audit_log WHERE team_id IS NULL ORDER BY 1";
    let of_admins = "SELECT count(*) FROM audit_log a JOIN api_keys k ON a.subject = 'key:' || k.id
                      WHERE (a.team_id IS NULL) <> (k.team_id IS NULL)";
    assert_eq!(s.table(without).await, "key\nsweep");
    assert_eq!(s.count(of_admins).await, 0);
    let with = "SELECT DISTINCT split_part(subject, ':', 1) FROM audit_log WHERE team_id IS NOT NULL ORDER BY 1";
    assert_eq!(s.table(with).await, "backfill\nkey\nrun\nteam\nworkflow");
    s.end_early().await;
}
