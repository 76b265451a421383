//! Lists in another order than that of the ids, and how many items a list has.

use serde_json::{Value, json};
use tests::{Api, Story, refused_action};

async fn create(s: &Story, name: &str, cron: Option<&str>) {
    let mut fields = json!({"name": name});
    if let Some(cron) = cron {
        fields["cron_schedule"] = json!(cron);
        fields["timezone"] = json!("UTC");
    }
    s.create_with(fields).await;
}

async fn names(api: &Api, query: &str, limit: usize) -> String {
    let (mut names, mut next) = (Vec::new(), format!("/api/v1/workflows?{query}&limit={limit}"));
    loop {
        let page = api.get(&next).await.expect(200).json;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit, "{page}");
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { return names.join(" ") };
        next = format!("/api/v1/workflows?{query}&limit={limit}&cursor={cursor}");
    }
}

async fn some_workflows() -> Story {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    create(&s, "Beta", Some("0 12 * * *")).await;
    create(&s, "alpha", None).await;
    create(&s, "delta", Some("0 9 * * *")).await;
    create(&s, "Gamma", Some("0 10 * * *")).await;
    s
}

#[tokio::test]
async fn lists_are_sorted_page_by_page() {
    let s = some_workflows().await;
    for limit in [1, 2, 200] {
        for (sort, expected) in [
            ("name", "alpha Beta delta Gamma"),
            ("-name", "Gamma delta Beta alpha"),
            ("next_fire_at", "delta Gamma Beta alpha"),
            ("-next_fire_at", "Beta Gamma delta alpha"),
        ] {
            assert_eq!(names(&s.editor(), &format!("sort={sort}"), limit).await, expected, "{sort} {limit}");
            assert_eq!(
                names(&s.admin(), &format!("sort={sort}"), limit).await,
                expected,
                "{sort} {limit} of all teams"
            );
        }
    }
    assert_eq!(names(&s.editor(), "sort=name&q=lt", 200).await, "delta");
    let first = s.editor().get("/api/v1/workflows?sort=name&limit=1").await.expect(200).json;
    let cursor = first["next_cursor"].as_str().unwrap();
    s.editor().get(&format!("/api/v1/workflows?cursor={cursor}")).await.refused(400, "invalid_cursor", Some("cursor"));
    assert_eq!(s.editor().get("/api/v1/workflows?sort=size").await.status, 400);
    let schedules = s.editor().get("/api/v1/schedules?sort=next_fire_at").await.expect(200).json;
    assert_eq!(schedules["items"].as_array().unwrap().len(), 3, "no workflow without a schedule");
    s.publish().await;
    s.end().await;
}

/// An edit moves a workflow to another place; the pages that follow have every other workflow once.
#[tokio::test]
async fn the_last_change_is_an_order() {
    let s = some_workflows().await;
    s.set_clock("2026-03-02T08:40:00Z".parse().unwrap()).await;
    let id = s.editor().get("/api/v1/workflows?q=alpha").await.expect(200).json["items"][0]["id"].clone();
    s.editor().patch(&format!("/api/v1/workflows/{id}"), &json!({"description": "new"})).await.expect(200);
    assert!(names(&s.editor(), "sort=-updated_on", 1).await.starts_with("alpha "));
    assert!(names(&s.editor(), "sort=updated_on", 1).await.ends_with(" alpha"));
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn totals_are_counted_on_request() {
    let s = some_workflows().await;
    let total = async |path: &str| s.editor().get(path).await.expect(200).json["total"].clone();
    assert_eq!(total("/api/v1/workflows?limit=1").await, Value::Null);
    assert_eq!(total("/api/v1/workflows?limit=1&total=true").await, 4);
    assert_eq!(total("/api/v1/workflows?q=lt&total=true").await, 1);
    assert_eq!(total("/api/v1/schedules?total=true").await, 3);
    assert_eq!(total("/api/v1/runs?total=true").await, 0);
    let id = s.editor().get("/api/v1/workflows").await.expect(200).json["items"][0]["id"].clone();
    for _ in 0..3 {
        s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
        s.runs_end().await;
    }
    assert_eq!(total("/api/v1/runs?total=true&limit=1").await, 3);
    assert_eq!(total("/api/v1/runs?total=true&state=failed").await, 0);
    s.publish().await;
    s.end().await;
}

/// Each scope of a list of runs has a statement of its own that counts.
#[tokio::test]
async fn runs_are_counted_in_each_scope() {
    let s = some_workflows().await;
    let nowhere = refused_action();
    let failing = s.create_with(json!({"name": "failing", "action": nowhere, "max_attempts": 1})).await;
    let other = s.create("0 9 * * *", "UTC").await;
    for workflow in [failing, other, other] {
        s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
        s.runs_end().await;
    }
    let strangers = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let counts = [
        (String::new(), 3),
        ("&state=failed".to_owned(), 1),
        ("&state=failed&state=timed_out".to_owned(), 1),
        ("&trigger=manual".to_owned(), 3),
        ("&trigger=schedule".to_owned(), 0),
        (format!("&workflow_id={other}"), 2),
        (format!("&workflow_id={other}&state=failed"), 0),
    ];
    for (filters, expected) in counts {
        let path = format!("/api/v1/runs?total=true&limit=1{filters}");
        for api in [s.editor(), s.admin()] {
            assert_eq!(api.get(&path).await.expect(200).json["total"], expected, "{filters}");
        }
        let of_strangers = s.admin().get(&format!("{path}&team_id={strangers}")).await.expect(200).json;
        assert_eq!(of_strangers["total"], 0, "{filters}");
    }
    s.publish().await;
    s.end().await;
}

const MANY: &str = "INSERT INTO workflows (team_id, name, action, created_on, updated_on)
    SELECT (SELECT min(id) FROM teams), 'w ' || nth, '{\"type\": \"log\", \"message\": \"m\"}', now(), now() FROM generate_series(1, 10001) AS nth";

#[tokio::test]
async fn a_list_that_is_too_long_is_not_sorted() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    s.execute(MANY).await;
    s.editor().get("/api/v1/workflows?sort=name").await.refused(400, "invalid_field", Some("sort"));
    assert_eq!(names(&s.editor(), "sort=name&q=w 9999", 200).await, "w 9999");
    let counted = s.editor().get("/api/v1/workflows?total=true&limit=1").await.expect(200).json;
    assert_eq!(counted["total"], 10_000);
    s.end_early().await;
}
