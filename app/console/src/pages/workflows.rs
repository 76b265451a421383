//! `/workflows`: the list, the pages of one workflow, and acts on one or many.

mod acts;
mod bulk;
mod explanation;
mod fields;
mod head;
mod history;
mod last_result;
mod ledger;
mod list;
mod new;
mod next;
mod runs;
mod settings;
mod sync;

use axum::Router;

use crate::api::Console;

/// The pages of workflows.
pub(super) fn routes() -> Router<Console> {
    Router::new()
        .merge(list::routes())
        .merge(ledger::routes())
        .merge(runs::routes())
        .merge(next::routes())
        .merge(history::routes())
        .merge(sync::routes())
        .merge(acts::routes())
        .merge(bulk::routes())
        .merge(settings::routes())
        .merge(new::routes())
        .merge(explanation::routes())
}
