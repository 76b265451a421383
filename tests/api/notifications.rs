//! Channels and rules: what is refused, what is never shown, and what a PUT keeps.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tests::{Api, Story, send_request};

/// Where a channel of AWS leads.
const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:alerts";
const CHANNELS: &str = "/api/v1/notification-channels";
const RULES: &str = "/api/v1/notification-rules";

async fn put(api: &Api, path: &str, body: &Value) -> tests::Answer {
    send_request(api.request(Method::PUT, path).json(body)).await
}

#[tokio::test]
async fn channels_refuse_what_cannot_be_sent() {
    let s = Story::today().await;
    let slack = |url: &str| json!({"name": "n", "kind": "slack", "url": url});
    for (body, field) in [
        (json!({"name": "", "kind": "aws", "target_arn": TOPIC}), "name"),
        (json!({"name": "n", "kind": "pigeon"}), "kind"),
        (json!({"name": "n", "kind": "aws"}), "target_arn"),
        (json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sqs:eu-west-1:123456789012:q"}), "target_arn"),
        (json!({"name": "n", "kind": "email", "recipients": ["a@example.com"], "target_arn": TOPIC}), "target_arn"),
        (json!({"name": "n", "kind": "slack"}), "url"),
        (json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "url": "https://1.1.1.1/"}), "url"),
        (slack("ftp://1.1.1.1/"), "url"),
        (slack("https://169.254.169.254/latest"), "url"),
        (json!({"name": "n", "kind": "email"}), "recipients"),
        (json!({"name": "n", "kind": "email", "recipients": ["a@example.com", "b"]}), "recipients.1"),
        (json!({"name": "n", "kind": "email", "recipients": ["a@example.com\nBcc: b@example.com"]}), "recipients.0"),
        (json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "recipients": ["a@example.com"]}), "recipients"),
        (json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "max_per_hour": 0}), "max_per_hour"),
        (
            json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "quiet": {"from": "9", "to": "10:00", "timezone": "UTC"}}),
            "quiet.from",
        ),
        (
            json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "quiet": {"from": "09:00", "to": "09:00", "timezone": "UTC"}}),
            "quiet.to",
        ),
        (
            json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "quiet": {"from": "09:00", "to": "10:00", "timezone": "Mars"}}),
            "quiet.timezone",
        ),
        (json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "snooze": 1}), "snooze"),
    ] {
        let answer = s.editor().post(CHANNELS, &body).await.expect(400);
        assert_eq!(answer.json["field"], field, "{body}: {}", answer.text);
    }
    assert_eq!(s.count("SELECT count(*) FROM notification_channels").await, 0);
    s.end().await;
}

