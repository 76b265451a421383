//! Mail servers that refuse, or that do not answer.

use std::io;
use std::time::Duration;

use egress::Client;
use egress::mail::Mailer;
use notifications::channel::find_channel;
use notifications::delivery::{Acceptance, Courier, CourierParts};
use notifications::group::{Made, make_messages};
use serde_json::json;
use tests::{PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

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

/// A courier of the story that sends e-mail through a server on this machine.
fn courier(s: &Story, port: u16) -> Courier {
    courier_with(s, port, "", PATIENCE)
}

/// The same, if the operator permits e-mail to these domains only; it waits so long for the server.
fn courier_with(s: &Story, port: u16, domains: &str, limit: Duration) -> Courier {
    let server = format!("smtp://127.0.0.1:{port}?tls=none");
    let mailer = Mailer::new(&server, "cronbox <cronbox@example.com>").unwrap();
    Courier::new(CourierParts {
        pool: s.pool.clone(),
        client: Client::new(s.app().allowed.clone()).unwrap(),
        mailer: Some(mailer.with_send_limit(limit).with_recipients(domains.parse().unwrap())),
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

/// The answers of a server that accepts everything; it does not answer to the lines of a text.
fn accept(line: &str) -> &'static str {
    match line.split_once(' ').map_or(line, |(command, _)| command) {
        "connect" => "220 ready",
        "EHLO" | "MAIL" | "RCPT" | "." => "250 ok",
        "DATA" => "354 go on",
        "QUIT" => "221 bye",
        _ => "",
    }
}

/// The port of a server that answers a connection and each line as this function says.
async fn start_server(answer: fn(&str) -> &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, answer));
        }
    });
    port
}

async fn converse(stream: TcpStream, answer: fn(&str) -> &'static str) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = "connect".to_owned();
    loop {
        match answer(line.trim_end()) {
            "" => {}
            words => stream.write_all(format!("{words}\r\n").as_bytes()).await?,
        }
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
    }
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
    let courier = courier_with(&s, start_server(|_| "").await, "", Duration::from_secs(1));
    assert_eq!(deliver(&s, &courier).await, (1, 1));
    assert_eq!(receiver.received().len(), 1);
    assert_eq!(
        s.table(MESSAGES).await,
        "email pending t the e-mail was not accepted: no answer within 1 s\nwebhook sent"
    );
    s.end().await;
}

/// The others have their e-mail, and a reader of the messages sees who has not.
#[tokio::test]
async fn a_refused_recipient_stops_no_other() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "bad@example.com"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let refusing = |line: &str| if line.contains("<bad@") { "550 5.1.1 no such user" } else { accept(line) };
    let courier = courier(&s, start_server(refusing).await);
    assert_eq!(deliver(&s, &courier).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, "email sent bad@example.com: permanent error (550): 5.1.1 no such user");
    s.end().await;
}

/// A server that does not know the sender asks it to come back. The others do not get the e-mail twice.
#[tokio::test]
async fn a_recipient_that_is_refused_for_now_gets_the_mail_later() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "later@example.com"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let greylisting = |line: &str| if line.contains("<later@") { "451 4.7.1 greylisted" } else { accept(line) };
    let refused = courier(&s, start_server(greylisting).await);
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    assert_eq!(s.table(MESSAGES).await, "email pending t later@example.com: transient error (451): 4.7.1 greylisted");
    s.now_is("2026-03-02T12:00:10Z").await;
    let no_other = |line: &str| if line.contains("<good@") { "550 5.1.1 it has the e-mail" } else { accept(line) };
    assert_eq!(deliver(&s, &courier(&s, start_server(no_other).await)).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, "email sent");
    s.end().await;
}

/// A server that asks for each first e-mail to come back does not hide the colleague who has left.
#[tokio::test]
async fn a_later_attempt_names_refused_recipients() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "bad@example.com", "later@example.com"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let greylisting = |line: &str| match line {
        line if line.contains("<bad@") => "550 5.1.1 no such user",
        line if line.contains("<later@") => "451 4.7.1 greylisted",
        line => accept(line),
    };
    let refused = courier(&s, start_server(greylisting).await);
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    let bad = "bad@example.com: permanent error (550): 5.1.1 no such user";
    let later = "later@example.com: transient error (451): 4.7.1 greylisted";
    assert_eq!(s.table(MESSAGES).await, format!("email pending t {bad}; {later}"));
    s.now_is("2026-03-02T12:00:10Z").await;
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    s.now_is("2026-03-02T12:00:30Z").await;
    assert_eq!(deliver(&s, &courier(&s, start_server(accept).await)).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, format!("email sent {bad}"));

    // Neither has it after the last attempt.
    s.execute("DELETE FROM notification_messages").await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    s.execute(LAST_ATTEMPT).await;
    assert_eq!(deliver(&s, &refused).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, format!("email sent {bad}; the e-mail was not accepted: {later}"));
    s.end().await;
}

const LAST_ATTEMPT: &str = "UPDATE notification_messages SET attempt_count = 19, due_at = cronbox_now()";
const DEAD_LETTERS: &str = "SELECT count(*) FROM notification_messages WHERE state = 'failed'";

