//! `/sign-in/provider`, `/sign-in/callback`: a person signs in with the provider of the operator.

use std::net::IpAddr;

use access::people::token::Claims;
use access::sessions::SignIn;
use anyhow::Context as _;
use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use console::pages::sign_in::safe_address;
use serde::Deserialize;
use url::Url;

use super::cookie::{Transport, find_cookie};
use super::session::{begin, show_reason, show_refusal};
use crate::App;
use crate::api::request::auth::{Peer, begin_sign_in};
use crate::api::request::error::Error;
use crate::identity_provider::{Flow, IdentityProvider};

/// How long a person may take at the provider.
const FLOW_SECS: i64 = 600;
/// Bytes of the provider's reason in the log.
const LONGEST_CODE: usize = 64;

/// Where to go then.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    next: String,
}

/// What the provider sends.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Callback {
    code: String,
    state: String,
    /// Why there is no code (RFC 6749, section 4.1.2.1).
    error: String,
}

/// Why a person is not signed in.
enum Refused {
    /// The callback is not of a sign-in that this browser has begun.
    OtherFlow,
    /// The person or the provider has declined, or the token is not one of this sign-in.
    NotConfirmed,
    /// No group of the person has a role.
    NoGroup,
    /// As a key would be refused.
    Failed(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Refused {
    /// The page that says why.
    fn show(self, app: &App, headers: &HeaderMap, next: &str) -> Response {
        let (error, reason) = match self {
            Self::OtherFlow => (
                Error::forbidden("the callback is not of a sign-in that this browser has begun"),
                "This sign-in was not begun in this browser, or it took longer than ten minutes. Begin again.",
            ),
            Self::NotConfirmed => (
                Error::unauthorized(),
                "Your organisation did not confirm the sign-in. Begin again. If it fails again, an operator finds the \
                 reason in the log of cronbox.",
            ),
            Self::NoGroup => (
                Error::forbidden("no group of this person has a role"),
                "Your organisation knows you, but none of your groups has a role in cronbox. Ask an operator to add \
                 one of them to the file of groups.",
            ),
            Self::Failed(error) => return show_refusal(app, headers, next, error),
        };
        show_reason(app, headers, next, &error.into_response(), reason)
    }
}

/// Sends the browser to the provider, with the flow in a cookie.
pub(super) async fn send_to_provider(
    State(app): State<App>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    let flow = Flow::begin(safe_address(&wanted.next));
    match begin_flow(&app, &headers, &flow).await {
        Ok((cookie, url)) => ([(header::SET_COOKIE, cookie)], Redirect::to(url.as_str())).into_response(),
        Err(error) => show_refusal(&app, &headers, &flow.next, error),
    }
}

async fn begin_flow(app: &App, headers: &HeaderMap, flow: &Flow) -> Result<(HeaderValue, Url), Error> {
    let transport = Transport::of_request(headers);
    let cookie = transport.set(flow_name(transport)?, &flow.to_cookie(), FLOW_SECS);
    let cookie = cookie.context("the cookie is no header").map_err(Error::Internal)?;
    let redirect = callback_url(app).map_err(Error::Internal)?;
    let url = provider(app)?.authorization_url(&redirect, flow, app.clock.now()).await.map_err(Error::Internal)?;
    Ok((cookie, url))
}

/// Redeems the code that the provider sent with the browser, and begins the session of the person.
pub(super) async fn take_code(
    State(app): State<App>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Query(callback): Query<Callback>,
) -> Response {
    let peer = peer.map_or_else(Peer::unknown, |Extension(peer)| peer);
    let transport = Transport::of_request(&headers);
    let flow = flow_name(transport).ok().and_then(|name| find_cookie(&headers, name)).and_then(Flow::of_cookie);
    let Some(flow) = flow.filter(|flow| flow.is_of_state(&callback.state)) else {
        return Refused::OtherFlow.show(&app, &headers, "/");
    };
    let mut answer = match sign_in(&app, peer, &headers, &callback, &flow).await {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(safe_address(&flow.next))).into_response(),
        Err(refused) => refused.show(&app, &headers, &flow.next),
    };
    // Also after a refusal: a flow redeems one code.
    if let Some(ended) = flow_name(transport).ok().and_then(|name| transport.set(name, "", 0)) {
        answer.headers_mut().append(header::SET_COOKIE, ended);
    }
    answer
}

async fn sign_in(
    app: &App,
    Peer(peer): Peer,
    headers: &HeaderMap,
    callback: &Callback,
    flow: &Flow,
) -> Result<HeaderValue, Refused> {
    let claims = redeem(app, peer, callback, flow).await?.map_err(|error| {
        tracing::info!(error = format!("{error:#}"), %peer, "sign-in with the provider refused");
        Refused::NotConfirmed
    })?;
    let provider = provider(app)?;
    let caller = app.gate.caller_of_person(&app.pools.reads, &claims, Some(provider.groups())).await?;
    let caller = caller.ok_or(Refused::NoGroup)?;
    Ok(begin(app, headers, &caller.at_address(peer), SignIn::Person(&claims)).await?)
}

/// What the provider says of the code. Anybody can invent one with its cookie, so an address has few tries, as for keys:
/// else it could make the app ask the provider without end, until the provider refuses the app.
async fn redeem(app: &App, peer: IpAddr, callback: &Callback, flow: &Flow) -> Result<anyhow::Result<Claims>, Refused> {
    let (provider, redirect) = (provider(app)?, callback_url(app).map_err(Error::Internal)?);
    if !callback.error.is_empty() {
        let code: String = callback.error.chars().take(LONGEST_CODE).collect();
        return Ok(Err(anyhow::anyhow!("the provider sent the browser back with {code:?}")));
    }
    let attempt = begin_sign_in(app, peer)?;
    let claims = provider.redeem_code(&redirect, &callback.code, flow, app.clock.now()).await;
    if claims.is_ok() {
        attempt.succeed();
    }
    Ok(claims)
}

fn provider(app: &App) -> Result<&IdentityProvider, Error> {
    app.identity_provider().filter(|provider| provider.has_client()).ok_or_else(Error::not_found)
}

/// Where the provider sends the browser back; the operator registers it there.
fn callback_url(app: &App) -> anyhow::Result<Url> {
    let public = app.config.mail.public_url.as_ref().context("CRONBOX_OIDC_CLIENT_ID needs CRONBOX_PUBLIC_URL")?;
    public.join("/sign-in/callback").context("CRONBOX_PUBLIC_URL")
}

fn flow_name(transport: Transport) -> Result<&'static str, Error> {
    transport.cookie_name()?;
    Ok(if transport == Transport::Https { "__Host-cronbox-sign-in" } else { "cronbox-sign-in" })
}
