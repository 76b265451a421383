//! Messages: collected, limited, repeated under one id, and refused.

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::any;
use local::stack::StackOptions;
use reqwest::Method;
use serde_json::{Value, json};
use tests::{Story, send_request};
use tokio::net::TcpListener;

use super::team::{channel, notifications, rule, send, webhook};
use crate::receiver::{NOON, Receiver, accept, until_state};

/// Ends this many runs of as many workflows at once, as the app ends them.
const FIVE_HUNDRED_FAIL: &str = "
    INSERT INTO workflows (team_id, name, action, revision, created_on, updated_on)
    SELECT (SELECT min(team_id) FROM notification_rules), 'w' || n, '{\"type\": \"log\", \"message\": \"m\"}', 0, cronbox_now(), cronbox_now()
      FROM generate_series(1, 500) AS n;
    INSERT INTO runs_ended (id, workflow_id, trigger, state, run_after, created_on, finished_on, error, team_id)
    SELECT gen_random_uuid(), id, 'manual', 'failed', cronbox_now(), cronbox_now(), cronbox_now(), 'no answer', team_id
      FROM workflows WHERE name LIKE 'w%';";

#[tokio::test]
async fn failures_of_a_minute_are_one_message() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let channel = webhook(&s, &receiver).await;
    rule(&s, channel, json!({"event": "run_failed"})).await;
    s.execute(FIVE_HUNDRED_FAIL).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 0, "it is collected for a minute");
    s.now_is("2026-03-02T12:01:00Z").await;
    send(&s).await;
    let [message] = &receiver.calls()[..] else { panic!("{}", receiver.received().len()) };
    assert_eq!(message["type"], "cronbox.run_failed");
    assert_eq!(message["timestamp"], "2026-03-02T12:01:00Z");
    let data = &message["data"];
    assert_eq!(data["text"], "500 workflows or runs: failed");
    assert_eq!((data["notifications"].as_array().unwrap().len(), &data["more"]), (50, &json!(450)));
    assert_eq!(data["notifications"][0]["text"].as_str().unwrap().split_once(' ').unwrap().1, "failed: no answer");
    assert_eq!(s.count("SELECT count(*) FROM notifications WHERE state = 'routed'").await, 500);
    s.end().await;
}

/// A workflow that fails, with a rule for each failure that is sent at once.
async fn failing(receiver: &Receiver) -> (Story, schedule::WorkflowId) {
    let s = Story::at(NOON).await;
    let channel = webhook(&s, receiver).await;
    rule(&s, channel, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, ""); 50]).await.action()})).await;
    (s, workflow)
}

async fn fail(s: &Story, workflow: schedule::WorkflowId) {
    let run = accept(s, workflow).await;
    until_state(s, run, "failed").await;
}

fn ids(receiver: &Receiver) -> Vec<String> {
    receiver.received().iter().map(|one| one.headers["webhook-id"].to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_repeated_delivery_keeps_its_id() {
    let receiver = Receiver::answering(&[(500, ""), (503, "600")]).await;
    let (s, workflow) = failing(&receiver).await;
    fail(&s, workflow).await;
    send(&s).await;
    s.now_is("2026-03-02T12:00:09Z").await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 1, "the first wait is 10 s");
    s.now_is("2026-03-02T12:00:10Z").await;
    send(&s).await;
    s.now_is("2026-03-02T12:10:09Z").await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 2, "the receiver wants 600 s");
    s.now_is("2026-03-02T12:10:10Z").await;
    send(&s).await;
    let ids = ids(&receiver);
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let messages = s.editor().get("/api/v1/notification-messages").await.expect(200).json["items"].clone();
    assert_eq!((&messages[0]["id"], &messages[0]["state"]), (&json!(ids[0]), &json!("sent")));
    assert_eq!(messages[0]["attempt_count"], 3);
    s.end().await;
}

