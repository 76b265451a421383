//! `/proof`: whether every due time has its decision and its run, day by day; and the list of decisions.

mod days;
mod decisions;
mod proof_page;
mod span;
mod times;

use axum::Router;

use crate::api::Console;

/// The pages of the proof.
pub(super) fn routes() -> Router<Console> {
    proof_page::routes().merge(times::routes())
}
