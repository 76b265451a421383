//! Step 1 of 7: the API of a team's signing secrets, for admins: a rotation with an overlap, and the secrets of receivers.

use access::signing_secrets::{self, Rotation};
use api_types::secrets::{ReceiverSecretView, RotationView};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use workflows::audit::{self, Edit, Entry};
use workflows::definition::field::{self, FieldError};

use super::team_secrets::parse_origin;
use crate::App;
use crate::api::request::auth::Admin;
use crate::api::request::error::Error;
use crate::api::request::extract::{Trace, Verb, or_empty};
use crate::api::request::repeat::{OptionalCreation, Repeat, Requested, replayed};

/// The longest overlap of a rotation: 90 days.
const LONGEST_OVERLAP_SECS: i64 = 90 * 24 * 60 * 60;

/// The rotation of a signing secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotationBody {
    /// Seconds for which the previous secret signs, too, 0 to 7776000; absent = 86400.
    #[serde(default)]
    overlap_secs: Option<i64>,
    /// Whether each receiver has a secret of its own from now on; absent = as before.
    #[serde(default)]
    by_receiver: Option<bool>,
}

/// A receiver.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiverBody {
    /// The origin of its URL: scheme, host and port, for example `https://a.example`.
    origin: String,
}

/// Rotate a team's signing secret, or read the secret of a receiver.
pub(crate) async fn act_on_team(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Verb(team, verb): Verb<i64>,
    OptionalCreation(creation): OptionalCreation<Value>,
) -> Result<Response, Error> {
    let edit = caller.edit_at(app.clock.now(), trace);
    let Requested { body, repeat, created } = creation.look_up(&app, &edit).await?;
    let body = or_empty(body);
    match (verb.as_str(), created) {
        ("rotate-signing-secret", None) => rotate(&app, team, field::parse_document("", body)?, &repeat, &edit).await,
        ("rotate-signing-secret", Some(created)) => Ok(answer_again(created)),
        ("receiver-secret", _) => {
            let view = find_receiver(&app, team, field::parse_document("", body)?, &edit).await?;
            Ok(([(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
        }
        _ => Err(Error::not_found()),
    }
}

/// A client that repeats a rotation because its answer was lost does not end the overlap of the first one.
async fn rotate(app: &App, team: i64, body: RotationBody, repeat: &Repeat, edit: &Edit) -> Result<Response, Error> {
    let overlap_secs = body.overlap_secs.unwrap_or(86_400);
    if !(0..=LONGEST_OVERLAP_SECS).contains(&overlap_secs) {
        let detail = format!("overlap_secs must be from 0 to {LONGEST_OVERLAP_SECS}");
        return Err(FieldError::invalid("overlap_secs", detail).into());
    }
    let rotation = Rotation { overlap: TimeDelta::seconds(overlap_secs), by_receiver: body.by_receiver };
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    if let Some(created) = repeat.begin(&mut tx, edit).await? {
        return Ok(answer_again(created));
    }
    let rotated = signing_secrets::rotate_signing_secret(&mut tx, team, &app.secrets, rotation, edit).await?;
    let rotated = rotated.ok_or_else(Error::not_found)?;
    let (by_receiver, previous_until) = (rotated.by_receiver, rotated.previous_until);
    let view = RotationView { team_id: team, signing_secret: None, by_receiver, previous_until };
    repeat.store(&mut tx, edit, &view).await?;
    tx.commit().await?;
    let view = RotationView { signing_secret: Some(rotated.secret.0), ..view };
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(view)).into_response())
}

/// The answer to a repeat, without the secret.
fn answer_again(created: Value) -> Response {
    (replayed(), Json(created)).into_response()
}

async fn find_receiver(app: &App, team: i64, body: ReceiverBody, edit: &Edit) -> Result<ReceiverSecretView, Error> {
    let origin = parse_origin("origin", &body.origin)?;
    let pool = &app.pools.reads;
    let found = signing_secrets::find_receiver_secrets(pool, team, &app.secrets, &origin, edit.now).await?;
    let found = found.ok_or_else(Error::not_found)?;
    // Before the answer: no secret is read without an entry.
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let entry = Entry {
        verb: "read-receiver-secret",
        subject: format!("team:{team}"),
        team_id: Some(team),
        before: None,
        after: Some(json!({ "origin": origin })),
    };
    audit::record_entry(&mut tx, edit, entry).await?;
    tx.commit().await?;
    Ok(ReceiverSecretView {
        origin,
        signing_secret: found.current.0,
        previous_signing_secret: found.previous.map(|secret| secret.0),
    })
}
