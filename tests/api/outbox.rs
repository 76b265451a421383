//! The outbox through the API and through `cronbox outbox`.

use serde_json::{Value, json};
use tests::Story;

use crate::cronbox::cronbox;

/// Marks the only row as if the publisher had failed permanently. Another test shows how that happens.
async fn refused_by_eventbridge(s: &Story) {
    s.execute("UPDATE outbox_events SET failed_on = cronbox_now(), attempt_count = 1, error_message = 'EventBridge refuses the schedule: no'").await;
    s.execute("UPDATE publications SET error_class = 'permanent', last_error = 'EventBridge refuses the schedule: no', due_at = NULL, attempt_count = 1")
        .await;
}

#[tokio::test]
async fn failed_rows_are_listed_and_retried() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    refused_by_eventbridge(&s).await;
    let failed = s.admin().get("/api/v1/outbox?status=failed").await.expect(200).json;
    let row = &failed["items"][0];
    assert_eq!((&row["workflow_id"], &row["status"], &row["attempt_count"]), (&json!(wf), &json!("failed"), &json!(1)));
    assert_eq!((&row["error_class"], &row["due_at"]), (&json!("permanent"), &Value::Null));
    let id = row["id"].as_i64().unwrap();

    let retried = s.admin().post_empty(&format!("/api/v1/outbox/{id}:retry")).await.expect(200).json;

    assert_eq!((&retried["status"], &retried["attempt_count"]), (&json!("pending"), &json!(0)));
    assert_eq!((&retried["error_message"], &retried["error_class"]), (&Value::Null, &Value::Null));
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) UTC ENABLED");
    s.admin().post_empty(&format!("/api/v1/outbox/{id}:retry")).await.refused(409, "already_processed", None);
    s.admin().post_empty(&format!("/api/v1/outbox/{id}:discard")).await.refused(409, "already_processed", None);
    let audited = s.table("SELECT verb || ' ' || subject FROM audit_log WHERE verb LIKE 'outbox.%'").await;
    assert!(audited.contains(&format!("outbox.retry outbox:{id} of workflow:{wf}")), "{audited}");
    s.end().await;
}

/// A discarded row cannot be retried. The next edit of its workflow is published.
#[tokio::test]
async fn only_failed_rows_can_be_discarded() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    let id = s.admin().get("/api/v1/outbox").await.expect(200).json["items"][0]["id"].as_i64().unwrap();
    s.admin().post_empty(&format!("/api/v1/outbox/{id}:discard")).await.refused(409, "not_failed", None);
    s.admin().post_empty(&format!("/api/v1/outbox/{id}:forget")).await.refused(404, "not_found", None);
    s.admin().post_empty("/api/v1/outbox/999:retry").await.refused(404, "not_found", None);
    refused_by_eventbridge(&s).await;

    let discarded = s.admin().post_empty(&format!("/api/v1/outbox/{id}:discard")).await.expect(200).json;

    assert_eq!(discarded["status"], "discarded");
    s.admin().post_empty(&format!("/api/v1/outbox/{id}:retry")).await.refused(409, "already_discarded", None);
    assert_eq!(s.editor().get(&format!("/api/v1/workflows/{wf}")).await.json["sync"]["status"], "failed");
    s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({"cron_schedule": "0 10 * * *"})).await.expect(200);
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 10 * * ? *) UTC ENABLED");
    s.end().await;
}

#[tokio::test]
async fn the_list_is_filtered_and_paged() {
    let s = Story::today().await;
    let [first, second] = [s.create("0 9 * * *", "UTC").await, s.create("0 9 * * *", "UTC").await];
    s.publish().await;
    s.edit(first, json!({"cron_schedule": "0 10 * * *"})).await;
    let ids = async |query: &str| -> Vec<i64> {
        let page = s.admin().get(&format!("/api/v1/outbox{query}")).await.expect(200).json;
        page["items"].as_array().unwrap().iter().map(|row| row["workflow_id"].as_i64().unwrap()).collect()
    };
    assert_eq!(ids("").await, [first.0, second.0, first.0]);
    assert_eq!(ids("?status=processed").await, [second.0, first.0]);
    assert_eq!(ids("?status=pending").await, [first.0]);
    assert_eq!(ids(&format!("?workflow_id={second}")).await, [second.0]);
    s.execute("UPDATE outbox_events SET created_on = '2026-01-01T00:00:00Z' WHERE processed_on IS NOT NULL").await;
    assert_eq!(ids("?created_before=2026-01-01T00:00:01Z").await, [second.0, first.0]);
    assert_eq!(ids("?created_before=2026-01-01T00:00:00Z").await, [0; 0]);
    assert_eq!(ids("?status=pending&created_before=2100-01-01T00:00:00Z").await, [first.0]);
    let page = s.admin().get("/api/v1/outbox?limit=2").await.json;
    assert_eq!(ids(&format!("?limit=2&cursor={}", page["next_cursor"].as_str().unwrap())).await, [first.0]);
    s.admin().get("/api/v1/outbox?status=lost").await.refused(400, "invalid_field", Some("status"));
    s.publish().await;
    s.end().await;
}

