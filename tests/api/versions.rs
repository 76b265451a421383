//! The versions of a schedule: who changed a cron, and the way back.

use serde_json::{Value, json};
use tests::Story;

async fn versions(s: &Story, path: &str) -> Vec<Value> {
    let (mut found, mut next) = (Vec::new(), format!("{path}?limit=2"));
    loop {
        let page = s.editor().get(&next).await.expect(200).json;
        found.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { return found };
        next = format!("{path}?limit=2&cursor={cursor}");
    }
}

#[tokio::test]
async fn a_version_says_who_made_it_and_can_be_restored() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let workflow = s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "Europe/Paris"})).await;
    let path = format!("/api/v1/workflows/{workflow}/versions");
    s.now_is("2026-03-02T08:10:00Z").await;
    let edit = json!({"cron_schedule": "30 17 * * *", "timezone": "UTC", "ends_at": "2027-01-01T00:00:00Z"});
    s.admin().patch(&format!("/api/v1/workflows/{workflow}"), &edit).await.expect(200);
    s.now_is("2026-03-02T08:20:00Z").await;
    s.pause(workflow).await;
    let listed = versions(&s, &path).await;
    let field = |name: &str| listed.iter().map(|version| version[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("revision"), [3, 2, 1]);
    assert_eq!(field("verb"), ["pause", "update", "create"]);
    assert_eq!(field("cron_schedule"), ["30 17 * * *", "30 17 * * *", "0 9 * * *"]);
    assert_eq!(field("state"), ["paused", "active", "active"]);
    assert_eq!(listed[0]["valid_until"], Value::Null);
    assert_eq!(
        (&listed[2]["valid_until"], &listed[1]["valid_until"]),
        (&listed[1]["valid_from"], &listed[0]["valid_from"])
    );
    let actors = field("actor");
    assert!(actors.iter().all(|actor| actor.as_str().is_some_and(|actor| actor.starts_with("key:"))), "{actors:?}");
    assert!(actors[1] != actors[0] && actors[0] == actors[2], "an admin made the second: {actors:?}");

    // The cron, the zone and the window come back, and the workflow stays paused.
    let restored = s.editor().post_empty(&format!("{path}/1:restore")).await.expect(200).json;
    assert_eq!((&restored["cron_schedule"], &restored["timezone"]), (&json!("0 9 * * *"), &json!("Europe/Paris")));
    assert_eq!((&restored["ends_at"], &restored["state"]), (&Value::Null, &json!("paused")));
    let newest = &versions(&s, &path).await[0];
    assert_eq!((&newest["revision"], &newest["verb"]), (&json!(4), &json!("restore")));
    s.end_early().await;
}

#[tokio::test]
async fn what_cannot_be_restored_is_refused() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let workflow = s.create_with(json!({"cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    let restore = |revision: &str| format!("/api/v1/workflows/{workflow}/versions/{revision}:restore");
    for unknown in ["7", "0", "-1", "x", "99999999999999999999"] {
        s.editor().post_empty(&restore(unknown)).await.refused(404, "not_found", None);
    }
    s.editor().post_empty(&format!("/api/v1/workflows/{workflow}/versions/1:erase")).await.refused(
        404,
        "not_found",
        None,
    );
    s.editor().post(&restore("1"), &json!({"all": true})).await.refused(400, "unknown_field", Some("all"));
    let stale = s.editor().request(reqwest::Method::POST, &restore("1")).header("if-match", "\"7\"");
    tests::send_request(stale).await.refused(412, "version_mismatch", None);
    // A version of before the schedule has none: to restore it removes the schedule.
    let bare = s.create_with(json!({"name": "bare"})).await;
    let path = format!("/api/v1/workflows/{bare}");
    s.editor().patch(&path, &json!({"cron_schedule": "0 9 * * *", "timezone": "UTC"})).await.expect(200);
    s.editor().delete(&format!("/api/v1/schedules/{bare}")).await.expect(204);
    s.editor().post_empty(&format!("{path}/versions/1:restore")).await.expect(200);
    let again = s.editor().post_empty(&format!("{path}/versions/2:restore")).await.expect(200).json;
    assert_eq!((&again["cron_schedule"], &again["timezone"]), (&Value::Null, &Value::Null));
    // An archived workflow is final.
    s.archive(workflow).await;
    s.editor().post_empty(&restore("1")).await.refused(409, "archived", None);
    let listed = versions(&s, &format!("/api/v1/workflows/{workflow}/versions")).await;
    assert_eq!((&listed[0]["state"], &listed[0]["verb"]), (&json!("archived"), &json!("archive")));
    s.end_early().await;
}
