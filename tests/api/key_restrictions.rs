//! Keys with fewer scopes, with an end, and for some networks; and when and from where a key was last used.

use access::key_text::make_key_text;
use access::keys::Kind;
use serde_json::{Value, json};
use tests::{Api, Story, Way};

const MORNING: &str = "2026-03-02T09:00:00Z";

async fn create(s: &Story, body: Value) -> Value {
    s.admin().post("/api/v1/keys", &body).await.expect(201).json
}

fn api_of(s: &Story, key: &Value) -> Api {
    Api::new(s.url(), key["key"].as_str().unwrap())
}

async fn listed(s: &Story, id: &Value) -> Value {
    let all = s.admin().get("/api/v1/keys?limit=200").await.expect(200).json;
    all["items"].as_array().unwrap().iter().find(|key| key["id"] == *id).unwrap().clone()
}

/// The keys of version 0.1 have no checksum, and work until they are revoked.
#[tokio::test]
async fn keys_of_version_0_1_are_accepted() {
    let s = Story::today().await;
    s.execute(
        "INSERT INTO api_keys (id, prefix, hash, kind, name, created_on)
         VALUES (gen_random_uuid(), '0123456789ab', sha256('cb_0123456789ab_AAAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAA_'),
                 'admin', 'old', now())",
    )
    .await;
    let old = Api::new(s.url(), "cb_0123456789ab_AAAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAA_");
    old.get("/api/v1/drift").await.expect(200);
    let forged = Api::new(s.url(), "cb_0123456789ab_AAAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAAA");
    forged.get("/api/v1/drift").await.refused(401, "unauthorized", None);
    s.end().await;
}

/// The database of this instance cannot be reached, so only a key that it looks up waits for it.
#[tokio::test]
async fn wrong_checksums_read_no_database() {
    let mut s = Story::today().await;
    let mut way = Way::to(&s.dsn()).await;
    let url = s.another_url_at(way.dsn(&s.dsn())).await;
    way.cut().await;
    let key = make_key_text(Kind::Admin);
    Api::new(&url, &key).get("/api/v1/keys").await.refused(503, "database_unavailable", None);
    let last = if key.ends_with('0') { "1" } else { "0" };
    for wrong in [&*(key[..64].to_owned() + last), &key[..64], "let me in"] {
        Api::new(&url, wrong).get("/api/v1/keys").await.refused(401, "unauthorized", None);
    }
    way.mend().await;
    s.end().await;
}

/// Also while it is cached.
#[tokio::test]
async fn expired_keys_are_refused() {
    let s = Story::at(MORNING).await;
    let body = json!({"name": "k", "kind": "admin", "expires_on": "2026-03-02T10:00:00Z"});
    let key = create(&s, body).await;
    assert_eq!(key["expires_on"], "2026-03-02T10:00:00Z");
    s.now_is("2026-03-02T09:59:59Z").await;
    api_of(&s, &key).get("/api/v1/keys").await.expect(200);
    s.now_is("2026-03-02T10:00:00Z").await;
    api_of(&s, &key).get("/api/v1/keys").await.refused(401, "key_expired", None);
    let forged = access::key_text::add_checksum(key["prefix"].as_str().unwrap().to_owned() + &"A".repeat(43));
    Api::new(s.url(), &forged).get("/api/v1/keys").await.refused(401, "unauthorized", None);
    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap())).await.expect(200);
    api_of(&s, &key).get("/api/v1/keys").await.refused(401, "unauthorized", None);
    s.end().await;
}

#[tokio::test]
async fn keys_are_accepted_from_their_networks() {
    let s = Story::today().await;
    let of = |cidrs: Value| json!({"name": "k", "kind": "admin", "allowed_cidrs": cidrs});
    let far = create(&s, of(json!(["10.0.0.0/8", "2001:db8::/32"]))).await;
    assert_eq!(far["allowed_cidrs"], json!(["10.0.0.0/8", "2001:db8::/32"]));
    api_of(&s, &far).get("/api/v1/keys").await.refused(403, "address_not_allowed", None);
    let near = create(&s, of(json!(["10.0.0.0/8", "127.0.0.1"]))).await;
    api_of(&s, &near).get("/api/v1/keys").await.expect(200);
    assert_eq!(listed(&s, &near["id"]).await["allowed_cidrs"], json!(["10.0.0.0/8", "127.0.0.1/32"]));
    let forged = access::key_text::add_checksum(far["prefix"].as_str().unwrap().to_owned() + &"A".repeat(43));
    Api::new(s.url(), &forged).get("/api/v1/keys").await.refused(401, "unauthorized", None);
    s.end().await;
}

