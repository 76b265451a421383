//! Step 1 of 7: identifies a person by `Authorization: Bearer`, if the operator has set a provider.
//!
//! The client never learns why a token is refused; the log line has the reason.

use std::net::IpAddr;

use access::gate::Admission;
use axum::http::{HeaderMap, StatusCode, header};
use db::PgPool;

use super::error::Error;
use crate::App;
use crate::identity_provider::{IdentityProvider, Verified};

/// After how many seconds a client may try again if the provider does not answer: then the app asks it again.
const RETRY_SECS: u32 = 30;

/// What a request presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    /// A key of ours.
    Key(&'a str),
    /// A token of the provider.
    Token(&'a str),
    /// Neither.
    Nothing,
}

/// Returns what a request presents. Without a provider, `Authorization` is not read: a proxy may use it.
///
/// # Errors
/// Returns 400 if the request presents more than one credential.
pub(super) fn find_credential(headers: &HeaderMap, has_provider: bool) -> Result<Credential<'_>, Error> {
    let key = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let mut tokens = headers.get_all(header::AUTHORIZATION).iter().filter(|_| has_provider).filter_map(bearer_token);
    match (key, tokens.next(), tokens.next()) {
        (None, None, _) => Ok(Credential::Nothing),
        (Some(key), None, _) => Ok(Credential::Key(key)),
        (None, Some(token), None) => Ok(Credential::Token(token)),
        (Some(_), Some(_), _) | (None, Some(_), Some(_)) => {
            let detail = "send either a key in X-API-Key or one token in Authorization".to_owned();
            Err(Error::Refused(StatusCode::BAD_REQUEST, "several_credentials", detail))
        }
    }
}

/// A token that is not ASCII is empty here, and refused like any other that is none.
fn bearer_token(value: &axum::http::HeaderValue) -> Option<&str> {
    let value = value.as_bytes();
    let (scheme, token) = value.split_at(value.iter().position(|byte| *byte == b' ').unwrap_or(value.len()));
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer");
    is_bearer.then(|| std::str::from_utf8(token).unwrap_or_default().trim())
}

/// Returns the decision about a person.
///
/// # Errors
/// Returns 503 if the provider has not sent its keys, or the failure of the database.
pub(super) async fn admit_token(
    app: &App,
    provider: &IdentityProvider,
    pool: &PgPool,
    token: &str,
    peer: IpAddr,
) -> Result<Admission, Error> {
    let now = app.clock.now();
    if let Some(admission) = app.gate.find_known_token(token, now).await {
        return Ok(admission);
    }
    match provider.verify_token(token, now).await {
        Verified::Token(claims) => Ok(app.gate.admit_person(pool, token, &claims, provider.groups()).await?),
        Verified::Refused(refusal) => {
            tracing::info!(reason = refusal.as_str(), %peer, "token refused");
            Ok(app.gate.refuse_token(peer, now))
        }
        Verified::Unavailable => Err(unavailable()),
    }
}

fn unavailable() -> Error {
    let detail = "the identity provider has not sent its keys: wait for Retry-After seconds, then repeat";
    Error::Later(StatusCode::SERVICE_UNAVAILABLE, "identity_provider_unavailable", detail, RETRY_SECS)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn credential(all: &[(&'static str, &'static [u8])], has_provider: bool) -> Result<String, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        match find_credential(&headers, has_provider) {
            Ok(Credential::Key(key)) => Ok(format!("key {key}")),
            Ok(Credential::Token(token)) => Ok(format!("token {token}")),
            Ok(Credential::Nothing) => Ok("nothing".to_owned()),
            Err(Error::Refused(status, ..)) => Err(status.as_u16()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_presents_one_credential() {
        let (key, token) = (("x-api-key", &b"k"[..]), ("authorization", &b"Bearer t"[..]));
        assert_eq!(credential(&[], true), Ok("nothing".into()));
        assert_eq!(credential(&[key], true), Ok("key k".into()));
        assert_eq!(credential(&[token], true), Ok("token t".into()));
        assert_eq!(credential(&[("authorization", b"bearer  t ")], true), Ok("token t".into()));
        assert_eq!(credential(&[("authorization", b"Bearer \xff")], true), Ok("token ".into()));
        assert_eq!(credential(&[("authorization", b"Basic dDp0"), key], true), Ok("key k".into()));
        assert_eq!(credential(&[("authorization", b"Bearer")], true), Ok("token ".into()));
        assert_eq!(credential(&[("authorization", b"Bearers t")], true), Ok("nothing".into()));
        assert_eq!(credential(&[key, token], true), Err(400));
        assert_eq!(credential(&[token, token], true), Err(400));
    }

    /// As before there were people.
    #[test]
    fn without_a_provider_only_keys_count() {
        let (key, token) = (("x-api-key", &b"k"[..]), ("authorization", &b"Bearer t"[..]));
        assert_eq!(credential(&[key, token], false), Ok("key k".into()));
        assert_eq!(credential(&[token], false), Ok("nothing".into()));
    }
}
