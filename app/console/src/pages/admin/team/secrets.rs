//! The secrets of a team, by name only, and its signing secret.

use api_types::secrets::{ReceiverSecretView, RotationView};
use axum::Router;
use axum::extract::Path;
use axum::http::Method;
use axum::routing::post;
use serde::Deserialize;
use serde_json::json;

use crate::act::{self, Act};
use crate::answer::{ShownOnce, show_page};
use crate::api::{Api, Console, Write};
use crate::failure::Failure;
use crate::form::{Sent, filled, lines, object, whole_number};
use crate::times;

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/admin/teams/{id}/secrets", post(put))
        .route("/admin/teams/{id}/secrets/delete", post(delete))
        .route("/admin/teams/{id}/signing-secret", post(rotate))
        .route("/admin/teams/{id}/receiver-secret", post(read_receiver))
}

#[derive(Deserialize)]
struct Secret {
    /// Not `name`, which is the field of the team's name on the same page.
    secret_name: String,
    value: String,
    #[serde(default)]
    allowed_origins: String,
}

async fn put(api: Api, Path(id): Path<i64>, Sent(form): Sent<Secret>) -> Act {
    let path = path_of(id, &form.secret_name)?;
    // Absent: the origins stay as they are.
    let origins = filled(&form.allowed_origins).map(lines);
    let body = object([("value", json!(form.value)), ("allowed_origins", json!(origins))]);
    api.send(Method::PUT, &path, Write { body: Some(body), ..Write::default() }).await?;
    Ok(act::show_next(&format!("/admin/teams/{id}"), "secret-saved"))
}

#[derive(Deserialize)]
struct SecretName {
    secret_name: String,
}

async fn delete(api: Api, Path(id): Path<i64>, Sent(form): Sent<SecretName>) -> Act {
    api.send(Method::DELETE, &path_of(id, &form.secret_name)?, Write::default()).await?;
    Ok(act::show_next(&format!("/admin/teams/{id}"), "secret-deleted"))
}

/// The path of a secret, whose name must not change the path.
fn path_of(id: i64, name: &str) -> Result<String, Failure> {
    let name = name.trim();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_step = matches!(name, "." | "..");
    if name.is_empty() || name.len() > 100 || is_step || !name.chars().all(is_valid) {
        let detail = "the name must have 1 to 100 letters, digits, dots, hyphens or underscores";
        return Err(Failure::of_field("secret_name", detail));
    }
    Ok(format!("/teams/{id}/secrets/{name}"))
}

#[derive(Deserialize)]
struct Rotation {
    #[serde(default)]
    overlap_hours: String,
    #[serde(default)]
    by_receiver: String,
}

async fn rotate(api: Api, Path(id): Path<i64>, Sent(form): Sent<Rotation>) -> Act {
    let overlap = whole_number::<i64>("overlap_hours", &form.overlap_hours)?.map(|hours| hours.saturating_mul(3_600));
    let by_receiver = match form.by_receiver.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    let body = object([("overlap_secs", json!(overlap)), ("by_receiver", json!(by_receiver))]);
    let rotated: RotationView = api.post_json(&format!("/teams/{id}:rotate-signing-secret"), body).await?.json()?;
    let secret = rotated.signing_secret.ok_or_else(Failure::rotated_before)?;
    let until = match &rotated.previous_until {
        Some(until) => format!("The previous one signs, too, until {}", times::in_utc(until)),
        None => "The previous one signs no more".to_owned(),
    };
    let hint = match rotated.by_receiver {
        true => {
            "Each receiver has a secret that is derived from it: read it below, and give it to the receiver. This one is shown only now."
        }
        false => "Give it to the receivers now. It is shown only now.",
    };
    let next = format!("/admin/teams/{id}");
    let title = format!("The signing secret was rotated. {until}");
    Ok(show_page(&ShownOnce { title, hint, texts: vec![("Signing secret", secret)], next: &next })?)
}

#[derive(Deserialize)]
struct Receiver {
    origin: String,
}

async fn read_receiver(api: Api, Path(id): Path<i64>, Sent(form): Sent<Receiver>) -> Act {
    let body = json!({ "origin": form.origin.trim() });
    let found: ReceiverSecretView = api.post_json(&format!("/teams/{id}:receiver-secret"), body).await?.json()?;
    let previous = found.previous_signing_secret.map(|secret| ("Previous secret, which signs, too", secret));
    let texts = [("Secret of the receiver", found.signing_secret)].into_iter().chain(previous).collect();
    let next = format!("/admin/teams/{id}");
    let title = format!("The secret of {}", found.origin);
    let hint = "Give it to the receiver. The audit log says that you have read it.";
    Ok(show_page(&ShownOnce { title, hint, texts, next: &next })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_stay_in_their_path() {
        assert_eq!(path_of(7, " api-token ").unwrap(), "/teams/7/secrets/api-token");
        for name in ["", "a/b", "..", "a b", "a?b", "a%2fb"] {
            assert!(path_of(7, name).is_err(), "{name}");
        }
    }
}
