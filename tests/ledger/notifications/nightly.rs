//! A nightly workflow begins to fail, and later succeeds: its team gets one message of each kind.

use local::stack::StackOptions;
use serde_json::json;
use tests::Story;

use super::mail::{MailServer, with_mail};
use super::team::{channel, rule, send, texts};
use crate::receiver::{NOON, Receiver, accept, until_state};

#[tokio::test]
async fn three_failures_and_their_end_are_two_messages() {
    let mail = MailServer::start().await;
    let s =
        Story::with(StackOptions { now: Some(NOON.parse().unwrap()), app: with_mail, ..StackOptions::default() }).await;
    let slack = Receiver::kind().await;
    let receiver = Receiver::answering(&[(500, ""), (500, ""), (500, ""), (500, "")]).await;
    let workflow = s.create_with(json!({"name": "payroll", "action": receiver.action()})).await;
    let slack_channel =
        json!({"name": "slack", "kind": "slack", "url": format!("{}/services/T0/B0/s3cret", slack.url)});
    let slack_channel = channel(&s, slack_channel).await;
    let mail_channel =
        channel(&s, json!({"name": "mail", "kind": "email", "recipients": ["ops@example.com", "b@example.com"]})).await;
    for event in ["failures_in_a_row", "recovered"] {
        let both = json!({"event": event, "threshold": 3, "channel_ids": [slack_channel, mail_channel]});
        rule(&s, slack_channel, both).await;
    }
    for (minute, state) in [(1, "failed"), (2, "failed"), (3, "failed"), (4, "failed"), (5, "succeeded")] {
        s.now_is(&format!("2026-03-02T12:0{minute}:00Z")).await;
        let run = accept(&s, workflow).await;
        until_state(&s, run, state).await;
        send(&s).await;
    }
    let texts = texts(&s).await;
    let error = "the receiver answered 500 Internal Server Error";
    assert_eq!(
        texts,
        [
            format!("payroll failed 3 times in a row, since 2026-03-02 12:01 UTC: {error}"),
            "payroll succeeded again: it had failed 4 times since 2026-03-02 12:01 UTC".to_owned()
        ]
    );
    // The second one is still being collected; a minute later both channels have both.
    assert_eq!((slack.calls().len(), mail.mails().len()), (1, 1));
    s.now_is("2026-03-02T12:06:00Z").await;
    send(&s).await;
    let calls = slack.calls();
    let said = |nth: usize| calls[nth]["text"].as_str().unwrap();
    assert_eq!(calls.len(), 2);
    assert!(
        said(0).starts_with(&format!("*[cronbox dev] {}*\n<https://cronbox.example/api/v1/runs/", texts[0])),
        "{}",
        said(0)
    );
    assert!(said(1).contains("succeeded again"), "{}", said(1));
    let mails = mail.mails();
    assert_eq!(mails.len(), 2);
    let failed = mails.iter().find(|mail| mail.contains("failed 3 times in a row")).unwrap();
    for part in [
        "From: cronbox <cronbox@example.com>",
        "To: ops@example.com, b@example.com",
        "Message-ID: <",
        "Read the attempts of the run",
    ] {
        assert!(failed.contains(part), "{part}: {failed}");
    }
    assert_eq!(s.count("SELECT count(*) FROM failure_streaks").await, 0);
    assert_eq!(s.count("SELECT count(*) FROM notification_messages WHERE state = 'sent'").await, 4);
    s.end().await;
}
