//! Steps 5 and 6 of 7: the API of the dead letters: the mirrored messages, and requests to redrive or discard one.

use access::keys::Kind;
use api_types::dead_letters::DeadLetterView;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::dead_letters::{self, DeadLetter, LetterFilter, LetterQueue, LetterRequest, LetterState, Requested};
use workflows::keyset::{KeyOrder, KeysetPage};

use crate::App;
use crate::api::request::auth::{Operator, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{EmptyBody, Id, OptionalBody, Params, Trace, Verb};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::teams_of_list;
use crate::api::request::view::{ViewFrom, to_view};

/// Filters of a list of dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterParams {
    /// Only those of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only those of this workflow.
    workflow_id: Option<i64>,
    /// Only those of this queue.
    #[param(inline)]
    queue: Option<LetterQueue>,
    /// Only those in this state.
    #[param(inline)]
    state: Option<LetterState>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the messages of the dead-letter queues, the newest first: those of your teams, or all for operators.
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "operations", params(DeadLetterParams),
    responses((status = 200, body = Page<DeadLetterView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_dead_letters(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<DeadLetterParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let filter = LetterFilter {
        team_id: None,
        queue: params.queue,
        state: params.state,
        workflow_id: params.workflow_id,
        before: page::parse_cursor(params.cursor.as_deref())?,
        limit: page::parse_limit(params.limit)?,
    };
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        let filter = LetterFilter { team_id, ..filter };
        pages.push(dead_letters::list_dead_letters(&mut tx, filter).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, filter.limit, KeyOrder::Descending, |letter: &DeadLetter| letter.id);
    page::answer_page(found, |letter| letter.id, move |letter| view_letter(caller.kind, letter)).await
}

/// Read a message of a dead-letter queue, for admins with its body.
#[utoipa::path(get, path = "/api/v1/dead-letters/{id}", tag = "operations", params(("id" = i64, Path)),
    responses((status = 200, body = DeadLetterView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_dead_letter(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Json<DeadLetterView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = dead_letters::find_dead_letter(&mut connection, id, caller.team_id).await?;
    Ok(Json(view_letter(caller.kind, found.ok_or_else(Error::not_found)?)))
}

/// What a caller reads of a message: only an admin reads the words of AWS.
fn view_letter(kind: Kind, letter: DeadLetter) -> DeadLetterView {
    match kind {
        Kind::Admin => to_view(letter),
        Kind::Team | Kind::Scheduler => to_view(letter.for_team()),
    }
}

/// Requests a redrive or a discard of a message.
pub(crate) async fn act_on_dead_letter(
    State(app): State<App>,
    Operator(caller): Operator,
    Trace(trace): Trace,
    Verb(id, verb): Verb<i64>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<(StatusCode, Json<DeadLetterView>), Error> {
    let request = match verb.as_str() {
        "redrive" => LetterRequest::Redrive,
        "discard" => LetterRequest::Discard,
        _ => return Err(Error::not_found()),
    };
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    match dead_letters::request_for_letter(&mut tx, id, request, &edit).await? {
        Requested::Done(letter) => {
            tx.commit().await?;
            Ok((StatusCode::ACCEPTED, Json(view_letter(caller.kind, *letter))))
        }
        Requested::Unknown => Err(Error::not_found()),
        Requested::NoFire => {
            Err(Error::conflict("nothing_to_redrive", "the message has no fire that can be posted: discard it"))
        }
        Requested::Refused(state) => Err(refused(state)),
    }
}

fn refused(state: LetterState) -> Error {
    let detail = match state {
        LetterState::Redriving => "the publisher posts the fire of this message now: read it again in a minute",
        LetterState::Redriven => "the app has answered for the fire of this message, and the message is deleted",
        LetterState::DiscardRequested | LetterState::Discarded => {
            "the message is discarded: run the time by a backfill"
        }
        LetterState::Gone => "the message has left its queue: run the time by a backfill if it has not run",
        // Both verbs accept these.
        LetterState::Present | LetterState::RedriveRequested | LetterState::RedriveFailed => return Error::not_found(),
    };
    Error::conflict("dead_letter_settled", detail)
}

impl ViewFrom<DeadLetter> for DeadLetterView {
    fn view_from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            queue: to_view(letter.queue),
            message_id: letter.message_id,
            kind: to_view(letter.kind),
            state: to_view(letter.state),
            team_id: letter.team_id,
            workflow_id: letter.workflow_id,
            scheduled_time: letter.scheduled_time,
            error: letter.error,
            tries: letter.tries,
            sent_on: letter.sent_on,
            first_seen: letter.first_seen,
            last_seen: letter.last_seen,
            requested_by: letter.requested_by,
            requested_on: letter.requested_on,
            attempt_count: letter.attempt_count,
            result: letter.result,
            run_id: letter.run_id,
            settled_on: letter.settled_on,
            body_bytes: letter.body_bytes,
            body: letter.body,
            // The publisher writes an object of texts.
            attributes: letter.attributes.and_then(|attributes| serde_json::from_value(attributes).ok()),
        }
    }
}
