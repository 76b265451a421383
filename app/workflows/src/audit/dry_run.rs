//! Step 1 of 7: a dry run: a request is executed as always, nothing is committed, and its audit entries say what it would
//! have changed.

use std::cell::RefCell;
use std::future::Future;

use serde_json::Value;

tokio::task_local! {
    static CHANGES: RefCell<Vec<DryChange>>;
}

/// A change that a dry run would have made.
#[derive(Clone, Debug)]
pub struct DryChange {
    /// What would be done: `create`, `update`, `pause`, ..
    pub verb: String,
    /// To which object.
    pub subject: String,
    /// What differs, as it is; `None` for a new object.
    pub before: Option<Value>,
    /// What differs, as it would be; `None` for an object that would be gone.
    pub after: Option<Value>,
}

/// Executes a future of which nothing is committed; returns what it would have changed, too.
pub async fn run_dry<T>(future: impl Future<Output = T>) -> (T, Vec<DryChange>) {
    let collected = async {
        let output = db::run_dry(future).await;
        (output, CHANGES.with(RefCell::take))
    };
    CHANGES.scope(RefCell::default(), collected).await
}

/// Keeps a change for the answer to a dry run.
pub(super) fn note_change(verb: &str, subject: &str, before: Option<&Value>, after: Option<&Value>) {
    let change = || DryChange {
        verb: verb.to_owned(),
        subject: subject.to_owned(),
        before: before.cloned(),
        after: after.cloned(),
    };
    // Elsewhere there is no dry run.
    let _ = CHANGES.try_with(|changes| changes.borrow_mut().push(change()));
}
