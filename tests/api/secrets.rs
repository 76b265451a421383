//! Canaries: keys, header values, tokens and DSNs appear in no log, no error and no Debug output, even at TRACE. A new
//! origin of a URL requires the secrets again.

use std::io;
use std::sync::{Arc, Mutex};

use schedule::WorkflowId;
use serde_json::json;
use tests::Story;
use tracing_subscriber::fmt::MakeWriter;

/// All log output of all crates, at all levels.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_secret_is_logged_or_returned() {
    let log = Log::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).init();
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let (header, body, input) = ("canary-header-7c1", "canary-body-7c3", "canary-input-7c4");
    let (path_token, query_token) = ("canary-path-7c5", "canary-query-7c6");
    let action = json!({"type": "http", "method": "POST", "url": format!("http://127.0.0.1:8009/{path_token}?token={query_token}"),
                        "headers": {"authorization": header}, "body": {"pass": {"secret": body}}});
    let workflow = json!({"name": "secretive", "cron_schedule": "0 9 * * *", "action": action,
                          "starting_inputs": {"a": [{"secret": input}]}});
    let made = s.editor().post("/api/v1/workflows", &workflow).await.expect(201);
    assert_eq!(made.json["action"]["headers"], json!({"authorization": null}), "header values are write-only");
    assert_eq!(made.json["action"]["url"], action["url"], "an editor must be able to change it");
    let path = format!("/api/v1/workflows/{}", made.id());
    s.editor().patch(&path, &json!({"description": "x"})).await.expect(200);
    let other = json!({"action": {"url": format!("http://127.0.0.1:8009/{path_token}-2?{query_token}"), "body": {"new": body}}});
    let edited = s.editor().merge_patch(&path, &other).await.expect(200).json;
    assert_eq!(
        edited["action"]["body"],
        json!({"pass": {"secret": null}, "new": body}),
        "only marked values are secrets"
    );
    let logged_action = json!({"name": "printer", "action": {"type": "log", "message": "hi"}, "cron_schedule": "0 9 * * *",
                               "starting_inputs": {"pin": {"secret": input}}});
    let printer = s.editor().post("/api/v1/workflows", &logged_action).await.expect(201).id();
    let fired = json!({"inputs": {"pin": {"secret": input}}});
    s.editor().post(&format!("/api/v1/schedules/{printer}:fire"), &fired).await.expect(202);
    let viewer = json!({"name": "v", "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
    let viewer = s.admin().post("/api/v1/keys", &viewer).await.expect(201).json;
    let viewer = tests::Api::new(s.url(), viewer["key"].as_str().unwrap());
    let mut seen = String::new();
    for shown in [path.as_str(), "/api/v1/workflows"] {
        seen += &viewer.get(shown).await.expect(200).text;
        assert!(!s.editor().get(shown).await.expect(200).text.contains(input), "inputs that are marked are write-only");
    }
    assert!(seen.contains(r#""url":"http://127.0.0.1:8009""#), "a viewer sees the origin: {seen}");
    // The rest of the body is not marked.
    let seen = seen.replace(&format!(r#""new":"{body}""#), "");
    let key = s.admin().post("/api/v1/keys", &json!({"name": "k", "kind": "admin"})).await.expect(201).json;
    let key = key["key"].as_str().unwrap().to_owned();
    tests::Api::new(s.url(), &key).get("/api/v1/keys").await.expect(200);
    let wrong = format!("{key}x");
    tests::Api::new(s.url(), &wrong).get("/api/v1/keys").await.expect(401);
    s.publish().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    let run = s.runs_of(WorkflowId(made.id())).await.remove(0);
    assert_eq!(run["state"], "failed", "no server listens there");
    let audit = s.table("SELECT audit_log::text FROM audit_log").await;
    assert!(audit.contains("secretive"));
    let dsn = s.dsn();
    let password = dsn.split([':', '@']).nth(2).unwrap().to_owned();
    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(logged.contains("TRACE") && logged.contains("outbox: upsert of workflow"), "nothing was logged");
    for (canary, whose) in [
        (header, "the header's value"),
        (path_token, "the token in the URL's path"),
        (query_token, "the token in the URL's query"),
        (body, "the body"),
        (input, "the marked input"),
        (key.as_str(), "the new key"),
        (s.keys.admin.as_str(), "the admin key"),
        (password.as_str(), "the database's password"),
    ] {
        // The stack, not the app, creates the logins, if no other test has done so.
        let line = logged.lines().find(|line| line.contains(canary) && !line.contains("CREATE ROLE"));
        assert!(line.is_none(), "{whose} is in the log: {line:?}");
        assert!(!audit.contains(canary), "{whose} is in the audit log");
        assert!(!run.to_string().contains(canary), "{whose} is in the run");
        assert!(!seen.contains(canary), "{whose} is in what a viewer sees: {seen}");
    }
    s.end().await;
}

/// An editor may write a header's value but not read it, so a URL of the editor's own must not get the stored one.
#[tokio::test]
async fn a_new_origin_requires_the_headers_again() {
    let s = Story::today().await;
    let action =
        json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/a", "headers": {"Authorization": "x"}});
    let made = json!({"name": "w", "action": action, "starting_inputs": {"pin": {"secret": 1}}});
    let path = format!("/api/v1/workflows/{}", s.editor().post("/api/v1/workflows", &made).await.expect(201).id());
    for url in ["http://127.0.0.1:8010/a", "https://127.0.0.1:8009/a", "http://127.0.0.2:8009/a"] {
        let refused = s.editor().merge_patch(&path, &json!({"action": {"url": url}})).await;
        refused.refused(400, "invalid_field", Some("action.headers.Authorization"));
        assert!(refused.json["detail"].as_str().unwrap().contains("send the header values again"), "{}", refused.text);
        let action = json!({"url": url, "headers": {"Authorization": "y"}});
        let refused = s.editor().merge_patch(&path, &json!({"action": action})).await;
        refused.refused(400, "invalid_field", Some("starting_inputs.pin"));
    }
    let whole = json!({"action": {"type": "http", "method": "POST", "url": "http://127.0.0.1:8010/a", "headers": {"Authorization": null}}});
    s.editor().patch(&path, &whole).await.refused(400, "invalid_field", Some("action.headers.Authorization"));
    s.editor().merge_patch(&path, &json!({"action": {"url": "http://127.0.0.1:8009/b"}})).await.expect(200);
    let sent = json!({"action": {"url": "http://127.0.0.1:8010/a", "headers": {"Authorization": "y"}},
                      "starting_inputs": {"pin": {"secret": 2}}});
    s.editor().merge_patch(&path, &sent).await.expect(200);
    let without = json!({"action": {"url": "http://127.0.0.1:8011/a", "headers": null}, "starting_inputs": null});
    s.editor().merge_patch(&path, &without).await.expect(200);
    s.end().await;
}

/// `serde_json` reads an object that begins with this name as the text of another one. The first patch hid a new origin from the
/// check above; the second one made a row that nothing could read, and lists showed the inputs of such a row as they are stored.
#[tokio::test]
async fn no_patch_hides_another_document() {
    let s = Story::today().await;
    let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/a"});
    let made = json!({"name": "w", "cron_schedule": "0 9 * * *", "action": action,
                      "starting_inputs": {"pin": {"secret": "canary-input"}}});
    let path = format!("/api/v1/workflows/{}", s.editor().post("/api/v1/workflows", &made).await.expect(201).id());
    // A value in memory begins with `!x`, until the patch is merged and removes it.
    let other = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8010/a"}).to_string();
    let hidden = json!({"action": {"!x": null, "type": null, "method": null, "url": null,
                                   "$serde_json::private::RawValue": other}});
    s.editor().merge_patch(&path, &hidden).await.refused(400, "invalid_field", Some("action"));
    // Postgres returns the shorter name first, and a change of due times is not read back.
    let unreadable = json!({"cron_schedule": "1 9 * * *",
                            "starting_inputs": {"x": {"!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!": 1, "$serde_json::private::RawValue": "x"}}});
    s.editor().merge_patch(&path, &unreadable).await.refused(400, "invalid_field", Some("starting_inputs.x"));
    let stored = s.editor().get(&path).await.expect(200).json;
    assert_eq!(stored["action"]["url"], action["url"]);
    // By whichever way such a document came into the database.
    s.execute("UPDATE workflows SET starting_inputs = starting_inputs || '{\"a\": 1e400}'").await;
    let listed = s.editor().get("/api/v1/workflows").await.expect(200).text;
    assert!(!listed.contains("canary-input"), "{listed}");
    s.end_early().await;
}

/// Views show a marked value as null, so a client that sends a view back must not empty it.
#[tokio::test]
async fn marked_values_are_not_written_as_null() {
    let s = Story::today().await;
    let path = format!("/api/v1/workflows/{}", s.create("0 9 * * *", "UTC").await);
    s.editor().patch(&path, &json!({"starting_inputs": {"pin": {"secret": 1}}})).await.expect(200);
    for send_back in [json!({"starting_inputs": {"pin": {"secret": null}}})] {
        s.editor().patch(&path, &send_back).await.refused(400, "invalid_field", Some("starting_inputs.pin"));
        s.editor().merge_patch(&path, &send_back).await.refused(400, "invalid_field", Some("starting_inputs.pin"));
    }
    s.editor().merge_patch(&path, &json!({"starting_inputs": {"pin": null}})).await.expect(200);
    let fire = format!("{}:fire", path.replace("workflows", "schedules"));
    let inputs = json!({"inputs": {"a": [{"pin": {"secret": null}}]}});
    s.editor().post(&fire, &inputs).await.refused(400, "invalid_field", Some("inputs.a.0.pin"));
    s.end().await;
}

/// A merge patch into a secret would remove its mark, or count the stored value as sent.
#[tokio::test]
async fn merge_patches_keep_no_part_of_secrets() {
    let s = Story::today().await;
    let action = json!({"type": "http", "method": "POST", "url": "http://127.0.0.1:8009/a",
                        "headers": {"authorization": "canary-header"},
                        "body": {"pass": {"secret": {"user": "canary-body"}}, "to": {"a": 1}}});
    let made = json!({"name": "w", "action": action, "starting_inputs": {"pin": {"secret": "canary-input"}}});
    let path = format!("/api/v1/workflows/{}", s.editor().post("/api/v1/workflows", &made).await.expect(201).id());
    let evil = |action: serde_json::Value| {
        let mut patch = json!({"action": {"url": "http://127.0.0.1:8010/a", "headers": {"authorization": "y"},
                                          "body": {"pass": {"secret": "y"}}},
                               "starting_inputs": {"pin": {"secret": 2}}});
        for (name, value) in action.as_object().unwrap() {
            patch["action"][name] = value.clone();
        }
        patch
    };
    for headers in
        [json!({"authorization": {}}), json!({"authorization": {"sealed": {}}}), json!({"authorization": {"x": 1}})]
    {
        let refused = s.editor().merge_patch(&path, &evil(json!({ "headers": headers }))).await;
        assert_eq!(refused.status, 400, "{headers}: {}", refused.text);
        let refused = s.editor().merge_patch(&path, &json!({"action": {"headers": headers}})).await;
        assert_eq!(refused.status, 400, "{headers}: {}", refused.text);
    }
    for pass in [
        json!({"x": 1}),
        json!({"secret": {}}),
        json!({"secret": {"user": null}}),
        json!({"secret": {"x": 1}}),
        json!({}),
    ] {
        s.editor().merge_patch(&path, &evil(json!({"body": {"pass": pass}}))).await.expect(200);
        let stored = s.table("SELECT action::text FROM workflows").await;
        assert!(!stored.contains("canary-body"), "{pass}: {stored}");
        s.editor()
            .patch(&path, &json!({"action": action, "starting_inputs": made["starting_inputs"]}))
            .await
            .expect(200);
    }
    let edited = s.editor().merge_patch(&path, &json!({"starting_inputs": {"pin": {"x": 1}}})).await.expect(200).json;
    assert_eq!(edited["starting_inputs"], json!({"pin": {"x": 1}}));
    let edited = s.editor().merge_patch(&path, &json!({"action": {"body": {"to": {"b": 2}}}})).await.expect(200).json;
    assert_eq!(edited["action"]["body"], json!({"pass": {"secret": null}, "to": {"a": 1, "b": 2}}));
    let audit = s.table("SELECT audit_log::text FROM audit_log").await;
    assert!(!audit.contains("canary"), "{audit}");
    s.end().await;
}
