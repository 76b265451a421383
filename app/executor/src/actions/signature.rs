//! Step 7 of 7: signs http actions as Standard Webhooks defines, so that a receiver can authenticate the sender.
//!
//! <https://www.standardwebhooks.com>: HMAC-SHA256 with the team's secret over `id.timestamp.body`. The id is the
//! run's, so a receiver deduplicates all attempts of a run by it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{HeaderMap, HeaderValue};
use sha2::Sha256;
use uuid::Uuid;
use workflows::signing::SigningSecret;

/// The secret is not `whsec_` and base64. Secrets that the app generates are valid, so only a manual change causes
/// this.
#[derive(Debug, thiserror::Error)]
#[error("the team's signing secret must be whsec_ followed by base64")]
pub struct BadSecret;

/// The three headers of a signed request.
///
/// # Errors
/// Fails if the secret cannot be decoded.
pub fn sign_request(
    secret: &SigningSecret,
    run: Uuid,
    now: DateTime<Utc>,
    body: &[u8],
) -> Result<HeaderMap, BadSecret> {
    let (id, timestamp) = (run.to_string(), now.timestamp().to_string());
    let signature = format!("v1,{}", STANDARD.encode(sign(&key(secret)?, &id, &timestamp, body)?));
    let mut headers = HeaderMap::with_capacity(3);
    for (name, value) in [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)] {
        headers.insert(name, HeaderValue::try_from(value).map_err(|_| BadSecret)?);
    }
    Ok(headers)
}

fn key(secret: &SigningSecret) -> Result<Vec<u8>, BadSecret> {
    let encoded = secret.0.strip_prefix("whsec_").ok_or(BadSecret)?;
    STANDARD.decode(encoded).map_err(|_| BadSecret)
}

fn sign(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Result<Vec<u8>, BadSecret> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|_| BadSecret)?;
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
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
        let signature = sign(&key(&secret).unwrap(), "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body).unwrap();
        assert_eq!(STANDARD.encode(signature), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
