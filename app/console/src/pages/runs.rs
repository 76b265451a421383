//! `/runs`: the list, a run, and acts on a selection or on all that match.

mod list;
mod run;
mod selection;
mod states;
mod timeline;

use axum::Router;

use crate::api::Console;

/// The pages of runs.
pub(super) fn routes() -> Router<Console> {
    list::routes().merge(selection::routes()).merge(run::routes())
}