/// The path of a URL of Slack is its password.
#[tokio::test]
async fn a_url_is_never_shown_and_kept_by_put() {
    let s = Story::with_app(|config| {
        config.secrets.secrets_key = Some("k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned());
    })
    .await;
    let body = json!({"name": "n", "kind": "slack", "url": "https://1.1.1.1/services/T0/B0/s3cret"});
    let created = s.editor().post(CHANNELS, &body).await.expect(201);
    let path = format!("{CHANNELS}/{}", created.id());
    assert_eq!(created.json["origin"], "https://1.1.1.1");
    s.editor().post(CHANNELS, &body).await.refused(409, "name_taken", None);
    let mut read = s.editor().get(&path).await.expect(200).json;
    read["max_per_hour"] = json!(5);
    let after = put(&s.editor(), &path, &read).await.expect(200);
    assert_eq!((&after.json["max_per_hour"], &after.json["origin"]), (&json!(5), &json!("https://1.1.1.1")));
    put(&s.editor(), &path, &json!({"name": "n", "kind": "aws", "target_arn": TOPIC})).await.refused(
        400,
        "immutable_field",
        Some("kind"),
    );
    for text in
        [created.text, after.text, s.admin().get("/api/v1/audit").await.text, s.editor().get(CHANNELS).await.text]
    {
        assert!(!text.contains("s3cret"), "{text}");
    }
    let everything = "SELECT c::text FROM notification_channels c UNION ALL SELECT a::text FROM audit_log a";
    assert!(!s.table(everything).await.contains("s3cret"));
    s.end().await;
}

#[tokio::test]
async fn rules_say_what_their_event_needs() {
    let s = Story::today().await;
    let channel =
        s.editor().post(CHANNELS, &json!({"name": "n", "kind": "aws", "target_arn": TOPIC})).await.expect(201).id();
    let workflow = s.create_with(json!({})).await;
    let with = |fields: Value| {
        let mut body = json!({"channel_ids": [channel]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    for (fields, field) in [
        (json!({"event": "fired"}), "event"),
        (json!({"event": "failures_in_a_row"}), "threshold"),
        (json!({"event": "failures_in_a_row", "threshold": 101}), "threshold"),
        (json!({"event": "run_failed", "threshold": 1}), "threshold"),
        (json!({"event": "run_late", "after_secs": 59}), "after_secs"),
        (json!({"event": "no_success", "after_secs": 3600}), "workflow_id"),
        (json!({"event": "frozen_long", "after_secs": 3600, "workflow_id": workflow}), "workflow_id"),
        (json!({"event": "missed", "workflow_id": 987_654_321}), "workflow_id"),
        (json!({"event": "missed", "group_secs": -1}), "group_secs"),
        (json!({"event": "missed", "channel_ids": []}), "channel_ids"),
        (json!({"event": "missed", "channel_ids": [channel, 987_654_321]}), "channel_ids"),
    ] {
        let answer = s.editor().post(RULES, &with(fields.clone())).await.expect(400);
        assert_eq!(answer.json["field"], field, "{fields}: {}", answer.text);
    }
    let created = s.editor().post(RULES, &with(json!({"event": "auto_paused"}))).await.expect(201);
    assert_eq!((&created.json["group_secs"], &created.json["enabled"]), (&json!(5), &json!(true)));
    let path = format!("{RULES}/{}", created.id());
    let mut read = s.editor().get(&path).await.expect(200).json;
    (read["event"], read["workflow_id"]) = (json!("missed"), json!(workflow));
    assert_eq!(put(&s.editor(), &path, &read).await.expect(200).json["version"], 2);
    s.editor().delete(&format!("{CHANNELS}/{channel}")).await.refused(409, "channel_in_use", None);
    s.editor().delete(&path).await.expect(204);
    s.editor().delete(&format!("{CHANNELS}/{channel}")).await.expect(204);
    s.end().await;
}

/// Two people change the same channel, and the same rule: the second edit is refused, and the first one stays.
#[tokio::test]
async fn an_edit_of_an_older_version_is_refused() {
    let s = Story::today().await;
    let channel = json!({"name": "n", "kind": "aws", "target_arn": TOPIC});
    let id = s.editor().post(CHANNELS, &channel).await.expect(201).id();
    let rule = json!({"event": "missed", "channel_ids": [id]});
    let rule_id = s.editor().post(RULES, &rule).await.expect(201).id();
    for (path, first, second) in [
        (format!("{RULES}/{rule_id}"), json!({"group_secs": 30}), json!({"enabled": false})),
        (format!("{CHANNELS}/{id}"), json!({"max_per_hour": 5}), json!({"name": "other"})),
    ] {
        let seen = s.editor().get(&path).await.expect(200);
        let edited = |change: &Value| {
            let mut body = seen.json.clone();
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            body
        };
        let send = |method, body: Value| {
            send_request(s.editor().request(method, &path).header("if-match", &seen.headers["etag"]).json(&body))
        };
        assert_eq!(send(Method::PUT, edited(&first)).await.expect(200).headers["etag"], "\"2\"");
        send(Method::PUT, edited(&second)).await.refused(412, "version_mismatch", None);
        send(Method::DELETE, json!(null)).await.refused(412, "version_mismatch", None);
        let now = s.editor().get(&path).await.expect(200).json;
        let mut expected = edited(&first);
        (expected["version"], expected["updated_on"]) = (json!(2), now["updated_on"].clone());
        assert_eq!(now, expected);
    }
    s.end().await;
}

/// What belongs to another team does not exist.
#[tokio::test]
async fn objects_of_other_teams_are_missing() {
    let s = Story::today().await;
    let team = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let foreign = json!({"team_id": team, "name": "n", "kind": "aws", "target_arn": TOPIC, "default_rules": true});
    let channel = s.admin().post(CHANNELS, &foreign).await.expect(201).id();
    let rule = s.admin().get(&format!("{RULES}?team_id={team}")).await.expect(200).json["items"][0]["id"].clone();
    let body = json!({"name": "n", "kind": "aws", "target_arn": TOPIC});
    for answer in [
        s.editor().get(&format!("{CHANNELS}/{channel}")).await,
        put(&s.editor(), &format!("{CHANNELS}/{channel}"), &body).await,
        s.editor().delete(&format!("{CHANNELS}/{channel}")).await,
        s.editor().post_empty(&format!("{CHANNELS}/{channel}:test")).await,
        s.editor().get(&format!("{RULES}/{rule}")).await,
        s.editor().delete(&format!("{RULES}/{rule}")).await,
        s.editor().post_empty(&format!("{RULES}/{rule}:snooze")).await,
    ] {
        answer.refused(404, "not_found", None);
    }
    for list in [CHANNELS, RULES, "/api/v1/notifications", "/api/v1/notification-messages"] {
        assert_eq!(s.editor().get(list).await.expect(200).json["items"], json!([]), "{list}");
    }
    s.end().await;
}

/// Else an editor could send any number of mails to anybody by the operator's mail server.
#[tokio::test]
async fn a_channel_is_tested_as_often_as_it_sends() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let body = json!({"name": "n", "kind": "aws", "target_arn": TOPIC, "max_per_hour": 2});
    let id = s.editor().post(CHANNELS, &body).await.expect(201).id();
    let test = format!("{CHANNELS}/{id}:test");
    for _ in 0..2 {
        s.editor().post_empty(&test).await.expect(200);
    }
    let refused = s.editor().post_empty(&test).await;
    assert_eq!(refused.headers["retry-after"], "60");
    refused.refused(429, "rate_limited", None);
    // Each edit of the channel has an entry there, too. Counting the tests among them locked the row of the team for long.
    let mut owner = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE").execute(&mut owner).await.unwrap();
    s.editor().post_empty(&test).await.refused(429, "rate_limited", None);
    sqlx::raw_sql("ROLLBACK").execute(&mut owner).await.unwrap();
    s.now_is("2026-03-02T10:00:00Z").await;
    s.editor().post_empty(&test).await.expect(200);
    s.end().await;
}

/// The limit of a channel ends with the channel: an editor wrote to twenty strangers with each new one.
#[tokio::test]
async fn new_channels_give_a_team_no_further_tests() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    let body = json!({"name": "n", "kind": "email", "recipients": ["a@example.com"], "max_per_hour": 1_000});
    let test_once = async |api: &Api, body: &Value| {
        let channel = format!("{CHANNELS}/{}", api.post(CHANNELS, body).await.expect(201).id());
        let answer = api.post_empty(&format!("{channel}:test")).await;
        api.delete(&channel).await.expect(204);
        answer
    };
    for _ in 0..30 {
        test_once(&s.editor(), &body).await.expect(200);
    }
    let refused = test_once(&s.editor(), &body).await;
    refused.refused(429, "rate_limited", None);
    assert_eq!(refused.headers["ratelimit-policy"], "\"team-channel-tests-per-hour\";q=30;w=3600");
    assert_eq!(refused.headers["retry-after"], "120");
    let mut of_others = body.clone();
    of_others["team_id"] = json!(s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id());
    test_once(&s.admin(), &of_others).await.expect(200);
    s.now_is("2026-03-02T09:01:59Z").await;
    test_once(&s.editor(), &body).await.expect(429);
    s.now_is("2026-03-02T09:59:59Z").await;
    // No hour has more than 60.
    for _ in 0..29 {
        test_once(&s.editor(), &body).await.expect(200);
    }
    test_once(&s.editor(), &body).await.expect(429);
    s.now_is("2026-03-02T10:59:59Z").await;
    test_once(&s.editor(), &body).await.expect(200);
    s.end().await;
}

/// Else an editor chooses every recipient of the operator's mail server.
#[tokio::test]
async fn recipients_are_of_permitted_domains() {
    let s = Story::with_app(|config| {
        config.mail.mail_recipients = Some("example.com, *.corp.example".parse().unwrap());
    })
    .await;
    let body = |recipients: &[&str]| json!({"name": "n", "kind": "email", "recipients": recipients});
    for refused in ["b@elsewhere.example", "b@mail.example.com", "b@corp.example"] {
        let answer = s.editor().post(CHANNELS, &body(&["a@example.com", refused])).await;
        answer.refused(400, "invalid_field", Some("recipients.1"));
        assert!(answer.json["detail"].as_str().unwrap().contains("example.com, *.corp.example"), "{}", answer.text);
    }
    let permitted = body(&["a@Example.com", "b@mail.corp.example"]);
    let id = s.editor().post(CHANNELS, &permitted).await.expect(201).id();
    let path = format!("{CHANNELS}/{id}");
    put(&s.editor(), &path, &permitted).await.expect(200);
    put(&s.editor(), &path, &body(&["b@elsewhere.example"])).await.refused(400, "invalid_field", Some("recipients.0"));
    s.end().await;
}

/// The triggers of decisions refer to rules in transactions that have fires of all teams.
#[tokio::test]
async fn edits_of_a_rule_hold_no_decision_up() {
    let s = Story::today().await;
    let channel = json!({"name": "n", "kind": "aws", "target_arn": TOPIC});
    let channel = s.editor().post(CHANNELS, &channel).await.expect(201).id();
    let rule = json!({"event": "missed", "channel_ids": [channel]});
    let rule = s.editor().post(RULES, &rule).await.expect(201).id();
    let mut edit = db::begin_transaction(&s.pool).await.unwrap();
    assert!(notifications::rule::lock_rule(&mut edit, rule, Some(s.keys.team_id + 1)).await.unwrap().is_none());
    s.execute("SELECT FROM notification_rules FOR UPDATE NOWAIT").await;
    assert!(notifications::rule::lock_rule(&mut edit, rule, Some(s.keys.team_id)).await.unwrap().is_some());
    s.execute("SELECT FROM notification_rules FOR KEY SHARE NOWAIT").await;
    drop(edit);
    s.end().await;
}

/// Each of them writes in the transactions in which the fires of all teams are decided.
#[tokio::test]
async fn twenty_rules_of_an_event_are_alike() {
    let s = Story::today().await;
    let channel = json!({"name": "n", "kind": "aws", "target_arn": TOPIC});
    let channel = s.editor().post(CHANNELS, &channel).await.expect(201).id();
    let workflow = s.create_with(json!({})).await;
    let missed = json!({"event": "missed", "channel_ids": [channel]});
    for _ in 0..20 {
        s.editor().post(RULES, &missed).await.expect(201);
    }
    s.editor().post(RULES, &missed).await.refused(409, "too_many_rules", None);
    let of_one = json!({"event": "missed", "channel_ids": [channel], "workflow_id": workflow.0});
    let of_one = s.editor().post(RULES, &of_one).await.expect(201).id();
    put(&s.editor(), &format!("{RULES}/{of_one}"), &missed).await.refused(409, "too_many_rules", None);
    let of_another = json!({"event": "abandoned", "channel_ids": [channel]});
    put(&s.editor(), &format!("{RULES}/{of_one}"), &of_another).await.expect(200);
    s.end().await;
}