/// The instance that sends is gone before it can record the answer.
#[tokio::test]
async fn a_lost_delivery_repeats_under_its_id() {
    let receiver = Receiver::slow().await;
    let (s, workflow) = failing(&receiver).await;
    fail(&s, workflow).await;
    tokio::select! {
        () = send(&s) => panic!("the receiver does not answer"),
        () = receiver.until(1) => {}
    }
    send(&s).await;
    assert_eq!(receiver.received().len(), 1, "the lease of the first delivery lasts");
    receiver.let_answer(10);
    // The lease of the job, too, which the lost instance had.
    s.execute("UPDATE jobs SET locked_by = NULL, locked_until = NULL").await;
    s.now_is("2026-03-02T12:02:00Z").await;
    send(&s).await;
    let ids = ids(&receiver);
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(s.count("SELECT count(*) FROM notification_messages").await, 1);
    s.end().await;
}

/// The database refuses to settle the messages of one channel. The counter of its refusals outlives the statements.
const ONE_CHANNEL_IS_NOT_SETTLED: &str = "
    CREATE SEQUENCE refused_settlements;
    CREATE FUNCTION refuse_settlement() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        PERFORM nextval('refused_settlements');
        RAISE EXCEPTION 'not settled';
    END
    $$;
    CREATE TRIGGER refuse_settlement BEFORE UPDATE ON notification_messages FOR EACH ROW
        WHEN (OLD.attempt_count = NEW.attempt_count AND OLD.event = 'auto_paused') EXECUTE FUNCTION refuse_settlement();
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
    SELECT gen_random_uuid(), id, team_id, CASE name WHEN 'unlucky' THEN 'auto_paused' ELSE 'run_failed' END, 0,
           cronbox_now(), cronbox_now()
      FROM notification_channels";

/// The requests of the other messages go on, and their answers are recorded.
#[tokio::test]
async fn database_errors_end_no_other_delivery() {
    let s = Story::at(NOON).await;
    let (unlucky, slow) = (Receiver::kind().await, Receiver::slow().await);
    channel(&s, json!({"name": "unlucky", "kind": "webhook", "url": unlucky.url})).await;
    webhook(&s, &slow).await;
    s.execute(ONE_CHANNEL_IS_NOT_SETTLED).await;
    let answer = async {
        slow.until(1).await;
        s.until("SELECT count(*) FROM refused_settlements WHERE is_called", 1).await;
        slow.let_answer(1);
    };
    let (done, ()) = tokio::join!(s.try_job("notifications"), answer);
    assert!(done.unwrap_err().to_string().contains("not settled"));
    assert_eq!(s.count("SELECT count(*) FROM notification_messages WHERE state = 'sent'").await, 1);
    s.end().await;
}

#[tokio::test]
async fn a_refused_message_is_a_dead_letter() {
    let receiver = Receiver::answering(&[(410, "")]).await;
    let (s, workflow) = failing(&receiver).await;
    fail(&s, workflow).await;
    send(&s).await;
    let failed =
        s.editor().get("/api/v1/notification-messages?state=failed").await.expect(200).json["items"][0].clone();
    assert_eq!(failed["last_error"], "the receiver answered 410 Gone");
    s.now_is("2026-03-02T13:00:00Z").await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 1);
    let path = format!("/api/v1/notification-messages/{}", failed["id"].as_str().unwrap());
    let again = s.editor().post_empty(&format!("{path}:retry")).await.expect(200);
    assert_eq!((&again.json["state"], &again.json["attempt_count"]), (&json!("pending"), &json!(0)));
    send(&s).await;
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "sent");
    s.editor().post_empty(&format!("{path}:retry")).await.refused(409, "not_failed", None);
    let ids = ids(&receiver);
    assert_eq!(ids[0], ids[1], "also then");
    s.end().await;
}

