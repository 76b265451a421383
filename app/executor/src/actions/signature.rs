//! Step 7 of 7: signs http actions as Standard Webhooks defines, so that a receiver can authenticate the sender.
//!
//! <https://www.standardwebhooks.com>: HMAC-SHA256 with the team's secret over `id.timestamp.body`. The id is the
//! run's, so a receiver deduplicates all attempts of a run by it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{HeaderMap, HeaderValue};
use sha2::Sha256;
use workflows::signing::SigningSecret;

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
    let keys = secrets.iter().map(|secret| secret.decode_key().ok_or(BadSecret)).collect::<Result<Vec<_>, _>>()?;
    let of_body = sign_by_all(&keys, &[id.as_bytes(), timestamp.as_bytes(), body])?;
    let context = context_text(call);
    // No id is `context`, so no signature of a context is one of a body.
    let of_context =
        sign_by_all(&keys, &[b"context".as_slice(), id.as_bytes(), timestamp.as_bytes(), context.as_bytes()])?;
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

fn sign_by_all(keys: &[Vec<u8>], parts: &[&[u8]]) -> Result<String, BadSecret> {
    let signatures = keys.iter().map(|key| Ok(format!("v1,{}", STANDARD.encode(sign(key, parts)?))));
    Ok(signatures.collect::<Result<Vec<_>, _>>()?.join(" "))
}

/// HMAC-SHA256 over the parts, with a dot between two.
fn sign(key: &[u8], parts: &[&[u8]]) -> Result<Vec<u8>, BadSecret> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| BadSecret)?;
    mac.update(&parts.join(&b'.'));
    Ok(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification, which its own libraries test too.
    #[test]
    fn the_example_of_the_standard_is_signed() {
        let secret = SigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let body = br#"{"test": 2432232314}"#;
        let parts: [&[u8]; 3] = [b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", body];
        let signature = sign(&secret.decode_key().unwrap(), &parts).unwrap();
        assert_eq!(STANDARD.encode(signature), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
