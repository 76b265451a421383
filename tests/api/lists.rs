//! Lists: bounded in rows and bytes, without large documents, and ended by the server if they take too long.

use serde_json::{Value, json};
use tests::{Api, Story};

/// Follows a list to its end; returns the items of its pages.
async fn pages(api: &Api, path: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut next) = (Vec::new(), path.to_owned());
    loop {
        let page = api.get(&next).await.expect(200).json;
        pages.push(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["next_cursor"].as_str() else { return pages };
        next = format!("{path}&cursor={cursor}");
    }
}

/// A small document is in the list, a large one is not; the object itself has both.
#[tokio::test]
async fn lists_leave_out_large_documents() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let small = json!({"starting_inputs": {"a": [1, 2.50, null]}});
    s.create_with(small.clone()).await;
    let large = "x".repeat(2_000);
    let headers = json!({"x-key": "secret"});
    let action = json!({"type": "http", "method": "POST", "url": "https://a.example/", "headers": headers, "body": {"b": large}});
    s.create_with(json!({"starting_inputs": {"a": large}, "action": action})).await;
    s.create_with(json!({"action": {"type": "log", "message": large}})).await;
    let items = pages(&s.editor(), "/api/v1/workflows?limit=200").await.concat();
    assert_eq!(
        (&items[0]["starting_inputs"], &items[0]["starting_inputs_bytes"]),
        (&small["starting_inputs"], &Value::Null)
    );
    assert_eq!(items[0]["action_bytes"], Value::Null);
    assert_eq!(items[1]["starting_inputs"], Value::Null);
    assert!(items[1]["starting_inputs_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{}", items[1]);
    let shown = json!({"type": "http", "method": "POST", "url": "https://a.example/", "headers": {"x-key": null}, "body": null});
    assert_eq!(items[1]["action"], shown);
    assert!(items[1]["action_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{}", items[1]);
    assert_eq!(items[2]["action"]["message"].as_str().unwrap().len(), 1_024);
    for item in &items {
        let whole = s.editor().get(&format!("/api/v1/workflows/{}", item["id"])).await.expect(200).json;
        assert_eq!((&whole["starting_inputs_bytes"], &whole["action_bytes"]), (&Value::Null, &Value::Null));
        let length = whole["starting_inputs"]["a"].as_str().map_or(2_000, str::len);
        assert_eq!(length, 2_000, "{whole}");
    }
    s.end_early().await;
}

/// 200 workflows of one team, each with inputs of 244 KB: 125,000 values, as they were permitted before.
const LARGE: &str = "WITH large AS MATERIALIZED (SELECT jsonb_build_object('a', jsonb_agg(1)) AS inputs FROM generate_series(1, 125000))
    INSERT INTO workflows (team_id, name, action, starting_inputs, created_on, updated_on)
    SELECT (SELECT min(id) FROM teams), 'large ' || nth, '{\"type\": \"log\", \"message\": \"m\"}', inputs, now(), now()
      FROM large, generate_series(1, 200) AS nth";

#[tokio::test]
async fn pages_of_large_inputs_are_small() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(LARGE).await;
    let answer = s.editor().get("/api/v1/workflows?limit=200").await.expect(200);
    assert_eq!(answer.json["items"].as_array().unwrap().len(), 200);
    assert!(answer.text.len() < 300_000, "{} bytes", answer.text.len());
    s.end_early().await;
}

const MANY: &str = "INSERT INTO workflows (team_id, name, action, state, created_on, updated_on)
    SELECT (SELECT min(id) FROM teams), CASE WHEN nth > 10998 THEN 'rare ' ELSE 'w ' END || nth, '{\"type\": \"log\", \"message\": \"m\"}',
           CASE WHEN nth > 10998 THEN 'paused' ELSE 'active' END, now(), now()
      FROM generate_series(1, 11000) AS nth";

/// A page passes over 5,000 rows at most, so a filter that few rows match has pages without items.
#[tokio::test]
async fn rare_items_are_found_page_by_page() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(MANY).await;
    let found = pages(&s.editor(), "/api/v1/workflows?q=rare").await;
    let items: Vec<_> = found.iter().map(Vec::len).collect();
    assert_eq!(items, [0, 0, 2]);
    let names: Vec<_> = found.concat().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["rare 10999", "rare 11000"]);
    let paused = pages(&s.editor(), "/api/v1/workflows?state=paused&limit=1").await;
    assert_eq!(paused.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1], "by an index of their own");
    assert_eq!(pages(&s.editor(), "/api/v1/workflows?state=active&limit=200").await.concat().len(), 10_998);
    s.end_early().await;
}