#[tokio::test]
async fn cronbox_outbox_lists_and_retries_rows() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    refused_by_eventbridge(&s).await;
    let (code, said) = cronbox(&s, &["outbox", "ls"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.starts_with("ROW ") && said.contains("failed") && said.contains("EventBridge refuses the schedule: no"),
        "{said}"
    );
    let (code, said) = cronbox(&s, &["outbox", "ls", "--status", "pending", "--json"]).await;
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, said) = cronbox(&s, &["outbox", "retry", "999"]).await;
    assert_eq!(code, Some(2), "{said}");
    // A refused row does not keep the others from being retried.
    let row = s.admin().get("/api/v1/outbox?status=failed").await.expect(200).json["items"][0]["id"].to_string();
    let (code, said) = cronbox(&s, &["outbox", "retry", "999", &row, "998", "--json"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("row 999: ") && said.contains("row 998: "), "{said}");
    assert!(said.contains(&format!("\"id\":{row},")), "{said}");
    refused_by_eventbridge(&s).await;
    let (code, said) = cronbox(&s, &["outbox", "retry", "--all-failed", "--json"]).await;
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["status"], "pending");
    s.publish().await;
    assert_eq!(s.schedule(wf), "cron(0 9 * * ? *) UTC ENABLED");
    let (code, said) = cronbox(&s, &["outbox", "discard", "--all-failed"]).await;
    assert_eq!((code, said.as_str()), (Some(0), "nothing\n"));
    s.end().await;
}

/// An error of EventBridge may repeat the text of a client.
const HOSTILE: &str = "UPDATE outbox_events SET failed_on = cronbox_now(), attempt_count = 1,
           error_message = 'no ' || chr(27) || '[2J' || chr(10) || '9 forged' || chr(155) || chr(8238);
    UPDATE publications SET error_class = 'permanent', due_at = NULL, drift = 'changed',
           last_error = (SELECT error_message FROM outbox_events)";

#[tokio::test]
async fn errors_of_servers_control_no_terminal() {
    let s = Story::today().await;
    s.create("0 9 * * *", "UTC").await;
    s.execute(HOSTILE).await;
    for (words, lines) in [(["outbox", "ls"], 2), (["drift", "show"], 4)] {
        let (_, said) = cronbox(&s, &words).await;
        assert_eq!(said.lines().count(), lines, "{said}");
        assert!(said.contains("no \u{fffd}[2J 9 forged\u{fffd}\u{fffd}"), "{said}");
        assert!(said.chars().all(|one| one == '\n' || !one.is_control()), "{said:?}");
    }
    let (_, said) = cronbox(&s, &["outbox", "ls", "--json"]).await;
    assert!(said.is_ascii() && said.lines().count() == 1, "{said}");
    let row: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(row["error_message"], "no \u{1b}[2J\n9 forged\u{9b}\u{202e}", "programs get the text itself");
    s.end_early().await;
}

/// As AWS answers if a policy denies a call.
const DENIED: &str = "UPDATE publications SET error_class = 'environment', last_error = 'the publisher may not do this in EventBridge: \
    User: arn:aws:sts::123456789012:assumed-role/publisher is not authorized'";

