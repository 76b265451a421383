//! The owner of a key rotates it, without an admin.

use std::net::IpAddr;
use std::time::Instant;

use access::gate::{Admission, KeyPools};
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};

const CREATED: &str = "2026-03-02T09:00:00Z";
const ROTATED: &str = "2026-03-02T09:30:00Z";

/// An editor's key that only reads, until eleven; at half past nine.
async fn viewer(s: &Story) -> (Value, Api) {
    let body = json!({"name": "v", "kind": "team", "team_id": s.keys.team_id, "role": "editor", "scopes": ["read"],
                      "allowed_cidrs": ["127.0.0.0/8"], "expires_on": "2026-03-02T11:00:00Z"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    s.now_is(ROTATED).await;
    let api = Api::new(s.url(), key["key"].as_str().unwrap());
    (key, api)
}

async fn rotate(api: &Api, overlap_secs: u32) -> tests::Answer {
    api.post("/api/v1/keys/self:rotate", &json!({"overlap_secs": overlap_secs})).await
}

#[tokio::test]
async fn rotated_keys_expire_after_the_overlap() {
    let s = Story::at(CREATED).await;
    let (old, api) = viewer(&s).await;
    let answer = rotate(&api, 600).await.expect(201);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let new = answer.json;
    for same in ["kind", "team_id", "role", "scopes", "name", "allowed_cidrs", "expires_on"] {
        assert_eq!(new[same], old[same], "{same}");
    }
    let successor = Api::new(s.url(), new["key"].as_str().unwrap());
    successor.get("/api/v1/workflows").await.expect(200);
    successor.get("/api/v1/keys").await.refused(403, "forbidden", None);
    s.now_is("2026-03-02T09:39:59Z").await;
    api.get("/api/v1/workflows").await.expect(200);
    s.now_is("2026-03-02T09:40:00Z").await;
    api.get("/api/v1/workflows").await.refused(401, "key_expired", None);
    successor.get("/api/v1/workflows").await.expect(200);
    let listed = s.admin().get("/api/v1/keys?limit=200").await.expect(200).json;
    let shown = listed["items"].as_array().unwrap().iter().find(|key| key["id"] == old["id"]).unwrap().clone();
    assert_eq!(shown["rotated_into"], new["id"]);
    assert_eq!(shown["expires_on"], "2026-03-02T09:40:00Z");
    s.end().await;
}

#[tokio::test]
async fn rotations_are_audited() {
    let s = Story::at(CREATED).await;
    let (old, api) = viewer(&s).await;
    let new = rotate(&api, 600).await.expect(201).json;
    let entries =
        s.table("SELECT actor || ' ' || verb || ' ' || subject FROM audit_log ORDER BY id DESC LIMIT 2").await;
    let actor = format!("key:{}", old["prefix"].as_str().unwrap());
    let [old, new] = [&old, &new].map(|key| key["id"].as_str().unwrap().to_owned());
    assert_eq!(entries, format!("{actor} rotate key:{old}\n{actor} create key:{new}"));
    s.end().await;
}

/// Who finds an old key during the overlap gets no new one.
#[tokio::test]
async fn keys_are_rotated_once() {
    let s = Story::at(CREATED).await;
    let (_, api) = viewer(&s).await;
    let answers = futures::future::join_all((0..8).map(|_| rotate(&api, 600))).await;
    let rotated = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(rotated, 1, "{answers:?}");
    rotate(&api, 600).await.refused(409, "already_rotated", None);
    assert_eq!(s.count("SELECT count(*) FROM api_keys WHERE name = 'v'").await, 2);
    s.end().await;
}

#[tokio::test]
async fn young_keys_are_not_rotated() {
    let s = Story::at(CREATED).await;
    let (_, api) = viewer(&s).await;
    let new = rotate(&api, 600).await.expect(201).json;
    let successor = Api::new(s.url(), new["key"].as_str().unwrap());
    let refused = rotate(&successor, 600).await;
    refused.refused(429, "rate_limited", None);
    assert!(refused.headers.contains_key("retry-after"));
    s.now_is("2026-03-02T09:31:00Z").await;
    rotate(&successor, 600).await.expect(201);
    s.end().await;
}

/// The end that an admin has set stays, and an overlap of 0 ends a key on this instance at once.
#[tokio::test]
async fn overlaps_never_postpone_an_end() {
    let s = Story::at(CREATED).await;
    let (old, api) = viewer(&s).await;
    rotate(&api, 604_801).await.refused(400, "invalid_field", Some("overlap_secs"));
    rotate(&api, 604_800).await.expect(201);
    let ends = s.table("SELECT DISTINCT expires_on::text FROM api_keys WHERE name = 'v'").await;
    assert_eq!(ends, "2026-03-02 11:00:00+00", "{old}");
    s.now_is("2026-03-02T10:00:00Z").await;
    let editor = s.editor();
    rotate(&editor, 0).await.expect(201);
    editor.get("/api/v1/workflows").await.refused(401, "key_expired", None);
    s.end_early().await;
}

/// A viewer may repeat it without end, and each caller of the instance read its key again.
#[tokio::test]
async fn dry_rotations_keep_cached_keys() {
    let s = Story::at(CREATED).await;
    let (old, api) = viewer(&s).await;
    let key = old["key"].as_str().unwrap();
    let closed = db::create_pool(&app::config::database_options(&s.dsn(), 1)).unwrap();
    closed.close().await;
    let pools = KeyPools { of_request: &closed, fires: &closed };
    let (app, peer, began) = (s.app(), IpAddr::from([127, 0, 0, 9]), Instant::now());
    loop {
        api.post("/api/v1/keys/self:rotate?dry_run=true", &json!({"overlap_secs": 0})).await.expect(200);
        // A key is cached for four seconds, in which a busy machine may do nothing: then the next dry run reads it again.
        if let Ok(admission) = app.gate.admit_key(pools, key, peer, app.clock.now()).await {
            assert!(matches!(admission, Admission::Admitted(_)), "{admission:?}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "each dry run empties the cache");
    }
    s.end().await;
}

/// The runner's key, too, so that a rotation of its secret needs no admin.
#[tokio::test]
async fn every_kind_of_key_is_rotated() {
    let s = Story::at(CREATED).await;
    s.now_is(ROTATED).await;
    for (api, kind, form) in [(s.scheduler_key(), "scheduler", "cbs_"), (s.admin(), "admin", "cba_")] {
        let new = rotate(&api, 600).await.expect(201).json;
        assert_eq!((&new["kind"], &new["expires_on"]), (&json!(kind), &Value::Null));
        assert!(new["key"].as_str().unwrap().starts_with(form));
    }
    Api::without_key(s.url()).post("/api/v1/keys/self:rotate", &json!({"overlap_secs": 0})).await.refused(
        401,
        "unauthorized",
        None,
    );
    s.end().await;
}
