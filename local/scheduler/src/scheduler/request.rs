//! Step 4 of 7: the parts of a request that every operation reads: its body, and the region in its signature.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::Error;

/// A JSON body; an empty one counts as `{}`.
pub(super) struct Payload<T>(pub(super) T);

/// The region for which a request was signed; `None` = it is not signed.
pub(super) struct Region(pub(super) Option<String>);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Payload<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge,
            _ => Error::Serialization(rejection.body_text()),
        })?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Payload).map_err(|error| Error::Serialization(error.to_string()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Region {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let signature = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        Ok(Region(signature.and_then(region_of).map(str::to_owned)))
    }
}

/// The third part of `Credential=KEY/20260302/eu-west-3/scheduler/aws4_request`.
fn region_of(signature: &str) -> Option<&str> {
    let (_, credential) = signature.split_once("Credential=")?;
    let scope = credential.split(',').next()?;
    let region = scope.split('/').nth(2)?;
    let is_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (!region.is_empty() && region.bytes().all(is_region)).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_credential_scope_names_the_region() {
        let signed = "AWS4-HMAC-SHA256 Credential=a/20260302/eu-west-3/scheduler/aws4_request, SignedHeaders=host";
        assert_eq!(region_of(signed), Some("eu-west-3"));
        assert_eq!(region_of("AWS4-HMAC-SHA256 Credential=a/20260302/"), None);
        assert_eq!(region_of("Bearer token"), None);
    }
}