/// A receiver that repeats the request line in its error page; of a test it says an error code of Slack.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let answer = async |uri: Uri| match uri.path() {
        "/known" => (StatusCode::NOT_FOUND, "no_service\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, format!("{uri} does not exist")),
    };
    let router = Router::new().fallback(any(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}

/// The URL of a channel is a secret, which readers of messages and of the log do not have.
#[tokio::test]
async fn echoed_urls_are_not_stored() {
    let s = Story::at(NOON).await;
    let origin = echo().await;
    let url = format!("{origin}/services/T0/B0/canary?token=canary");
    let secret = channel(&s, json!({"name": "secret", "kind": "slack", "url": url})).await;
    let known = channel(&s, json!({"name": "known", "kind": "slack", "url": format!("{origin}/known")})).await;
    let test = async |id: i64| {
        s.editor().post_empty(&format!("/api/v1/notification-channels/{id}:test")).await.expect(200).json["error"]
            .clone()
    };
    assert_eq!(test(secret).await, "the receiver answered 404 Not Found");
    assert_eq!(test(known).await, "the receiver answered 404 Not Found: no_service");
    rule(&s, secret, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, "")]).await.action()})).await;
    fail(&s, workflow).await;
    send(&s).await;
    let errors = s.table("SELECT last_error FROM notification_messages").await;
    assert_eq!(errors, "the receiver answered 404 Not Found");
    s.end().await;
}

#[tokio::test]
async fn quiet_hours_delay_messages() {
    let s = Story::at("2026-03-02T21:30:00Z").await;
    let receiver = Receiver::kind().await;
    let quiet = json!({"from": "22:00", "to": "07:00", "timezone": "Europe/Paris"});
    let night = channel(&s, json!({"name": "n", "kind": "webhook", "url": receiver.url, "quiet": quiet})).await;
    rule(&s, night, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, ""); 9]).await.action()})).await;
    for now in ["2026-03-02T21:30:00Z", "2026-03-03T02:00:00Z"] {
        s.now_is(now).await;
        fail(&s, workflow).await;
        send(&s).await;
    }
    assert_eq!(receiver.received().len(), 0);
    s.now_is("2026-03-03T06:00:00Z").await;
    send(&s).await;
    let [message] = &receiver.calls()[..] else { panic!("{}", receiver.received().len()) };
    assert_eq!(message["data"]["notifications"].as_array().unwrap().len(), 2, "the morning has both");
    s.end().await;
}

/// So many messages of this hour with seven notifications each, to a channel of the team with rules.
const MESSAGES_OF_THIS_HOUR: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on, is_mail)
    SELECT (left(uuid_v7_floor(cronbox_now())::text, 24) || lpad(to_hex($2 * 10000 + n), 12, '0'))::uuid, $2,
           (SELECT min(team_id) FROM notification_rules), 'run_failed', 7, 'sent', cronbox_now(), $3
      FROM generate_series(1, $1) AS n";

/// The channels of the e-mails that were made since.
const NEW_MAILS: &str = "
    SELECT c.name FROM notification_messages m JOIN notification_channels c ON c.id = m.channel_id
     WHERE m.is_mail AND m.items <> 7 ORDER BY c.id";

/// The id of a channel that the team has deleted.
const DELETED: i64 = 999_999;

async fn insert_messages(s: &Story, number: i64, channel: i64, is_mail: bool) {
    let inserted = sqlx::query(MESSAGES_OF_THIS_HOUR).bind(number).bind(channel).bind(is_mail).execute(&s.pool);
    inserted.await.unwrap();
}

/// A team sends as many e-mails in an hour as one channel may, and some more of its silent ones, whatever channels it makes and deletes.
#[tokio::test]
async fn mails_of_a_team_are_limited() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let hook = webhook(&s, &receiver).await;
    let mail = channel(&s, json!({"name": "m", "kind": "email", "recipients": ["a@example.com"]})).await;
    rule(&s, mail, json!({"event": "run_failed", "group_secs": 0, "channel_ids": [mail, hook]})).await;
    insert_messages(&s, 2_000, DELETED, true).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, "")]).await.action()})).await;
    fail(&s, workflow).await;
    send(&s).await;
    assert_eq!((s.table(NEW_MAILS).await, receiver.received().len()), (String::new(), 1), "only e-mail waits");
    s.now_is("2026-03-02T13:00:00Z").await;
    send(&s).await;
    assert_eq!(s.table(NEW_MAILS).await, "m");
    s.end().await;
}

