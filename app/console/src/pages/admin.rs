//! `/admin`: teams, keys, sessions, freezes, notifications, the audit log, and who is signed in.

mod audit;
mod freezes;
mod keys;
mod me;
mod notifications;
mod sessions;
mod shown;
mod tabs;
mod team;
mod teams;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;

use crate::api::{Api, Console};

pub(super) fn routes() -> Router<Console> {
    Router::new()
        .route("/admin", get(lead_to_first_tab))
        .merge(teams::routes())
        .merge(team::routes())
        .merge(keys::routes())
        .merge(sessions::routes())
        .merge(freezes::routes())
        .merge(notifications::routes())
        .merge(audit::routes())
        .merge(me::routes())
}

async fn lead_to_first_tab(api: Api) -> Redirect {
    Redirect::to(tabs::first(api.permitted()).path())
}
