//! Steps 3 and 4 of 7: named points at which a test stops or kills the publisher.
//!
//! The names are API: every new await adds one. No release has them. P7, a request on the wire, lies
//! inside the SDK's HTTP client, which a test replaces.

#[cfg(not(debug_assertions))]
use std::time::Duration;

#[cfg(not(debug_assertions))]
use crate::pipeline::Flight;
#[cfg(not(debug_assertions))]
use crate::stopwatch::Stopwatch;

/// The points, in the order in which a batch of work passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), expect(unreachable_pub, reason = "only a test sees it"))]
pub enum Point {
    /// A drain starts.
    P0,
    /// The database answered for the first time.
    P1,
    /// Before the claim is sent.
    P2,
    /// Claimed, not committed.
    P3,
    /// The claim is committed.
    P4,
    /// The workflows are read.
    P5,
    /// Before a request is signed.
    P6,
    /// EventBridge has answered, nobody knows yet.
    P8,
    /// Settled, not committed.
    P9,
    /// Settled and committed.
    P10,
    /// Between two workflows of a batch.
    P11,
    /// The drain is about to return.
    P12,
    /// Before the settle of a locked publication is tried again.
    P13,
    /// A daemon is about to listen for notifications.
    L1,
    /// The sweep has read a page of the list.
    C1,
    /// What a page of the sweep came to is written, not committed.
    C2,
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
    pub(crate) async fn at(&self, _: Point) {}

    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch
    }

    pub(crate) fn flight(&self, shipped: Flight) -> Flight {
        shipped
    }

    pub(crate) async fn pause(&self, shipped: Duration) {
        tokio::time::sleep(shipped).await;
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::str::FromStr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::future::BoxFuture;

    use super::Point;
    use crate::pipeline::Flight;
    use crate::stopwatch::Stopwatch;

    /// What happens at which point, the how manieth time: `P8:1:kill`.
    #[derive(Clone, Debug)]
    pub struct Fault {
        point: String,
        nth: u32,
        deed: Deed,
    }

    #[derive(Clone, Copy, Debug)]
    enum Deed {
        /// SIGKILL: nothing is cleaned up.
        Kill,
        /// Stands still, as a frozen Lambda does, and says so on stderr.
        Stop,
    }

    impl FromStr for Fault {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let mut parts = text.split(':');
            let (Some(point), Some(nth), Some(deed), None) = (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err("write point:nth:deed, as P8:1:kill".to_owned());
            };
            Ok(Fault {
                point: point.to_owned(),
                nth: nth.parse().map_err(|_| format!("{nth} is no number"))?,
                deed: match deed {
                    "kill" => Deed::Kill,
                    "stop" => Deed::Stop,
                    other => return Err(format!("{other} is neither kill nor stop")),
                },
            })
        }
    }

    /// What a test puts in at every point, and what it lends so that a history repeats itself.
    #[derive(Clone)]
    pub struct Hook {
        /// Called at each point; the publisher goes on once what it returns is done.
        pub at: Arc<dyn Fn(Point) -> BoxFuture<'static, ()> + Send + Sync>,
        /// The clock of leases and deadlines.
        pub stopwatch: Stopwatch,
        /// Of the jitter.
        pub seed: u64,
    }

    /// Counts the passes of the one point that is armed, and calls the hook at all of them.
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

        pub(crate) fn hooked(hook: Hook) -> Self {
            Injector { hook: Some(hook), ..Injector::default() }
        }

        pub(crate) fn stopwatch(&self) -> Stopwatch {
            self.hook.as_ref().map(|hook| hook.stopwatch.clone()).unwrap_or_default()
        }

        /// Under a hook one batch at a time, so that never two statements of one publisher race.
        pub(crate) fn flight(&self, shipped: Flight) -> Flight {
            if self.hook.is_some() { Flight::Single } else { shipped }
        }

        /// Waits; under a hook not at all, because the hook says when the publisher goes on.
        pub(crate) async fn pause(&self, shipped: Duration) {
            if self.hook.is_none() {
                tokio::time::sleep(shipped).await;
            }
        }

        /// Passes a point, or does not.
        pub(crate) async fn at(&self, point: Point) {
            if let Some(hook) = &self.hook {
                (hook.at)(point).await;
            }
            let Some(fault) = &self.fault else { return };
            if fault.point != format!("{point:?}") || self.passes.fetch_add(1, Ordering::Relaxed) + 1 != fault.nth {
                return;
            }
            match fault.deed {
                Deed::Kill => die(),
                Deed::Stop => eprintln!("stopped at {point:?}"),
            }
            // The thread, not the task: all of a frozen process stands still.
            loop {
                std::thread::park();
            }
        }
    }

    /// SIGKILL by way of `kill`, because nothing in std sends a signal.
    fn die() {
        let pid = std::process::id().to_string();
        if let Err(error) = std::process::Command::new("kill").args(["-KILL", &pid]).status() {
            eprintln!("cannot kill myself: {error}");
        }
    }
}
