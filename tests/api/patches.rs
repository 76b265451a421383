//! Edits: the two media types, If-Match, and which counters an edit raises.

use schedule::WorkflowId;
use serde_json::json;
use tests::Story;

use crate::tenant_isolation::lock_workflow;

#[tokio::test]
async fn application_json_replaces_values_and_ignores_null() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "Europe/Paris").await;
    let path = format!("/api/v1/workflows/{id}");
    let patch = json!({"cron_schedule": null, "timezone": "Asia/Tokyo", "starting_inputs": {"a": 1}});
    let read = s.editor().patch(&path, &patch).await.expect(200).json;
    assert_eq!((&read["cron_schedule"], &read["timezone"]), (&json!("0 9 * * *"), &json!("Asia/Tokyo")));
    let read = s.editor().patch(&path, &json!({"starting_inputs": {"b": 2}})).await.expect(200).json;
    assert_eq!(read["starting_inputs"], json!({"b": 2}), "a value replaces the old one in full");
    s.end().await;
}

/// By RFC 7396, objects are merged, and null removes a member.
#[tokio::test]
async fn merge_patch_null_restores_the_default() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "Europe/Paris").await;
    let path = format!("/api/v1/workflows/{id}");
    s.editor().merge_patch(&path, &json!({"starting_inputs": {"a": 1, "b": {"c": 2}}})).await.expect(200);
    let read =
        s.editor().merge_patch(&path, &json!({"starting_inputs": {"a": null, "b": {"d": 3}}})).await.expect(200).json;
    assert_eq!(read["starting_inputs"], json!({"b": {"c": 2, "d": 3}}));
    let read =
        s.editor().merge_patch(&path, &json!({"timezone": null, "starting_inputs": null})).await.expect(200).json;
    assert_eq!((&read["timezone"], &read["starting_inputs"]), (&json!(null), &json!({})));
    s.editor().merge_patch(&path, &json!({"name": null})).await.refused(400, "missing_field", Some("name"));
    s.editor().merge_patch(&path, &json!({"action": null})).await.refused(400, "missing_field", Some("action"));
    s.editor().merge_patch(&path, &json!({"team_id": 5})).await.refused(400, "immutable_field", Some("team_id"));
    s.end().await;
}

/// The answer to a change of due times is not read from the database again. So it has numbers as the client wrote them, 1e16 for
/// example, which a read returns with all digits.
#[tokio::test]
async fn answers_to_edits_show_what_is_saved() {
    let s = Story::today().await;
    let path = format!("/api/v1/workflows/{}", s.create("0 9 * * *", "Europe/Paris").await);
    let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8099/", "headers": {"authorization": "a secret"}});
    let patches = [
        json!({"cron_schedule": "5 9 * * *"}),
        json!({"description": "x"}),
        json!({"timezone": "Asia/Tokyo", "labels": {"b": "2", "a": "1"}}),
        json!({"cron_schedule": "6 9 * * *", "action": action, "max_attempts": 4, "name": "another"}),
        json!({"cron_schedule": "7 9 * * *", "starting_inputs": {"of": [1.5e300, 1e-7, 1.10, u64::MAX, i64::MIN, null]}}),
        json!({"ends_at": "2035-01-01T00:00:00.123456Z", "starting_inputs": {"longer": {"b": 1, "a": 2}, "b": {}}}),
    ];
    for patch in patches {
        let answer = s.editor().patch(&path, &patch).await.expect(200);
        assert_eq!(answer.text, s.editor().get(&path).await.expect(200).text, "{patch}");
    }
    for verb in ["pause", "resume", "archive"] {
        let answer = s.editor().post_empty(&format!("{path}:{verb}")).await.expect(200);
        assert_eq!(answer.text, s.editor().get(&path).await.expect(200).text, "{verb}");
    }
    s.end().await;
}

#[tokio::test]
async fn edits_of_stale_versions_are_refused() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    let etag = s.editor().get(&path).await.expect(200).headers["etag"].to_str().unwrap().to_owned();
    assert!(etag.starts_with("\"1-"), "the version is the first part: {etag}");
    let patch = |tag: &str, name: &str| {
        let request = s.editor().request(reqwest::Method::PATCH, &path).header("if-match", tag);
        tests::send_request(request.json(&json!({ "name": name })))
    };
    patch(&etag, "second").await.expect(200);
    for stale in ["\"1\"", "W/\"2\"", "garbage", ""] {
        patch(stale, "third").await.refused(412, "version_mismatch", None);
    }
    patch("\"1\", \"2\"", "third").await.expect(200);
    patch("*", "fourth").await.expect(200);
    assert_eq!(s.editor().patch(&path, &json!({"name": "fifth"})).await.expect(200).json["version"], 5);
    s.end().await;
}

