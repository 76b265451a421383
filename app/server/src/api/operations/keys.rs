//! Step 1 of 7: the API of teams and keys, for admins; the owner of a key may rotate it.

use api_types::keys::{KeyView, NewKeyView, TeamView};

use access::keys::{self, Holder, Key, Kind, Role};
use access::restrictions::{Restrictions, parse_cidr};
use access::rights::Scope;
use access::rotation::{LEAST_AGE_SECS, MOST_OVERLAP_SECS, RotateOutcome, rotate_key};
use access::teams;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use workflows::definition::field::{self, FieldError};

use crate::App;
use crate::api::request::auth::{Admin, Auditor, Owner};
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::{Error, Limit, Problem};
use crate::api::request::extract::{EmptyBody, OptionalBody, Params, Trace, Verb};
use crate::api::request::page::{self, Page, PageAnswer};
use crate::api::request::read::{begin_read, failed_read};
use crate::api::request::repeat::{Creation, RepeatParams, Requested, replayed};
use crate::api::request::view::{ViewFrom, to_view};

/// The team to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamBody {
    /// Unique; one line, at most 200 characters.
    name: String,
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
    /// What it permits of what its kind and role permit; all of it if this is not sent.
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
    /// When it expires; never if this is not sent.
    #[serde(default)]
    expires_on: Option<DateTime<Utc>>,
    /// The networks from which it is accepted, at most 50, for example 10.1.0.0/16; all if this is not sent.
    #[serde(default)]
    allowed_cidrs: Option<Vec<String>>,
}

/// How the owner of a key rotates it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateBody {
    /// For how many seconds the key is still accepted, at most 604,800; 0 = it expires at once.
    overlap_secs: u32,
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
#[utoipa::path(post, path = "/api/v1/teams", tag = "keys", request_body = TeamBody, params(RepeatParams),
    responses((status = 201, body = TeamView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_team(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    creation: Creation<TeamBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    if let Some(created) = created {
        return Ok(answer_again(created));
    }
    field::check_name("name", &body.name)?;
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return Ok(answer_again(created));
    }
    let (team, secret) = teams::create_team(&mut tx, &body.name, &app.secrets, &edit).await?;
    let view = TeamView { id: team.id, name: team.name, signing_secret: None, created_on: team.created_on };
    repeat.store(&mut tx, &edit, &view).await?;
    tx.commit().await?;
    Ok(answer_secret(TeamView { signing_secret: Some(secret.reveal_text().to_owned()), ..view }))
}

/// Create a key. Only this answer contains it.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", request_body = KeyBody, params(RepeatParams),
    responses((status = 201, body = NewKeyView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_key(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    creation: Creation<KeyBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    if let Some(created) = created {
        return Ok(answer_again(created));
    }
    field::check_name("name", &body.name)?;
    let holder = parse_holder(body.kind, body.team_id, body.role)?;
    let cidrs = body.allowed_cidrs.map(|all| all.iter().map(|one| parse_cidr(one)).collect()).transpose()?;
    let restrictions = Restrictions { scopes: body.scopes, expires_on: body.expires_on, allowed_cidrs: cidrs };
    restrictions.check(holder, edit.now)?;
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return Ok(answer_again(created));
    }
    let (key, secret) = keys::create_restricted_key(&mut tx, holder, &body.name, &restrictions, &edit).await?;
    let view = NewKeyView { key: None, shown: to_view(key) };
    repeat.store(&mut tx, &edit, &view).await?;
    tx.commit().await?;
    Ok(answer_secret(NewKeyView { key: Some(secret.reveal_text().to_owned()), ..view }))
}

/// Rotate the key of this request: a new key with the same rights, and the old one expires after the overlap.
#[utoipa::path(post, path = "/api/v1/keys/self:rotate", tag = "keys", request_body = RotateBody, params(RepeatParams),
    responses((status = 201, body = NewKeyView), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn rotate_own_key(
    State(app): State<App>,
    Owner(caller): Owner,
    Trace(trace): Trace,
    creation: Creation<RotateBody>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    if let Some(created) = created {
        return Ok(answer_again(created));
    }
    if body.overlap_secs > MOST_OVERLAP_SECS {
        let detail = format!("overlap_secs must be at most {MOST_OVERLAP_SECS}");
        return Err(FieldError::invalid("overlap_secs", detail).into());
    }
    let mut tx = EditTransaction::begin_of_team(&app, caller.team_id).await?;
    if let Some(created) = repeat.begin(&mut tx, &edit).await? {
        return Ok(answer_again(created));
    }
    match rotate_key(&mut tx, caller.key_id(), body.overlap_secs, &edit).await? {
        RotateOutcome::Rotated(successor, secret) => {
            let view = NewKeyView { key: None, shown: to_view(*successor) };
            repeat.store(&mut tx, &edit, &view).await?;
            tx.commit().await?;
            app.gate.forget_all();
            Ok(answer_secret(NewKeyView { key: Some(secret.reveal_text().to_owned()), ..view }))
        }
        RotateOutcome::Inactive => Err(Error::unauthorized()),
        RotateOutcome::AlreadyRotated => Err(Error::conflict(
            "already_rotated",
            "this key was rotated before: use its successor, or ask an admin for a key",
        )),
        RotateOutcome::TooYoung => {
            let detail =
                format!("a key is rotated {LEAST_AGE_SECS} s after its creation at the earliest: repeat it later");
            let limit = Limit {
                policy: "key-rotations",
                quota: 1,
                window_secs: Some(LEAST_AGE_SECS),
                retry_secs: LEAST_AGE_SECS,
            };
            Err(Error::limited("rate_limited", detail, limit))
        }
    }
}

fn answer_secret(view: impl Serialize) -> Response {
    (StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(view)).into_response()
}

/// The answer to a repeat, without the secret.
fn answer_again(created: Value) -> Response {
    (StatusCode::CREATED, replayed(), Json(created)).into_response()
}

/// List keys, without their secrets.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", params(KeyParams),
    responses((status = 200, body = Page<KeyView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_keys(
    State(app): State<App>,
    Auditor(_): Auditor,
    Params(params): Params<KeyParams>,
) -> Result<PageAnswer, Error> {
    let limit = page::parse_limit(params.limit)?;
    let after = page::parse_cursor(params.cursor.as_deref())?;
    let mut tx = begin_read(&app).await?;
    let found = keys::list_keys(&mut tx, after, limit).await.map_err(failed_read)?;
    tx.commit().await?;
    page::answer_page(found, |key| key.id, KeyView::view_from).await
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
    Ok(Json(to_view(key)))
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

impl ViewFrom<Key> for KeyView {
    fn view_from(key: Key) -> Self {
        Self {
            id: key.id,
            prefix: key.prefix,
            kind: to_view(key.kind),
            team_id: key.team_id,
            role: to_view(key.role),
            scopes: key.scopes.iter().map(to_view).collect(),
            name: key.name,
            created_on: key.created_on,
            expires_on: key.expires_on,
            allowed_cidrs: key.allowed_cidrs.map(|all| all.iter().map(ToString::to_string).collect()),
            last_used_on: key.last_used_on,
            last_used_from: key.last_used_from,
            revoked_on: key.revoked_on,
            rotated_into: key.rotated_into,
        }
    }
}
