//! Step 5 of 7: the rows of the mirrored messages.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use db::PgPool;
use dead_letters::{Content, DeadMessage};
use serde_json::{Value, json};
use uuid::Uuid;

/// For how many seconds the publisher posts a claimed fire; longer than a pass may take.
const LEASE_SECS: f64 = 60.0;
/// After this time without its message, a row is settled as gone. Longer than the 120 s for which `cronbox dlq` hides messages
/// from other consumers, and than a pass over a long queue returns to each message. If the message is seen again, the row is
/// present again, or requested again.
const VANISHED_AFTER_SECS: f64 = 900.0;
/// Settled rows are kept for 30 days.
const KEPT_SECS: f64 = 30.0 * 24.0 * 3600.0;
/// Rows that one pass deletes at most.
const MOST_DELETED: i64 = 500;
/// Bytes of a body that the table has.
const MOST_BODY: usize = 16 * 1024;
/// Characters of an error or of an attribute that the table has.
const MOST_TEXT: usize = 1_000;

/// What the row of a received message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The message stays in the queue.
    Open,
    /// The app has answered for it, or an operator has discarded it: it is to be deleted.
    Settled,
}

/// The columns of some messages, for one statement.
#[derive(Default)]
struct Columns {
    message_ids: Vec<String>,
    kinds: Vec<&'static str>,
    workflow_ids: Vec<Option<i64>>,
    scheduled_times: Vec<Option<DateTime<Utc>>>,
    errors: Vec<String>,
    tries: Vec<Option<i64>>,
    attributes: Vec<Value>,
    bodies: Vec<String>,
    body_bytes: Vec<i64>,
    sent_on: Vec<Option<DateTime<Utc>>>,
}

/// Whether the database was restored or cloned, and its ledger is not accepted.
pub(super) async fn is_held(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"
        -- whether the database is held
        SELECT cronbox_hold() IS NOT NULL AS "is_held!"
        "#
    )
    .fetch_one(pool)
    .await
}

/// Records that these messages, each with its own id, are in the queue.
pub(super) async fn record_messages(
    pool: &PgPool,
    queue: &str,
    messages: &[DeadMessage],
) -> sqlx::Result<HashMap<String, Seen>> {
    let all = columns_of(messages);
    let rows = sqlx::query!(
        r#"
        -- record messages: in the order of their ids, so that two publishers do not wait for each other in a circle
        INSERT INTO dead_letters (queue, message_id, kind, team_id, workflow_id, scheduled_time, error, tries, attributes,
                                  body, body_bytes, sent_on, first_seen, last_seen)
        SELECT $1, m.message_id, m.kind, w.team_id, m.workflow_id, m.scheduled_time, m.error, m.tries, m.attributes,
               m.body, m.body_bytes, m.sent_on, cronbox_now(), cronbox_now()
          FROM UNNEST($2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::text[], $7::bigint[], $8::jsonb[],
                      $9::text[], $10::bigint[], $11::timestamptz[])
               AS m (message_id, kind, workflow_id, scheduled_time, error, tries, attributes, body, body_bytes, sent_on)
          LEFT JOIN workflows AS w ON w.id = m.workflow_id
         ORDER BY m.message_id
        ON CONFLICT ON CONSTRAINT dead_letters_message DO UPDATE
           SET last_seen = excluded.last_seen,
               -- A message that another consumer had for long was no longer seen. What an operator had requested before is
               -- still to be done: the row takes no later request, so it is the last one.
               state = CASE WHEN dead_letters.state <> 'gone' THEN dead_letters.state
                            WHEN dead_letters.result = 'left_the_queue_before_redrive' THEN 'redrive_requested'
                            WHEN dead_letters.result = 'left_the_queue_before_discard' THEN 'discard_requested'
                            ELSE 'present' END,
               settled_on = CASE dead_letters.state WHEN 'gone' THEN NULL ELSE dead_letters.settled_on END,
               result = CASE dead_letters.state WHEN 'gone' THEN NULL ELSE dead_letters.result END
        RETURNING message_id, settled_on IS NOT NULL AS "is_settled!"
        "#,
        queue,
        &all.message_ids,
        &all.kinds as &[&str],
        &all.workflow_ids as &[Option<i64>],
        &all.scheduled_times as &[Option<DateTime<Utc>>],
        &all.errors,
        &all.tries as &[Option<i64>],
        &all.attributes,
        &all.bodies,
        &all.body_bytes,
        &all.sent_on as &[Option<DateTime<Utc>>],
    )
    .fetch_all(pool)
    .await?;
    let seen = |is_settled| if is_settled { Seen::Settled } else { Seen::Open };
    Ok(rows.into_iter().map(|row| (row.message_id, seen(row.is_settled))).collect())
}

/// SQS may return a message twice in one answer, which one statement must not record twice: the last one counts.
fn columns_of(messages: &[DeadMessage]) -> Columns {
    let by_id: HashMap<&str, &DeadMessage> = messages.iter().map(|message| (message.id.as_str(), message)).collect();
    let mut all = Columns::default();
    for message in by_id.into_values() {
        let fire = message.fire();
        let (kind, why) = match &message.content {
            Content::Fire(_) => ("fire", None),
            Content::Tick => ("tick", None),
            Content::Unreadable(why) => ("unreadable", Some(why)),
        };
        let error = if message.error.is_empty() { why.unwrap_or(&message.error) } else { &message.error };
        all.message_ids.push(message.id.clone());
        all.kinds.push(kind);
        all.workflow_ids.push(fire.map(|fire| fire.workflow_id.0));
        all.scheduled_times.push(fire.map(|fire| fire.scheduled_time));
        all.errors.push(cut_text(error));
        all.tries.push(message.tries.and_then(|tries| i64::try_from(tries).ok()));
        all.attributes.push(json!(
            message.attributes.iter().map(|(name, value)| (cut_text(name), cut_text(value))).collect::<HashMap<_, _>>()
        ));
        all.bodies.push(cut_body(&message.body));
        all.body_bytes.push(i64::try_from(message.body.len()).unwrap_or(i64::MAX));
        all.sent_on.push(message.sent_on);
    }
    all
}