/// The edit of another instance holds the row meanwhile.
#[tokio::test]
async fn an_edit_that_waited_for_another_one_sees_it() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    let mut other = lock_workflow(&s, id).await;
    let request = s.editor().request(reqwest::Method::PATCH, &path).header("if-match", "\"1\"");
    let waiting = tokio::spawn(tests::send_request(request.json(&json!({"cron_schedule": "5 9 * * *"}))));
    s.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 1)
        .await;

    let edit = "UPDATE workflows SET description = 'other', version = version + 1 WHERE id = $1";
    sqlx::query(edit).bind(id.0).execute(&mut *other).await.unwrap();
    other.commit().await.unwrap();

    waiting.await.unwrap().refused(412, "version_mismatch", None);
    let answer = s.editor().patch(&path, &json!({"cron_schedule": "6 9 * * *"})).await.expect(200).json;
    assert_eq!((&answer["version"], &answer["description"]), (&json!(3), &json!("other")));
    s.end().await;
}

/// Each higher revision has its outbox row, and no other edit enqueues one.
#[tokio::test]
async fn only_timing_changes_raise_the_revision() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    let steps = [
        (json!({}), 1, 1, 1),
        (json!({"cron_schedule": "0 9 * * *"}), 1, 1, 1),
        (json!({"cron_schedule": "00 09 * * *"}), 1, 1, 1),
        (json!({"description": "books"}), 2, 1, 1),
        (json!({"is_api": true}), 3, 1, 1),
        (json!({"cron_schedule": "0 10 * * *"}), 4, 2, 2),
        (json!({"timezone": "Europe/Paris"}), 5, 3, 3),
        (json!({"starts_at": "2030-01-01T00:00:00Z"}), 6, 4, 4),
        (json!({"starts_at": "2030-01-01T01:00:00+01:00"}), 6, 4, 4),
    ];
    for (patch, version, revision, rows) in steps {
        let read = s.editor().patch(&path, &patch).await.expect(200).json;
        assert_eq!((&read["version"], &read["revision"]), (&json!(version), &json!(revision)), "{patch}");
        assert_eq!(s.outbox_rows(id).await, rows, "{patch}");
    }
    s.end().await;
}

#[tokio::test]
async fn workflows_without_cron_stay_at_revision_0() {
    let s = Story::today().await;
    let body = json!({"name": "manual", "action": {"type": "log", "message": "hi"}});
    let made = s.editor().post("/api/v1/workflows", &body).await.expect(201);
    let path = format!("/api/v1/workflows/{}", made.id());
    assert_eq!(made.json["sync"]["status"], "none");
    s.editor().patch(&path, &json!({"timezone": "Europe/Paris"})).await.expect(200);
    s.editor().post_empty(&format!("{path}:pause")).await.expect(200);
    let read = s.editor().post_empty(&format!("{path}:resume")).await.expect(200).json;
    assert_eq!((&read["revision"], &read["version"]), (&json!(0), &json!(4)));
    assert_eq!(s.outbox_rows(WorkflowId(made.id())).await, 0);
    let read = s.editor().patch(&path, &json!({"cron_schedule": "@daily"})).await.expect(200).json;
    assert_eq!((&read["revision"], &read["cron_schedule"]), (&json!(1), &json!("0 0 * * *")));
    s.end().await;
}

#[tokio::test]
async fn archiving_is_final_and_frees_names() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    let name = s.editor().get(&path).await.json["name"].clone();
    let again = json!({"name": name, "action": {"type": "log", "message": "hi"}});
    s.editor().post("/api/v1/workflows", &again).await.refused(409, "name_taken", None);
    assert_eq!(s.editor().post_empty(&format!("{path}:archive")).await.expect(200).json["state"], "archived");
    let second = s.editor().post_empty(&format!("{path}:archive")).await.expect(200).json;
    assert_eq!(second["version"], 2, "a second archive changes nothing");
    s.editor().patch(&path, &json!({"name": "x"})).await.refused(409, "archived", None);
    s.editor().post_empty(&format!("{path}:pause")).await.refused(409, "archived", None);
    s.editor().post_empty(&format!("{path}:resume")).await.refused(409, "archived", None);
    let anew = s.editor().post("/api/v1/workflows", &again).await.expect(201);
    assert_ne!(anew.id(), id.0, "a re-created name is a new id");
    s.publish().await;
    assert_eq!(s.schedule(id), "none");
    s.end().await;
}

