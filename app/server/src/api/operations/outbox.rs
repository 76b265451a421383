//! Step 2 of 7: the API of the outbox, for operators: list its rows, retry or discard failed ones.

use api_types::outbox::OutboxView;
use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::definition::field;
use workflows::outbox::list::{Filter, list_rows};
use workflows::outbox::operate::{self, Operated, Row, Status};

use crate::App;
use crate::api::request::auth::{Auditor, Operator};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{EmptyBody, OptionalBody, Params, Trace, Verb};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::{ViewFrom, to_view};

/// Filters of a list of outbox rows.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OutboxParams {
    /// Only rows with this status.
    #[param(inline)]
    status: Option<Status>,
    /// Only rows of this workflow.
    workflow_id: Option<i64>,
    /// Only rows of edits before this time: with `status=pending`, those that have waited since.
    created_before: Option<DateTime<Utc>>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List outbox rows, the newest first.
#[utoipa::path(get, path = "/api/v1/outbox", tag = "operations", params(OutboxParams),
    responses((status = 200, body = Page<OutboxView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_outbox(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<OutboxParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let created_before = params.created_before.map(|time| field::check_instant("created_before", time)).transpose()?;
    let filter = Filter { status: params.status, workflow_id: params.workflow_id, created_before, before, limit };
    let mut tx = begin_read(&app).await?;
    let found = list_rows(&mut tx, filter).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |row| row.id, OutboxView::view_from).await
}

/// Retry or discard an outbox row.
pub(crate) async fn change_outbox_row(
    State(app): State<App>,
    Operator(caller): Operator,
    Trace(trace): Trace,
    Verb(id, verb): Verb<i64>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<OutboxView>, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let operated = match verb.as_str() {
        "retry" => operate::retry_row(&mut tx, id, &edit).await?,
        "discard" => operate::discard_row(&mut tx, id, &edit).await?,
        _ => return Err(Error::not_found()),
    };
    match operated {
        Operated::Done(row) => {
            tx.commit().await?;
            app.notifier.request_notification();
            Ok(Json(to_view(row)))
        }
        Operated::Unknown => Err(Error::not_found()),
        Operated::Refused(status) => Err(refused(status)),
    }
}

fn refused(status: Status) -> Error {
    match status {
        Status::Pending => {
            Error::conflict("not_failed", "only a failed row can be discarded; this row will still be published")
        }
        Status::Processed => Error::conflict("already_processed", "this edit is already published"),
        Status::Discarded => {
            Error::conflict("already_discarded", "the row is already discarded: edit the workflow to publish it")
        }
        // Both verbs accept a failed row.
        Status::Failed => Error::not_found(),
    }
}

impl ViewFrom<Row> for OutboxView {
    fn view_from(row: Row) -> Self {
        Self {
            id: row.id,
            workflow_id: row.workflow_id,
            op: row.op,
            status: to_view(row.status),
            payload: row.payload,
            created_on: row.created_on,
            processed_on: row.processed_on,
            failed_on: row.failed_on,
            attempt_count: row.attempt_count,
            error_message: row.error_message,
            error_class: row.error_class,
            due_at: row.due_at,
        }
    }
}
