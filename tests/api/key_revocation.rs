//! Revoking a key: the audit log records it once, and each answer shows the same time.

use serde_json::{Value, json};
use tests::Story;

/// With a clock of whole seconds, this test could not see that Postgres stores only microseconds.
const NANOSECONDS: &str = "2026-03-02T09:00:00.123456789Z";

const REVOCATIONS: &str = "SELECT count(*) FROM audit_log WHERE verb = 'revoke'";

async fn admin_key(s: &Story) -> Value {
    s.admin().post("/api/v1/keys", &json!({"kind": "admin", "name": "k"})).await.expect(201).json
}

#[tokio::test]
async fn a_revocation_is_audited_once() {
    let s = Story::at(NANOSECONDS).await;
    let revoke = format!("/api/v1/keys/{}:revoke", admin_key(&s).await["id"].as_str().unwrap());
    let first = s.admin().post_empty(&revoke).await.expect(200).json;
    assert_eq!(s.count(REVOCATIONS).await, 1);
    s.now_is("2026-03-02T10:00:00.5Z").await;
    let second = s.admin().post_empty(&revoke).await.expect(200).json;
    assert_eq!(s.count(REVOCATIONS).await, 1, "the second revocation changes nothing");
    assert_eq!(first["revoked_on"], second["revoked_on"], "the first revocation counts");
    s.admin().post_empty("/api/v1/keys/00000000-0000-0000-0000-000000000000:revoke").await.refused(
        404,
        "not_found",
        None,
    );
    s.end().await;
}

#[tokio::test]
async fn answered_times_equal_later_reads() {
    let s = Story::today().await;
    let made = admin_key(&s).await;
    let listed = s.admin().get("/api/v1/keys?limit=200").await.expect(200).json;
    let same = listed["items"].as_array().unwrap().iter().find(|key| key["id"] == made["id"]).unwrap();
    assert_eq!(same["created_on"], made["created_on"]);
    s.end().await;
}
