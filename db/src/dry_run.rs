//! A dry run: a future executes its statements, and none of its transactions commits.
//!
//! Each commit of the task is a rollback, so no handler can forget it, and the database refuses what it would refuse.

use std::future::Future;

tokio::task_local! {
    static IS_DRY: ();
}

/// Executes a future of which nothing is committed. What it spawns is not part of it.
pub async fn run_dry<T>(future: impl Future<Output = T>) -> T {
    IS_DRY.scope((), future).await
}

/// Whether nothing that this task does is committed.
#[must_use]
pub fn is_dry_run() -> bool {
    IS_DRY.try_with(|()| ()).is_ok()
}
