//! Drift checks through the API and through `cronbox drift`.

use local::stack::GROUP;
use serde_json::json;
use tests::Story;

use crate::cronbox::cronbox;

#[tokio::test]
async fn a_drift_check_records_who_requested_it() {
    let s = Story::today().await;
    let none = s.admin().get("/api/v1/drift").await.expect(200).json;
    assert_eq!(none, json!({"last": null, "open": null, "workflows": [], "orphans": []}));
    let first = s.admin().post_empty("/api/v1/drift:check").await.expect(202).json;
    assert_eq!((&first["force"], &first["started_on"], &first["report"]), (&json!(false), &json!(null), &json!({})));
    let second = s.admin().post("/api/v1/drift:check", &json!({"force": true})).await.expect(202).json;
    assert_eq!((&second["id"], &second["force"]), (&first["id"], &json!(true)), "the open one will do");
    assert_eq!(s.admin().get("/api/v1/drift").await.json["open"], second);
    s.admin().post("/api/v1/drift:check", &json!({"force": "yes"})).await.refused(400, "invalid_field", Some("force"));
    let audited = s
        .table("SELECT verb || ' ' || subject || ' ' || after FROM audit_log WHERE verb = 'drift.check' ORDER BY id")
        .await;
    let sweep = &first["id"];
    assert_eq!(
        audited,
        format!("drift.check sweep:{sweep} {{\"force\": false}}\ndrift.check sweep:{sweep} {{\"force\": true}}")
    );
    s.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cronbox_drift_repairs_a_manual_deletion() {
    let s = Story::with_daemon().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.until("SELECT COUNT(*) FROM publications WHERE sync_status(publications) = 'synced'", 1).await;
    s.until("SELECT COUNT(*) FROM sweeps WHERE finished_on IS NOT NULL", 1).await;
    let (code, said) = cronbox(&s, &["drift", "show"]).await;
    assert!(code == Some(0) && said.contains("0 differed"), "{code:?} {said}");

    // A sweep skips recent publications, so this one is made an hour older.
    s.execute("UPDATE publications SET applied_on = applied_on - INTERVAL '1 hour'").await;
    let gone = s.scheduler.delete_schedule().group_name(GROUP).name(format!("wf-{wf}-dev")).send().await;
    gone.unwrap();
    let (code, said) = cronbox(&s, &["drift", "check", "--wait"]).await;
    assert!(code == Some(1) && said.contains("missing                      1"), "{code:?} {said}");
    // It says which one, also after its repair.
    let mut rows = said.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
    assert!(rows.any(|row| row == ["missing", wf.to_string().as_str()]), "{said}");
    s.until("SELECT COUNT(*) FROM publications WHERE sync_status(publications) = 'synced'", 1).await;
    s.scheduler.get_schedule().group_name(GROUP).name(format!("wf-{wf}-dev")).send().await.unwrap();
    let (code, said) = cronbox(&s, &["drift", "show", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &shown["last"]["report"]["missing"]), (Some(0), &json!(1)));

    s.create_orphan(schedule::WorkflowId(4711)).await;
    let (code, said) = cronbox(&s, &["drift", "check", "--wait"]).await;
    assert!(code == Some(1) && said.contains("orphan ") && said.contains(" wf-4711-dev "), "{code:?} {said}");
    let (code, said) = cronbox(&s, &["drift", "show"]).await;
    assert!(code == Some(1) && said.contains("wf-4711-dev"), "{code:?} {said}");
    s.end_early().await;
}

/// The brake refuses changes of workflows that show `synced`, so only the report says that EventBridge differs.
#[tokio::test]
async fn cronbox_drift_fails_while_changes_are_refused() {
    let s = Story::today().await;
    s.execute(
        "INSERT INTO sweeps (requested_by, requested_on, started_on, finished_on)
         VALUES ('publisher', cronbox_now(), cronbox_now(), cronbox_now())",
    )
    .await;
    for (report, wanted, sentence) in [
        (r#"UPDATE sweeps SET report = '{"listed": 100, "changed": 2}'"#, 0, "2 differed"),
        (r#"UPDATE sweeps SET report = '{"listed": 100, "changed": 60, "changes_refused": 60}'"#, 1, "NOT changed"),
        (r#"UPDATE sweeps SET report = '{"listed": 100, "orphan": 60, "orphans_refused": 60}'"#, 1, "NOT deleted"),
    ] {
        s.execute(report).await;
        let (code, said) = cronbox(&s, &["drift", "show"]).await;
        assert!(code == Some(wanted) && said.contains(sentence), "{code:?} {said}");
    }
    s.end().await;
}

#[tokio::test]
async fn wrong_keys_and_addresses_have_a_sentence() {
    let s = Story::today().await;
    let (code, said) = cronbox(&s, &["drift", "show", "--key", "nonsense"]).await;
    assert_eq!(
        (code, said.trim()),
        (
            Some(1),
            "cronbox: send an active key in X-API-Key (401 unauthorized): run `cronbox login`, or set CRONBOX_KEY"
        )
    );
    let (code, said) = cronbox(&s, &["drift", "show", "--url", "http://127.0.0.1:9", "--key", "other"]).await;
    assert!(code == Some(1) && said.starts_with("cronbox: http://127.0.0.1:9 does not answer"), "{said}");
    let (code, _) = cronbox(&s, &["drift", "mend"]).await;
    assert_eq!(code, Some(2));
    s.end().await;
}