/// They name the account, its roles and its quotas.
#[tokio::test]
async fn only_admins_read_the_words_of_aws() {
    let s = Story::today().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.execute(DENIED).await;
    let paths = [
        format!("/api/v1/workflows/{wf}"),
        format!("/api/v1/schedules/{wf}"),
        "/api/v1/workflows".into(),
        "/api/v1/schedules".into(),
    ];
    for path in &paths {
        let (shown, words) = (s.editor().get(path).await.expect(200).text, s.admin().get(path).await.expect(200).text);
        assert!(shown.contains("ask an operator") && !shown.contains("arn:"), "{path}: {shown}");
        assert!(shown.contains("\"error_class\":\"environment\""), "{path}: {shown}");
        assert!(words.contains("arn:aws:sts::123456789012"), "{path}: {words}");
    }
    let description = json!({"description": "d"});
    let edited = [
        s.editor().patch(&paths[0], &description).await.expect(200),
        s.editor().patch(&paths[1], &json!({"spread_secs": 1})).await.expect(200),
        s.editor().patch(&format!("{}?wait=0", paths[0]), &json!({"description": "e"})).await.expect(200),
        s.editor().post_empty(&format!("{}:pause", paths[0])).await.expect(200),
    ];
    for answer in edited {
        assert!(!answer.text.contains("arn:"), "{}", answer.text);
    }
    s.execute("UPDATE publications SET last_error = 'the stored cron cannot be read: x'").await;
    let shown = s.editor().get(&paths[0]).await.expect(200).json;
    assert_eq!(shown["sync"]["last_error"], "the stored cron cannot be read: x", "it is about the workflow only");
    s.end_early().await;
}

/// Fires that EventBridge and the runner did not deliver, as the publisher mirrors them, and a message to AWS that was refused.
const UNDELIVERED: &str = "
    INSERT INTO dead_letters (queue, message_id, kind, team_id, workflow_id, scheduled_time, error, attributes, body, body_bytes,
                              first_seen, last_seen, state, result)
    SELECT l.queue, l.queue, 'fire', w.team_id, w.id, cronbox_now(), l.error, '{\"SCHEDULE_ARN\": \"arn:aws:scheduler:r:123456789012:schedule/g/s\"}',
           '{\"FunctionName\": \"arn:aws:lambda:r:123456789012:function:runner\"}', 10, cronbox_now(), cronbox_now(), l.state, l.result
      FROM workflows w
     CROSS JOIN (VALUES ('schedules', 'AccessDeniedException: User: arn:aws:sts::123456789012:assumed-role/e is not authorized', 'redrive_failed',
                         'the scheduler key cannot be fetched: User: arn:aws:sts::123456789012:assumed-role/p is not authorized'),
                        ('runner', 'the scheduler key cannot be fetched: User: arn:aws:sts::123456789012:assumed-role/r is not authorized \
                                    (NoKey, RetriesExhausted)', 'present', NULL)) AS l (queue, error, state, result)
     ORDER BY l.queue DESC;
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, last_error, created_on, failed_on)
    SELECT '0195573e-0000-7000-8000-000000000000', id, team_id, 'missed', 1, 'failed',
           'AuthorizationError: User: arn:aws:sts::123456789012:assumed-role/n is not authorized', cronbox_now(), cronbox_now()
      FROM notification_channels";

/// A team reads codes, and asks an operator for the rest.
#[tokio::test]
async fn only_admins_read_undelivered_words_of_aws() {
    let s = Story::today().await;
    s.create("0 9 * * *", "UTC").await;
    let channel = json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sns:eu-west-1:210987654321:alerts"});
    s.editor().post("/api/v1/notification-channels", &channel).await.expect(201);
    s.execute(UNDELIVERED).await;
    let listed = s.editor().get("/api/v1/dead-letters").await.expect(200).json["items"].clone();
    let said: Vec<Value> = listed.as_array().unwrap().iter().map(|one| json!([one["error"], one["result"]])).collect();
    let not_posted = "the fire could not be posted: ask an operator for the reason";
    assert_eq!(json!(said), json!([["NoKey", null], ["AccessDeniedException", not_posted]]));
    let id = |at: usize| format!("/api/v1/dead-letters/{}", listed[at]["id"]);
    let message = "/api/v1/notification-messages/0195573e-0000-7000-8000-000000000000";
    let lists = ["/api/v1/dead-letters", "/api/v1/notification-messages"].map(str::to_owned);
    for path in lists.into_iter().chain([id(0), id(1), message.to_owned()]) {
        let (shown, words) =
            (s.editor().get(&path).await.expect(200).text, s.admin().get(&path).await.expect(200).text);
        assert!(!shown.contains("123456789012"), "{path}: {shown}");
        assert!(words.contains("arn:aws:sts::123456789012"), "{path}: {words}");
    }
    let shown = s.editor().get(&id(0)).await.expect(200).json;
    assert_eq!((&shown["body"], &shown["attributes"]), (&Value::Null, &Value::Null));
    let retried = s.editor().post_empty(&format!("{message}:retry")).await.expect(200).json;
    assert_eq!(retried["last_error"], "AuthorizationError: AWS refuses the message, ask an operator");
    s.end_early().await;
}