/// Runs of three minutes: `from` and `to` are bounds of their ids.
#[tokio::test]
async fn runs_are_listed_by_time() {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    let id = s.create("* * * * *", "UTC").await;
    s.publish().await;
    s.clock_to("2026-03-02T09:02:30Z").await;
    let api = s.editor();
    let listed = async |query: &str| {
        let items = pages(&api, &format!("/api/v1/runs?{query}")).await.concat();
        items.iter().map(|item| item["created_on"].as_str().unwrap()[11..16].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("limit=1").await, ["09:02", "09:01", "09:00"]);
    assert_eq!(listed("from=2026-03-02T09:01:00Z&to=2026-03-02T09:02:00Z").await, ["09:01"]);
    assert_eq!(listed(&format!("workflow_id={id}&from=2026-03-02T09:01:00Z")).await, ["09:02", "09:01"]);
    assert_eq!(listed("state=succeeded&trigger=schedule&to=2026-03-02T09:01:00Z").await, ["09:00"]);
    assert_eq!(listed("state=failed").await, Vec::<String>::new());
    s.end().await;
}

/// A lock that is never released makes a list that never ends.
#[tokio::test]
async fn slow_lists_end_with_a_reason() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let mut blocking = db::begin_transaction(&s.pool).await.unwrap();
    for statement in ["SET LOCAL idle_in_transaction_session_timeout = 0", "LOCK TABLE runs IN ACCESS EXCLUSIVE MODE"] {
        sqlx::query(statement).execute(&mut *blocking).await.unwrap();
    }
    for path in ["/api/v1/runs", "/api/v1/stats"] {
        let answer = s.editor().get(path).await;
        answer.refused(503, "read_too_slow", None);
        assert_eq!(answer.headers["retry-after"], "5", "{path}");
    }
    blocking.rollback().await.unwrap();
    s.editor().get("/api/v1/runs").await.expect(200);
    s.end().await;
}

/// A page of 160 KB is 10 KB on the way, if the client accepts it; a small one is not worth it.
#[tokio::test]
async fn large_lists_are_compressed() {
    let s = Story::today().await;
    for nth in 0..30 {
        s.create_with(json!({"name": format!("w {nth}"), "description": "what it is for ".repeat(20)})).await;
    }
    let list = async |path: &str, accepted: &str| {
        let request = s.editor().request(reqwest::Method::GET, path).header("accept-encoding", accepted);
        let answer = request.send().await.unwrap();
        let encoding = answer.headers().get("content-encoding").map(|value| value.to_str().unwrap().to_owned());
        let varies =
            answer.headers().get_all("vary").iter().any(|value| value.to_str().unwrap().contains("accept-encoding"));
        (encoding, varies, answer.bytes().await.unwrap())
    };
    let (none, _, plain) = list("/api/v1/workflows", "identity").await;
    let (gzip, varies, packed) = list("/api/v1/workflows", "gzip").await;
    assert_eq!((none, gzip.as_deref(), varies), (None, Some("gzip"), true));
    assert!(packed.len() * 5 < plain.len(), "{} of {}", packed.len(), plain.len());
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain);
    assert_eq!(list("/api/v1/backfills", "gzip").await.0, None, "a page without items is small");
    s.end_early().await;
}

/// Archived workflows are in a list only if the client requests them.
#[tokio::test]
async fn lists_hide_archived_workflows() {
    let s = Story::today().await;
    let (kept, gone) = (s.create("0 9 * * *", "UTC").await, s.create("0 9 * * *", "UTC").await);
    s.archive(gone).await;
    let ids = async |path: &str| -> Vec<i64> {
        let page = s.editor().get(path).await.expect(200).json;
        assert_eq!(page["next_cursor"], Value::Null, "{path}");
        let id = |item: &Value| item["id"].as_i64().or(item["workflow_id"].as_i64()).unwrap();
        page["items"].as_array().unwrap().iter().map(id).collect()
    };
    assert_eq!(ids("/api/v1/workflows").await, [kept.0]);
    assert_eq!(ids("/api/v1/workflows?archived=true").await, [kept.0, gone.0]);
    assert_eq!(ids("/api/v1/workflows?state=archived").await, [gone.0]);
    assert_eq!(ids("/api/v1/workflows?state=active").await, [kept.0]);
    assert_eq!(ids("/api/v1/schedules").await, [kept.0]);
    assert_eq!(ids("/api/v1/schedules?archived=true").await, [kept.0, gone.0]);
    s.editor().get(&format!("/api/v1/workflows/{gone}")).await.expect(200);
    s.end().await;
}
