//! A team with channels and rules, and the job that sends its notifications.

use app::jobs::Did;
use serde_json::{Value, json};
use tests::Story;

use crate::receiver::Receiver;

/// Creates a channel of the team; returns its id.
pub(super) async fn channel(s: &Story, fields: Value) -> i64 {
    s.editor().post("/api/v1/notification-channels", &fields).await.expect(201).id()
}

/// Creates a channel that posts to a receiver.
pub(super) async fn webhook(s: &Story, receiver: &Receiver) -> i64 {
    channel(s, json!({"name": receiver.url, "kind": "webhook", "url": receiver.url})).await
}

/// Creates a rule of the team; returns its id.
pub(super) async fn rule(s: &Story, channel: i64, fields: Value) -> i64 {
    let mut body = json!({"channel_ids": [channel]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    s.editor().post("/api/v1/notification-rules", &body).await.expect(201).id()
}

/// Runs the job until it has nothing to do now.
pub(super) async fn send(s: &Story) {
    for _ in 0..100 {
        if s.job("notifications").await == Did::Nothing {
            return;
        }
    }
    panic!("the job does not come to an end");
}

/// The notifications of the team, the oldest first, as the API shows them.
pub(super) async fn notifications(s: &Story) -> Vec<Value> {
    let mut items = s.editor().get("/api/v1/notifications?limit=200").await.expect(200).json["items"].clone();
    items.as_array_mut().unwrap().reverse();
    items.as_array().unwrap().clone()
}

/// The sentences of the notifications of the team, the oldest first.
pub(super) async fn texts(s: &Story) -> Vec<String> {
    notifications(s).await.iter().map(|one| one["text"].as_str().unwrap().to_owned()).collect()
}
