//! Steps 1 and 7 of 7: named points at which a test kills or stops the app. Releases do not contain them.
//!
//! The names are API. Each new await in the path of an edit, an invoke or a run adds one.

/// The points, in the order in which an edit, an invoke and a run pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// An edit has changed the workflow's row.
    A1,
    /// It has inserted the outbox row.
    A2,
    /// It is committed, and the publisher is not notified yet.
    A3,
    /// An invoke has inserted the run.
    I1,
    /// It is committed.
    I2,
    /// The run is in the cache, and the executor is not notified yet.
    I3,
    /// An executor has claimed the run.
    I4,
    /// The action is done, and its outcome is not written yet.
    I5,
    /// The outcome is written, and the slot is not given to the next run yet.
    I6,
}

#[cfg(debug_assertions)]
pub use armed::{Fault, arm, at};

/// Passes a point.
#[cfg(not(debug_assertions))]
pub fn at(_: Point) {}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicU32;

    pub use db::failpoint::Fault;
    use db::failpoint::{self, Effect};

    use super::Point;

    /// One per process, because a fault may end the process, whichever instance reaches it.
    static ARMED: OnceLock<Fault> = OnceLock::new();
    static PASSES: AtomicU32 = AtomicU32::new(0);

    /// Arms the fault of this process; later calls change nothing.
    pub fn arm(fault: Fault) {
        ARMED.get_or_init(|| fault);
    }

    /// Passes a point, or fails there if the armed fault says so.
    pub fn at(point: Point) {
        let Some(fault) = ARMED.get() else { return };
        let Some(effect) = fault.effect_at(point, &PASSES) else { return };
        eprintln!("{effect:?} at {point:?}");
        match effect {
            Effect::Kill => failpoint::kill_process(),
            Effect::Stop => failpoint::stop_process(),
            Effect::Panic => std::panic::panic_any("a fault panics"),
        }
    }
}
