//! A team is exported and deleted: nothing of it opens or runs anything any more.

use reqwest::Method;
use serde_json::{Value, json};
use tests::{Api, Story, send_request};

/// A team with an editor's key, a secret and a workflow.
async fn team_with_everything(s: &Story) -> (i64, Api) {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "leaving"})).await.expect(201).id();
    let key = json!({"name": "theirs", "kind": "team", "team_id": team, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    let put = |path: String, body: Value| async move {
        let answer = send_request(s.admin().request(Method::PUT, &path).json(&body)).await;
        assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.text);
    };
    put(format!("/api/v1/teams/{team}/secrets/token"), json!({"value": "hunter2"})).await;
    put(format!("/api/v1/teams/{team}/limits"), json!({"workflows": 50})).await;
    put(format!("/api/v1/teams/{team}/hosts"), json!({"allowed_hosts": ["a.example"]})).await;
    let freeze = json!({"team_id": team, "reason": "holiday", "from": "2030-01-01T00:00:00Z"});
    s.admin().post("/api/v1/freezes", &freeze).await.expect(201);
    let channel =
        json!({"team_id": team, "name": "slack", "kind": "slack", "url": "https://a.example/services/hunter4"});
    let channel = s.admin().post("/api/v1/notification-channels", &channel).await.expect(201).id();
    let rule = json!({"team_id": team, "event": "missed", "channel_ids": [channel]});
    s.admin().post("/api/v1/notification-rules", &rule).await.expect(201);
    let api = Api::new(s.url(), key["key"].as_str().unwrap());
    let headers = json!({"x-key": "hunter3"});
    let action = json!({"type": "http", "method": "POST", "url": "https://a.example/", "headers": headers});
    let body = json!({"name": "theirs", "action": action, "cron_schedule": "0 9 * * *", "timezone": "UTC"});
    api.post("/api/v1/workflows", &body).await.expect(201);
    (team, api)
}

/// All lines of an export, part by part.
async fn export(s: &Story, team: i64) -> (Vec<Value>, usize) {
    let (mut lines, mut parts, mut path) = (Vec::new(), 0, format!("/api/v1/teams/{team}/export"));
    loop {
        let part = s.admin().get(&path).await.expect(200);
        assert_eq!(part.headers["content-type"], "application/x-ndjson");
        lines.extend(part.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        parts += 1;
        let Some(cursor) = part.headers.get("next-cursor") else { return (lines, parts) };
        path = format!("/api/v1/teams/{team}/export?cursor={}", cursor.to_str().unwrap());
    }
}

async fn with_secrets() -> Story {
    Story::with_app(|config| {
        config.secrets.secrets_key = Some("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
    })
    .await
}

#[tokio::test]
async fn an_export_has_all_but_the_secrets() {
    let s = with_secrets().await;
    let (team, _) = team_with_everything(&s).await;
    let (lines, parts) = export(&s, team).await;
    let kinds: Vec<&str> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        ["team", "limits", "hosts", "secret", "key", "freeze", "notification_channel", "notification_rule", "workflow"]
    );
    assert_eq!(parts, 1);
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains("hunter") && !text.contains("whsec_"), "{text}");
    assert_eq!(lines[8]["object"]["action"]["url"], "https://a.example/");
    let read: Vec<api_types::team_export::TeamExportLine> =
        lines.iter().map(|line| serde_json::from_value(line.clone()).unwrap()).collect();
    assert_eq!(serde_json::to_value(read).unwrap(), json!(lines), "the shared type reads all of it");
    assert_eq!(s.editor().get(&format!("/api/v1/teams/{team}/export")).await.status, 403);
    assert_eq!(s.admin().get("/api/v1/teams/987654321/export").await.status, 404);
    s.publish().await;
    s.end_early().await;
}

