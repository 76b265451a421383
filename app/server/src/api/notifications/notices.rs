//! Step 7 of 7: the API of notifications themselves: what happened, by which rule.

use api_types::notifications::{NotificationEvent, NotificationView};
use axum::Json;
use axum::extract::State;
use notifications::notification::{self, Notification};
use notifications::notification_list::{self, NotificationFilter};
use serde::Deserialize;
use utoipa::IntoParams;
use workflows::keyset::{KeyOrder, KeysetPage};

use crate::App;
use crate::api::request::auth::{Editor, Viewer};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{self, EmptyBody, Id, OptionalBody, Params, Trace};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::team::teams_of_list;

/// Filters of a list of notifications.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NotificationParams {
    /// Only those of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Only those of this workflow.
    workflow_id: Option<i64>,
    /// Only those of this event.
    #[param(inline)]
    event: Option<NotificationEvent>,
    /// `true`: only those that are acknowledged; `false`: only the others.
    acknowledged: Option<bool>,
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List notifications, the newest first.
#[utoipa::path(get, path = "/api/v1/notifications", tag = "notifications", params(NotificationParams),
    responses((status = 200, body = Page<NotificationView>),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_notifications(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Params(params): Params<NotificationParams>,
) -> Result<PageAnswer, Error> {
    let teams = teams_of_list(&caller, params.team_id)?;
    let limit = page::parse_limit(params.limit)?;
    let before = page::parse_cursor(params.cursor.as_deref())?;
    let filter = NotificationFilter {
        team_id: None,
        workflow_id: params.workflow_id,
        event: params.event,
        is_acknowledged: params.acknowledged,
    };
    let mut tx = begin_read(&app).await?;
    let mut pages = Vec::with_capacity(teams.len());
    for team_id in teams {
        let filter = NotificationFilter { team_id, ..filter };
        pages.push(notification_list::list_notifications(&mut tx, filter, before, limit).await.map_err(failed_read)?);
    }
    tx.commit().await?;
    let found = KeysetPage::merge(pages, limit, KeyOrder::Descending, |one: &Notification| one.id);
    page::answer_page(found, |one| one.id, |one| one.view()).await
}

/// Read a notification.
#[utoipa::path(get, path = "/api/v1/notifications/{id}", tag = "notifications", params(("id" = i64, Path)),
    responses((status = 200, body = NotificationView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_notification(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Json<NotificationView>, Error> {
    let mut connection = app.pools.reads.acquire().await?;
    let found = notification::find_notification(&mut connection, id, caller.team_id).await?;
    Ok(Json(found.ok_or_else(Error::not_found)?.view()))
}

/// Acknowledge a notification: other people see that you take care of it. Repeating it changes nothing.
#[utoipa::path(post, path = "/api/v1/notifications/{id}:acknowledge", tag = "notifications", params(("id" = i64, Path)),
    responses((status = 200, body = NotificationView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn acknowledge_notification(
    State(app): State<App>,
    Editor(caller): Editor,
    Trace(trace): Trace,
    extract::Verb(id, verb): extract::Verb<i64>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<NotificationView>, Error> {
    if verb != "acknowledge" {
        return Err(Error::not_found());
    }
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let found = notification::find_notification(&mut tx, id, caller.team_id).await?.ok_or_else(Error::not_found)?;
    notification::acknowledge_notification(&mut tx, &found, &edit).await?;
    let after = notification::find_notification(&mut tx, id, None).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    Ok(Json(after.view()))
}
