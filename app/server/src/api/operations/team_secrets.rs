//! Step 1 of 7: the API of a team's secrets: its members read their names, an admin sets their values.

use api_types::secrets::{SecretView, SecretsView};
use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;
use workflows::definition::field::{self, FieldError};
use workflows::definition::redaction::origin_of_url;
use workflows::secrets::team_secrets::{
    MOST_SECRETS, NewValue, TeamSecret, Written, delete_team_secret, list_team_secrets,
};

use crate::App;
use crate::api::request::auth::{Admin, Viewer};
use crate::api::request::conditions::{Existence, Found};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::{Body, Id, Trace};
use crate::api::request::view::ViewFrom;

/// How many origins a secret is bound to at most.
const MOST_ORIGINS: usize = 20;

/// `{id}` of a team and `{name}` of a secret in a path.
pub struct SecretPath {
    team: i64,
    name: String,
}

impl<S: Send + Sync> FromRequestParts<S> for SecretPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((team, name)) = path.map_err(|_| Error::not_found())?;
        Ok(Self { team: team.parse().map_err(|_| Error::not_found())?, name })
    }
}

/// A value of a secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretBody {
    /// The value, 1 to 4,096 characters. It is never shown.
    value: String,
    /// The only origins of URLs that it is sent to, for example `https://api.example`, at most 20. Empty = every one; absent
    /// = as before, and every one for a new secret.
    #[serde(default)]
    allowed_origins: Option<Vec<String>>,
}

impl ViewFrom<TeamSecret> for SecretView {
    fn view_from(secret: TeamSecret) -> Self {
        let TeamSecret { name, version, allowed_origins, created_on, updated_on } = secret;
        Self { name, version, allowed_origins, created_on, updated_on }
    }
}

/// List the names of a team's secrets. No route shows a value.
#[utoipa::path(get, path = "/api/v1/teams/{id}/secrets", tag = "keys", params(("id" = i64, Path)),
    responses((status = 200, body = SecretsView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list_secrets(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Json<SecretsView>, Error> {
    if caller.team_id.is_some_and(|own| own != id) {
        return Err(Error::not_found());
    }
    let secrets = list_team_secrets(&mut *app.pools.reads.acquire().await?, id).await?;
    Ok(Json(SecretsView { items: secrets.into_iter().map(SecretView::view_from).collect() }))
}

/// Create a secret, or replace its value. The next attempt of each workflow that refers to it sends the new value.
#[utoipa::path(put, path = "/api/v1/teams/{id}/secrets/{name}", tag = "keys",
    params(("id" = i64, Path), ("name" = String, Path)), request_body = SecretBody,
    responses((status = 200, body = SecretView), (status = 201, description = "The secret was created", body = SecretView),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_secret(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    SecretPath { team, name }: SecretPath,
    existence: Existence,
    Body(body): Body<SecretBody>,
) -> Result<Response, Error> {
    check_secret_name(&name)?;
    field::check_text("value", &body.value, 1, 4_096)?;
    let origins = body.allowed_origins.as_deref().map(parse_origins).transpose()?;
    if !app.secrets.encrypts() {
        let detail = "secrets are stored only encrypted: set CRONBOX_SECRETS_KEY of the app first";
        return Err(Error::conflict("no_secrets_key", detail));
    }
    let new = NewValue { name: &name, value: &body.value, allowed_origins: origins.as_deref() };
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let written = app.secrets.write_team_secret(&mut tx, team, new, &edit).await?;
    // It is known only now whether the secret existed. If the write is refused, it is not committed.
    let (status, secret, found) = match written {
        Written::Created(secret) => (StatusCode::CREATED, secret, Found::Absent),
        Written::Rotated(secret) => (StatusCode::OK, secret, Found::Existing),
        Written::NoTeam => return Err(Error::not_found()),
        Written::TooMany => {
            let detail = format!("a team has at most {MOST_SECRETS} secrets: delete one that no workflow needs");
            return Err(Error::conflict("too_many_secrets", &detail));
        }
    };
    existence.check("secret", found)?;
    tx.commit().await?;
    Ok((status, Json(SecretView::view_from(secret))).into_response())
}

/// Delete a secret. Attempts of actions that refer to it fail from then on.
#[utoipa::path(delete, path = "/api/v1/teams/{id}/secrets/{name}", tag = "keys",
    params(("id" = i64, Path), ("name" = String, Path)),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_secret(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    SecretPath { team, name }: SecretPath,
) -> Result<StatusCode, Error> {
    check_secret_name(&name)?;
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    if !delete_team_secret(&mut tx, team, &name, &caller.edit_at(app.clock.now(), trace)).await? {
        return Err(Error::not_found());
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

fn check_secret_name(name: &str) -> Result<(), FieldError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 100 || !name.chars().all(is_valid) {
        let detail = "the name must have 1 to 100 letters, digits, dots, hyphens or underscores";
        return Err(FieldError::invalid("name", detail));
    }
    Ok(())
}

/// Returns origins as the check of a URL compares them.
fn parse_origins(written: &[String]) -> Result<Vec<String>, FieldError> {
    if written.len() > MOST_ORIGINS {
        return Err(FieldError::invalid("allowed_origins", format!("at most {MOST_ORIGINS} origins are allowed")));
    }
    written.iter().enumerate().map(|(i, text)| parse_origin(&format!("allowed_origins.{i}"), text)).collect()
}

/// Parses an origin.
///
/// # Errors
/// Fails unless it is scheme, host and port of an http URL.
pub(crate) fn parse_origin(field: &str, text: &str) -> Result<String, FieldError> {
    let origin = origin_of_url(text).filter(|origin| origin.starts_with("http://") || origin.starts_with("https://"));
    let is_only_origin = |origin: &String| text.trim_end_matches('/').eq_ignore_ascii_case(origin);
    origin.filter(is_only_origin).ok_or_else(|| {
        FieldError::invalid(
            field,
            "an origin is a scheme and a host, for example https://api.example or https://api.example:8443",
        )
    })
}