/// A team moves its channel of Slack, by deleting and creating it.
#[tokio::test]
async fn messages_of_deleted_webhooks_are_no_mails() {
    let s = Story::at(NOON).await;
    let mail = channel(&s, json!({"name": "m", "kind": "email", "recipients": ["a@example.com"]})).await;
    rule(&s, mail, json!({"event": "run_failed", "group_secs": 0})).await;
    insert_messages(&s, 2_000, DELETED, false).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, "")]).await.action()})).await;
    fail(&s, workflow).await;
    send(&s).await;
    assert_eq!(s.table(NEW_MAILS).await, "m");
    s.end().await;
}

/// The channel of on-call must not wait for one that takes each place that becomes free.
#[tokio::test]
async fn a_chatty_channel_leaves_mails_to_others() {
    let s = Story::at(NOON).await;
    let fields = |name| json!({"name": name, "kind": "email", "recipients": ["a@example.com"], "max_per_hour": 1_000});
    let chatty = channel(&s, fields("chatty")).await;
    let on_call = channel(&s, fields("on-call")).await;
    rule(&s, chatty, json!({"event": "run_failed", "group_secs": 0, "channel_ids": [chatty, on_call]})).await;
    insert_messages(&s, 500, DELETED, true).await;
    insert_messages(&s, 500, chatty, true).await;
    insert_messages(&s, 19, on_call, false).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, ""); 2]).await.action()})).await;
    for _ in 0..2 {
        fail(&s, workflow).await;
        send(&s).await;
    }
    assert_eq!(s.table(NEW_MAILS).await, "on-call", "the twentieth passes, and the next one waits");
    s.end().await;
}

/// 250 channels that are quiet until a minute before midnight, each with a notification that has waited for long.
const QUIET_CHANNELS: &str = "
    INSERT INTO notification_channels (team_id, name, kind, max_per_hour, quiet_from, quiet_to, quiet_timezone, is_enabled, created_on, updated_on)
    SELECT (SELECT min(team_id) FROM notification_rules), 'quiet ' || n, 'aws', 60, 0, 1439, 'UTC', true, cronbox_now(), cronbox_now()
      FROM generate_series(1, 250) AS n;
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT id, team_id, event, 'before', cronbox_now(), 'routed' FROM notification_rules;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT n.id, c.id, 'run_failed', cronbox_now() - INTERVAL '1 hour' FROM notifications n, notification_channels c WHERE c.kind = 'aws'";

#[tokio::test]
async fn many_quiet_channels_hide_no_other() {
    let receiver = Receiver::kind().await;
    let (s, workflow) = failing(&receiver).await;
    s.execute(QUIET_CHANNELS).await;
    fail(&s, workflow).await;
    s.job("notifications").await;
    s.job("notifications").await;
    assert_eq!(receiver.received().len(), 1);
    s.end().await;
}

/// Each channel has a notification that waits, and those of the channel `unlucky` get no message. The last channel has a message, too.
const ONE_CHANNEL_GETS_NO_MESSAGE: &str = "
    CREATE FUNCTION refuse_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not made'; END $$;
    CREATE TRIGGER refuse_message BEFORE INSERT ON notification_messages FOR EACH ROW
        WHEN (NEW.event = 'auto_paused') EXECUTE FUNCTION refuse_message();
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT id, team_id, CASE name WHEN 'unlucky' THEN 'auto_paused' ELSE 'run_failed' END, 'before', cronbox_now(), 'routed'
      FROM notification_channels;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT id, rule_id, event, cronbox_now() FROM notifications;
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
    SELECT gen_random_uuid(), id, team_id, 'run_failed', 0, cronbox_now(), cronbox_now()
      FROM notification_channels ORDER BY id DESC LIMIT 1";

