//! What became of the last runs is in the answer with the workflows: a page needs one request.

use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Api, CountingWay, Story, refused_action};

async fn fire(s: &Story, workflow: WorkflowId) {
    s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
    s.runs_end().await;
}

async fn results(api: &Api, workflow: WorkflowId) -> Value {
    let listed = api.get("/api/v1/workflows?results=true").await.expect(200).json;
    let found = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == json!(workflow.0)).unwrap();
    let one = api.get(&format!("/api/v1/workflows/{workflow}?results=true")).await.expect(200).json;
    assert_eq!(found["results"], one["results"], "one workflow says the same as a list");
    found["results"].clone()
}

#[tokio::test]
async fn a_list_says_what_became_of_the_last_runs() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let nowhere = refused_action();
    let workflow = s.create_with(json!({"name": "payroll", "overlap_policy": "concurrent"})).await;
    let none = s.create_with(json!({"name": "none"})).await;
    let week = json!({"runs": 0, "success_rate": null, "p95_duration_ms": null});
    let nothing = json!({"last_run": null, "recent": [], "failures_in_a_row": 0, "week": week});
    assert_eq!(results(&s.editor(), none).await, nothing);

    // Long before the week, and within it.
    fire(&s, workflow).await;
    s.now_is("2026-03-20T08:30:00Z").await;
    for _ in 0..2 {
        fire(&s, workflow).await;
    }
    s.editor()
        .patch(&format!("/api/v1/workflows/{workflow}"), &json!({"action": nowhere, "max_attempts": 1}))
        .await
        .expect(200);
    fire(&s, workflow).await;
    let read = results(&s.editor(), workflow).await;
    let states: Vec<&Value> = read["recent"].as_array().unwrap().iter().map(|run| &run["state"]).collect();
    assert_eq!(states, ["failed", "succeeded", "succeeded", "succeeded"], "the newest first, of any age: {read}");
    assert_eq!((&read["week"]["runs"], &read["failures_in_a_row"]), (&json!(3), &json!(1)), "{read}");
    assert!((read["week"]["success_rate"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9, "{read}");
    assert!(read["week"]["p95_duration_ms"].is_i64(), "{read}");
    let last = &read["last_run"];
    assert_eq!((&last["id"], &last["state"]), (&read["recent"][0]["id"], &json!("failed")));
    assert!(last["error"].as_str().is_some_and(|error| !error.is_empty()), "{last}");
    let schedule = json!({"cron_schedule": "0 9 1 1 *", "timezone": "UTC"});
    s.editor().patch(&format!("/api/v1/workflows/{workflow}"), &schedule).await.expect(200);
    let schedules = s.editor().get("/api/v1/schedules?results=true").await.expect(200).json;
    assert_eq!(schedules["items"][0]["results"], read, "a list of schedules says it, too");
    for list in ["/api/v1/workflows", "/api/v1/schedules"] {
        assert_eq!(s.editor().get(list).await.expect(200).json["items"][0]["results"], Value::Null, "only on request");
    }
    s.end_early().await;
}

/// A run that has not ended is the last run, and no result yet. Of many results, the last 20 are shown.
#[tokio::test]
async fn a_live_run_is_the_last_run() {
    let s = Story::with_app(|config| config.executor_slots = 0).await;
    let workflow = s.create_with(json!({"overlap_policy": "concurrent", "max_concurrent": 100})).await;
    let path = format!("/api/v1/schedules/{workflow}:fire");
    let mut runs = Vec::new();
    for _ in 0..23 {
        runs.push(s.editor().post(&path, &json!({})).await.expect(202).json["run_id"].clone());
    }
    for run in &runs[..22] {
        s.editor().post_empty(&format!("/api/v1/runs/{}:cancel", run.as_str().unwrap())).await.expect(200);
    }
    let read = results(&s.editor(), workflow).await;
    assert_eq!((&read["last_run"]["id"], &read["last_run"]["finished_on"]), (&runs[22], &Value::Null));
    let recent: Vec<&Value> = read["recent"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(recent, runs[2..22].iter().rev().collect::<Vec<_>>());
    assert_eq!((&read["week"]["runs"], &read["week"]["success_rate"]), (&json!(22), &json!(0.0)));
    s.execute("UPDATE runs SET state = 'cancelled', finished_on = cronbox_now() WHERE state = 'accepted'").await;
    s.publish().await;
    s.end_early().await;
}

/// A page of 200 workflows executes as many statements as a page of one.
#[tokio::test]
async fn a_page_of_results_has_a_constant_number_of_statements() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let first = s.create_with(json!({})).await;
    fire(&s, first).await;
    s.execute(
        "INSERT INTO workflows (team_id, name, action, created_on, updated_on)
         SELECT team_id, 'copy ' || nth, action, now(), now() FROM workflows, generate_series(2, 200) AS nth",
    )
    .await;
    let way = CountingWay::to(&s.dsn()).await;
    let base = s.another_url_at(way.dsn(&s.dsn())).await;
    let api = Api::new(&base, &s.keys.editor);
    api.get("/api/v1/workflows?limit=1&results=true").await.expect(200);
    way.take_rows();
    let page = api.get("/api/v1/workflows?results=true&limit=200").await.expect(200).json;
    assert_eq!(page["items"].as_array().unwrap().len(), 200);
    let executed = way.take_rows();
    // Jobs of the app execute statements, too, but not one for each workflow.
    assert!(executed.values().all(|rows| rows.statements < 20), "{executed:?}");
    assert!(executed.keys().any(|label| label.contains("ended runs of many workflows")), "{executed:?}");
    s.end_early().await;
}

/// The filter reads the newest run that has ended, however old it is, also in lists that are sorted or counted.
#[tokio::test]
async fn workflows_are_found_by_their_last_result() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let nowhere = refused_action();
    let good = s.create_with(json!({"name": "good"})).await;
    let bad = s.create_with(json!({"name": "bad", "action": nowhere, "max_attempts": 1})).await;
    let _never = s.create_with(json!({"name": "never"})).await;
    fire(&s, good).await;
    fire(&s, bad).await;
    let found = async |query: &str| -> Vec<i64> {
        let page = s.editor().get(&format!("/api/v1/workflows?{query}")).await.expect(200).json;
        page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect()
    };
    for when in ["2026-03-02T09:00:00Z", "2026-03-20T08:30:00Z"] {
        s.set_clock(when.parse().unwrap()).await;
        assert_eq!(found("last_result=failed").await, [bad.0], "{when}");
        assert_eq!(found("last_result=succeeded").await, [good.0], "{when}");
        assert_eq!(found("last_result=failed&last_result=succeeded").await, [good.0, bad.0], "{when}");
        assert_eq!(found("last_result=failed&last_result=succeeded&sort=name").await, [bad.0, good.0], "{when}");
        assert_eq!(found("last_result=cancelled").await, [0; 0], "{when}");
    }
    let counted = s.editor().get("/api/v1/workflows?last_result=failed&total=true").await.expect(200).json;
    assert_eq!(counted["total"], 1);
    let read = format!("/api/v1/workflows/{bad}");
    s.editor().patch(&read, &json!({"action": {"type": "log", "message": "mended"}})).await.expect(200);
    fire(&s, bad).await;
    assert_eq!(found("last_result=failed").await, [0; 0], "the newest run counts");
    let refused = s.editor().get("/api/v1/workflows?last_result=running").await.expect(400).json;
    assert_eq!(refused["field"], "last_result", "{refused}");
    s.end_early().await;
}

