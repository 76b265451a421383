//! The pages, one file for each. A page reads what it shows by the API, and its template shows it.

mod admin;
mod backfills;
mod delivery;
mod live;
mod overview;
mod proof;
mod runs;
pub mod sign_in;
mod upcoming;
mod workflows;

use axum::Router;

use crate::api::Console;

/// All pages and acts.
pub fn routes() -> Router<Console> {
    Router::new()
        .merge(admin::routes())
        .merge(backfills::routes())
        .merge(delivery::routes())
        .merge(live::routes())
        .merge(overview::routes())
        .merge(proof::routes())
        .merge(runs::routes())
        .merge(upcoming::routes())
        .merge(workflows::routes())
}
