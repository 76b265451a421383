//! Step 1 of 7: the API of the console's sessions, and of links that sign in once.

use access::sessions::{self, LINK_LASTS, Session};
use api_types::sessions::{SessionView, SignInLinkView};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::App;
use crate::api::request::auth::{Admin, Auditor, KeyHolder};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{EmptyBody, OptionalBody, Params, Trace, Verb};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::view::ViewFrom;

/// Which page of the list of sessions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionParams {
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the sessions of the console that have not ended.
#[utoipa::path(get, path = "/api/v1/sessions", tag = "keys", params(SessionParams),
    responses((status = 200, body = Page<SessionView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_sessions(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<SessionParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let after = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let found = sessions::list_sessions(&mut tx, app.clock.now(), after, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |session| session.id, SessionView::view_from).await
}

/// End a session of the console; it is refused within 5 seconds.
#[utoipa::path(post, path = "/api/v1/sessions/{id}:end", tag = "keys", params(("id" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn end_session(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Verb(id, verb): Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<StatusCode, Error> {
    if verb != "end" {
        return Err(Error::not_found());
    }
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    if !sessions::end_session(&mut tx, id, "end", &caller.edit_at(app.clock.now(), trace)).await? {
        return Err(Error::not_found());
    }
    tx.commit().await?;
    app.gate.forget_sessions();
    Ok(StatusCode::NO_CONTENT)
}

/// Make a link that signs in to the console once, with the key of this request. It works for ten minutes.
#[utoipa::path(post, path = "/api/v1/sign-in-links", tag = "keys",
    responses((status = 201, body = SignInLinkView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_sign_in_link(
    State(app): State<App>,
    KeyHolder(caller): KeyHolder,
    Trace(trace): Trace,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    let text = sessions::make_link(&mut tx, caller.key_id(), caller.team_id, &edit).await?;
    tx.commit().await?;
    let path = format!("/sign-in?link={}", text.reveal_text());
    let view = SignInLinkView { path, expires_on: edit.now + LINK_LASTS };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

impl ViewFrom<Session> for SessionView {
    fn view_from(session: Session) -> Self {
        Self {
            id: session.id,
            name: session.name,
            is_person: session.key_id.is_none(),
            source_address: session.source_address,
            created_on: session.created_on,
            expires_on: session.expires_on,
        }
    }
}
