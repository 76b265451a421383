//! A page of notifications or messages passes over at most 5,000 rows, however few match its filter.

use api_types::notifications::MessageState;
use db::PgPool;
use notifications::message_list::{MessageFilter, list_messages};
use notifications::notification_list::{NotificationFilter, list_notifications};
use serde_json::{Value, json};
use tests::Story;

use super::team::{channel, rule};
use crate::database::query_plans::{one_connection, read_of};
use crate::receiver::NOON;

/// Many notifications and messages of one team, of which only the oldest is acknowledged or has failed.
const MANY: &str = "
    INSERT INTO notifications (rule_id, team_id, workflow_id, event, subject, happened_on, state, acknowledged_on)
    SELECT r.id, r.team_id, w.id, r.event, n::text, cronbox_now(), 'routed', CASE n WHEN 1 THEN cronbox_now() END
      FROM notification_rules r, workflows w, generate_series(1, 12000) AS n;
    INSERT INTO notification_messages (id, channel_id, team_id, event, items, state, created_on, failed_on)
    SELECT lpad(to_hex(n), 32, '0')::uuid, c.id, c.team_id, 'run_failed', 1, CASE n WHEN 1 THEN 'failed' ELSE 'sent' END,
           cronbox_now(), CASE n WHEN 1 THEN cronbox_now() END
      FROM notification_channels c, generate_series(1, 12000) AS n;
    ANALYZE";

/// How many items each page of a list has, to its end.
async fn pages(s: &Story, path: &str) -> Vec<usize> {
    let (mut counts, mut next) = (Vec::new(), format!("/api/v1/{path}&limit=200"));
    loop {
        let page = s.admin().get(&next).await.expect(200).json;
        counts.push(page["items"].as_array().unwrap().len());
        let Value::String(cursor) = &page["next_cursor"] else { return counts };
        next = format!("/api/v1/{path}&limit=200&cursor={cursor}");
    }
}

/// The rows and index entries that the first page of a list of notifications reads.
async fn read_notifications(pool: &PgPool, filter: NotificationFilter) -> i64 {
    let before = read_of(pool, "notifications").await;
    let mut tx = db::begin_read(pool).await.unwrap();
    list_notifications(&mut tx, filter, None, 200).await.unwrap();
    tx.commit().await.unwrap();
    read_of(pool, "notifications").await - before
}

async fn read_messages(pool: &PgPool, filter: MessageFilter) -> i64 {
    let before = read_of(pool, "notification_messages").await;
    let mut tx = db::begin_read(pool).await.unwrap();
    list_messages(&mut tx, filter, None, 200).await.unwrap();
    tx.commit().await.unwrap();
    read_of(pool, "notification_messages").await - before
}

#[tokio::test]
async fn a_rare_match_is_found_page_by_page() {
    let s = Story::at(NOON).await;
    let workflow = s.create("0 9 * * *", "UTC").await;
    let channel =
        channel(&s, json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sns:eu-west-1:123456789012:alerts"}))
            .await;
    rule(&s, channel, json!({"event": "run_failed"})).await;
    s.execute_long(MANY).await;
    let (team, other) = (s.keys.team_id, s.keys.team_id + 1);
    for list in ["notifications?acknowledged=true", "notification-messages?state=failed"] {
        assert_eq!(pages(&s, list).await, [0, 0, 1], "{list}");
    }
    for (list, found) in [
        (format!("notifications?acknowledged=true&team_id={team}"), vec![0, 0, 1]),
        (format!("notifications?acknowledged=true&workflow_id={workflow}"), vec![0, 0, 1]),
        (format!("notifications?workflow_id={workflow}&team_id={other}"), vec![0, 0, 0]),
        (format!("notification-messages?state=pending&team_id={team}"), vec![0, 0, 0]),
        (format!("notification-messages?channel_id={}&team_id={team}", channel + 1), vec![0, 0, 0]),
        // It has an index of its own.
        (format!("notification-messages?state=failed&team_id={team}"), vec![1]),
    ] {
        assert_eq!(pages(&s, &list).await, found, "{list}");
    }
    s.end().await;
}

#[tokio::test]
async fn pages_of_notifications_read_a_bounded_number() {
    let s = Story::at(NOON).await;
    let workflow = s.create("0 9 * * *", "UTC").await;
    let channel =
        channel(&s, json!({"name": "n", "kind": "aws", "target_arn": "arn:aws:sns:eu-west-1:123456789012:alerts"}))
            .await;
    rule(&s, channel, json!({"event": "run_failed"})).await;
    s.execute_long(MANY).await;
    let pool = one_connection(&s).await;
    let rare = NotificationFilter { is_acknowledged: Some(true), ..NotificationFilter::default() };
    let pending = MessageFilter { state: Some(MessageState::Pending), ..MessageFilter::default() };
    let team_id = Some(s.keys.team_id);
    // A page and the search for its end each read at most 5,000 rows, each with its index entry.
    let most = 2 * 2 * 5_000 + 400;
    // A statement gets its final plan at its sixth execution.
    for _ in 0..7 {
        for filter in
            [rare, NotificationFilter { team_id, ..rare }, NotificationFilter { workflow_id: Some(workflow.0), ..rare }]
        {
            let read = read_notifications(&pool, filter).await;
            assert!(read <= most, "{filter:?}: {read}");
        }
        for filter in [pending, MessageFilter { team_id, ..pending }] {
            let read = read_messages(&pool, filter).await;
            assert!(read <= most, "{filter:?}: {read}");
        }
        let failed =
            read_messages(&pool, MessageFilter { team_id, state: Some(MessageState::Failed), ..pending }).await;
        assert!(failed < 100, "{failed}");
    }
    s.end().await;
}
