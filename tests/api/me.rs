//! A caller learns who it is, its teams, and the timezones that a workflow may have.

use serde_json::{Value, json};
use tests::{Api, Story};

#[tokio::test]
async fn callers_learn_who_they_are() {
    let s = Story::today().await;
    let editor = s.editor().get("/api/v1/me").await.expect(200).json;
    assert_eq!(editor["teams"], json!([{"team_id": s.keys.team_id, "role": "editor"}]));
    assert_eq!(
        (&editor["kind"], &editor["is_person"], &editor["scopes"]),
        (&json!("team"), &json!(false), &json!(["edit"]))
    );
    let prefix = s.keys.editor.split_at(16).0;
    assert_eq!(editor["actor"], json!(format!("key:{prefix}")));
    let admin = s.admin().get("/api/v1/me").await.expect(200).json;
    assert_eq!((&admin["kind"], &admin["teams"]), (&json!("admin"), &json!([])));
    let scheduler = s.scheduler_key().get("/api/v1/me").await.expect(200).json;
    assert_eq!(scheduler["scopes"], json!(["invoke"]));
    Api::without_key(s.url()).get("/api/v1/me").await.expect(401);
    s.end().await;
}

/// Other teams are not in the list of a team's key.
#[tokio::test]
async fn teams_are_listed_for_their_callers() {
    let s = Story::today().await;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "other"})).await.expect(201).id();
    let ids = async |api: Api, query: &str| -> (Vec<i64>, Value) {
        let page = api.get(&format!("/api/v1/teams?{query}")).await.expect(200).json;
        let ids = page["items"].as_array().unwrap().iter().map(|team| team["id"].as_i64().unwrap()).collect();
        (ids, page["next_cursor"].clone())
    };
    assert_eq!(ids(s.editor(), "").await, (vec![s.keys.team_id], Value::Null));
    let (first, next) = ids(s.admin(), "limit=1").await;
    assert_eq!(first, [s.keys.team_id]);
    let (second, end) = ids(s.admin(), &format!("limit=1&cursor={}", next.as_str().unwrap())).await;
    assert_eq!((second, end), (vec![other], Value::Null));
    s.end().await;
}

#[tokio::test]
async fn timezones_are_those_of_the_zone_data() {
    let s = Story::today().await;
    let listed = s.editor().get("/api/v1/timezones").await.expect(200).json;
    let names: Vec<&str> = listed["timezones"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(
        names.contains(&"Europe/Paris") && names.contains(&"Asia/Calcutta") && names.len() > 400,
        "{}",
        names.len()
    );
    assert!(names.is_sorted());
    let last = json!({"name": "a", "cron_schedule": "0 9 * * *", "timezone": names[names.len() - 1], "action": {"type": "log", "message": "a"}});
    s.editor().post("/api/v1/workflows", &last).await.expect(201);
    s.end().await;
}

#[tokio::test]
async fn an_admin_renames_a_team() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let path = format!("/api/v1/teams/{}", s.keys.team_id);
    s.admin().post("/api/v1/teams", &json!({"name": "taken"})).await.expect(201);
    let renamed = s.admin().patch(&path, &json!({"name": "finance"})).await.expect(200).json;
    assert_eq!((&renamed["id"], &renamed["name"]), (&json!(s.keys.team_id), &json!("finance")));
    assert_eq!(s.editor().get("/api/v1/teams").await.expect(200).json["items"][0]["name"], "finance");
    assert_eq!(s.admin().patch(&path, &json!({"name": "taken"})).await.json["code"], "name_taken");
    assert_eq!(s.admin().patch(&path, &json!({"name": ""})).await.json["field"], "name");
    assert_eq!(s.editor().patch(&path, &json!({"name": "x"})).await.status, 403);
    assert_eq!(s.admin().patch("/api/v1/teams/987654321", &json!({"name": "x"})).await.status, 404);
    s.admin().patch(&path, &json!({"name": "finance"})).await.expect(200);
    let audited = "SELECT count(*) FROM audit_log WHERE subject LIKE 'team:%' AND verb = 'update'";
    assert_eq!(s.count(audited).await, 1, "the same name is no change");
    s.end().await;
}
