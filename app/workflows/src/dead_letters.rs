//! Steps 5 and 6 of 7: the dead letters, for operators: what the publisher has mirrored, and requests to redrive or discard.
//!
//! Only the publisher reaches the queues, so it does what is requested here.

use chrono::{DateTime, Utc};
use db::PgConnection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::audit::{self, Edit, Entry};
use crate::aws_errors::{Service, StoredError, error_for_team};
use crate::keyset::KeysetPage;

/// A message of a dead-letter queue.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The id of the row.
    pub id: i64,
    /// Its queue.
    pub queue: LetterQueue,
    /// SQS's id, unique in the queue.
    pub message_id: String,
    /// What it contains.
    pub kind: LetterKind,
    /// The team of its workflow.
    pub team_id: Option<i64>,
    /// The workflow that its fire names, which may be deleted by now.
    pub workflow_id: Option<i64>,
    /// The scheduled time of its fire.
    pub scheduled_time: Option<DateTime<Utc>>,
    /// The error of the service that gave up.
    pub error: String,
    /// How often that service tried.
    pub tries: Option<i64>,
    /// The attributes; only of a single message.
    pub attributes: Option<Value>,
    /// The first 16 KiB of the body; only of a single message.
    pub body: Option<String>,
    /// Bytes of the complete body.
    pub body_bytes: i64,
    /// When it was sent to the queue.
    pub sent_on: Option<DateTime<Utc>>,
    /// When the publisher first received it.
    pub first_seen: DateTime<Utc>,
    /// When the publisher last received it.
    pub last_seen: DateTime<Utc>,
    /// Its state.
    pub state: LetterState,
    /// Who last requested a redrive or a discard.
    pub requested_by: Option<String>,
    /// When that was.
    pub requested_on: Option<DateTime<Utc>>,
    /// How often a publisher claimed it for a redrive.
    pub attempt_count: i32,
    /// The app's answer to the last redrive, or why there was none.
    pub result: Option<String>,
    /// The run that the redrive started.
    pub run_id: Option<Uuid>,
    /// Since when nothing more is to be done.
    pub settled_on: Option<DateTime<Utc>>,
}

impl DeadLetter {
    /// For the members of a team. Body and attributes are the request of EventBridge or Lambda, with ARNs of the operator.
    #[must_use]
    pub fn for_team(self) -> Self {
        let service = match self.queue {
            LetterQueue::Schedules => Service::EventBridge,
            LetterQueue::Runner | LetterQueue::Publisher => Service::Lambda,
        };
        let error = error_for_team(StoredError::DeadLetter { service, error: &self.error });
        let result = self.result.as_deref().map(|result| error_for_team(StoredError::Redrive { result }));
        Self { error, result, attributes: None, body: None, ..self }
    }
}

/// A dead-letter queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum LetterQueue {
    /// Fires for which EventBridge could not invoke the runner.
    Schedules,
    /// Fires that the runner did not deliver.
    Runner,
    /// Ticks of the publisher that failed.
    Publisher,
}

/// What a message contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum LetterKind {
    /// A fire, which can be redriven.
    Fire,
    /// A tick of the publisher: a later one did its work.
    Tick,
    /// Something else.
    Unreadable,
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum LetterState {
    /// It is in its queue.
    Present,
    /// The publisher is to post its fire.
    RedriveRequested,
    /// The publisher posts its fire.
    Redriving,
    /// The app has answered for its fire, and the message is deleted.
    Redriven,
    /// The app has not answered for its fire; it stays in its queue.
    RedriveFailed,
    /// The publisher is to delete it.
    DiscardRequested,
    /// It was deleted, and its fire was not posted.
    Discarded,
    /// It left its queue by other means.
    Gone,
}

/// Filters of a list of messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct LetterFilter {
    /// Of one team; `None`: of all, also those that belong to no team.
    pub team_id: Option<i64>,
    /// Of one queue.
    pub queue: Option<LetterQueue>,
    /// In this state.
    pub state: Option<LetterState>,
    /// Of one workflow.
    pub workflow_id: Option<i64>,
    /// Only rows before this one, the last of the previous page.
    pub before: Option<i64>,
    /// Rows on a page at most.
    pub limit: i64,
}

/// What an operator requests for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterRequest {
    /// Post its fire to the app.
    Redrive,
    /// Delete it.
    Discard,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Requested {
    /// It is recorded, or was before: a repeat changes nothing.
    Done(Box<DeadLetter>),
    /// There is no such message.
    Unknown,
    /// The message has no fire that can be posted.
    NoFire,
    /// The state of the message does not allow the request.
    Refused(LetterState),
}

/// Lists messages, the newest first. Both statements need the same snapshot.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_dead_letters(
    db: &mut PgConnection,
    filter: LetterFilter,
) -> sqlx::Result<KeysetPage<DeadLetter, i64>> {
    let before = filter.before.unwrap_or(i64::MAX);
    let rows = sqlx::query_as!(
        DeadLetter,
        r#"
        -- list dead letters by key
        SELECT id, queue AS "queue: LetterQueue", message_id, kind AS "kind: LetterKind", team_id, workflow_id, scheduled_time,
               error, tries, NULL::jsonb AS "attributes: Value", NULL::text AS body, body_bytes, sent_on, first_seen, last_seen,
               state AS "state: LetterState", requested_by, requested_on, attempt_count, result, run_id, settled_on
          FROM (SELECT *
                  FROM dead_letters
                 WHERE id < $1 AND ($2::bigint IS NULL OR team_id = $2)
                 ORDER BY id DESC
                 LIMIT 5000) AS d
         WHERE ($3::text IS NULL OR queue = $3) AND ($4::text IS NULL OR state = $4) AND ($5::bigint IS NULL OR workflow_id = $5)
         ORDER BY id DESC
         LIMIT $6
        "#,
        before,
        filter.team_id,
        filter.queue as Option<LetterQueue>,
        filter.state as Option<LetterState>,
        filter.workflow_id,
        filter.limit + 1,
    )
    .fetch_all(&mut *db)
    .await?;
    let mut page = KeysetPage::of_rows(rows, filter.limit, |row| row.id);
    let is_filtered = filter.queue.is_some() || filter.state.is_some() || filter.workflow_id.is_some();
    if page.next.is_none() && is_filtered {
        page.next = find_end_of_scan(db, before, filter.team_id).await?;
    }
    Ok(page)
}

