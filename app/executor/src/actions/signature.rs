//! Step 7 of 7: signs http actions as Standard Webhooks defines, so that a receiver can authenticate the sender.
//!
//! <https://www.standardwebhooks.com>: HMAC-SHA256 with the team's secret over `id.timestamp.body`. The id is the
//! run's, so a receiver deduplicates all attempts of a run by it.

use chrono::{DateTime, Utc};
use http::header::{HeaderMap, HeaderValue};
use workflows::signing::{SigningSecret, sign_by_all};

use super::Call;

/// The secret is not `whsec_` and base64. Secrets that the app generates are valid, so only a manual change causes
/// this.
#[derive(Debug, thiserror::Error)]
#[error("the team's signing secret must be whsec_ followed by base64")]
pub struct BadSecret;

/// The headers of a signed request: those of the standard, and a signature of the context, which a custom body does not
/// have. Each has a signature of each secret, separated by blanks.
///
/// # Errors
/// Fails if a secret cannot be decoded.
pub fn sign_request(
    secrets: &[SigningSecret],
    call: &Call,
    now: DateTime<Utc>,
    body: &[u8],
) -> Result<HeaderMap, BadSecret> {
    let (id, timestamp) = (call.run_id.to_string(), now.timestamp().to_string());
    let of_body = sign_by_all(secrets, &[id.as_bytes(), timestamp.as_bytes(), body]).ok_or(BadSecret)?;
    let context = context_text(call);
    // No id is `context`, so no signature of a context is one of a body.
    let of_context = [b"context".as_slice(), id.as_bytes(), timestamp.as_bytes(), context.as_bytes()];
    let of_context = sign_by_all(secrets, &of_context).ok_or(BadSecret)?;
    let mut headers = HeaderMap::with_capacity(4);
    for (name, value) in [
        ("webhook-id", id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", of_body),
        ("x-cronbox-signature", of_context),
    ] {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| BadSecret)?);
    }
    Ok(headers)
}

/// A scheduled time as the headers have it.
pub(super) fn time_text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// The values of the headers `x-cronbox-workflow-id`, `-scheduled-time`, `-trigger` and `-attempt`.
fn context_text(call: &Call) -> String {
    let time = call.scheduled_time.map(time_text).unwrap_or_default();
    format!("{}.{time}.{}.{}", call.workflow_id, call.trigger, call.attempt)
}
