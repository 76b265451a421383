//! Step 1 of 7: GET of a document of the provider. The only call that this app makes to it.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use reqwest::{Client, Url, redirect};

/// How long the complete answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest document in bytes.
const LARGEST_DOCUMENT: usize = 1024 * 1024;

/// Makes a client without redirects and proxies, which trusts these certificate authorities, too.
///
/// # Errors
/// Fails if the certificates cannot be read, or if the TLS stack cannot be set up.
pub(super) fn new_client(ca_pem: Option<&[u8]>) -> anyhow::Result<Client> {
    let client = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .timeout(TIMEOUT)
        .user_agent(concat!("cronbox/", env!("CARGO_PKG_VERSION")));
    let client = match ca_pem {
        Some(pem) => {
            let authorities = reqwest::Certificate::from_pem_bundle(pem).context("the file has no PEM certificates")?;
            ensure!(!authorities.is_empty(), "the file has no PEM certificates");
            client.tls_certs_merge(authorities)
        }
        None => client,
    };
    client.build().context("cannot set up the HTTP client")
}

/// Returns the body of an answer with 200.
///
/// # Errors
/// Fails for any other answer, also for a redirect, and for one that is too large or too slow.
pub(super) async fn get_document(client: &Client, url: &Url) -> anyhow::Result<Vec<u8>> {
    let mut response = client.get(url.clone()).header("accept", "application/json").send().await?;
    if response.status() != reqwest::StatusCode::OK {
        bail!("the provider answered {}", response.status());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        ensure!(body.len() + chunk.len() <= LARGEST_DOCUMENT, "the document is larger than 1 MiB");
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