/// The beginning of a text. Postgres has no NUL in a text.
fn cut_text(text: &str) -> String {
    text.chars().filter(|char| *char != '\0').take(MOST_TEXT).collect()
}

fn cut_body(body: &str) -> String {
    let body = body.replace('\0', "");
    body[..body.floor_char_boundary(MOST_BODY)].to_owned()
}

/// Claims the requested redrives of these messages, and those whose publisher has not settled them in time.
pub(super) async fn claim_redrives(
    pool: &PgPool,
    queue: &str,
    ids: &[String],
    owner: &str,
) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- claim redrives: a row that another publisher or an operator has locked is left to the next pass
        UPDATE dead_letters AS d
           SET state = 'redriving', attempt_count = d.attempt_count + 1, result = NULL,
               lease_owner = $3, lease_until = cronbox_now() + make_interval(secs => $4)
          FROM (SELECT id
                  FROM dead_letters
                 WHERE queue = $1 AND message_id = ANY($2)
                   AND (state = 'redrive_requested' OR (state = 'redriving' AND lease_until <= cronbox_now()))
                 ORDER BY id
                   FOR UPDATE SKIP LOCKED) AS requested
         WHERE d.id = requested.id
        RETURNING d.message_id
        "#,
        queue,
        ids,
        owner,
        LEASE_SECS,
    )
    .fetch_all(pool)
    .await
}

/// Settles a redrive that the app has answered for. If the lease has ended, the publisher that has claimed it since settles it.
pub(super) async fn settle_redriven(
    pool: &PgPool,
    queue: &str,
    id: &str,
    owner: &str,
    result: &str,
    run_id: Option<Uuid>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle a redrive
        UPDATE dead_letters
           SET state = 'redriven', result = $4, run_id = $5, settled_on = cronbox_now(), lease_owner = NULL, lease_until = NULL
         WHERE queue = $1 AND message_id = $2 AND state = 'redriving' AND lease_owner = $3
        "#,
        queue,
        id,
        owner,
        cut_text(result),
        run_id,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Records why the app has not answered for a fire; its message stays in the queue.
pub(super) async fn settle_failed(pool: &PgPool, queue: &str, id: &str, owner: &str, why: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle a failed redrive: an operator may request it again
        UPDATE dead_letters
           SET state = 'redrive_failed', result = $4, lease_owner = NULL, lease_until = NULL
         WHERE queue = $1 AND message_id = $2 AND state = 'redriving' AND lease_owner = $3
        "#,
        queue,
        id,
        owner,
        cut_text(why),
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Settles the requested discards of these messages, which the publisher then deletes.
pub(super) async fn settle_discarded(pool: &PgPool, queue: &str, ids: &[String]) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        r#"
        -- settle discards
        UPDATE dead_letters
           SET state = 'discarded', settled_on = cronbox_now()
         WHERE queue = $1 AND message_id = ANY($2) AND state = 'discard_requested'
        RETURNING message_id
        "#,
        queue,
        ids,
    )
    .fetch_all(pool)
    .await
}

/// Settles rows whose message was not seen for long, after a pass that has seen all visible messages of the queue.
pub(super) async fn settle_vanished(pool: &PgPool, queue: &str) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- settle vanished messages: `cronbox dlq` or another program took them, or SQS deleted them after 14 days. The result
        -- keeps what was requested, for a message that is seen again; SQS's counts are approximate
        UPDATE dead_letters
           SET state = 'gone', settled_on = cronbox_now(), lease_owner = NULL, lease_until = NULL,
               result = CASE WHEN state IN ('redrive_requested', 'redriving') THEN 'left_the_queue_before_redrive'
                             WHEN state = 'discard_requested' THEN 'left_the_queue_before_discard'
                             ELSE 'left_the_queue' END
         WHERE queue = $1 AND settled_on IS NULL AND last_seen < cronbox_now() - make_interval(secs => $2)
        "#,
        queue,
        VANISHED_AFTER_SECS,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// Deletes rows that were settled long ago.
pub(super) async fn delete_old_rows(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- delete old dead letters
        DELETE FROM dead_letters
         WHERE id IN (SELECT id FROM dead_letters
                       WHERE settled_on < cronbox_now() - make_interval(secs => $1)
                       ORDER BY settled_on
                       LIMIT $2)
        "#,
        KEPT_SECS,
        MOST_DELETED,
    )
    .execute(pool)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn message(id: &str, body: String) -> DeadMessage {
        let attributes = BTreeMap::from([("LONG".to_owned(), "x".repeat(5_000))]);
        DeadMessage::parse_message(id.to_owned(), "r".to_owned(), None, body, attributes)
    }

    #[test]
    fn long_and_repeated_messages_fit_the_table() {
        let long = "\0ü".repeat(20_000);
        let columns = columns_of(&[message("a", long.clone()), message("a", long), message("b", "{}".to_owned())]);
        let at = columns.message_ids.iter().position(|id| id == "a").unwrap();
        assert_eq!((columns.message_ids.len(), columns.bodies[at].len()), (2, MOST_BODY));
        assert_eq!(columns.body_bytes[at], 60_000);
        assert_eq!(columns.attributes[at]["LONG"].as_str().unwrap().len(), MOST_TEXT);
        assert_eq!((columns.kinds[at], columns.errors[at].as_str()), ("unreadable", "the event is not a JSON object"));
    }
}
