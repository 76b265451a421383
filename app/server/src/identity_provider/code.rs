//! Step 1 of 7: a person signs in to the console: the authorization code flow of OIDC, with PKCE (RFC 7636).
//!
//! The browser keeps the three random texts of a flow in a cookie. The provider returns the first, signs the second, and
//! gives the token only for the third: so no code of another browser or of another flow is redeemed.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::header::HeaderValue;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

/// The client of the console at the provider.
#[derive(Clone, Debug)]
pub struct ConsoleClient {
    /// Its id, which its tokens name as `aud`.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<String>,
}

/// One sign-in, from the first redirect to the callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    state: String,
    nonce: String,
    verifier: String,
    /// Where the browser goes then.
    pub next: String,
}

/// What the provider answers to a code.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    pub(super) id_token: Option<String>,
}

impl Flow {
    /// A new flow.
    #[must_use]
    pub fn begin(next: &str) -> Self {
        let random = || URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        Self { state: random(), nonce: random(), verifier: random(), next: next.to_owned() }
    }

    /// The value of its cookie.
    #[must_use]
    pub fn to_cookie(&self) -> String {
        let Self { state, nonce, verifier, next } = self;
        format!("{state}.{nonce}.{verifier}.{}", URL_SAFE_NO_PAD.encode(next))
    }

    /// The flow of a cookie.
    #[must_use]
    pub fn of_cookie(cookie: &str) -> Option<Self> {
        let mut parts = cookie.split('.').map(str::to_owned);
        let (state, nonce, verifier) = (parts.next()?, parts.next()?, parts.next()?);
        let next = String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok()?;
        (!state.is_empty() && !nonce.is_empty() && !verifier.is_empty()).then_some(Self {
            state,
            nonce,
            verifier,
            next,
        })
    }

    /// What ties the id token to this flow.
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Whether the provider has answered this flow.
    #[must_use]
    pub fn is_of_state(&self, state: &str) -> bool {
        self.state == state
    }

    /// What the provider compares the third text with.
    fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(&self.verifier))
    }
}

impl ConsoleClient {
    /// The address of the provider, with what it needs to know of a flow.
    pub(super) fn authorization_url(&self, mut url: Url, redirect: &Url, flow: &Flow) -> Url {
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.id)
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("scope", "openid email profile groups")
            .append_pair("state", &flow.state)
            .append_pair("nonce", &flow.nonce)
            .append_pair("code_challenge", &flow.challenge())
            .append_pair("code_challenge_method", "S256");
        url
    }

    /// The form that redeems a code (RFC 6749, section 4.1.3; RFC 7636, section 4.5).
    pub(super) fn form(&self, redirect: &Url, code: &str, flow: &Flow) -> String {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect.as_str())
            .append_pair("code_verifier", &flow.verifier);
        if self.secret.is_none() {
            form.append_pair("client_id", &self.id);
        }
        form.finish()
    }

    /// `Authorization` of a client with a secret (RFC 6749, section 2.3.1).
    pub(super) fn authorization(&self) -> anyhow::Result<Option<HeaderValue>> {
        let Some(secret) = &self.secret else { return Ok(None) };
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = STANDARD.encode(format!("{}:{}", encode(&self.id), encode(secret)));
        let mut value = HeaderValue::from_str(&format!("Basic {pair}"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_survives_its_cookie() {
        let flow = Flow::begin("/runs?state=failed");
        assert_eq!(Flow::of_cookie(&flow.to_cookie()), Some(flow.clone()));
        assert!(flow.is_of_state(&flow.state) && !flow.is_of_state("") && !flow.is_of_state(&flow.nonce));
        for wrong in ["", "...", "a.b.c", "a.b.c.%"] {
            assert_eq!(Flow::of_cookie(wrong), None, "{wrong}");
        }
    }

    /// Appendix B of RFC 7636.
    #[test]
    fn the_challenge_is_that_of_the_rfc() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let flow = Flow { verifier, ..Flow::begin("/") };
        assert_eq!(flow.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
