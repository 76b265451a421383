//! What all ways to sign in share: the page with a refusal, and the begin of a session.

use access::sessions::{self, SignIn};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use console::pages::sign_in::{SignInPage, safe_address};

use super::cookie::Transport;
use crate::App;
use crate::api::request::auth::Caller;
use crate::api::request::edit_transaction::EditTransaction;
use crate::api::request::error::Error;
use crate::api::request::extract::new_traceparent;
use crate::identity_provider::IdentityProvider;

/// The page of the sign-in.
pub(super) fn page_of(app: &App, headers: &HeaderMap, next: &str, link: Option<String>) -> SignInPage {
    SignInPage {
        next: safe_address(next).to_owned(),
        link,
        has_provider: app.identity_provider().is_some_and(IdentityProvider::has_client),
        refusal: None,
        is_open: Transport::of_request(headers) == Transport::Open,
        environment: app.config.env.to_string(),
    }
}

/// Begins a session, and returns its cookie.
pub(super) async fn begin(
    app: &App,
    headers: &HeaderMap,
    caller: &Caller,
    who: SignIn<'_>,
) -> Result<header::HeaderValue, Error> {
    let transport = Transport::of_request(headers);
    transport.cookie_name()?;
    // A key can sign in again and again, and the edits of other teams must not wait for it.
    let mut tx = EditTransaction::begin_of_team(app, caller.team_id).await?;
    let (_, text) = sessions::begin_session(&mut tx, who, &caller.edit_at(app.clock.now(), new_traceparent())).await?;
    tx.commit().await?;
    transport.begin(&text)?.ok_or_else(|| Error::Internal(anyhow::anyhow!("the cookie is no header")))
}

/// The page with the reason why a key or a link was refused.
pub(super) fn show_refusal(app: &App, headers: &HeaderMap, next: &str, error: Error) -> Response {
    let answer = error.into_response();
    let reason = match answer.status() {
        StatusCode::UNAUTHORIZED => {
            "This key is not known, was revoked or has expired, or the link was used. Check that all of it was pasted."
        }
        StatusCode::FORBIDDEN => {
            "This key cannot sign in here: it is for the runner, it is not accepted from this address, or the page is not open by https."
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "Too many unknown keys, links or codes came from this address. Wait a minute, then sign in again."
        }
        _ => "cronbox cannot sign anybody in now. Try again in a moment.",
    };
    show_reason(app, headers, next, &answer, reason)
}

/// The page with this reason, and with the status of the answer that an API would give.
pub(super) fn show_reason(
    app: &App,
    headers: &HeaderMap,
    next: &str,
    answer: &Response,
    reason: &'static str,
) -> Response {
    let mut page = page_of(app, headers, next, None);
    page.refusal = Some(reason);
    let mut shown = (answer.status(), Html(page.to_html())).into_response();
    // The count and the log of refusals know the reason.
    *shown.extensions_mut() = answer.extensions().clone();
    shown
}
