//! Step 1 of 7: finds the keys of the provider by its discovery document (OIDC Discovery 1.0).
//!
//! The operator trusts the provider: its addresses may be private. Both of its URLs must be https. Without TLS anyone on the
//! way could sign in, so http is only for a provider on this machine, unless the operator permits it.

use access::people::jwks::KeySet;
use anyhow::{Context as _, ensure};
use egress::Client;
use serde::Deserialize;
use url::Url;

use super::fetch::get_document;
use crate::operator_url::{is_loopback, parse_operator_url};

/// The members of the document that are used.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
}

/// Where people sign in to the console.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    /// Where the browser is sent.
    pub(super) authorization: Url,
    /// Where a code is redeemed.
    pub(super) token: Url,
}

/// Checks the issuer of the settings, and returns the address of its discovery document.
///
/// # Errors
/// Returns what is wrong with the issuer.
pub(super) fn document_url(issuer: &str, is_http_permitted: bool) -> anyhow::Result<Url> {
    let url = parse_operator_url(issuer, |url| is_http_permitted || is_loopback(url))?;
    ensure!(url.query().is_none() && url.fragment().is_none(), "it must have no query and no fragment");
    let text = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    Url::parse(&text).context("it is not a URL")
}

/// Fetches the keys of the provider.
///
/// # Errors
/// Fails if the provider does not answer, or if its documents are not what they should be.
pub(super) async fn fetch_keys(client: &Client, issuer: &str, is_http_permitted: bool) -> anyhow::Result<KeySet> {
    let (discovery, document) = fetch_document(client, issuer, is_http_permitted).await?;
    let keys = parse_endpoint(&document.jwks_uri, &discovery, is_http_permitted);
    let keys = get_document(client, &keys.context("jwks_uri")?).await.context("jwks_uri")?;
    KeySet::parse(&keys).map_err(anyhow::Error::msg).context("jwks_uri")
}

/// Fetches where people sign in.
///
/// # Errors
/// As [`fetch_keys`].
pub(super) async fn fetch_endpoints(
    client: &Client,
    issuer: &str,
    is_http_permitted: bool,
) -> anyhow::Result<Endpoints> {
    let (discovery, document) = fetch_document(client, issuer, is_http_permitted).await?;
    let parse = |named: Option<String>, name: &'static str| {
        let named = named.with_context(|| format!("discovery: it has no {name}"))?;
        parse_endpoint(&named, &discovery, is_http_permitted).context(name)
    };
    Ok(Endpoints {
        authorization: parse(document.authorization_endpoint, "authorization_endpoint")?,
        token: parse(document.token_endpoint, "token_endpoint")?,
    })
}

async fn fetch_document(client: &Client, issuer: &str, is_http_permitted: bool) -> anyhow::Result<(Url, Document)> {
    let discovery = document_url(issuer, is_http_permitted)?;
    let document = get_document(client, &discovery).await.context("discovery")?;
    let document: Document = serde_json::from_slice(&document).context("discovery: it is not a discovery document")?;
    // Otherwise another tenant of a provider could answer for this one.
    ensure!(document.issuer == issuer, "discovery: its issuer is not CRONBOX_OIDC_ISSUER");
    Ok((discovery, document))
}

/// An address in the document. A provider elsewhere must not lead to this machine.
fn parse_endpoint(named: &str, discovery: &Url, is_http_permitted: bool) -> anyhow::Result<Url> {
    let is_here = is_loopback(discovery);
    parse_operator_url(named, |url| is_http_permitted || (is_here && is_loopback(url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_speak_http() {
        let url = |issuer: &str| document_url(issuer, false).map(String::from).map_err(|error| error.to_string());
        assert_eq!(url("https://id.example/a/").unwrap(), "https://id.example/a/.well-known/openid-configuration");
        for here in ["http://127.0.0.1:8000", "http://localhost", "http://[::1]:9/realms/a"] {
            assert!(url(here).is_ok(), "{here}");
        }
        for wrong in ["http://id.example", "http://10.0.0.1", "http://localhost.example", "http://127.0.0.1.example"] {
            assert_eq!(url(wrong).unwrap_err(), "it must be https", "{wrong}");
            assert!(document_url(wrong, true).is_ok(), "{wrong}");
        }
        for wrong in [
            "",
            "id.example",
            "ftp://id.example",
            "https://a:b@id.example",
            "https://id.example/?a",
            "https://id.example/#",
        ] {
            assert!(url(wrong).is_err() && document_url(wrong, true).is_err(), "{wrong}");
        }
    }
}