/// A message that exists is delivered, and the channels behind the failing one get theirs.
#[tokio::test]
async fn a_failing_channel_stops_no_other() {
    let s = Story::at(NOON).await;
    let (unlucky, other) = (Receiver::kind().await, Receiver::kind().await);
    channel(&s, json!({"name": "unlucky", "kind": "webhook", "url": unlucky.url})).await;
    webhook(&s, &other).await;
    s.execute(ONE_CHANNEL_GETS_NO_MESSAGE).await;
    let failed = s.try_job("notifications").await.unwrap_err();
    assert!(failed.to_string().starts_with("1 teams or channels failed"), "{failed:#}");
    assert_eq!((unlucky.received().len(), other.received().len()), (0, 2));
    s.end().await;
}

/// What has waited for the channel in a night without a message.
const A_NIGHT: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT c.id, c.team_id, 'run_failed', n::text, cronbox_now(), 'routed' FROM notification_channels c, generate_series(1, 12000) AS n;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT id, rule_id, event, cronbox_now() FROM notifications";

#[tokio::test]
async fn a_message_has_a_bounded_number() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    webhook(&s, &receiver).await;
    s.execute_long(A_NIGHT).await;
    send(&s).await;
    let more: Vec<Value> = receiver.calls().iter().map(|call| call["data"]["more"].clone()).collect();
    assert_eq!(more, [json!(9_950), json!(1_950)]);
    s.end().await;
}

/// A notification of another event for the channel.
const ONE_OF_ANOTHER_EVENT: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT id, team_id, 'abandoned', 'before', cronbox_now(), 'routed' FROM notification_rules;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT n.id, c.id, n.event, cronbox_now() FROM notifications n, notification_channels c WHERE n.event = 'abandoned'";

/// Else its messages would be more than a pass sends, and their attempts would never end.
#[tokio::test]
async fn a_refusing_receiver_has_few_messages() {
    let receiver = Receiver::answering(&[(500, ""); 6]).await;
    let (s, workflow) = failing(&receiver).await;
    for _ in 0..7 {
        fail(&s, workflow).await;
        send(&s).await;
    }
    assert_eq!(receiver.received().len(), 5);
    s.execute(ONE_OF_ANOTHER_EVENT).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 6, "each event may have one");
    s.now_is("2026-03-02T12:00:10Z").await;
    send(&s).await;
    let sizes = receiver.calls().into_iter().map(|call| call["data"]["notifications"].as_array().unwrap().len());
    assert_eq!(sizes.filter(|size| *size == 2).count(), 1, "the next message has what has waited");
    assert_eq!(receiver.received().len(), 13);
    s.end().await;
}

/// All messages that wait are tried in an hour only, and the receiver works long before.
#[tokio::test]
async fn a_receiver_that_works_again_has_the_next_failure_soon() {
    let receiver = Receiver::answering(&[(503, "3600"); 5]).await;
    let (s, workflow) = failing(&receiver).await;
    for _ in 0..5 {
        fail(&s, workflow).await;
        send(&s).await;
    }
    s.now_is("2026-03-02T12:09:00Z").await;
    fail(&s, workflow).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 5, "five wait");
    s.now_is("2026-03-02T12:10:01Z").await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 6);
    assert_eq!(s.count("SELECT count(*) FROM notification_messages WHERE state = 'sent'").await, 1);
    s.end().await;
}

/// Else a team that creates and deletes channels would have any number of messages that wait.
#[tokio::test]
async fn messages_of_deleted_channels_fail_at_once() {
    let receiver = Receiver::answering(&[(500, "")]).await;
    let (s, workflow) = failing(&receiver).await;
    fail(&s, workflow).await;
    send(&s).await;
    let rule = s.count("SELECT id FROM notification_rules").await;
    let channel = s.count("SELECT id FROM notification_channels").await;
    s.editor().delete(&format!("/api/v1/notification-rules/{rule}")).await.expect(204);
    s.editor().delete(&format!("/api/v1/notification-channels/{channel}")).await.expect(204);
    let messages = s.table("SELECT concat_ws(' ', state, last_error) FROM notification_messages").await;
    assert_eq!(messages, "failed the channel is deleted");
    s.end().await;
}

