//! Steps 1 and 7 of 7: named points at which a test kills or stops the app. Releases do not contain them.
//!
//! The names are API. Each new await in the path of an edit, an invoke or a run adds one.

/// The points, in the order in which an edit, an invoke and a run pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), expect(unreachable_pub, reason = "only a test sees it"))]
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
pub(crate) fn at(_: Point) {}

#[cfg(debug_assertions)]
mod armed {
    use std::str::FromStr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Point;

    /// One per process, because a fault may end the process, whichever instance reaches it.
    static ARMED: OnceLock<Fault> = OnceLock::new();
    static PASSES: AtomicU32 = AtomicU32::new(0);

    /// What happens at which point, and at which pass through it: `I5:1:kill`.
    #[derive(Clone, Debug)]
    pub struct Fault {
        point: String,
        nth: u32,
        action: Action,
    }

    #[derive(Clone, Copy, Debug)]
    enum Action {
        /// SIGKILL: the process cleans nothing up.
        Kill,
        /// SIGSTOP: the complete process stops until SIGCONT.
        Stop,
        /// The task panics; the process continues.
        Panic,
    }

    impl FromStr for Fault {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let parts: Vec<&str> = text.split(':').collect();
            let [point, nth, action] = parts[..] else {
                return Err("write point:nth:action, as I5:1:kill".to_owned());
            };
            Ok(Fault {
                point: point.to_owned(),
                nth: nth.parse().map_err(|_| format!("{nth} is not a number"))?,
                action: match action {
                    "kill" => Action::Kill,
                    "stop" => Action::Stop,
                    "panic" => Action::Panic,
                    other => return Err(format!("{other} must be kill, stop or panic")),
                },
            })
        }
    }

    /// Arms the fault of this process; later calls change nothing.
    pub fn arm(fault: Fault) {
        ARMED.get_or_init(|| fault);
    }

    /// Passes a point, or fails there if the armed fault says so.
    pub fn at(point: Point) {
        let Some(fault) = ARMED.get() else { return };
        if fault.point != format!("{point:?}") || PASSES.fetch_add(1, Ordering::Relaxed) + 1 != fault.nth {
            return;
        }
        eprintln!("{:?} at {point:?}", fault.action);
        match fault.action {
            Action::Kill => send("-KILL"),
            Action::Stop => send("-STOP"),
            Action::Panic => std::panic::panic_any("a fault panics"),
        }
    }

    /// Uses the command `kill`, because std cannot send a signal.
    fn send(signal: &str) {
        // SIGSTOP may take effect later on another thread, so the child waits until this process is stopped.
        const SEND: &str = r#"kill "$1" "$0"; [ "$1" = -STOP ] || exit 0
            until grep -qs '^State:.T' "/proc/$0/status" || ps -o stat= -p "$0" 2>/dev/null | grep -q T; do :; done"#;
        let pid = std::process::id().to_string();
        if let Err(error) = std::process::Command::new("sh").args(["-c", SEND, &pid, signal]).status() {
            eprintln!("cannot send myself {signal}: {error}");
        }
        if signal == "-KILL" {
            // Do nothing between the signal and the end of the process.
            loop {
                std::thread::park();
            }
        }
    }
}