/// 5,001 workflows of the team that do not fail: more than a list reads for one page.
const HEALTHY: &str = "
    INSERT INTO workflows (team_id, name, action, created_on, updated_on)
    SELECT (SELECT min(id) FROM teams), 'healthy ' || nth, '{\"type\":\"log\",\"message\":\"m\"}', now(), now()
      FROM generate_series(1, 5001) AS nth";

#[tokio::test]
async fn failing_workflows_are_found_and_counted() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(HEALTHY).await;
    let nowhere = refused_action();
    let failing =
        |name: &str| json!({"name": name, "action": nowhere, "max_attempts": 1, "overlap_policy": "concurrent"});
    let (once, thrice) = (s.create_with(failing("once")).await, s.create_with(failing("thrice")).await);
    for workflow in [once, thrice, thrice, thrice] {
        fire(&s, workflow).await;
    }
    let found = async |api: &Api, query: &str| {
        let page = api.get(&format!("/api/v1/workflows?total=true&{query}")).await.expect(200).json;
        let ids: Vec<i64> = page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
        assert_eq!((&page["total"], &page["next_cursor"]), (&json!(ids.len()), &Value::Null), "{query}: {page}");
        ids
    };
    let other = s.admin().post("/api/v1/teams", &json!({"name": "other"})).await.expect(201).id();
    let key = json!({"name": "k", "kind": "team", "team_id": other, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json["key"].as_str().unwrap().to_owned();
    assert_eq!(found(&Api::new(s.url(), &key), "failures_in_a_row=1").await, [0; 0], "those of another team");
    for api in [s.editor(), s.admin()] {
        assert_eq!(found(&api, "failures_in_a_row=1").await, [once.0, thrice.0]);
        assert_eq!(found(&api, "failures_in_a_row=1&sort=-name").await, [thrice.0, once.0]);
        assert_eq!(found(&api, "failures_in_a_row=3").await, [thrice.0]);
        assert_eq!(found(&api, "failures_in_a_row=4").await, [0; 0]);
        assert_eq!(found(&api, "failures_in_a_row=1&state=paused").await, [0; 0]);
    }
    let read = s.editor().get(&format!("/api/v1/workflows/{thrice}?results=true")).await.expect(200).json;
    assert_eq!(read["results"]["failures_in_a_row"], 3, "{read}");
    let mended = json!({"action": {"type": "log", "message": "mended"}});
    s.editor().patch(&format!("/api/v1/workflows/{thrice}"), &mended).await.expect(200);
    fire(&s, thrice).await;
    assert_eq!(found(&s.editor(), "failures_in_a_row=1").await, [once.0]);
    s.editor().get("/api/v1/workflows?failures_in_a_row=0").await.refused(
        400,
        "invalid_field",
        Some("failures_in_a_row"),
    );
    s.end_early().await;
}

/// A list of more failing workflows than it reads for one page has a next page.
#[tokio::test]
async fn all_parts_of_many_failing_workflows_are_listed() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(HEALTHY).await;
    s.execute(
        "INSERT INTO failure_streaks
         SELECT id, team_id, 1, now(), gen_random_uuid(), now(), gen_random_uuid() FROM workflows",
    )
    .await;
    for api in [s.editor(), s.admin()] {
        let query = "/api/v1/workflows?failures_in_a_row=1&q=healthy%205001";
        let first = api.get(query).await.expect(200).json;
        assert_eq!(first["items"], json!([]), "{first}");
        let next = format!("{query}&cursor={}", first["next_cursor"].as_str().unwrap());
        let second = api.get(&next).await.expect(200).json;
        assert_eq!((&second["items"][0]["name"], &second["next_cursor"]), (&json!("healthy 5001"), &Value::Null));
    }
    s.end_early().await;
}