/// A colleague who left must not ring the alarm for each message that the others have.
#[tokio::test]
async fn mail_that_others_have_is_no_dead_letter() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "full@example.com"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    let full = |line: &str| if line.contains("<full@") { "452 4.2.2 full" } else { accept(line) };
    let partly = courier(&s, start_server(full).await);
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    s.execute(LAST_ATTEMPT).await;
    assert_eq!(deliver(&s, &partly).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, "email sent full@example.com: transient error (452): 4.2.2 full");

    // The others have it since an earlier attempt.
    s.execute("DELETE FROM notification_messages").await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    assert_eq!(deliver(&s, &partly).await, (0, 1));
    s.execute(LAST_ATTEMPT).await;
    let refusing = |line: &str| if line.starts_with("MAIL") { "451 4.3.0 later" } else { accept(line) };
    let refused = courier(&s, start_server(refusing).await);
    assert_eq!(deliver(&s, &refused).await, (1, 0));
    assert_eq!(s.count(DEAD_LETTERS).await, 0);

    // No recipient has it.
    s.execute("DELETE FROM notification_messages").await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    s.execute(LAST_ATTEMPT).await;
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    assert_eq!(s.count(DEAD_LETTERS).await, 1);
    s.end().await;
}

/// A failure that waits for its message.
const ONE_FAILURE: &str = "
    INSERT INTO notifications (rule_id, team_id, event, subject, happened_on, state)
    SELECT id, team_id, 'run_failed', 'before', cronbox_now(), 'routed' FROM notification_channels;
    INSERT INTO notification_items (notification_id, channel_id, event, ready_on)
    SELECT id, rule_id, event, cronbox_now() FROM notifications";

/// The e-mails are repeated to this mailbox for half a day, and the others must have the next failure at once.
#[tokio::test]
async fn a_full_mailbox_delays_no_mail_to_others() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "full@example.com"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    let full = |line: &str| if line.contains("<full@") { "452 4.2.2 full" } else { accept(line) };
    let partly = courier(&s, start_server(full).await);
    for _ in 0..5 {
        s.execute(ONE_FOR_EACH_CHANNEL).await;
        assert_eq!(deliver(&s, &partly).await, (0, 1));
    }
    s.execute(ONE_FAILURE).await;
    assert_eq!(make_messages(&s.pool, s.clock.now()).await.unwrap(), Made { messages: 1, failed: 0 });
    s.end().await;
}

/// The operator corrects the password within the eleven hours of the attempts, and no message is lost.
#[tokio::test]
async fn a_refused_login_fails_no_message() {
    let s = Story::at(NOON).await;
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": ["ops@example.com"]})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    // A mailer without a password gets this answer to the sender.
    let refusing = |line: &str| if line.starts_with("MAIL") { "535 5.7.8 sign in" } else { accept(line) };
    let refused = courier(&s, start_server(refusing).await);
    assert_eq!(deliver(&s, &refused).await, (0, 1));
    assert_eq!(
        s.table(MESSAGES).await,
        "email pending t the e-mail was not accepted: permanent error (535): 5.7.8 sign in"
    );
    s.now_is("2026-03-02T12:00:10Z").await;
    assert_eq!(deliver(&s, &courier(&s, start_server(accept).await)).await, (1, 0));
    assert_eq!(s.table(MESSAGES).await, "email sent");
    s.end().await;
}

/// No attempt finds a mailbox that does not exist.
#[tokio::test]
async fn mail_without_any_mailbox_fails() {
    let s = Story::at(NOON).await;
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": ["a@example.com", "b@example.com"]})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let refusing = |line: &str| if line.starts_with("RCPT") { "550 5.1.1 no such user" } else { accept(line) };
    let courier = courier(&s, start_server(refusing).await);
    assert_eq!(deliver(&s, &courier).await, (0, 1));
    assert_eq!(s.count("SELECT count(*) FROM notification_messages WHERE state = 'failed'").await, 1);
    s.end().await;
}

/// Channels that were saved before the operator permitted these domains only.
#[tokio::test]
async fn recipients_of_other_domains_get_nothing() {
    let s = Story::at(NOON).await;
    let recipients = ["good@example.com", "bad@elsewhere.example"];
    channel(&s, json!({"name": "mail", "kind": "email", "recipients": recipients})).await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    let refusing = |line: &str| if line.contains("elsewhere") { "550 5.1.1 it was asked" } else { accept(line) };
    let courier = courier_with(&s, start_server(refusing).await, "example.com", PATIENCE);
    assert_eq!(deliver(&s, &courier).await, (1, 0));
    let expected = "email sent bad@elsewhere.example: the operator permits no e-mail to this domain";
    assert_eq!(s.table(MESSAGES).await, expected);
    s.execute("DELETE FROM notification_messages").await;
    s.execute("UPDATE notification_channels SET recipients = ARRAY['bad@elsewhere.example']").await;
    s.execute(ONE_FOR_EACH_CHANNEL).await;
    assert_eq!(deliver(&s, &courier).await, (0, 1));
    assert_eq!(s.table(MESSAGES).await, "email failed the operator permits no e-mail to bad@elsewhere.example");
    s.end().await;
}

/// The name of a channel is a text of an editor, who chooses the recipients, too. This server refuses its words.
#[tokio::test]
async fn mails_of_a_test_name_no_channel() {
    let s = Story::at(NOON).await;
    let named = json!({"name": "see https://evil.example", "kind": "email", "recipients": ["ops@example.com"]});
    let id = channel(&s, named).await;
    let mut connection = s.pool.acquire().await.unwrap();
    let found = find_channel(&mut connection, id, None).await.unwrap().unwrap();
    drop(connection);
    let refusing = |line: &str| if line.contains("evil") { "554 5.7.1 spam" } else { accept(line) };
    let courier = courier(&s, start_server(refusing).await);
    let sent = courier.send_test(&found, s.clock.now()).await.unwrap();
    assert_eq!(sent, Ok(Acceptance::Complete));
    s.end().await;
}
