//! Steps 1 and 7 of 7: the names of the points at which a test kills or stops the app.
//!
//! The names are API. Each new await in the path of an edit, an invoke, a run or a message adds one, and passes it by
//! [`db::failpoint::pass_point`].

/// The points, in the order in which an edit, an invoke, a run and a message pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// An edit has locked the workflow's row, and written nothing.
    A1,
    /// An edit has changed the workflow's row, and inserted the outbox row and the audit entry.
    A2,
    /// An edit is committed, and the publisher is not notified yet.
    A3,
    /// An invoke has inserted the run.
    I1,
    /// The invoke is committed.
    I2,
    /// The run is in the cache, and the executor is not notified yet.
    I3,
    /// An executor has claimed the run.
    I4,
    /// The action is done, and its outcome is not written yet.
    I5,
    /// The outcome is written, and the slot is not given to the next run yet.
    I6,
    /// Notifications have their items, and no message has them yet.
    N1,
    /// The messages are made, and none is claimed yet.
    N2,
    /// Messages are claimed, and none is sent yet.
    N3,
    /// A receiver has answered, and its answer is not written yet.
    N4,
}
