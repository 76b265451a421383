//! Step 1 of 7: the team in which a person of several teams acts. Keys and all other persons have one team, or are admins.

use access::people::owner::{OwnedObject, find_owner};
use axum::RequestPartsExt as _;
use axum::extract::{MatchedPath, RawPathParams};
use axum::http::request::Parts;
use db::PgPool;
use workflows::definition::field::FieldError;

use super::auth::Caller;
use super::error::Error;

/// Returns the caller in the team that owns the object of the path. The object of another team, and one that does not
/// exist, are not found in any team of the caller.
///
/// # Errors
/// Returns the failure of the database.
pub(super) async fn choose_team(parts: &mut Parts, pool: &PgPool, caller: Caller) -> Result<Caller, Error> {
    if !caller.has_to_choose() {
        return Ok(caller);
    }
    let Some(object) = object_of_path(parts).await else { return Ok(caller) };
    // Boxed, because the future of every request would contain it.
    let owner = Box::pin(async { find_owner(&mut *pool.acquire().await?, object).await }).await?;
    let chosen = owner.and_then(|team_id| caller.in_team(team_id));
    let first = || caller.team_id.and_then(|team_id| caller.in_team(team_id));
    Ok(chosen.or_else(first).unwrap_or(caller))
}

/// The object that the path of a route names.
async fn object_of_path(parts: &mut Parts) -> Option<OwnedObject> {
    let pattern = parts.extensions.get::<MatchedPath>()?.as_str().to_owned();
    // The first part names the object; a path may have further ones.
    let parameters = parts.extract::<RawPathParams>().await.ok()?;
    let (_name, target) = parameters.iter().next()?;
    let id = target.split_once(':').map_or(target, |(id, _verb)| id);
    match pattern.strip_prefix("/api/v1/")?.split('/').next()? {
        "workflows" | "schedules" => id.parse().ok().map(OwnedObject::Workflow),
        "runs" => id.parse().ok().map(OwnedObject::Run),
        "bulk" => id.parse().ok().map(OwnedObject::Bulk),
        "notification-channels" => id.parse().ok().map(OwnedObject::NotificationChannel),
        "notification-rules" => id.parse().ok().map(OwnedObject::NotificationRule),
        "notifications" => id.parse().ok().map(OwnedObject::Notification),
        "notification-messages" => id.parse().ok().map(OwnedObject::NotificationMessage),
        "dead-letters" => id.parse().ok().map(OwnedObject::DeadLetter),
        "freezes" => id.parse().ok().map(OwnedObject::Freeze),
        "backfills" => id.parse().ok().map(OwnedObject::Backfill),
        "teams" => id.parse().ok().map(OwnedObject::Team),
        _ => None,
    }
}

/// The teams whose rows a list reads, one by one; `None` stands for all teams.
///
/// # Errors
/// Returns 400 if a person of many teams names none.
pub(crate) fn teams_of_list(caller: &Caller, requested: Option<i64>) -> Result<Vec<Option<i64>>, Error> {
    caller.teams_of_list(requested).map_err(|_| missing_team("you belong to many teams: send team_id"))
}

/// Returns 400: a person of several teams names none.
pub(crate) fn missing_team(detail: &str) -> Error {
    FieldError::new("missing_field", "team_id", detail).into()
}