#[tokio::test]
async fn pages_list_every_workflow_once() {
    let s = Story::today().await;
    for _ in 0..7 {
        s.create("0 9 * * *", "UTC").await;
    }
    let (mut seen, mut path) = (Vec::new(), "/api/v1/workflows?limit=3".to_owned());
    loop {
        let page = s.editor().get(&path).await.expect(200).json;
        let ids: Vec<i64> = page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
        s.editor().patch(&format!("/api/v1/workflows/{}", ids[0]), &json!({"description": "moved"})).await.expect(200);
        seen.extend(ids);
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/workflows?limit=3&cursor={cursor}");
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.is_sorted());
    let found = s.editor().get("/api/v1/workflows?q=MOVED&state=active&sync=pending").await.expect(200).json;
    assert_eq!(found["items"].as_array().unwrap().len(), 3);
    s.publish().await;
    assert_eq!(s.editor().get("/api/v1/workflows?sync=pending").await.json["items"], json!([]));
    s.end().await;
}

/// A new revision starts a new schedule, and no time that was missed before it is caught up. So an edit raises the
/// revision only if it changes the times.
#[tokio::test]
async fn equal_times_keep_the_revision() {
    let s = Story::today().await;
    let pairs = [
        ("0 9 8-14 * */7", "0 9 * * 0#2"),
        ("0 0 9 L 2 * 2127", "0 0 9 28 2 * 2127"),
        ("0 9 31 2,3 *", "0 9 31 3 *"),
        ("0 9 4-22,17W * *", "0 9 4-22 * *"),
        ("0 9 * * 1-5", "cron(0 9 ? * MON-FRI *)"),
    ];
    for (one, other) in pairs {
        let id = s.create_with(json!({"cron_schedule": one})).await;
        let path = format!("/api/v1/workflows/{id}");
        for same in [json!({"cron_schedule": other}), json!({"timezone": "UTC"}), json!({"timezone": "Etc/Zulu"})] {
            let read = s.editor().patch(&path, &same).await.expect(200).json;
            assert_eq!((&read["version"], &read["revision"]), (&json!(1), &json!(1)), "{one}: {same}");
        }
        let read = s.editor().patch(&path, &json!({"starts_at": "2126-01-01T00:00:00Z", "cron_schedule": other})).await;
        let read = read.expect(200).json;
        assert_eq!((&read["revision"], &read["timezone"]), (&json!(2), &json!(null)), "{one}");
        let read = s.editor().patch(&path, &json!({"cron_schedule": "1 9 * * *"})).await.expect(200).json;
        assert_eq!(read["revision"], 3);
    }
    s.end().await;
}

#[tokio::test]
async fn utc_by_any_name_is_no_timezone() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "Etc/UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    assert_eq!(s.editor().get(&path).await.expect(200).json["timezone"], json!(null));
    let read = s.editor().patch(&path, &json!({"timezone": "Europe/London"})).await.expect(200).json;
    assert_eq!((&read["revision"], &read["timezone"]), (&json!(2), &json!("Europe/London")));
    s.end().await;
}

/// A schedule has no time left, or its end has passed. The workflow can still be renamed.
#[tokio::test]
async fn spent_schedules_can_be_renamed() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let timing = json!({"cron_schedule": "0 0 9 2 3 ? 2026", "ends_at": "2026-03-03T00:00:00Z"});
    let id = s.create_with(timing).await;
    let path = format!("/api/v1/workflows/{id}");
    s.now_is("2026-03-04T00:00:00Z").await;
    let renamed = s.editor().patch(&path, &json!({"name": "spent"})).await.expect(200).json;
    assert_eq!((&renamed["name"], &renamed["revision"]), (&json!("spent"), &json!(1)));
    let end = json!({"ends_at": "2026-03-03T12:00:00Z"});
    s.editor().patch(&path, &end).await.refused(400, "never_fires", Some("cron_schedule"));
    s.end_early().await;
}
