//! Mail servers that do not answer.

use std::time::Duration;

use egress::Client;
use egress::mail::Mailer;
use notifications::delivery::{Courier, CourierParts};
use serde_json::json;
use tests::{PATIENCE, Story};
use tokio::net::TcpListener;

use super::team::channel;
use crate::receiver::{NOON, Receiver};

/// Makes a message to each channel due.
const ONE_FOR_EACH_CHANNEL: &str = "
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, due_at, created_on)
    SELECT gen_random_uuid(), id, team_id, 'run_failed', 0, cronbox_now(), cronbox_now() FROM notification_channels";
/// What became of each message; its third word is whether another attempt is due later.
const MESSAGES: &str = "
    SELECT concat_ws(' ', c.kind, m.state, m.due_at > cronbox_now(), m.last_error)
      FROM notification_messages m
      JOIN notification_channels c ON c.id = m.channel_id
     ORDER BY c.kind";

/// A courier of the story that sends e-mail through a server on this machine, and waits a second for it.
fn courier(s: &Story, port: u16) -> Courier {
    let server = format!("smtp://127.0.0.1:{port}?tls=none");
    let mailer = Mailer::new(&server, "cronbox <cronbox@example.com>").unwrap();
    Courier::new(CourierParts {
        pool: s.pool.clone(),
        client: Client::new(s.app().allowed.clone()).unwrap(),
        mailer: Some(mailer.with_send_limit(Duration::from_secs(1))),
        secrets: s.app().secrets.clone(),
        environment: "dev".to_owned(),
        public_url: None,
    })
}

/// Delivers what is due; returns how many messages were accepted, and how many were not.
async fn deliver(s: &Story, courier: &Courier) -> (usize, usize) {
    let delivering = tokio::time::timeout(PATIENCE, courier.deliver_due(s.clock.now()));
    let delivered = delivering.await.expect("the pass ends").unwrap();
    (delivered.sent, delivered.failed)
}

/// The port of a server that accepts connections, and says nothing.
async fn silent_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            connections.push(connection);
        }
    });
    port
}

/// One mail server serves all teams: while it is silent, webhooks of another team arrive, and the e-mail is tried again.
#[tokio::test]
async fn silent_mail_servers_delay_no_webhook() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": ["ops@example.com"]})).await;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let hook = json!({"team_id": other, "name": "hook", "kind": "webhook", "url": receiver.url});
    s.admin().post("/api/v1/notification-channels", &hook).await.expect(201);
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let courier = courier(&s, silent_server().await);
    assert_eq!(deliver(&s, &courier).await, (1, 1));
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(
        s.table(MESSAGES).await,
        "email pending t the e-mail was not accepted: no answer within 1 s\nwebhook sent"
    );
    s.end().await;
}
