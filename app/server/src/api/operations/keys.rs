//! Step 1 of 7: the API of teams and keys, for admins.

use access::keys::{self, Holder, Key, Kind, Role};
use access::teams;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::definition::field::{self, FieldError};

use crate::App;
use crate::api::request::auth::Admin;
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Body, EmptyBody, OptionalBody, Params, Trace, Verb};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};

/// The team to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamBody {
    /// Unique; one line, at most 200 characters.
    name: String,
}

/// The team that was created.
#[derive(Serialize, ToSchema)]
pub struct TeamView {
    id: i64,
    name: String,
    /// Standard Webhooks secret of the team's http actions; shown only once.
    signing_secret: String,
    created_on: DateTime<Utc>,
}

/// The key to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyBody {
    /// What it gives access to.
    kind: Kind,
    /// The team, for a team key.
    #[serde(default)]
    team_id: Option<i64>,
    /// The role, for a team key.
    #[serde(default)]
    role: Option<Role>,
    /// What it is for; one line, at most 200 characters.
    name: String,
}

/// A key in a list.
#[derive(Serialize, ToSchema)]
pub struct KeyView {
    id: Uuid,
    prefix: String,
    kind: Kind,
    team_id: Option<i64>,
    role: Option<Role>,
    name: String,
    created_on: DateTime<Utc>,
    last_used_on: Option<DateTime<Utc>>,
    revoked_on: Option<DateTime<Utc>>,
}

/// The key that was created.
#[derive(Serialize, ToSchema)]
pub struct NewKeyView {
    /// The key itself; shown only once.
    key: String,
    #[serde(flatten)]
    shown: KeyView,
}

/// Which page of the list of keys.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct KeyParams {
    /// Items on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Create a team.
#[utoipa::path(post, path = "/api/v1/teams", tag = "keys", request_body = TeamBody,
    responses((status = 201, body = TeamView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_team(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Body(body): Body<TeamBody>,
) -> Result<Response, Error> {
    field::check_name("name", &body.name)?;
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let (team, secret) =
        teams::create_team(&mut tx, &body.name, &app.secrets, &caller.edit_at(app.clock.now(), trace)).await?;
    tx.commit().await?;
    let view = TeamView {
        id: team.id,
        name: team.name,
        signing_secret: secret.reveal_text().to_owned(),
        created_on: team.created_on,
    };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

/// Create a key. Only this answer contains it.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", request_body = KeyBody,
    responses((status = 201, body = NewKeyView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_key(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Body(body): Body<KeyBody>,
) -> Result<Response, Error> {
    field::check_name("name", &body.name)?;
    let holder = parse_holder(body.kind, body.team_id, body.role)?;
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let (key, secret) = keys::create_key(&mut tx, holder, &body.name, &caller.edit_at(app.clock.now(), trace)).await?;
    tx.commit().await?;
    let view = NewKeyView { key: secret.reveal_text().to_owned(), shown: key.into() };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

/// List keys, without their secrets.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", params(KeyParams),
    responses((status = 200, body = Page<KeyView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_keys(
    State(app): State<App>,
    Admin(_): Admin,
    Params(params): Params<KeyParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let after = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let found = keys::list_keys(&mut tx, after, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |key| key.id, KeyView::from).await
}

/// Revoke a key; it is refused within 5 seconds.
#[utoipa::path(post, path = "/api/v1/keys/{id}:revoke", tag = "keys", params(("id" = Uuid, Path)),
    responses((status = 200, body = KeyView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Verb(id, verb): Verb<Uuid>,
    OptionalBody(EmptyBody {}): OptionalBody<EmptyBody>,
) -> Result<Json<KeyView>, Error> {
    if verb != "revoke" {
        return Err(Error::not_found());
    }
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let key =
        keys::revoke_key(&mut tx, id, &caller.edit_at(app.clock.now(), trace)).await?.ok_or_else(Error::not_found)?;
    tx.commit().await?;
    app.gate.forget_all();
    Ok(Json(key.into()))
}

/// Returns the owner of a key. A team key needs a team and a role; other keys must have neither.
///
/// # Errors
/// Returns the field that is missing or not allowed.
pub fn parse_holder(kind: Kind, team_id: Option<i64>, role: Option<Role>) -> Result<Holder, FieldError> {
    match (kind, team_id, role) {
        (Kind::Admin, None, None) => Ok(Holder::Admin),
        (Kind::Scheduler, None, None) => Ok(Holder::Scheduler),
        (Kind::Team, Some(team_id), Some(role)) => Ok(Holder::Team(team_id, role)),
        (Kind::Team, None, _) => Err(FieldError::new("missing_field", "team_id", "a team key requires a team_id")),
        (Kind::Team, Some(_), None) => {
            Err(FieldError::new("missing_field", "role", "a team key requires a role: viewer or editor"))
        }
        (Kind::Admin | Kind::Scheduler, Some(_), _) => {
            Err(FieldError::invalid("team_id", "only a team key has a team_id"))
        }
        (Kind::Admin | Kind::Scheduler, None, Some(_)) => {
            Err(FieldError::invalid("role", "only a team key has a role"))
        }
    }
}

impl From<Key> for KeyView {
    fn from(key: Key) -> Self {
        Self {
            id: key.id,
            prefix: key.prefix,
            kind: key.kind,
            team_id: key.team_id,
            role: key.role,
            name: key.name,
            created_on: key.created_on,
            last_used_on: key.last_used_on,
            revoked_on: key.revoked_on,
        }
    }
}
