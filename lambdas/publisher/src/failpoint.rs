//! Steps 3 and 4 of 7: named points at which a test stops or kills the publisher.
//!
//! The names are API: every new await adds one. Releases do not have them. P7, a request on the wire, is inside the
//! SDK's HTTP client, which a test replaces.

#[cfg(not(debug_assertions))]
use std::time::Duration;

#[cfg(not(debug_assertions))]
use crate::stopwatch::Stopwatch;

/// The points, in the order in which a batch passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), expect(unreachable_pub, reason = "only a test sees it"))]
pub enum Point {
    /// A drain starts.
    P0,
    /// The database has answered for the first time.
    P1,
    /// The claim is about to be sent.
    P2,
    /// The claim is executed, not committed.
    P3,
    /// The claim is committed.
    P4,
    /// The workflows are read.
    P5,
    /// A request is about to be signed.
    P6,
    /// EventBridge has answered; the publisher has not processed the answer.
    P8,
    /// The settle is executed, not committed.
    P9,
    /// The settle is committed.
    P10,
    /// The publisher is between two workflows of a batch.
    P11,
    /// The drain is about to return.
    P12,
    /// The settle of a locked publication is about to be tried again.
    P13,
    /// A daemon is about to listen for notifications.
    L1,
    /// The sweep has read a page of the list.
    C1,
    /// The results of a page of the sweep are written, not committed.
    C2,
    /// The app has answered for the fire of a dead letter; its row is not settled.
    R1,
    /// The row of a redriven dead letter is settled; its message is not deleted.
    R2,
}

#[cfg(debug_assertions)]
pub(crate) use armed::Injector;
#[cfg(debug_assertions)]
pub use armed::{Fault, Hook};

#[cfg(not(debug_assertions))]
#[derive(Default)]
pub(crate) struct Injector;

#[cfg(not(debug_assertions))]
impl Injector {
    pub(crate) async fn pass_point(&self, _: Point) {}

    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch
    }

    pub(crate) fn is_hooked(&self) -> bool {
        false
    }

    pub(crate) async fn wait_unless_hooked(&self, shipped: Duration) {
        tokio::time::sleep(shipped).await;
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    pub use db::failpoint::Fault;
    use db::failpoint::{self, Effect};
    use futures::future::BoxFuture;

    use super::Point;
    use crate::stopwatch::Stopwatch;

    /// A test's hook at every point, with clock and seed, so that a history is reproducible.
    #[derive(Clone)]
    pub struct Hook {
        /// Called at each point; the publisher continues when the returned future completes.
        pub at: Arc<dyn Fn(Point) -> BoxFuture<'static, ()> + Send + Sync>,
        /// The clock of leases and deadlines.
        pub stopwatch: Stopwatch,
        /// The seed of the jitter.
        pub seed: u64,
    }

    /// Counts the passes of the armed point, and calls the hook at every point.
    #[derive(Default)]
    pub(crate) struct Injector {
        fault: Option<Fault>,
        passes: AtomicU32,
        hook: Option<Hook>,
    }

    impl Injector {
        pub(crate) fn new(fault: Option<Fault>) -> Self {
            Injector { fault, ..Injector::default() }
        }

        pub(crate) fn with_hook(hook: Hook) -> Self {
            Injector { hook: Some(hook), ..Injector::default() }
        }

        pub(crate) fn stopwatch(&self) -> Stopwatch {
            self.hook.as_ref().map(|hook| hook.stopwatch.clone()).unwrap_or_default()
        }

        /// Whether a test decides when the publisher continues.
        pub(crate) fn is_hooked(&self) -> bool {
            self.hook.is_some()
        }

        /// Waits; with a hook not at all, because the hook decides when the publisher continues.
        pub(crate) async fn wait_unless_hooked(&self, shipped: Duration) {
            if self.hook.is_none() {
                tokio::time::sleep(shipped).await;
            }
        }

        /// Passes a point, or fails there if the armed fault says so.
        pub(crate) async fn pass_point(&self, point: Point) {
            if let Some(hook) = &self.hook {
                (hook.at)(point).await;
            }
            let Some(fault) = &self.fault else { return };
            let Some(effect) = fault.effect_at(point, &self.passes) else { return };
            match effect {
                Effect::Kill => failpoint::kill_process(),
                // Stops like a frozen Lambda, which no signal continues.
                Effect::Stop => eprintln!("stopped at {point:?}"),
                Effect::Panic => std::panic::panic_any("a fault panics"),
            }
            // Blocks the thread, not the task, because a frozen process stops completely.
            loop {
                std::thread::park();
            }
        }
    }
}