#[tokio::test]
async fn restrictions_that_are_not_valid_are_refused() {
    let s = Story::at(MORNING).await;
    let team = s.keys.team_id;
    let viewer =
        |scopes: Value| json!({"name": "k", "kind": "team", "team_id": team, "role": "viewer", "scopes": scopes});
    let admin = |field: &str, value: Value| json!({"name": "k", "kind": "admin", field: value});
    let refused = [
        (viewer(json!(["edit"])), "scopes"),
        (viewer(json!(["auditor"])), "scopes"),
        (viewer(json!([])), "scopes"),
        (json!({"name": "k", "kind": "scheduler", "scopes": ["read"]}), "scopes"),
        (admin("scopes", json!(["invoke"])), "scopes"),
        (admin("expires_on", json!(MORNING)), "expires_on"),
        (admin("expires_on", json!("+20000-01-01T00:00:00Z")), "expires_on"),
        (admin("allowed_cidrs", json!([])), "allowed_cidrs"),
        (admin("allowed_cidrs", json!(["10.1.2.3/8"])), "allowed_cidrs"),
        (admin("allowed_cidrs", json!(["example.com"])), "allowed_cidrs"),
        (admin("allowed_cidrs", json!(vec!["10.0.0.0/8"; 51])), "allowed_cidrs"),
    ];
    for (body, field) in refused {
        s.admin().post("/api/v1/keys", &body).await.refused(400, "invalid_field", Some(field));
    }
    s.admin().post("/api/v1/keys", &admin("scopes", json!(["root"]))).await.expect(400);
    assert_eq!(create(&s, viewer(json!(["read"]))).await["scopes"], json!(["read"]));
    assert_eq!(create(&s, json!({"name": "k", "kind": "admin"})).await["scopes"], json!(["admin"]));
    s.end().await;
}

/// The audit log says what a key was given.
#[tokio::test]
async fn restrictions_are_audited() {
    let s = Story::at(MORNING).await;
    let body = json!({"name": "k", "kind": "admin", "scopes": ["auditor"], "allowed_cidrs": ["10.0.0.0/8"],
                      "expires_on": "2026-03-02T10:00:00Z"});
    create(&s, body).await;
    let entry = s.table("SELECT after::text FROM audit_log WHERE verb = 'create' ORDER BY id DESC LIMIT 1").await;
    let entry: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(entry["scopes"], json!(["auditor"]));
    assert_eq!(entry["allowed_cidrs"], json!(["10.0.0.0/8"]));
    assert_eq!(entry["expires_on"], "2026-03-02T10:00:00Z");
    s.end().await;
}

/// Two instances write at most one use a minute, and the requests themselves write nothing.
#[tokio::test]
async fn uses_are_written_once_a_minute() {
    let s = Story::at(MORNING).await;
    let key = create(&s, json!({"name": "k", "kind": "admin"})).await;
    let write = async || s.app().gate.write_key_uses(&s.app().pools.work).await.unwrap();
    api_of(&s, &key).get("/api/v1/keys").await.expect(200);
    let shown = listed(&s, &key["id"]).await;
    assert_eq!((&shown["last_used_on"], &shown["last_used_from"]), (&Value::Null, &Value::Null));
    write().await;
    let shown = listed(&s, &key["id"]).await;
    assert_eq!((&shown["last_used_on"], &shown["last_used_from"]), (&json!(MORNING), &json!("127.0.0.1")));
    for (now, written) in [("2026-03-02T09:00:59Z", MORNING), ("2026-03-02T09:01:00Z", "2026-03-02T09:01:00Z")] {
        s.now_is(now).await;
        api_of(&s, &key).get("/api/v1/keys").await.expect(200);
        write().await;
        assert_eq!(listed(&s, &key["id"]).await["last_used_on"], written);
    }
    s.end().await;
}

/// They are written when the database answers again.
#[tokio::test]
async fn uses_survive_a_failure_of_the_database() {
    let s = Story::at(MORNING).await;
    let key = create(&s, json!({"name": "k", "kind": "admin"})).await;
    api_of(&s, &key).get("/api/v1/keys").await.expect(200);
    s.execute("ALTER TABLE api_keys RENAME TO moved").await;
    assert!(s.app().gate.write_key_uses(&s.app().pools.work).await.is_err());
    s.execute("ALTER TABLE moved RENAME TO api_keys").await;
    s.app().gate.write_key_uses(&s.app().pools.work).await.unwrap();
    assert_eq!(listed(&s, &key["id"]).await["last_used_on"], MORNING);
    s.end().await;
}