async fn find_end_of_scan(db: &mut PgConnection, before: i64, team_id: Option<i64>) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        r#"
        -- the last dead letter that the list read; none: it read all
        SELECT id FROM dead_letters
         WHERE id < $1 AND ($2::bigint IS NULL OR team_id = $2)
         ORDER BY id DESC
        OFFSET 4999 LIMIT 1
        "#,
        before,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Returns a message with its body; of a team only its own.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_dead_letter(
    db: &mut PgConnection,
    id: i64,
    team_id: Option<i64>,
) -> sqlx::Result<Option<DeadLetter>> {
    sqlx::query_as!(
        DeadLetter,
        r#"
        -- find a dead letter
        SELECT id, queue AS "queue: LetterQueue", message_id, kind AS "kind: LetterKind", team_id, workflow_id, scheduled_time,
               error, tries, attributes AS "attributes?: Value", body AS "body?", body_bytes, sent_on, first_seen, last_seen,
               state AS "state: LetterState", requested_by, requested_on, attempt_count, result, run_id, settled_on
          FROM dead_letters
         WHERE id = $1 AND ($2::bigint IS NULL OR team_id = $2)
        "#,
        id,
        team_id,
    )
    .fetch_optional(db)
    .await
}

/// Requests that the publisher redrives or discards a message. The same request again changes nothing.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn request_for_letter(
    tx: &mut PgConnection,
    id: i64,
    request: LetterRequest,
    edit: &Edit,
) -> sqlx::Result<Requested> {
    lock_letter(tx, id).await?;
    let Some(before) = find_dead_letter(tx, id, None).await? else { return Ok(Requested::Unknown) };
    if request == LetterRequest::Redrive && before.kind != LetterKind::Fire {
        return Ok(Requested::NoFire);
    }
    match decide_request(request, before.state) {
        Decision::Record(state) => record_request(tx, id, state, edit).await?,
        Decision::Unchanged => return Ok(Requested::Done(Box::new(before))),
        Decision::Refuse => return Ok(Requested::Refused(before.state)),
    }
    let after = find_dead_letter(tx, id, None).await?.ok_or(sqlx::Error::RowNotFound)?;
    let verb = match request {
        LetterRequest::Redrive => "dead_letter.redrive",
        LetterRequest::Discard => "dead_letter.discard",
    };
    let facts = |letter: &DeadLetter| {
        json!({"state": letter.state, "queue": letter.queue, "message_id": letter.message_id,
        "workflow_id": letter.workflow_id, "scheduled_time": letter.scheduled_time})
    };
    let entry = Entry {
        verb,
        subject: format!("dead-letter:{id}"),
        team_id: after.team_id,
        before: Some(facts(&before)),
        after: Some(facts(&after)),
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Requested::Done(Box::new(after)))
}

/// What a request does.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Record(LetterState),
    Unchanged,
    Refuse,
}

fn decide_request(request: LetterRequest, state: LetterState) -> Decision {
    use LetterState::{
        DiscardRequested, Discarded, Gone, Present, RedriveFailed, RedriveRequested, Redriven, Redriving,
    };
    match (request, state) {
        (LetterRequest::Redrive, Present | RedriveFailed) => Decision::Record(RedriveRequested),
        (LetterRequest::Redrive, RedriveRequested | Redriving | Redriven) => Decision::Unchanged,
        (LetterRequest::Discard, Present | RedriveFailed | RedriveRequested) => Decision::Record(DiscardRequested),
        (LetterRequest::Discard, DiscardRequested | Discarded) => Decision::Unchanged,
        // A fire that is being posted may start a run; and what left its queue cannot be posted.
        (LetterRequest::Redrive, DiscardRequested | Discarded | Gone)
        | (LetterRequest::Discard, Redriving | Redriven | Gone) => Decision::Refuse,
    }
}

/// Locks a message, because a publisher may be claiming or settling it.
async fn lock_letter(tx: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query_scalar!(
        r#"
        -- lock a dead letter
        SELECT id FROM dead_letters WHERE id = $1 FOR UPDATE
        "#,
        id,
    )
    .fetch_optional(tx)
    .await
    .map(drop)
}

async fn record_request(tx: &mut PgConnection, id: i64, state: LetterState, edit: &Edit) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- record a request for a dead letter
        UPDATE dead_letters
           SET state = $2, requested_by = $3, requested_on = $4, result = NULL
         WHERE id = $1
        "#,
        id,
        state as LetterState,
        edit.actor,
        edit.now,
    )
    .execute(tx)
    .await
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_requests_change_nothing() {
        for request in [LetterRequest::Redrive, LetterRequest::Discard] {
            let Decision::Record(state) = decide_request(request, LetterState::Present) else { panic!("{request:?}") };
            assert_eq!(decide_request(request, state), Decision::Unchanged);
            assert_eq!(decide_request(request, LetterState::Gone), Decision::Refuse);
        }
    }
}
