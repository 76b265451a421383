//! The view of one run says what it repeats, with which inputs it ran, and who requested its end; lists name its workflow.

use serde_json::{Value, json};
use tests::{Story, refused_action};

async fn fire(s: &Story, wf: schedule::WorkflowId, body: &Value) -> String {
    let fired = s.editor().post(&format!("/api/v1/schedules/{wf}:fire"), body).await.expect(202);
    fired.json["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_retry_names_the_run_that_it_repeats() {
    let s = Story::today().await;
    let wf = s.create_with(json!({"name": "payroll", "overlap_policy": "concurrent"})).await;
    let inputs = json!({"inputs": {"month": "May", "token": {"secret": "hunter2"}}});
    let first = fire(&s, wf, &inputs).await;
    s.runs_end().await;
    let mut retried = first.clone();
    // A retry of a retry names the first run, too.
    for _ in 0..2 {
        let retry = s.editor().post_empty(&format!("/api/v1/runs/{retried}:retry")).await.expect(202);
        retried = retry.json["run_id"].as_str().unwrap().to_owned();
        s.runs_end().await;
        let run = s.editor().get(&format!("/api/v1/runs/{retried}")).await.expect(200).json;
        assert_eq!((&run["trigger"], &run["retry_of"]), (&json!("retry"), &json!(first)));
        assert_eq!(run["inputs"], json!({"month": "May", "token": {"secret": null}}), "a secret is write-only");
        assert_eq!(
            (&run["workflow_name"], &run["tries"], &run["recoveries"]),
            (&json!("payroll"), &json!(0), &json!(0))
        );
        assert_eq!(
            (&run["occurrence_id"], &run["backfill_id"], &run["late_result"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
    }
    s.end().await;
}

#[tokio::test]
async fn a_cancelled_run_says_when_its_end_was_requested() {
    let s = Story::with_app(|config| config.executor_slots = 0).await;
    let wf = s.create_with(json!({})).await;
    let run = fire(&s, wf, &json!({})).await;
    let path = format!("/api/v1/runs/{run}");
    assert_eq!(s.editor().get(&path).await.expect(200).json["cancel_requested_on"], Value::Null);
    let cancelled = s.editor().post_empty(&format!("{path}:cancel")).await.expect(200).json;
    assert!(cancelled["cancel_requested_on"].is_string(), "{cancelled}");
    assert_eq!(cancelled, s.editor().get(&path).await.expect(200).json);
    s.publish().await;
    s.end_early().await;
}

/// A filter is repeated for each value, and a list names the workflow of each run.
#[tokio::test]
async fn filters_may_be_repeated() {
    let s = Story::today().await;
    let (ok, bad) =
        (s.create_with(json!({"name": "ok"})).await, s.create_with(json!({"name": "bad", "max_attempts": 1})).await);
    // A port of which the listener is gone.
    let nowhere = json!({"action": refused_action()});
    s.editor().patch(&format!("/api/v1/workflows/{bad}"), &nowhere).await.expect(200);
    let (succeeded, failed) = (fire(&s, ok, &json!({})).await, fire(&s, bad, &json!({})).await);
    s.runs_end().await;
    s.editor().post_empty(&format!("/api/v1/runs/{succeeded}:retry")).await.expect(202);
    s.runs_end().await;
    let listed = async |query: &str| -> Vec<(String, String)> {
        let page = s.editor().get(&format!("/api/v1/runs?{query}")).await.expect(200).json;
        let mut found: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| [&run["workflow_name"], &run["trigger"]].map(|text| text.as_str().unwrap().to_owned()))
            .map(|[name, trigger]| (name, trigger))
            .collect();
        found.sort();
        found
    };
    let pair = |name: &str, trigger: &str| (name.to_owned(), trigger.to_owned());
    assert_eq!(listed("state=failed&state=abandoned").await, [pair("bad", "manual")]);
    assert_eq!(listed("state=failed").await, [pair("bad", "manual")]);
    let all = [pair("bad", "manual"), pair("ok", "manual"), pair("ok", "retry")];
    assert_eq!(listed("state=failed&state=succeeded").await, all);
    assert_eq!(listed("trigger=retry&trigger=backfill").await, [pair("ok", "retry")]);
    assert_eq!(listed("trigger=manual&trigger=retry&state=succeeded").await, all[1..]);
    s.editor().get("/api/v1/runs?state=failed&state=lost").await.refused(400, "invalid_field", Some("state"));
    assert_eq!(s.editor().get(&format!("/api/v1/runs/{failed}")).await.expect(200).json["tries"], 1);
    s.end().await;
}
