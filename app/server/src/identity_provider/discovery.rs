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

/// The members of the document that are used.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// Checks the issuer of the settings, and returns the address of its discovery document.
///
/// # Errors
/// Returns what is wrong with the issuer.
pub(super) fn document_url(issuer: &str, is_http_permitted: bool) -> anyhow::Result<Url> {
    let url = parse_url(issuer, |url| is_http_permitted || is_loopback(url))?;
    ensure!(url.query().is_none() && url.fragment().is_none(), "it must have no query and no fragment");
    let text = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    Url::parse(&text).context("it is not a URL")
}

/// Fetches the keys of the provider.
///
/// # Errors
/// Fails if the provider does not answer, or if its documents are not what they should be.
pub(super) async fn fetch_keys(client: &Client, issuer: &str, is_http_permitted: bool) -> anyhow::Result<KeySet> {
    let discovery = document_url(issuer, is_http_permitted)?;
    let document = get_document(client, &discovery).await.context("discovery")?;
    let document: Document = serde_json::from_slice(&document).context("discovery: it is not a discovery document")?;
    // Otherwise another tenant of a provider could answer for this one.
    ensure!(document.issuer == issuer, "discovery: its issuer is not CRONBOX_OIDC_ISSUER");
    // A provider elsewhere must not lead to this machine.
    let is_here = is_loopback(&discovery);
    let keys = parse_url(&document.jwks_uri, |url| is_http_permitted || (is_here && is_loopback(url)));
    let keys = get_document(client, &keys.context("jwks_uri")?).await.context("jwks_uri")?;
    KeySet::parse(&keys).map_err(anyhow::Error::msg).context("jwks_uri")
}

fn parse_url(text: &str, permits_http: impl Fn(&Url) -> bool) -> anyhow::Result<Url> {
    let url = Url::parse(text).context("it is not a URL")?;
    ensure!(url.username().is_empty() && url.password().is_none(), "it must have no user and no password");
    let is_permitted = url.scheme() == "https" || (url.scheme() == "http" && permits_http(&url));
    ensure!(is_permitted, "it must be https");
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
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
