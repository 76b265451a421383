//! Labels: by which callers group and select workflows.

use serde_json::{Value, json};
use tests::{Api, Story};

async fn names(caller: &Api, query: &str) -> Vec<String> {
    let list = caller.get(&format!("/api/v1/workflows?{query}")).await.expect(200).json;
    list["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn workflows_are_selected_by_their_labels() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    for (name, labels) in [
        ("pay", json!({"owner": "payroll", "env": "prod"})),
        ("test pay", json!({"owner": "payroll", "env": "test"})),
        ("report", json!({"owner": "finance"})),
        ("bare", Value::Null),
    ] {
        let mut fields = json!({"name": name});
        if !labels.is_null() {
            fields["labels"] = labels;
        }
        s.create_with(fields).await;
    }
    let editor = s.editor();
    assert_eq!(names(&editor, "label=owner:payroll").await, ["pay", "test pay"]);
    assert_eq!(names(&editor, "label=owner:payroll&label=env:prod").await, ["pay"]);
    assert_eq!(names(&editor, "label=owner").await, ["pay", "test pay", "report"]);
    assert_eq!(names(&s.admin(), "label=env").await, ["pay", "test pay"], "of all teams");
    assert_eq!(names(&editor, "label=owner:legal").await, Vec::<String>::new());
    assert_eq!(names(&editor, "label=owner:payroll&state=paused").await, Vec::<String>::new());
    s.publish().await;
    s.end().await;
}

/// A label is no part of the schedule, so EventBridge is not asked again.
#[tokio::test]
async fn labels_are_edited_like_other_fields() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let wf = s.create_with(json!({"cron_schedule": "0 9 * * *", "labels": {"owner": "a", "env": "prod"}})).await;
    s.publish().await;
    let path = format!("/api/v1/workflows/{wf}");
    let merged = s.editor().merge_patch(&path, &json!({"labels": {"env": null, "owner": "b"}})).await.expect(200);
    assert_eq!(merged.json["labels"], json!({"owner": "b"}));
    let replaced = s.editor().patch(&path, &json!({"labels": {"tier": "1"}})).await.expect(200);
    assert_eq!((&replaced.json["labels"], &replaced.json["sync"]["status"]), (&json!({"tier": "1"}), &json!("synced")));
    s.edit(wf, json!({"description": "d"})).await;
    assert_eq!(s.workflow(wf).await["labels"], json!({"tier": "1"}), "another edit keeps them");
    let audited =
        s.table("SELECT after::text FROM audit_log WHERE verb = 'update' AND after ? 'labels' ORDER BY id").await;
    assert_eq!(audited.lines().count(), 2, "{audited}");
    s.end().await;
}

#[tokio::test]
async fn labels_that_are_not_valid_are_refused() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    for (labels, field) in [
        (json!({"": "x"}), "labels"),
        (json!({"a b": "x"}), "labels"),
        (json!({"owner": "a\nb"}), "labels.owner"),
        (json!({"owner": 1}), "labels.owner"),
        (json!(["owner"]), "labels"),
    ] {
        let body = json!({"name": "w", "action": {"type": "log", "message": "m"}, "labels": labels});
        let refused = s.editor().post("/api/v1/workflows", &body).await;
        assert_eq!((refused.status, &refused.json["field"]), (400, &json!(field)), "{labels}");
    }
    for query in ["label=", "label=a%20b:c"] {
        let refused = s.editor().get(&format!("/api/v1/workflows?{query}")).await;
        assert_eq!((refused.status, &refused.json["field"]), (400, &json!("label")), "{query}");
    }
    s.end().await;
}
