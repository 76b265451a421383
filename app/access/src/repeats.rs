//! Step 1 of 7: requests that their client may repeat, because it names them by an `Idempotency-Key`.
//!
//! What a request has created is stored in the transaction that creates it, by its id and without secrets, for a day. A
//! request that was refused has created nothing, so a repeat is decided anew. A repeat is found before anything else is checked:
//! a check of the time or of the network may refuse now what it has accepted then.

use aws_lc_rs::{digest, hmac};
use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use serde_json::Value;
use workflows::audit::Edit;
use workflows::definition::field::FieldError;

/// The header.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// For how long a request may be repeated.
const KEPT: TimeDelta = TimeDelta::hours(24);
/// Bytes of an `Idempotency-Key` at most.
const LONGEST_KEY: usize = 255;
/// How many rows one statement removes.
const BATCH: i64 = 5_000;

/// A request that its client may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeatable {
    key_hash: Vec<u8>,
    request_hash: Vec<u8>,
}

/// What is known of a request.
#[derive(Debug, PartialEq)]
pub enum Known {
    /// It was not sent before, or it was refused.
    New,
    /// It has created this.
    Created(Value),
    /// Another request was sent with its key.
    OtherRequest,
}

/// A row of the table.
struct Row {
    request_hash: Vec<u8>,
    answer: Option<Value>,
}

impl Row {
    /// What it says about this request.
    fn known(self, request: &Repeatable) -> Known {
        match self.answer {
            _ if self.request_hash != request.request_hash => Known::OtherRequest,
            Some(answer) => Known::Created(answer),
            None => Known::New,
        }
    }
}

impl Repeatable {
    /// A request with this `Idempotency-Key`, path and body.
    ///
    /// # Errors
    /// Fails if the key is empty, too long, or has other characters than printable ASCII.
    pub fn parse(key: &[u8], path: &str, body: &[u8]) -> Result<Self, FieldError> {
        if !(1..=LONGEST_KEY).contains(&key.len()) || !key.iter().all(u8::is_ascii_graphic) {
            let detail = "Idempotency-Key must have 1 to 255 printable ASCII characters, for example a UUID";
            return Err(FieldError::invalid("Idempotency-Key", detail));
        }
        let mut request = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
        [path.as_bytes(), b"\n", body].into_iter().for_each(|part| request.update(part));
        let key_hash = digest::digest(&digest::SHA256, key).as_ref().to_vec();
        Ok(Self { key_hash, request_hash: request.sign().as_ref().to_vec() })
    }
}

/// Begins a request in its transaction: another one with the same key waits until this one has ended.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn begin_request(tx: &mut PgConnection, request: &Repeatable, edit: &Edit) -> sqlx::Result<Known> {
    Ok(lock_row(tx, request, edit).await?.known(request))
}

/// Finds a request without a lock: one that is new here may be in progress.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_request(db: &mut PgConnection, request: &Repeatable, edit: &Edit) -> sqlx::Result<Known> {
    let row = sqlx::query_as!(
        Row,
        r#"
        -- find a request of the last day
        SELECT request_hash, answer FROM idempotency_keys WHERE actor = $1 AND key_hash = $2 AND created_on > $3
        "#,
        edit.actor,
        request.key_hash,
        edit.now - KEPT,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map_or(Known::New, |row| row.known(request)))
}

async fn lock_row(tx: &mut PgConnection, request: &Repeatable, edit: &Edit) -> sqlx::Result<Row> {
    sqlx::query_as!(
        Row,
        r#"
        -- begin a request: its row, locked; a row of the day before begins anew
        INSERT INTO idempotency_keys AS k (actor, key_hash, request_hash, created_on)
             VALUES ($1, $2, $3, $4)
        ON CONFLICT (actor, key_hash) DO UPDATE
           SET request_hash = CASE WHEN k.created_on <= $5 THEN excluded.request_hash ELSE k.request_hash END,
               answer = CASE WHEN k.created_on > $5 THEN k.answer END,
               created_on = CASE WHEN k.created_on <= $5 THEN excluded.created_on ELSE k.created_on END
        RETURNING request_hash, answer
        "#,
        edit.actor,
        request.key_hash,
        request.request_hash,
        edit.now,
        edit.now - KEPT,
    )
    .fetch_one(tx)
    .await
}

/// Stores what a request has created, in its transaction.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn store_answer(
    tx: &mut PgConnection,
    request: &Repeatable,
    edit: &Edit,
    answer: &Value,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- store what a request has created
        UPDATE idempotency_keys SET answer = $3 WHERE actor = $1 AND key_hash = $2
        "#,
        edit.actor,
        request.key_hash,
        answer,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Removes a batch of rows whose requests may not be repeated any more; returns how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_old(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<u64> {
    let removed = sqlx::query!(
        r#"
        -- remove requests of past days; one that is repeated right now stays
        DELETE FROM idempotency_keys
         WHERE (actor, key_hash) IN (SELECT actor, key_hash FROM idempotency_keys
                                      WHERE created_on <= $1
                                      ORDER BY created_on
                                      LIMIT $2
                                        FOR UPDATE SKIP LOCKED)
        "#,
        now - KEPT,
        BATCH,
    )
    .execute(db)
    .await?;
    Ok(removed.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printable_and_short() {
        let parse = |key: &str| Repeatable::parse(key.as_bytes(), "/", b"{}");
        for wrong in ["", "a b", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(parse(wrong).unwrap_err().field, "Idempotency-Key", "{wrong:?}");
        }
        assert!(parse(&"a".repeat(255)).is_ok());
    }

    /// The parts are separated, and the key counts.
    #[test]
    fn other_requests_have_other_hashes() {
        let parse = |key: &str, path, body: &str| Repeatable::parse(key.as_bytes(), path, body.as_bytes()).unwrap();
        let first = parse("k", "/a", "{}");
        assert_eq!(first, parse("k", "/a", "{}"));
        for other in [parse("l", "/a", "{}"), parse("k", "/a{", "}"), parse("k", "/b", "{}"), parse("k", "/a", "{ }")] {
            assert_ne!(first.request_hash, other.request_hash);
        }
    }
}
