//! Step 1 of 7: the calls that this app makes to the provider: GET of a document, and POST of a code.

#[cfg(test)]
mod bad_providers;

use std::time::Duration;

use anyhow::{bail, ensure};
use egress::allowed::Allowed;
use egress::{Client, Departing, Departure, Outgoing};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode};
use url::Url;

use crate::operator_url::SERVICE;

/// How long the complete answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest document in bytes.
const LARGEST_DOCUMENT: usize = 1024 * 1024;

/// Makes a client that reaches private addresses, too, and which trusts these certificate authorities, too.
///
/// It asks the name servers of the system: those of `CRONBOX_EGRESS_NAMESERVERS` may know public names only.
///
/// # Errors
/// Fails if the certificates cannot be read, or if the TLS stack cannot be set up.
pub(super) fn new_client(ca_pem: Option<&[u8]>) -> anyhow::Result<Client> {
    match ca_pem {
        Some(pem) => Client::with_authorities(Allowed::for_operators(), pem),
        None => Client::new(Allowed::for_operators()),
    }
}

/// Checks the port and a literal address of a URL; no name is resolved.
///
/// # Errors
/// Fails if no request may be sent there.
pub(super) fn check_address(client: &Client, url: &Url) -> anyhow::Result<()> {
    Ok(client.allowed().check_url(url, SERVICE)?)
}

/// Returns the body of an answer with 200.
///
/// # Errors
/// Fails for any other answer, also for a redirect, and for one that is too large or too slow.
pub(super) async fn get_document(client: &Client, url: &Url) -> anyhow::Result<Vec<u8>> {
    match tokio::time::timeout(TIMEOUT, get(client, url)).await {
        Ok(document) => document,
        Err(_) => bail!("no complete answer within {} s", TIMEOUT.as_secs()),
    }
}

/// Sends a form, and returns the body of an answer with 200.
///
/// # Errors
/// As [`get_document`].
pub(super) async fn post_form(
    client: &Client,
    url: &Url,
    form: String,
    authorization: Option<HeaderValue>,
) -> anyhow::Result<Vec<u8>> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
    let request = Outgoing {
        tenant: SERVICE,
        method: Method::POST,
        url,
        may_use_http: false,
        headers,
        body: Departing::new(form, &Departure::default()),
    };
    match tokio::time::timeout(TIMEOUT, send(client, request)).await {
        Ok(document) => document,
        Err(_) => bail!("no complete answer within {} s", TIMEOUT.as_secs()),
    }
}

async fn get(client: &Client, url: &Url) -> anyhow::Result<Vec<u8>> {
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let body = Departing::new("", &Departure::default());
    send(client, Outgoing { tenant: SERVICE, method: Method::GET, url, may_use_http: false, headers, body }).await
}

async fn send(client: &Client, request: Outgoing<'_>) -> anyhow::Result<Vec<u8>> {
    let answer = client.send(request).await?;
    if answer.status() != StatusCode::OK {
        bail!("the provider answered {}", answer.status());
    }
    let document = answer.read_beginning(LARGEST_DOCUMENT + 1).await?;
    ensure!(document.len() <= LARGEST_DOCUMENT, "the document is larger than 1 MiB");
    Ok(document)
}
