//! Step 7 of 7: the API of messages: which were delivered, and which were not.

use access::keys::Kind;
use api_types::notifications::{MessageState, MessageView};
use axum::Json;
use axum::extract::State;
use notifications::message::{self, Message, Retry};
use notifications::message_list::{self, MessageFilter};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;
use workflows::keyset::{KeyOrder, KeysetPage};

use crate::App;
use crate::api::request::auth::{Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{self, EmptyBody, Id, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::teams_of_list;

/// Filters of a list of messages.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MessageParams {
    /// Only those of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only those to this channel.
    channel_id: Option<i64>,
    /// Only those in this state.
    #[param(inline)]
    state: Option<MessageState>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List messages, the newest first. Those that failed are the dead letters.
#[utoipa::path(get, path = "/api/v1/notification-messages", tag = "notifications", params(MessageParams),
    responses((status = 200, body = Page<MessageView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_messages(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<MessageParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let filter = MessageFilter { team_id: None, channel_id: params.channel_id, state: params.state };
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        let filter = MessageFilter { team_id, ..filter };
        pages.push(message_list::list_messages(&mut tx, filter, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |one: &Message| one.id);
    page::answer_page(found, |one| one.id, move |one| view_message(caller.kind, one)).await
}

/// Only an admin reads the words of AWS, to which messages of channels of the kind `aws` go.
fn view_message(kind: Kind, message: Message) -> MessageView {
    match kind {
        Kind::Admin => message.view(),
        Kind::Team | Kind::Scheduler => message.for_team().view(),
    }
}

/// Read a message.
#[utoipa::path(get, path = "/api/v1/notification-messages/{id}", tag = "notifications", params(("id" = Uuid, Path)),
    responses((status = 200, body = MessageView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_message(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<Uuid>,
) -> Result<Json<MessageView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = message::find_message(&mut connection, id, caller.team_id).await?;
    Ok(Json(view_message(caller.kind, found.ok_or_else(Error::not_found)?)))
}

/// Deliver a failed message again, under the same id.
#[utoipa::path(post, path = "/api/v1/notification-messages/{id}:retry", tag = "notifications", params(("id" = Uuid, Path)),
    responses((status = 200, body = MessageView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn retry_message(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<MessageView>, Error> {
    if verb != "retry" {
        return Err(Error::not_found());
    }
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let found = message::find_message(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    let refusal = match message::retry_message(&mut tx, &found, &edit).await? {
        Retry::Requested => None,
        Retry::NotFailed => Some("the message has not failed: it is sent, or another attempt follows"),
        Retry::IsTest => Some("the message is a test: test the channel again"),
    };
    if let Some(detail) = refusal {
        return Err(Error::conflict("not_failed", detail));
    }
    let after = message::find_message(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(Json(view_message(caller.kind, after)))
}
