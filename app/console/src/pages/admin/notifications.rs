//! `/admin/notifications`: what happened, where messages go, which events make one, and whether they were delivered.

mod channels;
mod messages;
mod notices;
mod parts;
mod rules;
mod words;

use axum::Router;

use crate::api::Console;

pub(super) fn routes() -> Router<Console> {
    Router::new().merge(notices::routes()).merge(channels::routes()).merge(rules::routes()).merge(messages::routes())
}