/// 40 workflows, each with inputs of 250 KB.
const LARGE: &str = "WITH large AS MATERIALIZED (SELECT jsonb_build_object('a', jsonb_agg(1)) AS inputs FROM generate_series(1, 125000))
    INSERT INTO workflows (team_id, name, action, starting_inputs, created_on, updated_on)
    SELECT (SELECT min(id) FROM teams), 'large ' || nth, '{\"type\": \"log\", \"message\": \"m\"}', inputs, now(), now()
      FROM large, generate_series(1, 40) AS nth";

#[tokio::test]
async fn a_large_export_has_parts() {
    let s = Story::today().await;
    s.execute(LARGE).await;
    let (lines, parts) = export(&s, s.keys.team_id).await;
    let ids: Vec<i64> = lines
        .iter()
        .filter_map(|line| line["object"]["action"]["type"].as_str().map(|_| &line["object"]["id"]))
        .filter_map(Value::as_i64)
        .collect();
    let mut once = ids.clone();
    once.dedup();
    assert_eq!((ids.len(), once.len()), (40, 40));
    assert!(parts > 1, "{parts}");
    assert_eq!(lines.iter().filter(|line| line["kind"] == "team").count(), 1);
    s.end_early().await;
}

#[tokio::test]
async fn a_deleted_team_leaves_only_its_history() {
    let s = with_secrets().await;
    let (team, theirs) = team_with_everything(&s).await;
    let path = format!("/api/v1/teams/{team}");
    s.admin().delete(&path).await.refused(409, "team_not_empty", None);

    let bulk = |verb: &str| json!({"verb": verb, "team_id": team});
    s.admin().post("/api/v1/bulk", &bulk("delete")).await.refused(409, "nothing_selected", None);
    s.admin().post("/api/v1/bulk", &bulk("archive")).await.expect(202);
    s.job("bulk").await;
    s.admin().delete(&path).await.refused(409, "team_not_empty", None);
    assert_eq!(theirs.post("/api/v1/bulk", &json!({"verb": "delete"})).await.status, 403, "only an admin deletes");
    let editor = json!({"name": "edits all teams", "kind": "admin", "scopes": ["edit"]});
    let editor = s.admin().post("/api/v1/keys", &editor).await.expect(201).json;
    let editor = Api::new(s.url(), editor["key"].as_str().unwrap());
    editor.post("/api/v1/bulk", &bulk("delete")).await.refused(403, "forbidden", None);
    s.admin().post("/api/v1/bulk", &bulk("delete")).await.expect(202);
    s.job("bulk").await;
    s.publish().await;
    assert_eq!(s.admin().delete(&path).await.status, 204);

    assert_eq!(theirs.get("/api/v1/me").await.status, 401);
    assert_eq!(s.admin().get(&format!("{path}/limits")).await.status, 404);
    assert_eq!(s.admin().delete(&path).await.status, 404);
    let rest = "SELECT (SELECT count(*) FROM team_secrets) + (SELECT count(*) FROM freezes) + (SELECT count(*) FROM bulk_operations)
                     + (SELECT count(*) FROM workflows)";
    assert_eq!(s.count(rest).await, 0);
    let history = s.admin().get(&format!("/api/v1/audit?subject=team:{team}")).await.expect(200).json;
    assert_eq!(history["items"][0]["verb"], "delete", "{history}");
    s.end().await;
}

/// A workflow that is created while the team is deleted: it exists, and so does the team.
#[tokio::test]
async fn a_new_workflow_keeps_its_team() {
    let s = Story::today().await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "busy"})).await.expect(201).id();
    let mut tx = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query(
        "INSERT INTO workflows (team_id, name, action, created_on, updated_on) VALUES ($1, 'new', '{}', now(), now())",
    )
    .bind(team)
    .execute(&mut *tx)
    .await
    .unwrap();
    let (admin, path) = (s.admin(), format!("/api/v1/teams/{team}"));
    let deletion = tokio::spawn(async move { admin.delete(&path).await });
    s.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 1)
        .await;
    tx.commit().await.unwrap();
    deletion.await.unwrap().refused(409, "team_not_empty", None);
    s.end_early().await;
}
