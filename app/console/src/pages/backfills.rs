//! `/backfills`: the list, a backfill and its progress.

mod backfill;
mod list;
mod progress;

use axum::Router;

use crate::api::Console;

/// The pages of backfills.
pub(super) fn routes() -> Router<Console> {
    list::routes().merge(backfill::routes())
}