/// One notification is being collected, and one message is to be repeated, when an editor disables the channel.
#[tokio::test]
async fn disabled_channels_get_nothing() {
    let receiver = Receiver::answering(&[(503, "")]).await;
    let (s, workflow) = failing(&receiver).await;
    let path = format!("/api/v1/notification-channels/{}", s.count("SELECT id FROM notification_channels").await);
    let set_enabled = async |enabled: bool| {
        let body = json!({"name": "hook", "kind": "webhook", "enabled": enabled});
        send_request(s.editor().request(Method::PUT, &path).json(&body)).await.expect(200);
    };
    fail(&s, workflow).await;
    send(&s).await;
    s.execute("UPDATE notification_rules SET group_secs = 60").await;
    fail(&s, workflow).await;
    send(&s).await;
    set_enabled(false).await;
    s.now_is("2026-03-02T12:05:00Z").await;
    fail(&s, workflow).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 1, "only the attempt before");
    s.editor().post_empty(&format!("{path}:test")).await.expect(200);
    assert_eq!(receiver.calls()[1]["type"], "cronbox.test");
    set_enabled(true).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 4, "the repeated message, and the one that was collected");
    assert_eq!(s.count("SELECT count(*) FROM notifications WHERE state = 'unsent'").await, 1, "of the time between");
    s.end().await;
}

#[tokio::test]
async fn a_full_hour_collects_the_rest() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let limited = channel(&s, json!({"name": "n", "kind": "webhook", "url": receiver.url, "max_per_hour": 2})).await;
    rule(&s, limited, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, ""); 9]).await.action()})).await;
    for minute in 1..=5 {
        s.now_is(&format!("2026-03-02T12:0{minute}:00Z")).await;
        fail(&s, workflow).await;
        send(&s).await;
    }
    assert_eq!(receiver.received().len(), 2);
    s.now_is("2026-03-02T13:01:00Z").await;
    send(&s).await;
    let sizes: Vec<usize> =
        receiver.calls().iter().map(|call| call["data"]["notifications"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [1, 1, 3]);
    s.end().await;
}

#[tokio::test]
async fn snoozed_rules_record_and_send_nothing() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let channel = webhook(&s, &receiver).await;
    let id = rule(&s, channel, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, ""); 9]).await.action()})).await;
    let snooze = format!("/api/v1/notification-rules/{id}:snooze");
    s.editor().post(&snooze, &json!({"until": NOON})).await.refused(400, "invalid_field", Some("until"));
    s.editor().post(&snooze, &json!({"until": "2026-03-02T12:05:00Z"})).await.expect(200);
    fail(&s, workflow).await;
    send(&s).await;
    s.now_is("2026-03-02T12:05:00Z").await;
    fail(&s, workflow).await;
    send(&s).await;
    assert_eq!(receiver.received().len(), 1);
    let states: Vec<Value> = notifications(&s).await.iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, [json!("snoozed"), json!("routed")]);
    s.end().await;
}

#[tokio::test]
async fn a_test_message_says_what_arrived() {
    let s = Story::with(StackOptions { now: Some(NOON.parse().unwrap()), ..StackOptions::default() }).await;
    let receiver = Receiver::answering(&[(404, "")]).await;
    let id = webhook(&s, &receiver).await;
    let test = format!("/api/v1/notification-channels/{id}:test");
    let refused = s.editor().post_empty(&test).await.expect(200).json;
    assert_eq!(
        refused,
        json!({"delivered": false, "error": "the receiver answered 404 Not Found", "message_id": null})
    );
    let accepted = json!({"delivered": true, "error": null, "message_id": null});
    assert_eq!(s.editor().post_empty(&test).await.expect(200).json, accepted);
    assert_eq!(receiver.calls()[1]["type"], "cronbox.test");
    // Without a mail server the answer says what an operator has to set.
    let mail = channel(&s, json!({"name": "m", "kind": "email", "recipients": ["a@example.com"]})).await;
    let unset = s.editor().post_empty(&format!("/api/v1/notification-channels/{mail}:test")).await.expect(200).json;
    assert!(unset["error"].as_str().unwrap().contains("CRONBOX_SMTP_URL"), "{unset}");
    s.end().await;
}
